// Package audit finds what is wrong with what is stored: with a document by itself, with
// a marker and its transfer, with a reversal and its original, and with the sums. It
// reads, and changes nothing.
//
// The rules of the protocol hold at every single moment, and only there: a marker that
// was read before its transfer was finished, and a transfer that was read after that,
// contradict each other although both are right. So an audit compares only what was
// stored at the same moment.
//
// Where one client reaches both documents, that moment is a snapshot: all reads show what
// was stored when the first of them came. There each rule is checked exactly, however
// busy the servers are.
//
// Two clusters have no common snapshot. There the audit reads a second time what the
// first reads show as wrong, by linearizable reads: the transfer, then the participant,
// then the transfer again. States only go forward. So if the transfer is the same both
// times, it was the same in between, when the participant was read, and the three reads
// are as good as a snapshot. If it has changed, nothing is said about it.
//
// Sums over several clusters are compared twice as well: a wrong sum is a finding only if
// a second pass over everything shows the same one.
package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongotransfer/transfer/internal/collections"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/wire"
)

const (
	// batch is how many transfers or participants are looked up by one command.
	batch = 500
	// maxFindings is how many findings are kept; the others are counted.
	maxFindings = 1000
	// maxTries is how often an audit begins, where a snapshot can't be read to its end.
	maxTries = 10
)

// Options say what to audit, and what to expect.
type Options struct {
	// Threshold is the stall threshold, on which it depends when a transfer is overdue.
	Threshold time.Duration
	// Genuine reports whether a transfer is what its digest stands for.
	Genuine func(document.Transfer) bool
	// EverPurged reports whether final transfers may have been removed.
	EverPurged func(context.Context) (bool, error)
	// Expected are the sums to expect.
	Expected []Expectation
	// Accounts and Transfers bound what is audited.
	Accounts, Transfers Range
	// Pause waits before the next try, whose number is n, and reports whether there is to
	// be one.
	Pause func(ctx context.Context, n int) bool
}

// Report is what an audit has found.
type Report struct {
	// Findings are what must not be.
	Findings []Finding
	// Omitted counts the findings beyond the limit.
	Omitted int
	// Accounts counts the documents of all ledgers.
	Accounts int
	// Transfers counts the transfers.
	Transfers int
	// Unfinished counts the transfers that are not final.
	Unfinished int
	// InTransit is all money in transit, in whole units if there are any.
	InTransit money.Amount
	// OtherInTransit is the money in transit in decimals, where both kinds are in
	// transit. Otherwise it is zero.
	OtherInTransit money.Amount
	// Totals are the sums by ledger, currency and kind.
	Totals []Total
	// At is the time by the server's clock, before the first read.
	At time.Time
}

// Run audits the collections of a catalog.
func Run(ctx context.Context, catalog *collections.Catalog, options Options) (Report, error) {
	ctx = wire.Detached(ctx)
	reader := NewReader(catalog)
	for n := 1; ; n++ {
		report, err := confirmed(ctx, reader, options)
		switch {
		case err == nil, errors.Is(err, ErrSnapshotGone), wire.Denied(err) != nil, wire.Disconnected(err), n == maxTries:
			return report, err
		case ctx.Err() != nil, !options.Pause(ctx, n):
			return Report{}, errors.Join(ctx.Err(), err)
		}
	}
}

// confirmed makes a pass, and a second one where a sum over several clusters is not what
// is expected: that is a finding only if both passes show the same sum.
func confirmed(ctx context.Context, reader *Reader, options Options) (Report, error) {
	first, err := newPass(ctx, reader, options)
	if err != nil {
		return Report{}, err
	}
	doubtful := first.checkExpectations(options.Expected)
	if len(doubtful) == 0 {
		return first.report, nil
	}
	second, err := newPass(ctx, reader, options)
	if err != nil {
		return Report{}, err
	}
	for _, again := range second.checkExpectations(options.Expected) {
		for _, before := range doubtful {
			if before.Detail == again.Detail {
				first.add(again)
			}
		}
	}
	return first.report, nil
}

// pass reads everything once.
type pass struct {
	reader      *Reader
	options     Options
	report      Report
	totals      map[totalKey]*total
	uncountable map[totalKey]int // documents whose balance is in no total
	purged      bool             // final transfers may have been removed
	remote      []string         // transfers with participants on other clusters, read after the snapshot
	paid        map[string]bool  // transfers that have paid in before their commit is recorded, by the snapshot
	overdue     []*Transfer
	obstacles   map[string]string // by transfer: what may keep an overdue one from its end
}

// newPass returns a pass that has read everything.
func newPass(ctx context.Context, reader *Reader, options Options) (*pass, error) {
	p := &pass{
		reader: reader, options: options,
		totals: map[totalKey]*total{}, uncountable: map[totalKey]int{}, obstacles: map[string]string{},
		paid: map[string]bool{},
	}
	var err error
	if p.report.At, err = reader.catalog.ServerTime(ctx); err != nil {
		return p, err
	}
	if p.purged, err = options.EverPurged(ctx); err != nil {
		return p, err
	}
	if err := inSnapshot(ctx, reader.Transfers, p.readHome); err != nil {
		return p, err
	}
	if err := p.checkRemoteParticipants(ctx); err != nil {
		return p, err
	}
	for _, cluster := range reader.otherClusters() {
		if err := p.readCluster(ctx, cluster); err != nil {
			return p, err
		}
	}
	if err := p.checkStalled(ctx); err != nil {
		return p, err
	}
	return p, p.sumUp(ctx)
}

// readHome audits the transfers, and the collections that are on the same cluster.
func (p *pass) readHome(snapshot context.Context) error {
	if err := p.readTransfers(snapshot); err != nil {
		return fmt.Errorf("audit the transfers: %w", err)
	}
	for _, c := range p.reader.Collections {
		if !c.SameClient {
			continue
		}
		if err := p.readDocuments(snapshot, c, p.checkMarkersInSnapshot); err != nil {
			return fmt.Errorf("audit %s: %w", describe(c), err)
		}
	}
	return nil
}

// add adds findings to the report.
func (p *pass) add(findings ...Finding) {
	for _, f := range findings {
		if len(p.report.Findings) == maxFindings {
			p.report.Omitted++
			continue
		}
		p.report.Findings = append(p.report.Findings, f)
	}
}
