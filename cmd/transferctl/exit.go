package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
)

// The exit codes.
const (
	exitDone     = 0
	exitFailed   = 1
	exitUsage    = 2
	exitNotFound = 3
	exitFindings = 4
	exitAway     = 5
)

// usageError says that the command line can't be carried out as it is.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// usage returns an error of usage.
func usage(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// awayError says that a server could not be reached.
type awayError struct{ err error }

func (e *awayError) Error() string { return "the server can't be reached: " + e.err.Error() }
func (e *awayError) Unwrap() error { return e.err }

// overError says that the time of --timeout is over.
type overError struct {
	time time.Duration
	err  error
}

func (e *overError) Error() string {
	text := fmt.Sprintf("the time of --timeout, %s, is over", e.time)
	if errors.As(e.err, new(*awayError)) { // or so it seems: nobody was waited for
		return text
	}
	return text + ": " + e.err.Error()
}
func (e *overError) Unwrap() error { return e.err }

// Errors that carry an exit code alone.
var (
	// ErrFindings means that something was found, which is printed already.
	ErrFindings = errors.New("there are findings")
	// ErrNoDeployment means that nothing says that transfers are here.
	ErrNoDeployment = errors.New("there is no deployment")
	// ErrDeclined means that who was asked has not said yes.
	ErrDeclined = errors.New("nothing was done")
)

// end reports how a command has ended, and returns the exit code.
func (p *program) end(err error) int {
	code := exitCode(err)
	if err == nil || errors.Is(err, ErrFindings) && code == exitFindings && err.Error() == ErrFindings.Error() {
		return code
	}
	text := asCommands(err.Error())
	if p.flags.json {
		p.printError(errorView{Error: text, ExitCode: code, Outcome: outcomeOf(err)})
		return code
	}
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		_, _ = fmt.Fprintln(p.err, "transferctl:", printable(line))
	}
	return code
}

// errorView is an error for programs.
type errorView struct {
	Error    string `json:"error"`
	ExitCode int    `json:"exitCode"`
	Outcome  string `json:"outcome,omitempty"`
}

// outcomeOf says where the money is after an error of the library, or "".
func outcomeOf(err error) string {
	var wrong *usageError
	var unwritten *fs.PathError // the output, such as on a full disk
	if errors.As(err, &wrong) || errors.As(err, &unwritten) ||
		errors.Is(err, ErrDeclined) || errors.Is(err, ErrNoDeployment) || errors.Is(err, ErrFindings) {
		return ""
	}
	return transfer.OutcomeOf(err).String()
}

// exitCode returns the exit code of an error.
func exitCode(err error) int {
	var wrong *usageError
	var refused *transfer.RefusedError
	var unreachable *awayError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &wrong):
		return exitUsage
	case errors.Is(err, ErrFindings):
		return exitFindings
	case errors.As(err, &unreachable):
		return exitAway
	case errors.As(err, &refused), errors.Is(err, ErrDeclined):
		return exitFailed
	case errors.Is(err, transfer.ErrInvalidRequest):
		return exitUsage
	case errors.Is(err, ErrNoDeployment), errors.Is(err, transfer.ErrTransferNotFound), errors.Is(err, transfer.ErrAccountNotFound):
		return exitNotFound
	case isAway(err):
		return exitAway
	}
	return exitFailed
}

// isAway reports whether the library has given up because a server is away. Such an error
// is none that it names.
func isAway(err error) bool {
	switch transfer.OutcomeOf(err) {
	case transfer.NothingStored:
		for _, other := range []error{transfer.ErrClosed, transfer.ErrUnauthorized, transfer.ErrUnsupportedDeployment, context.Canceled} {
			if errors.Is(err, other) {
				return false
			}
		}
		return true
	case transfer.InDoubt:
		return mongo.IsNetworkError(err) || mongo.IsTimeout(err)
	default:
		return false
	}
}
