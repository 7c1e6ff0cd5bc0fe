package main

import (
	"fmt"
	"math/rand/v2"
	"strconv"
)

// order is one transfer that a caller wants.
type order struct {
	id       string // idWidth bytes
	from, to int    // numbers of the accounts
	amount   int64
}

const (
	zipfExponent = 1.1
	// hotShare is the share of the transfers that debit one account, under the hot load.
	hotShare  = 0.9
	maxAmount = 100

	// idWidth is the length of every ID: a letter for the purpose and twelve digits of
	// base 36. All IDs have the same length, so a contender can write documents over a
	// pattern.
	idWidth = 13
	// idFloor is 36^11, the least number with twelve digits.
	idFloor = 131621703842267136
	// callerRange is how many IDs a caller has in a round, and roundRange is how many a
	// round has.
	callerRange = 1 << 24
	roundRange  = callerRange * maxCallers
	maxCallers  = 1 << 14
)

// pick draws the accounts of one transfer.
type pick func() (from, to int)

// loads returns the names of the ways to draw accounts.
func loads() []string { return []string{"uniform", "zipf", "hot"} }

// picker returns a load's way to draw among n accounts.
// One goroutine may use it.
func picker(load string, n int, r *rand.Rand) (pick, error) {
	one := func() int { return r.IntN(n) }
	switch load {
	case "uniform":
		return func() (int, int) { return two(one) }, nil
	case "zipf":
		zipf := rand.NewZipf(r, zipfExponent, 1, uint64(n-1))
		return func() (int, int) { return two(func() int { return int(zipf.Uint64()) }) }, nil
	case "hot":
		return func() (int, int) {
			from, to := two(one)
			if r.Float64() < hotShare {
				from, to = 0, 1+r.IntN(n-1)
			}
			return from, to
		}, nil
	}
	return nil, fmt.Errorf("there is no load %q", load)
}

// two draws until it has two different accounts.
func two(draw func() int) (from, to int) {
	from = draw()
	for to = draw(); to == from; {
		to = draw()
	}
	return from, to
}

// stream makes the orders of one caller.
type stream struct {
	pick    pick
	random  *rand.Rand
	purpose byte
	next    uint64
}

// newStream returns the orders of a caller.
// The same seed and caller draw the same accounts.
// No two purposes, rounds or callers share an ID.
func newStream(load string, accounts int, seed uint64, purpose byte, round, caller int) (*stream, error) {
	r := rand.New(rand.NewPCG(seed, uint64(caller)))
	p, err := picker(load, accounts, r)
	if err != nil {
		return nil, err
	}
	return &stream{pick: p, random: r, purpose: purpose, next: idFloor + uint64(round)*roundRange + uint64(caller)*callerRange}, nil
}

// fill fills the slice with new orders.
func (s *stream) fill(orders []order) {
	var digits [idWidth]byte
	for i := range orders {
		orders[i].id = string(strconv.AppendUint(append(digits[:0], s.purpose), s.next, 36))
		orders[i].from, orders[i].to = s.pick()
		orders[i].amount = 1 + s.random.Int64N(maxAmount)
		s.next++
	}
}
