package words

// The keys of everything that is logged. There are no others, and each stands for one
// thing wherever it is used. None is for an amount, a balance, metadata or what the user
// has written as a reason.
const (
	KeyTransfer    = "transfer"    // a transfer's ID
	KeyTransfers   = "transfers"   // IDs of several, the first ones
	KeyVerb        = "verb"        // what was asked for: transfer, hold, post, recover …
	KeyState       = "state"       // of the transfer, as far as it is known
	KeyTook        = "took"        // a duration
	KeyCause       = "cause"       // an error
	KeyLedger      = "ledger"      // a ledger's name
	KeyAccount     = "account"     // an account's ID
	KeyRoute       = "route"       // clusters
	KeyCount       = "count"       // how many transfers
	KeyFound       = "found"       // of a sweep: how many transfers it has worked on
	KeySucceeded   = "succeeded"   // of these, moved
	KeyFailed      = "failed"      // rolled back, but for those that have expired
	KeyExpired     = "expired"     // holds that nobody has decided in time
	KeyStuck       = "stuck"       // left as they were
	KeyPause       = "pause"       // a duration until it is tried again
	KeyOperation   = "operation"   // a step of the protocol
	KeyClaiming    = "claiming"    // the way in which a transfer is claimed
	KeyParticipant = "participant" // the index of an account or document in its transfer
	KeyResult      = "result"      // what the server's answer says of a step
)

// MaxListed is how many IDs are logged in one line.
const MaxListed = 10

// Keys returns all keys.
func Keys() []string {
	return []string{
		KeyTransfer, KeyTransfers, KeyVerb, KeyState, KeyTook, KeyCause, KeyLedger, KeyAccount, KeyRoute, KeyCount,
		KeyFound, KeySucceeded, KeyFailed, KeyExpired, KeyStuck, KeyPause,
		KeyOperation, KeyClaiming, KeyParticipant, KeyResult,
	}
}
