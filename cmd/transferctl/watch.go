package main

import (
	"context"
	"fmt"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"

	"github.com/mongotransfer/transfer"
)

const (
	// rateDelay is how far behind the present rates are taken, so that what is stored at
	// that very moment counts.
	rateDelay = time.Second
	// maxListed is how many transfers each list has, and maxRead how many are read for
	// it.
	maxListed = 20
	maxRead   = 1000
	// sampleLimit is how long one look may take.
	sampleLimit = 30 * time.Second
	// leastInterval keeps somebody from being a burden.
	leastInterval = 100 * time.Millisecond
)

// sample is one look at the deployment.
type sample struct {
	at         time.Time // the server's
	stats      transfer.Stats
	begun      float64 // a second, of the time since the look before
	failed     float64
	firstRates bool // there was no look before
	stuck      []transfer.Record
	idle       []transfer.Record
	givenUp    []transfer.Record
}

// watchView is a look for programs.
type watchView struct {
	At           time.Time    `json:"at"`
	Stats        statsView    `json:"stats"`
	BegunPerSec  float64      `json:"begunPerSecond"`
	FailedPerSec float64      `json:"failedPerSecond"`
	Stuck        []recordView `json:"stuck"`
	Idle         []recordView `json:"idle"`
	Undelivered  []recordView `json:"undelivered"`
}

func (p *program) watchCommand() *cobra.Command {
	var interval time.Duration
	var looks int
	c := p.command("watch", "a live view: rates, states, what is oldest, stuck or undelivered",
		"Watch shows how many transfers are begun and fail, where the unfinished ones stand, since when the oldest is due,\n"+
			"and which ones are stuck, idle or undelivered. It reads by indexes. With --json it writes one document a look.",
		cobra.NoArgs, p.with(needDeployment, func(ctx context.Context, s *session, _ []string) error {
			if interval < leastInterval {
				return usage("--interval is %s or longer", leastInterval)
			}
			l := &looker{s: s, threshold: p.flags.stallThreshold, interval: interval}
			if p.flags.json {
				return p.watchLines(ctx, l, looks)
			}
			if !p.shows {
				return usage("watch needs a terminal. For programs there is --json")
			}
			return p.watchScreen(ctx, l)
		}))
	c.Flags().DurationVar(&interval, "interval", time.Second, "the pause between two looks")
	c.Flags().IntVar(&looks, "looks", 0, "end after so many looks, with --json; 0: never")
	return c
}

// looker looks at a deployment again and again.
type looker struct {
	s         *session
	threshold time.Duration
	interval  time.Duration
	counted   time.Time // until when transfers were counted
}

// look looks once.
func (l *looker) look(ctx context.Context) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, sampleLimit)
	defer cancel()
	var x sample
	var err error
	if x.at, err = l.s.serverTime(ctx); err != nil {
		return x, err
	}
	if x.stats, err = l.s.Stats(ctx); err != nil {
		return x, err
	}
	if err = l.rates(ctx, &x); err != nil {
		return x, err
	}
	if x.stuck, err = l.records(ctx, transfer.Query{Stuck: true}); err != nil {
		return x, err
	}
	idle := transfer.Query{
		States:     []transfer.State{transfer.StatePreparing, transfer.StateCommitted, transfer.StateRollback},
		Unfinished: true, IdleFor: max(l.threshold, time.Second),
	}
	if x.idle, err = l.records(ctx, idle); err != nil {
		return x, err
	}
	if x.stats.Undelivered > 0 {
		x.givenUp, err = l.records(ctx, transfer.Query{Undelivered: true})
	}
	return x, err
}

// rates counts what was begun since the look before.
func (l *looker) rates(ctx context.Context, x *sample) error {
	until := x.at.Add(-rateDelay)
	from := l.counted
	l.counted = until
	if x.firstRates = from.IsZero() || !until.After(from); x.firstRates {
		return nil
	}
	q := transfer.Query{After: from, Before: until.Add(time.Millisecond)} // both are exclusive
	begun, err := l.s.Count(ctx, q)
	if err != nil {
		return err
	}
	q.States = []transfer.State{transfer.StateFail, transfer.StateRollback}
	failed, err := l.s.Count(ctx, q)
	seconds := until.Sub(from).Seconds()
	x.begun, x.failed = float64(begun)/seconds, float64(failed)/seconds
	return err
}

// records reads the first transfers that a query selects, but for holds that wait for a
// decision, or for their expiry.
func (l *looker) records(ctx context.Context, q transfer.Query) (all []transfer.Record, err error) {
	q.Limit = maxRead
	for rec, err := range l.s.List(ctx, q) {
		switch {
		case len(all) == maxListed:
			return all, nil
		case err != nil && transfer.OutcomeOf(err) == transfer.InDoubt: // it can't be read: the audit reports it
		case err != nil:
			return all, err
		case !undecided(rec) || q.Stuck || q.Undelivered:
			all = append(all, rec)
		}
	}
	return all, nil
}

// watchLines writes a document for each look.
func (p *program) watchLines(ctx context.Context, l *looker, looks int) error {
	timer := time.NewTicker(l.interval)
	defer timer.Stop()
	for n := 1; ; n++ {
		x, err := l.look(ctx)
		if ctx.Err() != nil { // as between two looks
			return nil
		}
		if err != nil {
			return err
		}
		if err := writeJSON(p.out, viewOfSample(x)); err != nil || n == looks {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
	}
}

func viewOfSample(x sample) watchView {
	return watchView{
		At: x.at, Stats: statsView(x.stats), BegunPerSec: x.begun, FailedPerSec: x.failed,
		Stuck: viewsOf(x.stuck), Idle: viewsOf(x.idle), Undelivered: viewsOf(x.givenUp),
	}
}

func viewsOf(records []transfer.Record) []recordView {
	views := []recordView{}
	for _, rec := range records {
		views = append(views, viewOf(rec))
	}
	return views
}

// watchScreen shows the live view until somebody ends it.
func (p *program) watchScreen(ctx context.Context, l *looker) error {
	title := fmt.Sprintf("%s.%s", l.s.database.Name(), l.s.transfers.Name())
	screen := tea.NewProgram(&watchScreen{ctx: ctx, look: l.look, interval: l.interval, title: title},
		tea.WithContext(ctx), tea.WithInput(p.in), tea.WithOutput(p.out))
	if _, err := screen.Run(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("the terminal: %w", err)
	}
	return nil
}
