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

// Query selects transfers.
// Its zero value selects all.
type Query struct {
	// States are the states to select.
	// Defaults to all.
	States []State
	// Ledger selects transfers that touch an account of the ledger.
	// The name is compared with the one that a transfer has stored: where a ledger had
	// another name before, or has another one in other processes, ask for each.
	// It need not be registered here if it is recorded, as each name is that was used.
	// Defaults to the default ledger if Account is given, and else to all ledgers.
	Ledger string
	// Account selects transfers that touch the account of this ID, in Ledger.
	// Defaults to all accounts.
	Account string
	// After selects what was created after it.
	// Defaults to the zero time: no bound.
	After time.Time
	// Before selects what was created before it.
	// Defaults to the zero time: no bound.
	Before time.Time
	// Metadata are top-level keys and the values that they must have.
	// Numbers are compared by value.
	// A list also matches each of its elements.
	// A map or document matches one with the same keys and values in the same order.
	// The keys of a map are sorted, when it is stored and here.
	// A struct and a bson.D keep their own order.
	// What is undefined is refused with ErrInvalidRequest.
	// Operators are refused with ErrInvalidRequest.
	//
	// There is no index of metadata: without an Account, or a range of times, the server
	// reads every transfer until the limit is reached.
	// Where that is too much, add an index to the collection of transfers:
	// {"metadata.order": 1, createdAt: -1, _id: -1}.
	// Defaults to nil: any metadata.
	Metadata map[string]any
	// Unfinished selects what is not in StateSuccess or StateFail yet: transfers under
	// way, holds, and what waits for a worker.
	// Defaults to false: final ones, too.
	Unfinished bool
	// IdleFor selects what is unfinished and was not modified for so long, by the
	// server's clock.
	// That includes holds, and what waits for a worker: give States, or Holds, to
	// separate them.
	// A transfer whose LastModified lies further in the future than that, because a clock
	// was wrong, counts as idle, as it does for the stall threshold.
	// Defaults to 0: however long.
	IdleFor time.Duration
	// Stuck selects only what could not be finished when that was last tried.
	// Record.Stuck says why.
	// Defaults to false: stuck or not.
	Stuck bool
	// Holds selects the holds that are held now: their money is reserved, and they are
	// neither posted nor voided.
	// One that has expired is held until Run or Recover voids it.
	// Defaults to false: all others, too.
	Holds bool
	// ExpiresBefore selects the holds that are held now and expire before this time.
	// With time.Now() these are the ones that are overdue.
	// Defaults to the zero time: no bound.
	ExpiresBefore time.Time
	// Reverses selects the reversals of the transfer with this ID, whatever became of
	// them.
	// Defaults to "": any transfers.
	Reverses string
	// Undelivered selects transfers with an event that was not delivered: see
	// [WithEvents].
	// Record.Undelivered says which, how often it was tried, and whether it was given up.
	// Defaults to false: all others, too.
	Undelivered bool
	// Beyond is the ID of the last transfer of another page: this one goes on behind it.
	// It need not be selected by the other fields any more, but has to be there.
	// Defaults to "": from the newest transfer on.
	Beyond string
	// Limit bounds how many transfers are selected.
	// Defaults to 0: no limit.
	Limit int
}

// Get returns a transfer as a majority of the servers has it stored.
// While a primary is being replaced the answer may be stale; StateSuccess and StateFail
// never change.
//
//   - nil: the record, whatever became of the transfer: see its State and Failure.
//   - ErrTransferNotFound: there is no such transfer.
//     A call that is under way may store it later, so don't conclude from this that a
//     request can be made under another ID: repeat it under the same one.
//   - ErrInvalidRequest: this can't be a transfer's ID.
//   - the context's own error, ErrClosed, ErrUnauthorized, ErrUnsupportedDeployment, a
//     server that can't be reached for 30 s: nothing was read.
//     It says nothing about what is stored. Call again, once the cause is gone.
//   - any other, for which [OutcomeOf] returns InDoubt: the document can't be read.
//     An operator has to examine it: see [Coordinator.Audit].
func (c *Coordinator) Get(ctx context.Context, id string) (Record, error) {
	if err := document.CheckID(id); err != nil {
		return Record{}, invalid("transfer: %w", err)
	}
	if err := c.readyToRead(ctx); err != nil {
		return Record{}, err
	}
	leave, err := c.admitReader(ctx, c.catalog.Clusters[0])
	if err != nil {
		return Record{}, aboutTransfer(id, err)
	}
	defer leave()
	stored, err := c.stored(ctx, id)
	if err != nil {
		return Record{}, err
	}
	if err := legible(stored); err != nil {
		return Record{}, aboutTransfer(id, err)
	}
	return recordOf(stored), nil
}

// legible refuses a document that can't be a transfer, or is one of another version.
func legible(t document.Transfer) error {
	if err := document.CheckID(t.ID); err != nil {
		return fmt.Errorf("%w: %w", document.ErrUnreadable, err)
	}
	if !t.State.Known() {
		return fmt.Errorf("%w: the state %s is not known", document.ErrUnreadable, words.Quote(string(t.State)))
	}
	return nil
}

// stored reads a transfer, or returns ErrTransferNotFound.
func (c *Coordinator) stored(ctx context.Context, id string) (document.Transfer, error) {
	return c.storedBy(ctx, id, c.queries.ReadTransfer)
}

// storedBy repeats a read of a transfer until it is answered.
func (c *Coordinator) storedBy(
	ctx context.Context, id string, read func(context.Context, string) (t document.Transfer, found bool, err error),
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

// List yields the transfers that a query selects, newest first, and those that were
// created in the same millisecond in the opposite order of their IDs.
// It waits for the server as long as ctx lets it: a query without an index takes its
// time.
//
// To get one page after another, use Limit, and Beyond with the ID of the last record of
// the page before.
// A transfer that is selected all the while is on exactly one page.
// What is stored meanwhile is newer, and before the first page.
//
// There are indexes for an Account, for Reverses, for Undelivered, and for what is
// unfinished or has failed: Unfinished, IdleFor, Stuck, Holds, ExpiresBefore, and States
// without StateSuccess where all of them are final, or none is.
// For all other queries the server examines one transfer after the other, in the order
// of the list.
//
//   - an error for which [OutcomeOf] returns InDoubt: the document that it names can't be
//     read, and the rest follows.
//     The record has its ID, which can be the Beyond of another page; if the _id is no
//     text, use Before.
//     A document whose _id is an empty text is left out; the audit finds it.
//     An operator has to examine it: see [Coordinator.Audit].
//   - ErrTransferNotFound: the transfer that Beyond names is not there, or not any more
//     (see [WithRetention]).
//     Go on with Before, the time of the last that was seen.
//     That leaves out the others of its millisecond.
//   - ErrInvalidRequest: the text says what is malformed in the query.
//   - all others: as [Coordinator.Get].
//     The list ends: go on with Beyond.
func (c *Coordinator) List(ctx context.Context, q Query) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		query, err := c.storeQuery(q)
		if err == nil {
			err = c.readyToList(ctx, q.Ledger)
		}
		if err == nil && q.Beyond != "" {
			query.Beyond, err = c.placeOf(ctx, q.Beyond)
		}
		if err != nil {
			yield(Record{}, err)
			return
		}
		for t, err := range c.queries.List(ctx, query) {
			if err == nil {
				err = legible(t)
			}
			rec := Record{ID: t.ID}
			if err == nil {
				rec = recordOf(t)
			} else {
				err = nothingStored(listError(t.ID, asUnauthorized(err)))
			}
			if !yield(rec, err) {
				return
			}
		}
	}
}

// readyToList is readyToRead for the transfers of a ledger.
// It refuses a name that is neither registered here nor recorded, as no transfer has it.
func (c *Coordinator) readyToList(ctx context.Context, ledger string) error {
	if err := c.readyToRead(ctx); err != nil || c.catalog.HasLedger(ledger) {
		return err
	}
	recorded := false
	err := c.read(ctx, func(ctx context.Context) (done bool, err error) {
		recorded, err = c.deployment.HasRecord(ctx, ledger)
		return err == nil, err
	})
	if err == nil && !recorded {
		err = invalid("the ledger %s is not registered, and is in no record: see WithLedger", words.Quote(ledger))
	}
	return err
}

// placeOf returns the place of a transfer in a list, or ErrTransferNotFound.
func (c *Coordinator) placeOf(ctx context.Context, id string) (*queries.Place, error) {
	var place queries.Place
	found := false
	err := c.read(ctx, func(ctx context.Context) (done bool, err error) {
		place, found, err = c.queries.PlaceOf(ctx, id)
		return err == nil || errors.Is(err, document.ErrUnreadable), err
	})
	if err == nil && !found {
		err = ErrTransferNotFound
	}
	if err != nil {
		return nil, listError("", aboutTransfer(id, err))
	}
	return &place, nil
}

// Count returns how many transfers a query selects, whatever its Limit and its Beyond
// are.
// The server reads all of them, or the entries of an index: see [Coordinator.List] for
// what there are indexes of.
// It waits for the server as long as ctx lets it.
//
//   - nil: the number.
//   - ErrInvalidRequest: the text says what is malformed in the query.
//   - all others: as [Coordinator.Get]; nothing was counted.
func (c *Coordinator) Count(ctx context.Context, q Query) (int64, error) {
	query, err := c.storeQuery(q)
	if err == nil {
		err = c.readyToList(ctx, q.Ledger)
	}
	if err != nil {
		return 0, err
	}
	n, err := c.queries.Count(ctx, query)
	if err != nil {
		return 0, nothingStored(fmt.Errorf("count transfers: %w", asUnauthorized(err)))
	}
	return n, nil
}

// listError names the transfer where one can't be read.
func listError(id string, err error) error {
	if id != "" && errors.Is(err, document.ErrUnreadable) {
		err = aboutTransfer(id, err)
	}
	return fmt.Errorf("list transfers: %w", err)
}

// storeQuery checks a query, and returns it as the store has it, without Beyond.
func (c *Coordinator) storeQuery(q Query) (queries.Query, error) {
	query := queries.Query{
		Ledger: q.Ledger, Account: q.Account, ByLedger: q.Ledger != "",
		After: q.After.Truncate(time.Millisecond), Before: roundUp(q.Before),
		Unfinished: q.Unfinished, IdleFor: q.IdleFor, Stuck: q.Stuck,
		Holds: q.Holds, ExpiresBefore: roundUp(q.ExpiresBefore), Reverses: q.Reverses, Undelivered: q.Undelivered, Limit: q.Limit,
	}
	if c.engine.Closed() {
		return query, ErrClosed
	}
	if err := cmp.Or(checkBounds(q), c.checkPlaces(q)); err != nil {
		return query, err
	}
	var err error
	if query.Metadata, err = encodeMetadata(q.Metadata); err != nil {
		return query, err
	}
	if err := checkEqualities(query.Metadata); err != nil {
		return query, err
	}
	for _, state := range q.States {
		if !protocol.State(state).Known() {
			return query, invalid("%s is no state", words.Quote(string(state)))
		}
		query.States = append(query.States, protocol.State(state))
	}
	return query, nil
}

// checkBounds refuses numbers and times that bound nothing.
func checkBounds(q Query) error {
	switch {
	case q.Limit < 0:
		return invalid("the Limit is negative")
	case q.IdleFor < 0:
		return invalid("IdleFor is negative")
	}
	return cmp.Or(checkTimes(q.After, q.Before), checkTime("ExpiresBefore", q.ExpiresBefore))
}

// checkPlaces refuses what can't be the ID of an account or of a transfer.
func (c *Coordinator) checkPlaces(q Query) error {
	if q.Account != "" {
		if err := c.checkAccount(q.Account); err != nil {
			return invalid("account: %w", err)
		}
	}
	if err := document.CheckPlace(q.Beyond); err != nil {
		return invalid("Beyond: %w", err)
	}
	if q.Reverses != "" {
		if err := document.CheckID(q.Reverses); err != nil {
			return invalid("Reverses: %w", err)
		}
	}
	return nil
}

// checkTime refuses a time that the server can't store, or that another program couldn't
// read: it would be taken for another one.
// The zero time is accepted.
func checkTime(what string, t time.Time) error {
	if year := t.UTC().Year(); year < 0 || year > maxYear {
		return invalid("%s lies beyond the years 0 to %d", what, maxYear)
	}
	return nil
}

// checkTimes refuses bounds that checkTime refuses.
// Bounds with nothing between them select nothing.
func checkTimes(after, before time.Time) error {
	if err := checkTime("After", after); err != nil {
		return err
	}
	return checkTime("Before", before)
}

// roundUp returns a time as a bound of stored times, which are whole milliseconds.
func roundUp(t time.Time) time.Time {
	if whole := t.Truncate(time.Millisecond); whole.Before(t) {
		return whole.Add(time.Millisecond)
	}
	return t
}
