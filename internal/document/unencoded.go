package document

import (
	"strings"
)

// unencoded is why a value can't be stored: a number beyond an int64, or what an encoder
// of the user's says. Its text has neither.
type unencoded struct{ cause error }

// Error says what to look for.
func (*unencoded) Error() string { return "it holds a value that can't be stored" }

// Unwrap returns the encoder's error, for programs.
func (e *unencoded) Unwrap() error { return e.cause }

// Unencoded returns the error of encoding a value of the user's in words that can be
// passed on. They name types, and what is nested too deeply.
func Unencoded(err error) error {
	if err == nil || strings.HasPrefix(err.Error(), "no encoder found for ") || strings.HasPrefix(err.Error(), "nested more than ") {
		return err
	}
	return &unencoded{err}
}
