//go:build before

package main

import transfer "github.com/mongotransfer/transfer"

// The same options in the words of a library that has no AtCommit yet.
// So this program can be built against it, as a baseline.

func atCommit() transfer.Option { return transfer.WithReturnAt(transfer.StateCommitted) }

func atSuccess() transfer.Option { return transfer.WithReturnAt(transfer.StateSuccess) }
