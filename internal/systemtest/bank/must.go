package bank

import (
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/audit"
	"github.com/mongotransfer/transfer/internal/wire"
)

// MustMove transfers units from a to b, to the very end: no trace is left.
func (b *Bank) MustMove(id string, units int64) {
	b.T.Helper()
	b.finished(b.Coordinator, Move(id, "a", "b", units))
}

// MustSubmit submits a transfer of 1 from a to b.
func (b *Bank) MustSubmit(id string) {
	b.T.Helper()
	_, err := b.Submit(b.T.Context(), Move(id, "a", "b", 1))
	require.NoError(b.T, err)
}

// MustHold holds units of a for b.
func (b *Bank) MustHold(id string, units int64, expiresIn time.Duration) transfer.Record {
	b.T.Helper()
	rec, err := b.Hold(b.T.Context(), Move(id, "a", "b", units), expiresIn)
	require.NoError(b.T, err)
	require.Equal(b.T, transfer.StatePreparing, rec.State)
	require.True(b.T, rec.Hold)
	return rec
}

// MustLedger returns a ledger by its name.
func (b *Bank) MustLedger(name string) *transfer.Ledger {
	b.T.Helper()
	l, err := b.Ledger(name)
	require.NoError(b.T, err)
	return l
}

// MustAudit audits the bank.
func (b *Bank) MustAudit() transfer.AuditReport {
	b.T.Helper()
	report, err := b.Audit(b.T.Context())
	require.NoError(b.T, err)
	return report
}

// CodesOf returns the sorted codes of a report's findings.
func CodesOf(report transfer.AuditReport) []audit.Code {
	codes := []audit.Code{}
	for _, f := range report.Findings {
		codes = append(codes, audit.Code(f.Code))
	}
	slices.Sort(codes)
	return codes
}

// IDs collects the IDs that a query selects, in order.
func (b *Bank) IDs(q transfer.Query) []string {
	b.T.Helper()
	found := []string{}
	for rec, err := range b.List(b.T.Context(), q) {
		require.NoError(b.T, err)
		found = append(found, rec.ID)
	}
	return found
}

// RequireStanding requires what an account has, and what is in flight on it.
func (b *Bank) RequireStanding(id string, available, posted, incoming int64) {
	b.T.Helper()
	a, err := b.GetAccount(b.T.Context(), id)
	require.NoError(b.T, err)
	require.Equal(b.T, [4]int64{available, available, posted, incoming},
		[4]int64{Units(b.T, a.Balance), Units(b.T, a.Available), Units(b.T, a.Posted), Units(b.T, a.Incoming)}, "account %s", id)
}

// RequireRefused requires the answer to a transfer that was refused.
func (b *Bank) RequireRefused(rec transfer.Record, err, want error, code string) {
	b.T.Helper()
	require.ErrorIs(b.T, err, want)
	require.Equal(b.T, transfer.StateFail, rec.State)
	require.Equal(b.T, code, rec.Failure.Code)
	require.True(b.T, strings.HasPrefix(rec.Failure.Message, want.Error()), "%q", rec.Failure.Message)
	require.Equal(b.T, transfer.Failed, transfer.OutcomeOf(err))
}

// RequireBalance requires what can be spent from an account, whatever is in flight on it.
func (b *Bank) RequireBalance(id string, units int64) {
	b.T.Helper()
	got, err := b.GetAccount(b.T.Context(), id)
	require.NoError(b.T, err)
	require.Equal(b.T, transfer.Units(units), got.Balance, "account %s", id)
}

// RequireStuck requires that a transfer, and no other, is reported as stuck, and why.
func (b *Bank) RequireStuck(id string, state transfer.State, account, code string, attempts int) {
	b.T.Helper()
	rec, err := b.Get(b.T.Context(), id)
	require.NoError(b.T, err)
	require.Equal(b.T, state, rec.State)
	b.RequireAttempts(attempts, rec)
	require.NotNil(b.T, rec.Stuck)
	require.Equal(b.T, code, rec.Stuck.Code)
	require.Equal(b.T, account, rec.Stuck.Account)
	require.NotEmpty(b.T, rec.Stuck.Message)
	for listed, err := range b.List(b.T.Context(), transfer.Query{Stuck: true}) {
		require.NoError(b.T, err)
		require.Equal(b.T, rec, listed)
	}
	require.Equal(b.T, []string{id}, b.IDs(transfer.Query{Stuck: true}))
}

// RequireAttempts requires how often a transfer was taken over. There may be more
// takeovers on a machine so slow that a command was given up meanwhile, and sent again.
func (b *Bank) RequireAttempts(want int, rec transfer.Record) {
	b.T.Helper()
	require.GreaterOrEqual(b.T, rec.Attempts, want)
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Since(b.begun) < wire.CommandLimit {
		require.Equal(b.T, want, rec.Attempts)
	}
}

// RequireAnswer requires an error, or none. The story says where the test was.
func RequireAnswer(t *testing.T, want, told error, story string) {
	t.Helper()
	if want == nil {
		require.NoError(t, told, story)
		return
	}
	require.ErrorIs(t, told, want, story)
}

// RequireLedgers requires the balances of account a in several ledgers, with nothing in
// flight.
func RequireLedgers(t *testing.T, c *transfer.Coordinator, want map[string]int64) {
	t.Helper()
	for ledger, balance := range want {
		l, err := c.Ledger(ledger)
		require.NoError(t, err)
		got, err := l.Get(t.Context(), "a")
		require.NoError(t, err)
		require.Equal(t, transfer.Units(balance), got.Balance, "ledger %q", ledger)
		require.Equal(t, ledger, got.Ledger)
		require.Equal(t, got.Balance, got.Posted)
		require.True(t, got.Incoming.IsZero())
	}
}

// FirstError returns the error of the first that a sequence yields.
func FirstError[T any](all iter.Seq2[T, error]) error {
	for _, err := range all {
		return err
	}
	return nil
}

// LastError returns the last error that a sequence yields.
func LastError[T any](all iter.Seq2[T, error]) (failure error) {
	for _, err := range all {
		failure = err
	}
	return failure
}

// ErrorOf returns the error of a call.
func ErrorOf[T any](_ T, err error) error { return err }
