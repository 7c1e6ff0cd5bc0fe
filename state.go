package transfer

import "github.com/mongotransfer/transfer/internal/protocol"

// State is where a transfer stands.
// It is stored as this word.
//
//	            claim             all prepared            all settled
//	Initiated ─────────▶ Preparing ───────────▶ Committed ───────────▶ Success
//	    │                    │ refused, cancelled
//	    │ cancelled          ▼            all undone
//	    └────────────────▶ Rollback ─────────────────────▶ Fail
type State string

const (
	// StateInitiated means that Submit has stored the transfer, and that no account knows
	// of it.
	// After a crash the next worker takes it.
	StateInitiated State = State(protocol.Initiated)
	// StatePreparing means that money is being reserved.
	// A crash leaves markers in some accounts; Recover goes on with the transfer, or
	// rolls it back, as the policy says.
	StatePreparing State = State(protocol.Preparing)
	// StateCommitted means that the transfer will happen.
	// A crash leaves markers; Recover settles them.
	StateCommitted State = State(protocol.Committed)
	// StateSuccess means that the money has moved.
	// It is final.
	StateSuccess State = State(protocol.Success)
	// StateRollback means that the transfer will not happen.
	// A crash leaves markers; Recover undoes them.
	StateRollback State = State(protocol.Rollback)
	// StateFail means that nothing moved.
	// It is final.
	StateFail State = State(protocol.Fail)
)

// Final reports whether the state never changes again.
func (s State) Final() bool { return protocol.State(s).Final() }
