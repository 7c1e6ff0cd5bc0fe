//go:build before || eventless

package main

import (
	"context"

	transfer "github.com/mongotransfer/transfer"
)

// The library of this baseline knows no events, and nobody compares any with it.

func withEvents() transfer.Option { return transfer.WithOwner("bench") }

func openDelivering(ctx context.Context, b *bank) (mover, error) { return openLibrary()(ctx, b) }
