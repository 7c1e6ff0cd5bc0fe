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

// without returns an error that doesn't name the subject, neither at its beginning nor at
// that of its cause.
func without(subject string, err error) error {
	switch e := any(err).(type) { // not what it wraps: that has a text around it
	case *aboutError:
		if e.subject == subject {
			return e.err
		}
	case *causedError:
		return &causedError{without(subject, e.err), without(subject, e.cause)}
	}
	return err
}

// causedError is an error with its cause.
type causedError struct{ err, cause error }

// Error tells both.
func (e *causedError) Error() string { return e.err.Error() + ": " + e.cause.Error() }

// Unwrap returns both.
func (e *causedError) Unwrap() []error { return []error{e.err, e.cause} }

// aboutTransfer says that an error is about a transfer.
func aboutTransfer(id string, err error) error { return about("transfer "+words.Quote(id), err) }

// aboutAccount says that an error is about an account.
func aboutAccount(id string, err error) error { return about("account "+words.Quote(id), err) }

// withoutTransfer is without for a transfer.
func withoutTransfer(id string, err error) error { return without("transfer "+words.Quote(id), err) }
