//go:build !before && !eventless

package main

import (
	"context"

	transfer "github.com/mongotransfer/transfer"
)

// withEvents is the option by which the library leaves events for other processes.
// A baseline from before there were events has none: see events_before.go.
func withEvents() transfer.Option { return transfer.WithEvents(transfer.EventHandler{}) }

// delivering is the library in a process that delivers its events as well.
type delivering struct {
	*library
	stop  context.CancelFunc
	ended chan error
}

func openDelivering(ctx context.Context, b *bank) (mover, error) {
	handle := func(context.Context, transfer.Event) error { return nil }
	opened, err := openLibrary(transfer.WithEvents(transfer.EventHandler{Handle: handle}))(ctx, b)
	if err != nil {
		return nil, err
	}
	d := &delivering{library: opened.(*library), ended: make(chan error, 1)}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	d.stop = stop
	go func() { d.ended <- d.coord.Run(running) }()
	return d, nil
}

func (d *delivering) close(ctx context.Context) error {
	d.stop()
	if err := <-d.ended; err != nil {
		return err
	}
	return d.library.close(ctx)
}
