package main

import (
	"maps"
	"sync"

	"github.com/mongotransfer/transfer"
)

// book is what the balances must be, added up from what the library has answered. The demo keeps it in memory, apart from the
// database, and compares the two at the end.
type book struct {
	mu       sync.Mutex
	balances map[string]int64
	states   map[string]transfer.State // what was answered, by transfer ID
}

func newBook() *book {
	return &book{balances: map[string]int64{}, states: map[string]transfer.State{}}
}

func (b *book) opened(account string, balance int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.balances[account] = balance
}

// answered enters the answer to an order. The same order counts once, however often it is answered.
func (b *book) answered(o order, state transfer.State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if state == transfer.StateSuccess && b.states[o.ID] != transfer.StateSuccess {
		b.balances[o.From] -= o.Units
		b.balances[o.To] += o.Units
	}
	b.states[o.ID] = state
}

// entries returns copies of the balances and the answers.
func (b *book) entries() (map[string]int64, map[string]transfer.State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.balances), maps.Clone(b.states)
}
