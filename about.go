package transfer

import "github.com/mongotransfer/transfer/internal/words"

// aboutError names what an error is about. However many pass an error on, its text names
// that once: see about.
type aboutError struct {
	subject string
	err     error
}

// Error names the subject first.
func (e *aboutError) Error() string { return e.subject + ": " + e.err.Error() }

// Unwrap returns the error that it is about.
func (e *aboutError) Unwrap() error { return e.err }

// about names what an error is about, unless that is what it begins with.
func about(subject string, err error) error {
	return &aboutError{subject, without(subject, err)}
}

// without returns an error without the subject that it begins with.
func without(subject string, err error) error {
	if named, is := err.(*aboutError); is && named.subject == subject { // deeper down it says something else
		return named.err
	}
	return err
}

// aboutTransfer says that an error is about a transfer.
func aboutTransfer(id string, err error) error { return about("transfer "+words.Quote(id), err) }

// aboutAccount says that an error is about an account.
func aboutAccount(id string, err error) error { return about("account "+words.Quote(id), err) }

// withoutTransfer is without for a transfer.
func withoutTransfer(id string, err error) error { return without("transfer "+words.Quote(id), err) }
