package words

// The keys of all log records.
// There are no others, and each means one thing wherever it is used.
// None is for an amount, a balance, metadata or a reason that the user has written.
const (
	KeyTransfer    = "transfer"    // a transfer's ID
	KeyTransfers   = "transfers"   // the IDs of several, only the first ones
	KeyVerb        = "verb"        // what was requested: transfer, hold, post, recover …
	KeyState       = "state"       // of the transfer, as far as known
	KeyTook        = "took"        // a duration
	KeyCause       = "cause"       // an error
	KeyLedger      = "ledger"      // a ledger's name
	KeyAccount     = "account"     // an account's ID
	KeyRoute       = "route"       // clusters
	KeyCount       = "count"       // a number of transfers
	KeyFound       = "found"       // of a sweep: how many transfers it has worked on
	KeySucceeded   = "succeeded"   // of these, those whose money moved
	KeyFailed      = "failed"      // of these, those rolled back, except expired ones
	KeyExpired     = "expired"     // of these, holds that were not decided in time
	KeyStuck       = "stuck"       // of these, those left as they were
	KeyPause       = "pause"       // the time until the next attempt
	KeyStage       = "stage"       // of a call or a transfer: claim, prepare, settle …
	KeyOwner       = "owner"       // the execution that had a transfer before
	KeyIdle        = "idle"        // for how long that one had shown no sign of life
	KeyFunction    = "function"    // of an observer
	KeyProcess     = "process"     // the process that had claimed transfers
	KeyOperation   = "operation"   // a step of the protocol
	KeyClaiming    = "claiming"    // how a transfer is claimed
	KeyParticipant = "participant" // the index of an account or document in its transfer
	KeyResult      = "result"      // the server's answer to a step
	KeyEvent       = "event"       // the kind of an event
	KeyAttempt     = "attempt"     // the number of a delivery's attempt
	KeyStack       = "stack"       // of a handler that has panicked
)

// MaxListed is the largest number of IDs in one log record.
const MaxListed = 10

// Keys returns all keys.
func Keys() []string {
	return []string{
		KeyTransfer, KeyTransfers, KeyVerb, KeyState, KeyTook, KeyCause, KeyLedger, KeyAccount, KeyRoute, KeyCount,
		KeyFound, KeySucceeded, KeyFailed, KeyExpired, KeyStuck, KeyPause, KeyProcess,
		KeyStage, KeyOwner, KeyIdle, KeyFunction, KeyOperation, KeyClaiming, KeyParticipant, KeyResult,
		KeyEvent, KeyAttempt, KeyStack,
	}
}
