package mongostore

import (
	"sync"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// maxRefused bounds how many accounts are remembered that the server refuses to write.
const maxRefused = 1 << 10

// refusedSubjects are accounts that the server has refused to write. A refusal ends a
// statement for many accounts: so these have statements of their own. It is the zero
// value that is ready for use.
type refusedSubjects struct {
	mu  sync.RWMutex
	all map[collections.Subject]bool
}

func (r *refusedSubjects) has(s collections.Subject) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.all[s]
}

// note remembers what became of the write of one account. One that did not match does not
// show whether the server would have refused it.
func (r *refusedSubjects) note(s collections.Subject, result protocol.Result) {
	refused := result == protocol.Failed
	if !refused && result != protocol.Applied || r.has(s) == refused {
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
