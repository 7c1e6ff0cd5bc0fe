package transfer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongotransfer/transfer/internal/audit"
	"github.com/mongotransfer/transfer/internal/engine"
	"github.com/mongotransfer/transfer/internal/words"
)

// ErrAuditTooLong means that a server has not kept its snapshot for as long as the audit took, some five minutes by default. Set the
// server's parameter minSnapshotHistoryWindowInSeconds higher, or audit by ranges: see [AuditOptions].
var ErrAuditTooLong = errors.New("the audit took longer than the server keeps a snapshot")

// AuditReport is what an audit has seen.
type AuditReport struct {
	Findings   []Finding // what must not be; none: all is well
	Omitted    int       // findings beyond the first thousand
	Accounts   int       // documents in all ledgers
	Transfers  int
	Unfinished int // transfers that are not final
	// InTransit is that of all Ledgers together, whatever their currencies; zero when
	// nothing is under way. Units and decimals are not added up: where both are in
	// transit it is that of units, and that of decimals is DecimalsInTransit, which is
	// zero otherwise.
	InTransit         Amount
	DecimalsInTransit Amount
	Ledgers           []LedgerTotal // by name, currency and kind of amounts
	At                time.Time     // by the server's clock, before the first read
}

// LedgerTotal is the money of one ledger in one currency, of accounts with one kind of
// balances: a ledger that has both units and decimals in a currency has a LedgerTotal for
// each, units first. A sum of units that an int64 doesn't hold is a decimal.
//
// Money is in transit when it has left one balance and is on no other yet. Before a
// transfer is committed it counts where it was taken from, afterwards where it goes to.
// So Total and InTransit together, of all ledgers, stay the same whatever is transferred;
// those of one ledger change only by what is transferred to or from other ledgers.
type LedgerTotal struct {
	Ledger, Currency string
	Accounts         int
	Total            Amount // of the balances
	InTransit        Amount
	// Moving means that the ledger is on another cluster than the transfers, and that some of these were committed while one was read
	// after the other: Total and InTransit may be off by them.
	Moving bool
}

// Finding is something that must not be.
type Finding struct {
	Code   string // what it is, in lower camel case: see docs/audit.md
	ID     string // of the account, document or transfer that it is about
	Detail string // the figures
	Advice string // what to do next, and the verb that does it if there is one

	Ledger, Account string // the account that it is about, if it is about one; of a document that is no account, its collection and ID
	TransferID      string // the transfer, or that of a marker
	Amount          Amount // of a marker
}

// AuditOptions say what to audit, and what to expect. The zero value audits everything and expects nothing.
type AuditOptions struct {
	Expected []ExpectedTotal
	// Accounts and Transfers bound what is looked at, for what is too large for one snapshot: audit range after range. The parts of a
	// transfer that lie in other ranges are looked up. Sums are those of the accounts in the range; nothing can be expected of them.
	// Documents that effects change are looked at with the range of accounts that has no From, and so is each account or transfer whose _id
	// is no ID.
	Accounts, Transfers IDRange
}

// IDRange bounds IDs: From ≤ ID < To, in the order in which the server sorts them, byte by byte. "" is no bound. A range that nothing can
// be in is refused with ErrInvalidRequest.
type IDRange struct{ From, To string }

// ExpectedTotal is what balances and money in transit should sum up to. Where its ledgers
// are on several clusters, or on another one than the transfers, there is no moment at
// which all of them could be read: then it is a finding only if nothing was committed
// between the reads, and if a second look shows the same sum. Where there are both units
// and decimals, the sum of those of Sum's kind is expected.
type ExpectedTotal struct {
	Ledgers  []string // that are added up; none: all
	Currency string
	Sum      Amount
}

// Audit checks all that is stored, while others go on working: nothing is locked and nothing waits. Each cluster is read as it was at one
// moment; what concerns two of them counts as a finding only if a second look confirms it. A transfer that stands still is a finding only
// after ten times the stall threshold (see [WithStallThreshold]), 50 s where that is zero, and as much later as recovery itself waits
// longer for what was taken over often; an unexpired hold is none. What is found is told in the report, with what to do about it; an error
// means that not everything could be looked at:
//
//   - ErrAuditTooLong: the ledger is too large for one snapshot.
//   - ErrClosed, ErrUnsupportedDeployment; or the error of ctx, or of a server.
//
// It reads every account and every transfer once, in bounded memory: some ten seconds per million.
func (c *Coordinator) Audit(ctx context.Context) (AuditReport, error) {
	return c.AuditWith(ctx, AuditOptions{})
}

// AuditWith is Audit with expectations, or of a part. The error may also be ErrInvalidRequest.
func (c *Coordinator) AuditWith(ctx context.Context, o AuditOptions) (AuditReport, error) {
	if err := c.checkAudit(o); err != nil {
		return AuditReport{}, err
	}
	if err := c.readyToRead(ctx, c.catalog.Addresses()...); err != nil {
		return AuditReport{}, err
	}
	options := audit.Options{
		Threshold:  c.settings.stallThreshold,
		Genuine:    genuine,
		EverPurged: c.retention.EverPurged,
		Accounts:   audit.Range(o.Accounts),
		Transfers:  audit.Range(o.Transfers),
		Pause:      engine.Pause,
	}
	for _, e := range o.Expected {
		options.Expected = append(options.Expected, audit.Expectation{Ledgers: e.Ledgers, Currency: e.Currency, Sum: e.Sum.exact})
	}
	report, err := audit.Run(ctx, c.catalog, options)
	switch {
	case errors.Is(err, audit.ErrSnapshotGone):
		return AuditReport{}, fmt.Errorf("%w: %w", ErrAuditTooLong, err)
	case err != nil:
		return AuditReport{}, nothingStored(fmt.Errorf("audit: %w", named(err)))
	}
	return reportOf(report), nil
}

func (c *Coordinator) checkAudit(o AuditOptions) error {
	for _, e := range o.Expected {
		for _, ledger := range e.Ledgers {
			if !c.catalog.HasLedger(ledger) {
				return invalid("the ledger %s is not registered: see WithLedger", words.Quote(ledger))
			}
		}
	}
	if len(o.Expected) > 0 && o.Accounts != (IDRange{}) {
		return invalid("the accounts of a range have no sum to be expected")
	}
	if err := audit.NewReader(c.catalog).Check(audit.Range(o.Accounts), audit.Range(o.Transfers)); err != nil {
		return invalid("a range: %w", err)
	}
	return nil
}

func reportOf(r audit.Report) AuditReport {
	told := AuditReport{
		Omitted: r.Omitted, Accounts: r.Accounts, Transfers: r.Transfers, Unfinished: r.Unfinished,
		InTransit: Amount{r.InTransit}, DecimalsInTransit: Amount{r.OtherInTransit}, At: r.At,
	}
	for _, t := range r.Totals {
		told.Ledgers = append(told.Ledgers, LedgerTotal{
			Ledger: t.Ledger, Currency: t.Currency, Accounts: t.Accounts, Moving: t.Moving,
			Total: Amount{t.Balances}, InTransit: Amount{t.InTransit},
		})
	}
	for _, f := range r.Findings {
		finding := Finding{
			Code: string(f.Code), ID: f.ID, Detail: f.Detail, Advice: f.Advice, Ledger: f.Ledger, Account: f.Account, TransferID: f.Transfer,
		}
		if f.Namespace != "" {
			finding.Ledger = f.Namespace
		}
		if f.Amount != nil {
			finding.Amount = Amount{*f.Amount}
		}
		told.Findings = append(told.Findings, finding)
	}
	return told
}

// String tells a finding in one line.
func (f Finding) String() string { return f.Code + ": " + f.Detail + ". " + f.Advice }
