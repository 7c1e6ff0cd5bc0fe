//go:build !before

package main

import transfer "github.com/mongotransfer/transfer"

// The options by which the library answers earlier, or later, than by default.
// A baseline has its own: see returnat_before.go.

func atCommit() transfer.Option { return transfer.WithReturnAt(transfer.AtCommit) }

func atSuccess() transfer.Option { return transfer.WithReturnAt(transfer.AtSuccess) }
