package transfer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongotransfer/transfer/internal/audit"
	"github.com/mongotransfer/transfer/internal/deployment"
	"github.com/mongotransfer/transfer/internal/engine"
	"github.com/mongotransfer/transfer/internal/words"
)

// ErrAuditTooLong means that a server has not kept its snapshot for as long as the audit
// took, some five minutes by default.
// Set the server's parameter minSnapshotHistoryWindowInSeconds higher, or audit by
// ranges: see [AuditOptions].
var ErrAuditTooLong = errors.New("the audit took longer than the server keeps a snapshot")

// AuditReport is what an audit has seen.
type AuditReport struct {
	// Findings are the faults in the stored data.
	// If there are none, all is well, but for what LeftOut names.
	Findings []Finding
	// Omitted counts the findings beyond the first thousand.
	Omitted int
	// Accounts counts the documents in all ledgers.
	Accounts int
	// Transfers counts the transfers.
	Transfers int
	// Unfinished counts the transfers that are not final.
	Unfinished int
	// InTransit is the money in transit of all Ledgers together, in all currencies.
	// It is zero when no transfer is under way.
	// Units and decimals are not added up: where both are in transit, it is that of
	// units.
	InTransit Amount
	// DecimalsInTransit is the money in transit in decimals where both units and decimals
	// are in transit, and zero otherwise.
	DecimalsInTransit Amount
	// Ledgers are the sums by ledger, currency and kind of amounts.
	Ledgers []LedgerTotal
	// LeftOut are the recorded ledgers and documents that this Coordinator does not have,
	// so that nothing was read there.
	// They are no fault: a process may know only a part of the deployment.
	LeftOut []LeftOut
	// At is the server's time before the first read.
	At time.Time
}

// LeftOut is a collection that is recorded beside the transfers, and that the Coordinator
// of an audit has under no name.
// See docs/deployment.md for the records.
type LeftOut struct {
	// Documents says that it was registered by [WithDocuments].
	Documents bool
	// Name is the name under which it was registered, "" by [WithAccounts].
	Name string
	// Namespace is its database and its name, such as "bank.usd".
	Namespace string
}

// String names the collection: ledger "usd" in bank.usd.
func (l LeftOut) String() string {
	return deployment.DeclaredName{Documents: l.Documents, Name: l.Name, Namespace: l.Namespace}.String()
}

// LedgerTotal is the money of one ledger in one currency, of accounts with one kind of
// balances.
// A ledger that has both units and decimals in a currency has a LedgerTotal for each,
// units first.
// A sum of units that an int64 doesn't hold is a decimal.
//
// Money is in transit when it has left one balance and is on no other yet.
// Before a transfer is committed it counts where it was taken from, afterwards where it
// goes to.
// So Total and InTransit together, of all ledgers, stay the same whatever is transferred.
// Those of one ledger change only by what is transferred to or from other ledgers.
type LedgerTotal struct {
	// Ledger is the name of the ledger.
	Ledger string
	// Currency is the currency of the accounts, or "".
	Currency string
	// Accounts counts the accounts.
	Accounts int
	// Total is the sum of the balances.
	Total Amount
	// InTransit is the money in transit.
	InTransit Amount
	// Moving means that the ledger is on another cluster than the transfers, and that
	// some of these were committed while one cluster was read after the other.
	// Total and InTransit may be off by these transfers.
	Moving bool
}

// Finding is a fault in the stored data.
type Finding struct {
	// Code names the finding, in lower camel case: see docs/audit.md.
	Code string
	// ID is the account, document or transfer that it is about.
	ID string
	// Detail has the figures.
	Detail string
	// Advice says what to do next, and names the call that does it if there is one.
	Advice string
	// Ledger is that of the account that it is about, if it is about an account.
	// For a document that is no account it is the collection.
	Ledger string
	// Account is the ID of the account that it is about, or of the document.
	Account string
	// TransferID is the transfer that it is about, or that of a marker.
	TransferID string
	// Amount is the amount of a marker.
	Amount Amount
}

// AuditOptions say what to audit, and what to expect.
// The zero value audits everything and expects nothing.
type AuditOptions struct {
	// Expected are the sums to expect.
	// Defaults to nil: any sum is right.
	Expected []ExpectedTotal
	// Accounts bounds the accounts that are read, for data that is too large for one
	// snapshot: audit range after range.
	// The parts of a transfer that lie in other ranges are looked up.
	// Sums are those of the accounts in the range, and none can be expected of them.
	// Documents that effects change are read with the range that has no From, and so is
	// each account or transfer whose _id is no ID.
	// Defaults to everything.
	Accounts IDRange
	// Transfers bounds the transfers that are read, like Accounts.
	// Defaults to everything.
	Transfers IDRange
}

// IDRange bounds IDs: From ≤ ID < To, in the order in which the server sorts them, byte
// by byte.
// A range that can't contain any ID is refused with ErrInvalidRequest.
type IDRange struct {
	// From is the first ID of the range.
	// Defaults to "": no bound.
	From string
	// To is the first ID after the range.
	// Defaults to "": no bound.
	To string
}

// ExpectedTotal is what balances and money in transit should sum up to.
//
// Where its ledgers are on several clusters, or on another one than the transfers, there
// is no moment at which all of them could be read.
// Then it is a finding only if nothing was committed between the reads, and if a second
// read shows the same sum.
// Where there are both units and decimals, the sum of those of Sum's kind is expected.
type ExpectedTotal struct {
	// Ledgers are the ledgers that are added up.
	// Defaults to all.
	Ledgers []string
	// Currency is the currency of the accounts that are added up.
	// Defaults to "": that of accounts without one.
	Currency string
	// Sum is what is expected.
	Sum Amount
}

// Audit checks all that is stored in the collections of this Coordinator, while others go
// on working: nothing is locked and nothing waits.
// The report has what was found, and what to do about it.
//
// Each cluster is read as it was at one moment.
// A problem between two clusters counts as a finding only if a second read confirms it.
// A transfer that stands still is a finding only after ten times the stall threshold (see
// [WithStallThreshold]), or 50 s where that is zero.
// For a transfer that was taken over often, it takes longer, as much as recovery waits.
// A hold that has not expired is not a finding.
//
//   - nil: everything was read that is registered here.
//     The books are right where there are no findings, and where AuditReport.LeftOut
//     names nothing.
//   - ErrAuditTooLong: the ledger is too large for one snapshot, and not everything was
//     read.
//     Audit range after range: see [AuditOptions].
//   - all others: as [Coordinator.Get]; not everything was read.
//
// Audit reads every account and every transfer once, in bounded memory: some ten seconds
// per million.
func (c *Coordinator) Audit(ctx context.Context) (AuditReport, error) {
	return c.AuditWith(ctx, AuditOptions{})
}

// AuditWith is Audit with expectations, or of a part.
//
//   - ErrInvalidRequest: the options can't be met; the text says which.
//   - all others: as [Coordinator.Audit].
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
		options.Expected = append(options.Expected, audit.Expectation{
			Ledgers: e.Ledgers, Currency: e.Currency, Sum: e.Sum.exact,
		})
	}
	var left []deployment.DeclaredName
	readLeft := func(ctx context.Context) (err error) {
		left, err = c.deployment.LeftOut(ctx)
		return err
	}
	if err := c.untilFit(ctx, readLeft); err != nil {
		return AuditReport{}, err
	}
	report, err := audit.Run(ctx, c.catalog, options)
	switch {
	case errors.Is(err, audit.ErrSnapshotGone):
		return AuditReport{}, fmt.Errorf("%w: %w", ErrAuditTooLong, err)
	case err != nil:
		return AuditReport{}, nothingStored(fmt.Errorf("audit: %w", asUnauthorized(err)))
	}
	return reportOf(report, left), nil
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

func reportOf(r audit.Report, left []deployment.DeclaredName) AuditReport {
	report := AuditReport{
		Omitted: r.Omitted, Accounts: r.Accounts, Transfers: r.Transfers, Unfinished: r.Unfinished,
		InTransit: Amount{r.InTransit}, DecimalsInTransit: Amount{r.OtherInTransit}, At: r.At,
	}
	for _, n := range left {
		report.LeftOut = append(report.LeftOut, LeftOut{Documents: n.Documents, Name: n.Name, Namespace: n.Namespace})
	}
	for _, t := range r.Totals {
		report.Ledgers = append(report.Ledgers, LedgerTotal{
			Ledger: t.Ledger, Currency: t.Currency, Accounts: t.Accounts, Moving: t.Moving,
			Total: Amount{t.Balances}, InTransit: Amount{t.InTransit},
		})
	}
	for _, f := range r.Findings {
		finding := Finding{
			Code: string(f.Code), ID: f.ID, Detail: f.Detail, Advice: f.Advice,
			Ledger: f.Ledger, Account: f.Account, TransferID: f.Transfer,
		}
		if f.Namespace != "" {
			finding.Ledger = f.Namespace
		}
		if f.Amount != nil {
			finding.Amount = Amount{*f.Amount}
		}
		report.Findings = append(report.Findings, finding)
	}
	return report
}

// String returns the finding in one line.
func (f Finding) String() string { return f.Code + ": " + f.Detail + ". " + f.Advice }
