package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
)

// wallets is the name of the wallets' ledger and of their collection.
const wallets = "wallets"

// night writes the statements of one day.
type night struct {
	coord    *transfer.Coordinator
	wallets  *transfer.Ledger
	progress *mongo.Collection // a document for each night, with the wallet done last
	folder   string
	end      time.Time // of the day
	written  func(count int)
}

// run writes the statements that are not written yet, in the order of the wallets, and
// returns their number.
func (n night) run(ctx context.Context) (count int, err error) {
	last, err := n.last(ctx)
	if err != nil {
		return 0, err
	}
	for wallet, err := range n.coord.Accounts(ctx, transfer.AccountQuery{Ledger: wallets, Beyond: last}) {
		if err != nil {
			return count, err
		}
		// If the machine is taken away between these two steps, the statement is written
		// again: the same file, with the same entries.
		if err := n.write(ctx, wallet); err != nil {
			return count, err
		}
		if err := n.note(ctx, wallet.ID); err != nil {
			return count, err
		}
		count++
		n.written(count)
	}
	return count, nil
}

// last returns the wallet whose statement was written last, "" if there is none.
func (n night) last(ctx context.Context) (string, error) {
	var night struct{ Last string }
	err := n.progress.FindOne(ctx, bson.D{{Key: "_id", Value: n.end}}).Decode(&night)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return "", nil
	}
	return night.Last, err
}

// note stores that a wallet's statement is written.
func (n night) note(ctx context.Context, wallet string) error {
	_, err := n.progress.UpdateByID(ctx, n.end,
		bson.D{{Key: "$set", Value: bson.D{{Key: "last", Value: wallet}}}}, options.UpdateOne().SetUpsert(true))
	return err
}

// write writes the statement of a wallet into a file of its own, which is there as a
// whole or not at all.
func (n night) write(ctx context.Context, wallet transfer.Account) (err error) {
	file, err := os.CreateTemp(n.folder, "unfinished-*")
	if err != nil {
		return err
	}
	out := bufio.NewWriter(file)
	err = errors.Join(n.writeEntries(ctx, wallet.ID, out), out.Flush(), file.Close())
	if err != nil {
		return err
	}
	return os.Rename(file.Name(), n.path(wallet.ID))
}

// writeEntries writes each entry of the day as it comes, and the balance after them.
func (n night) writeEntries(ctx context.Context, wallet string, out io.Writer) error {
	for e, err := range n.wallets.Statement(ctx, wallet, transfer.StatementQuery{Before: n.end}) {
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "  %-18s %5s %5s\n", e.TransferID, e.Amount, e.Balance); err != nil {
			return err
		}
	}
	balance, err := n.wallets.BalanceAt(ctx, wallet, n.end.Add(-time.Millisecond))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "  %-24s %5s\n", "at the end of the day", balance)
	return err
}

func (n night) path(wallet string) string { return filepath.Join(n.folder, wallet+".txt") }

// show prints the number of files, and the statements of some wallets.
func (n night) show(ids ...string) error {
	files, err := filepath.Glob(n.path("*"))
	if err != nil {
		return err
	}
	fmt.Printf("There are %d files.\n", len(files))
	for _, id := range ids {
		text, err := os.ReadFile(n.path(id))
		if err != nil {
			return err
		}
		fmt.Printf("%s:\n%s", id, text)
	}
	return nil
}
