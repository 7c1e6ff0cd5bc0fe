package transfertest

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/mongotransfer/transfer"
)

// A fake has every verb of a coordinator, but for those that a test names: each is passed
// on below, and called in the table of calls that is compared. Where it sends what the
// server in memory lacks, the refusal names it.
//
// A verb that changes a transfer passes its answer through f.answer, with the ID of the
// transfer that it changes. All others are passed on as they are.

// Transfer is as that of a Coordinator.
func (f *Fake) Transfer(ctx context.Context, req transfer.Request) (transfer.Record, error) {
	rec, err := f.coordinator().Transfer(ctx, req)
	return f.answer(req.ID, rec, err)
}

// TransferMany is as that of a Coordinator.
func (f *Fake) TransferMany(ctx context.Context, requests []transfer.Request) ([]transfer.Record, []error) {
	records, failures := f.coordinator().TransferMany(ctx, requests)
	for i, req := range requests {
		records[i], failures[i] = f.answer(req.ID, records[i], failures[i])
	}
	return records, failures
}

// Submit is as that of a Coordinator.
// The transfer stays in StateInitiated until [Fake.Advance] or [Fake.Wait] is called.
func (f *Fake) Submit(ctx context.Context, req transfer.Request) (transfer.Record, error) {
	rec, err := f.coordinator().Submit(ctx, req)
	return f.answer(req.ID, rec, err)
}

// Wait is as that of a Coordinator.
// Meanwhile the worker does what is due.
// Wait returns for a transfer that is due later once another goroutine calls
// [Fake.Advance].
func (f *Fake) Wait(ctx context.Context, id string) (transfer.Record, error) {
	if ctx == nil || ctx.Err() != nil {
		return f.coordinator().Wait(ctx, id)
	}
	working, stop := context.WithCancel(ctx)
	_ = f.work(working, f.coordinator()) // where it fails, the transfer is not final, and Wait says so
	var worker sync.WaitGroup
	worker.Go(func() { f.workUntil(working) })
	defer worker.Wait()
	defer stop()
	return f.coordinator().Wait(ctx, id)
}

// Cancel is as that of a Coordinator.
func (f *Fake) Cancel(ctx context.Context, id, reason string) (transfer.Record, error) {
	rec, err := f.coordinator().Cancel(ctx, id, reason)
	return f.answer(id, rec, err)
}

// Reverse is as that of a Coordinator.
func (f *Fake) Reverse(ctx context.Context, r transfer.Reversal) (transfer.Record, error) {
	rec, err := f.coordinator().Reverse(ctx, r)
	return f.answer(r.ID, rec, err)
}

// Hold is as that of a Coordinator.
// It expires by the fake's clock: see [Fake.Advance].
func (f *Fake) Hold(ctx context.Context, req transfer.Request, expiresIn time.Duration) (transfer.Record, error) {
	rec, err := f.coordinator().Hold(ctx, req, expiresIn)
	return f.answer(req.ID, rec, err)
}

// Post is as that of a Coordinator.
func (f *Fake) Post(ctx context.Context, id string, opts ...transfer.PostOption) (transfer.Record, error) {
	rec, err := f.coordinator().Post(ctx, id, opts...)
	return f.answer(id, rec, err)
}

// Void is as that of a Coordinator.
func (f *Fake) Void(ctx context.Context, id string) (transfer.Record, error) {
	rec, err := f.coordinator().Void(ctx, id)
	return f.answer(id, rec, err)
}

// Extend is as that of a Coordinator.
func (f *Fake) Extend(ctx context.Context, id string, expiresIn time.Duration) (transfer.Record, error) {
	rec, err := f.coordinator().Extend(ctx, id, expiresIn)
	return f.answer(id, rec, err)
}

// Recover is as that of a Coordinator.
func (f *Fake) Recover(ctx context.Context, opts ...transfer.RecoverOption) (transfer.RecoveryReport, error) {
	return f.coordinator().Recover(ctx, opts...)
}

// Redeliver is as that of a Coordinator.
// The next [Fake.Advance] or [Fake.Wait] delivers.
func (f *Fake) Redeliver(ctx context.Context, transferID string) error {
	return f.coordinator().Redeliver(ctx, transferID)
}

// Healthy is as that of a Coordinator.
func (f *Fake) Healthy(ctx context.Context) error { return f.coordinator().Healthy(ctx) }

// Get is as that of a Coordinator.
func (f *Fake) Get(ctx context.Context, id string) (transfer.Record, error) {
	return f.coordinator().Get(ctx, id)
}

// List is as that of a Coordinator.
func (f *Fake) List(ctx context.Context, q transfer.Query) iter.Seq2[transfer.Record, error] {
	return f.coordinator().List(ctx, q)
}

// Count is as that of a Coordinator.
func (f *Fake) Count(ctx context.Context, q transfer.Query) (int64, error) {
	return f.coordinator().Count(ctx, q)
}

// Explain is as that of a Coordinator.
func (f *Fake) Explain(ctx context.Context, id string) (transfer.Explanation, error) {
	return f.coordinator().Explain(ctx, id)
}

// Stats is as that of a Coordinator.
func (f *Fake) Stats(ctx context.Context) (transfer.Stats, error) { return f.coordinator().Stats(ctx) }

// Statement is as that of a Coordinator.
func (f *Fake) Statement(ctx context.Context, id string, q transfer.StatementQuery) iter.Seq2[transfer.Entry, error] {
	return f.coordinator().Statement(ctx, id, q)
}

// BalanceAt is as that of a Coordinator.
func (f *Fake) BalanceAt(ctx context.Context, id string, at time.Time) (transfer.Amount, error) {
	return f.coordinator().BalanceAt(ctx, id, at)
}

// OpenAccount is as that of a Coordinator.
func (f *Fake) OpenAccount(ctx context.Context, a transfer.Account) (transfer.Account, error) {
	return f.coordinator().OpenAccount(ctx, a)
}

// GetAccount is as that of a Coordinator.
func (f *Fake) GetAccount(ctx context.Context, id string) (transfer.Account, error) {
	return f.coordinator().GetAccount(ctx, id)
}

// UpdateAccount is as that of a Coordinator.
func (f *Fake) UpdateAccount(ctx context.Context, id string, change transfer.AccountChange) (transfer.Account, error) {
	return f.coordinator().UpdateAccount(ctx, id, change)
}

// CloseAccount is as that of a Coordinator.
func (f *Fake) CloseAccount(ctx context.Context, id string) error {
	return f.coordinator().CloseAccount(ctx, id)
}

// ReopenAccount is as that of a Coordinator.
func (f *Fake) ReopenAccount(ctx context.Context, id string) error {
	return f.coordinator().ReopenAccount(ctx, id)
}

// Accounts is as that of a Coordinator.
func (f *Fake) Accounts(ctx context.Context, q transfer.AccountQuery) iter.Seq2[transfer.Account, error] {
	return f.coordinator().Accounts(ctx, q)
}

// Ledger is as that of a Coordinator: the ledger of [WithLedger] with this name.
func (f *Fake) Ledger(name string) (*transfer.Ledger, error) { return f.coordinator().Ledger(name) }
