// Package audit says what is wrong with all that is stored: with a document by itself, with a marker and its transfer, with a reversal
// and its original, and with the sums. It reads, and changes nothing.
//
// What one client reaches is read as it was at one moment, by a snapshot: there each rule of the protocol holds exactly, however busy the
// servers are. Between two clusters there is no such moment. What looks wrong there is looked at again, by deciding reads of the
// transfer, of its participant, and of the transfer once more: states only go forward, so if it is the same twice, it was so in between,
// and the three reads are as good as a snapshot.
package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mongotransfer/transfer/internal/deployment"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/wire"
)

const (
	// batch is how many transfers or participants are looked up by one command.
	batch = 500
	// maxFindings bounds what is kept of findings; the rest is counted.
	maxFindings = 1000
	// maxTries is how often an audit begins anew where a snapshot couldn't be read to its end.
	maxTries = 10
)

// Options say what to audit, and what to expect.
type Options struct {
	Threshold time.Duration                // after which a transfer counts as stalled
	Genuine   func(document.Transfer) bool // whether it is what its digest stands for
	Expected  []Expectation
	Accounts  Range // the accounts to be looked at
	Transfers Range // the transfers
	Pause     func(ctx context.Context, n int) bool
}

// Report is what an audit has seen.
type Report struct {
	Findings   []Finding
	Omitted    int // findings beyond the limit
	Accounts   int
	Transfers  int
	Unfinished int // transfers that are not final
	InTransit  money.Amount
	// OtherInTransit is of decimals, where both kinds are in transit; else zero.
	OtherInTransit money.Amount
	Totals         []Total
	At             time.Time // by the server's clock, before the first read
}

// Run audits.
func Run(ctx context.Context, store *deployment.Deployment, options Options) (Report, error) {
	ctx = Detached(ctx)
	atlas := NewReader(store)
	for n := 1; ; n++ {
		report, err := twice(ctx, store, atlas, options)
		switch {
		case err == nil, errors.Is(err, ErrSnapshotGone), wire.Refused(err) != nil, wire.Disconnected(err), n == maxTries:
			return report, err
		case ctx.Err() != nil, !options.Pause(ctx, n):
			return Report{}, errors.Join(ctx.Err(), err)
		}
	}
}

// twice looks, and looks again where a sum over several clusters is not what it should be: it counts if both looks show the same one.
func twice(ctx context.Context, store *deployment.Deployment, atlas *Reader, options Options) (Report, error) {
	first, err := look(ctx, store, atlas, options)
	if err != nil {
		return Report{}, err
	}
	doubtful := first.compare(options.Expected)
	if len(doubtful) == 0 {
		return first.report, nil
	}
	second, err := look(ctx, store, atlas, options)
	if err != nil {
		return Report{}, err
	}
	for _, d := range second.compare(options.Expected) {
		for _, before := range doubtful {
			if before.Detail == d.Detail {
				first.add(d)
			}
		}
	}
	return first.report, nil
}

// auditor is one look at everything.
type auditor struct {
	store    *deployment.Deployment
	atlas    *Reader
	options  Options
	report   Report
	totals   map[totalKey]*total
	odd      map[totalKey]int // documents that are in no total
	purged   bool             // final transfers may have been removed
	away     []string         // transfers with participants on other clusters, which are looked at later
	overdue  []Transfer
	obstacle map[string]string // what stands in the way of an overdue transfer
}

func look(ctx context.Context, store *deployment.Deployment, atlas *Reader, options Options) (*auditor, error) {
	a := &auditor{
		store: store, atlas: atlas, options: options, totals: map[totalKey]*total{}, odd: map[totalKey]int{}, obstacle: map[string]string{},
	}
	var err error
	if a.report.At, err = store.ServerTime(ctx); err != nil {
		return a, err
	}
	if a.purged, err = store.EverPurged(ctx); err != nil {
		return a, err
	}
	if err := atlas.Transfers.InSnapshot(ctx, a.home); err != nil {
		return a, err
	}
	if err := a.lookAway(ctx); err != nil {
		return a, err
	}
	for _, cluster := range atlas.Away() {
		if err := a.cluster(ctx, cluster); err != nil {
			return a, err
		}
	}
	if err := a.stalled(ctx); err != nil {
		return a, err
	}
	return a, a.sumUp(ctx)
}

// home audits the transfers and what is on the same cluster.
func (a *auditor) home(snapshot context.Context) error {
	if err := a.transfers(snapshot); err != nil {
		return fmt.Errorf("audit the transfers: %w", err)
	}
	for _, place := range a.atlas.Places {
		if !place.Home {
			continue
		}
		if err := a.place(snapshot, place, &homeMarkers{a}); err != nil {
			return fmt.Errorf("audit %s: %w", place, err)
		}
	}
	return nil
}

// cluster audits the places of another cluster.
func (a *auditor) cluster(ctx context.Context, places []*Place) error {
	return places[0].InSnapshot(ctx, func(snapshot context.Context) error {
		for _, place := range places {
			if err := a.place(snapshot, place, &awayMarkers{a, ctx}); err != nil {
				return fmt.Errorf("audit %s: %w", place, err)
			}
		}
		return nil
	})
}

func (a *auditor) add(findings ...Finding) {
	for _, f := range findings {
		if len(a.report.Findings) == maxFindings {
			a.report.Omitted++
			continue
		}
		a.report.Findings = append(a.report.Findings, f)
	}
}
