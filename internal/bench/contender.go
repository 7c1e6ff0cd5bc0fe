package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// contender is one way to move money between accounts.
// All contenders write with write concern majority, journaled, and read with read concern
// majority.
type contender struct {
	name    string
	promise string // what the contender guarantees

	// account and transfer return the documents of an account at rest and of a finished
	// transfer.
	account  func(b *bank, name string) any
	transfer func(b *bank, o order, at time.Time) any
	open     func(ctx context.Context, b *bank) (mover, error)
	// loops returns how many loops serve n callers.
	// Each loop makes an equal share of their transfers at a time.
	// Nil means one loop for each caller.
	loops func(n int) int
	// marks says that transfers in progress show in the documents, under the library's
	// names.
	marks bool
	// apart names the contender that other processes play under this name, even if there
	// is only one of them.
	// This process opens nothing then: their version may refuse to work beside ours.
	apart string
	// client holds the client options that differ from the driver's defaults.
	client []*options.ClientOptions
}

// openNothing is for contenders that other processes play.
func openNothing(context.Context, *bank) (mover, error) {
	return stateless(func(context.Context, []order) error { return errors.New("another process plays that") }), nil
}

// mover moves money.
// It is safe for concurrent use.
type mover interface {
	// move returns once the orders are done.
	// Once ctx ends, it begins nothing new and gives up where that is safe.
	move(ctx context.Context, orders []order) error
	// close closes the mover.
	// What it has begun is done then.
	close(ctx context.Context) error
}

// stateless is a mover that has nothing to close.
type stateless func(ctx context.Context, orders []order) error

func (s stateless) move(ctx context.Context, orders []order) error { return s(ctx, orders) }

func (s stateless) close(context.Context) error { return nil }

// contenders returns all contenders.
func contenders() []contender {
	list := []contender{
		{
			name:    "transfer",
			promise: "a transfer happens once or not at all, whatever crashes; the same ID always gets the same answer",
			account: libraryAccount, transfer: libraryTransfer, open: openLibrary(), marks: true,
		},
		{
			name:    "transfer-at-commit",
			promise: "the same, but the call returns when the outcome is certain; the credit can be spent a moment later",
			account: libraryAccount, transfer: libraryTransfer, open: openLibrary(atCommit()), marks: true,
		},
		{
			name:    "transfer-at-success",
			promise: "the same, and the call returns when nothing is left to be done",
			account: libraryAccount, transfer: libraryTransfer, open: openLibrary(atSuccess()), marks: true,
		},
		{
			name: "current", apart: "transfer",
			promise: "the same as transfer, in a process of its own, as the baseline is",
			account: libraryAccount, transfer: libraryTransfer, open: openNothing, marks: true,
		},
		{
			name: "baseline", apart: "transfer",
			promise: "what transfer guaranteed in the version that the baseline was built from",
			account: libraryAccount, transfer: libraryTransfer, open: openNothing, marks: true,
		},
		{
			name:    "native",
			promise: "all or nothing, by the server; a second request with the same ID fails at the insert and moves nothing",
			account: plainAccount, transfer: plainTransfer, open: openNative,
		},
		{
			name:    "naive",
			promise: "a crash leaves a trail to repair by; a repair beside a transfer that is still alive may move money twice",
			account: plainAccount, transfer: plainTransfer, open: openNaive,
		},
		{
			name:    "optimistic",
			promise: "no lost update; a crash between its two updates loses money",
			account: versionedAccount, transfer: plainTransfer, open: openOptimistic,
		},
	}
	for _, loops := range []int{1, 2, 4} {
		list = append(list, contender{
			name:    fmt.Sprint("floor-", loops),
			promise: "nothing: the same documents as transfer's, written in bulk, without any protocol",
			account: libraryAccount, transfer: libraryTransfer, open: openFloor, loops: func(n int) int { return min(n, loops) },
		})
	}
	return append(append(list, eventContenders()...), contender{
		name:    "floor-plain",
		promise: "nothing either; plain commands, without the driver's retryable writes, which cost the server one more write each",
		account: libraryAccount, transfer: libraryTransfer, open: openFloor, loops: func(n int) int { return min(n, 2) },
		client: []*options.ClientOptions{options.Client().SetRetryWrites(false)},
	})
}

// eventContenders are the library with events.
func eventContenders() []contender {
	return []contender{
		{
			name:    "transfer-events",
			promise: "the same, and each transfer leaves an event, which is delivered by processes that are not in the picture",
			account: libraryAccount, transfer: libraryTransfer, open: openLibrary(withEvents()), marks: true,
		},
		{
			name:    "transfer-delivering",
			promise: "the same, and this process also delivers the events, to a handler that does nothing",
			account: libraryAccount, transfer: libraryTransfer, open: openDelivering, marks: true,
		},
	}
}

// floors returns the names of the contenders for the floor, which is the best of them.
func floors() []string { return []string{"floor-1", "floor-2", "floor-4"} }

// contenderOf returns the contender of a name.
func contenderOf(name string) (contender, error) {
	all := contenders()
	i := slices.IndexFunc(all, func(c contender) bool { return c.name == name })
	if i < 0 {
		return contender{}, fmt.Errorf("there is no contender %q", name)
	}
	return all[i], nil
}

// shares returns how many loops a contender runs for n callers, and how many orders each
// loop makes at a time.
func (c contender) shares(n int) (loops, size int) {
	if c.loops == nil {
		return n, 1
	}
	loops = c.loops(n)
	return loops, n / loops
}
