package main

import (
	"maps"
	"sync"

	"github.com/mongotransfer/transfer"
)

// book holds the balances that must result from the library's answers.
// The demo keeps it in memory, separate from the database, and compares the two at the
// end.
type book struct {
	mu       sync.Mutex
	balances map[string]int64
	states   map[string]transfer.State // the answers, by transfer ID
}

func newBook() *book {
	return &book{balances: map[string]int64{}, states: map[string]transfer.State{}}
}

// opened records the opening balance of an account.
func (b *book) opened(account string, balance int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.balances[account] = balance
}

// answered records the answer to an order.
// An order counts once, even if it is answered several times.
func (b *book) answered(o order, state transfer.State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if state.Decided() && !b.states[o.ID].Decided() {
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
