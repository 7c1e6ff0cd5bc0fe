package pipeline

import (
	"sync"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// maxRefused bounds how many accounts are remembered that the server refuses to write.
const maxRefused = 1 << 10

// Refused are accounts that the server has refused to write. A refusal ends a statement
// for many accounts: so these have statements of their own. It is the zero value that is
// ready for use.
type Refused struct {
	mu  sync.RWMutex
	all map[collections.Subject]bool
}

// Has reports whether the latest write of an account was refused.
func (r *Refused) Has(s collections.Subject) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.all[s]
}

// Note remembers what became of the write of one account. One that did not match does not
// show whether the server would have refused it.
func (r *Refused) Note(s collections.Subject, result protocol.Result) {
	refused := result == protocol.Failed
	if !refused && result != protocol.Applied || r.Has(s) == refused {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !refused {
		delete(r.all, s)
		return
	}
	if r.all == nil || len(r.all) >= maxRefused {
		r.all = map[collections.Subject]bool{}
	}
	r.all[s] = true
}
