package transferhttp

import (
	"errors"
	"net/http"

	"github.com/mongotransfer/transfer"
)

// StatusOf returns the HTTP status with which a service answers its own clients for an
// error of the library, as docs/errors.md has it, and 200 for nil.
//
// It goes by where the money is: a request may be repeated, with the same ID, after 503,
// and after no other status.
//
//   - 202: the money has moved, and is not in place everywhere yet.
//   - 400: the request is malformed.
//   - 404, 409, 410: it came too late, or to the wrong thing, and has changed nothing.
//   - 422: the transfer is stored as failed, or its ID was used for another request.
//   - 503: the outcome is not known, or this call has stored nothing.
//     Add a Retry-After, and keep the text of the error for the log: it may name hosts,
//     users and rights.
//
// An error that is not of the library counts as 503: nothing says what was done.
func StatusOf(err error) int {
	switch transfer.OutcomeOf(err) {
	case transfer.Moved:
		if err != nil {
			return http.StatusAccepted
		}
		return http.StatusOK
	case transfer.Failed:
		return http.StatusUnprocessableEntity
	case transfer.Unchanged:
		return statusOfUnchanged(err)
	case transfer.NothingStored:
		if errors.Is(err, transfer.ErrInvalidRequest) {
			return http.StatusBadRequest
		}
	case transfer.InDoubt:
	}
	return http.StatusServiceUnavailable
}

// statusOfUnchanged is StatusOf for what came too late, or to the wrong thing.
func statusOfUnchanged(err error) int {
	switch {
	case errors.Is(err, transfer.ErrIDConflict):
		return http.StatusUnprocessableEntity // as the IETF's draft of the Idempotency-Key says
	case errors.Is(err, transfer.ErrTransferNotFound), errors.Is(err, transfer.ErrAccountNotFound):
		return http.StatusNotFound
	case errors.Is(err, transfer.ErrHistoryGone):
		return http.StatusGone
	case errors.Is(err, transfer.ErrAuditTooLong):
		return http.StatusServiceUnavailable
	}
	return http.StatusConflict
}
