package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/queries"
	"github.com/mongotransfer/transfer/internal/words"
)

// Query selects transfers; its zero value selects all.
type Query struct {
	States          []State
	Ledger, Account string    // Ledger alone: any account of it; "" with an Account: the default ledger
	After, Before   time.Time // of creation, both exclusive
	// Metadata are top-level keys and the values that they must have. Numbers count by
	// value; a list counts as equal to its elements, too; a map to one with the same keys
	// and values, all of them. Operators are refused with ErrInvalidRequest.
	//
	// There is no index of metadata: without an Account, or a range of times, every
	// transfer is looked at until the limit is reached. Where that is too much, add an
	// index to the collection of transfers: {"metadata.order": 1, createdAt: -1, _id:
	// -1}.
	Metadata map[string]any
	Stuck    bool // only what could not be finished when it was last tried; Record.Stuck tells why
	Limit    int  // 0: no limit
}

// Get returns a transfer as a majority of the servers has it stored, or ErrTransferNotFound. While a primary is being replaced the answer
// may be old; Success and Fail never change.
func (c *Coordinator) Get(ctx context.Context, id string) (Record, error) {
	if err := document.CheckID(id); err != nil {
		return Record{}, invalid("transfer: %w", err)
	}
	if err := c.readyToRead(ctx); err != nil {
		return Record{}, err
	}
	stored, err := c.stored(ctx, id)
	if err != nil {
		return Record{}, err
	}
	return recordOf(stored), nil
}

// stored reads a transfer, or returns ErrTransferNotFound.
func (c *Coordinator) stored(ctx context.Context, id string) (document.Transfer, error) {
	return c.storedBy(ctx, id, c.queries.ReadTransfer)
}

// storedBy reads a transfer so, again and again until that is answered.
func (c *Coordinator) storedBy(
	ctx context.Context, id string, read func(context.Context, string) (document.Transfer, bool, error),
) (stored document.Transfer, err error) {
	found := false
	err = c.read(ctx, func(ctx context.Context) (done bool, err error) {
		stored, found, err = read(ctx, id)
		return err == nil || errors.Is(err, document.ErrUnreadable), err
	})
	switch {
	case err != nil:
		return stored, aboutTransfer(id, err)
	case !found:
		return stored, aboutTransfer(id, ErrTransferNotFound)
	}
	return stored, nil
}

// List yields the transfers that a query selects, newest first. A document that can't be read is yielded as an error, and the rest
// follows; after any other error it ends. It waits for the server for as long as ctx lets it: a query that no index serves takes its time.
func (c *Coordinator) List(ctx context.Context, q Query) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		query, err := c.storeQuery(q)
		if err == nil {
			err = c.readyToRead(ctx)
		}
		if err != nil {
			yield(Record{}, err)
			return
		}
		for t, err := range c.queries.List(ctx, query) {
			rec := Record{}
			if err == nil {
				rec = recordOf(t)
			} else {
				err = nothingStored(listError(t.ID, named(err)))
			}
			if !yield(rec, err) {
				return
			}
		}
	}
}

// listError names the transfer where one can't be read.
func listError(id string, err error) error {
	if id != "" && errors.Is(err, document.ErrUnreadable) {
		err = aboutTransfer(id, err)
	}
	return fmt.Errorf("list transfers: %w", err)
}

func (c *Coordinator) storeQuery(q Query) (queries.Query, error) {
	query := queries.Query{
		Ledger: q.Ledger, Account: q.Account, ByLedger: q.Ledger != "",
		After: q.After.Truncate(time.Millisecond), Before: roundUp(q.Before), Stuck: q.Stuck, Limit: q.Limit,
	}
	if c.engine.Closed() {
		return query, ErrClosed
	}
	if q.Limit < 0 {
		return query, invalid("the Limit is negative")
	}
	if !c.catalog.HasLedger(q.Ledger) {
		return query, invalid("the ledger %s is not registered: see WithLedger", words.Quote(q.Ledger))
	}
	var err error
	if query.Metadata, err = encodeMetadata(q.Metadata); err != nil {
		return query, err
	}
	if err := cmp.Or(checkEqualities(query.Metadata), checkTimes(q.After, q.Before)); err != nil {
		return query, err
	}
	if q.Account != "" {
		if err := c.checkAccount(q.Account); err != nil {
			return query, invalid("account: %w", err)
		}
	}
	for _, state := range q.States {
		if !protocol.State(state).Known() {
			return query, invalid("%s is no state", words.Quote(string(state)))
		}
		query.States = append(query.States, protocol.State(state))
	}
	return query, nil
}

// answered returns a final record as Transfer answers with it.
func answered(rec Record) (Record, error) {
	if rec.State == StateFail {
		return rec, failureError(rec)
	}
	return rec, nil
}
