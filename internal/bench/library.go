package main

import (
	"context"
	"time"

	transfer "github.com/mongotransfer/transfer"
)

// library moves money with this module's library.
type library struct {
	coord *transfer.Coordinator
	names []string
}

func openLibrary(opts ...transfer.Option) func(context.Context, *bank) (mover, error) {
	return func(ctx context.Context, b *bank) (mover, error) {
		coord, err := transfer.NewCoordinator(b.db, opts...)
		if err != nil {
			return nil, err
		}
		return &library{coord, b.names}, coord.Setup(ctx)
	}
}

func (l *library) move(ctx context.Context, orders []order) error {
	for _, o := range orders {
		_, err := l.coord.Transfer(ctx, transfer.Request{
			ID: o.id, From: l.names[o.from], To: l.names[o.to], Amount: transfer.Units(o.amount),
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *library) close(ctx context.Context) error { return l.coord.Close(ctx) }

func libraryAccount(b *bank, name string) any { return b.patterns.accountOf(name) }

func libraryTransfer(b *bank, o order, at time.Time) any {
	return b.patterns.transferOf(o, b.names, at)
}
