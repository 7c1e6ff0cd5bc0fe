package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/document"
)

// maxPlanned is how many transfers recover lists before it begins.
const maxPlanned = 100

// recoveryView is what recover would do, or has done, for programs.
type recoveryView struct {
	DryRun    bool         `json:"dryRun,omitempty"`
	Stalled   int64        `json:"stalled"`
	Expired   int64        `json:"expiredHolds"`
	Transfers []recordView `json:"transfers"`
	// Waiting counts what is tried again later, by the stall threshold. The nextTry of
	// its transfers says when.
	Waiting          int64        `json:"waiting"`
	WaitingTransfers []recordView `json:"waitingTransfers"`

	Report  *recoveryDone `json:"report,omitempty"`
	LeftOut []leftOut     `json:"leftOut,omitempty"`
}

type recoveryDone struct {
	Found     int `json:"found"`
	Succeeded int `json:"succeeded"`
	Failed    int `json:"failed"`
	Expired   int `json:"expired"`
	Stuck     int `json:"stuck"`
}

func (p *program) recoverCommand() *cobra.Command {
	var dryRun, untilFinished bool
	c := p.command("recover", "finish what has stalled, and void holds that have expired",
		"Recover lists what has stalled, and finishes it. It is safe beside live processes and other sweeps, and does not ask.\n"+
			"To retry at once what is stuck, after the cause is repaired, say --stall-threshold 0s.",
		cobra.NoArgs, p.with(needDeployment, func(ctx context.Context, s *session, _ []string) error {
			view, err := p.planned(ctx, s)
			if err != nil {
				return err
			}
			view.DryRun = dryRun
			if !p.flags.json {
				w := &page{out: p.out}
				view.tellPlan(w)
				if w.err != nil || dryRun {
					return w.err
				}
			}
			if !dryRun {
				var opts []transfer.RecoverOption
				if untilFinished {
					opts = append(opts, transfer.UntilFinished())
				}
				var report transfer.RecoveryReport
				report, err = s.Recover(ctx, opts...)
				done := recoveryDone(report)
				view.Report = &done
			}
			return errors.Join(err, p.answer(view, view.tellReport))
		}))
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only list what would be finished")
	c.Flags().BoolVar(&untilFinished, "until-finished", false, "wait for what is too young to have stalled, and for what others work on")
	return c
}

// planned lists what a sweep would take over now, and what it would leave for later.
func (p *program) planned(ctx context.Context, s *session) (recoveryView, error) {
	view := recoveryView{Transfers: []recordView{}, WaitingTransfers: []recordView{}, LeftOut: s.left}
	now, err := s.serverTime(ctx) // by which holds expire, and transfers stall
	if err != nil {
		return view, err
	}
	threshold := p.flags.stallThreshold
	var expired []recordView
	claimed := transfer.Query{
		States: []transfer.State{transfer.StatePreparing, transfer.StateCommitted, transfer.StateRollback}, Unfinished: true,
	}
	for rec, err := range s.List(ctx, claimed) {
		if err != nil && transfer.OutcomeOf(err) == transfer.InDoubt {
			p.note("%v", err) // one that can't be read keeps no other from being recovered
			continue
		}
		if err != nil {
			return view, err
		}
		next := nextTry(rec, threshold, now)
		switch {
		case undecided(rec) && !rec.ExpiresAt.After(now):
			expired = addTo(expired, &view.Expired, viewOf(rec))
		case undecided(rec):
		case !next.After(now):
			view.Transfers = addTo(view.Transfers, &view.Stalled, viewOf(rec))
		case rec.Stuck != nil, now.Sub(rec.LastModified) >= threshold:
			left := viewOf(rec)
			left.NextTry = next
			view.WaitingTransfers = addTo(view.WaitingTransfers, &view.Waiting, left)
		}
	}
	view.Transfers = append(view.Transfers, expired...)
	view.Transfers = view.Transfers[:min(len(view.Transfers), maxPlanned)]
	return view, nil
}

// addTo counts a transfer, and adds it to a list that has room.
func addTo(list []recordView, counted *int64, t recordView) []recordView {
	*counted++
	if len(list) < maxPlanned {
		list = append(list, t)
	}
	return list
}

// nextTry returns from when on a sweep takes a transfer over that is no undecided hold.
// The pauses grow while it is stuck. One that was modified ahead of the server's clock,
// which was set back since, is taken over at once.
func nextTry(rec transfer.Record, threshold time.Duration, now time.Time) time.Time {
	if rec.LastModified.Sub(now) > threshold {
		return now
	}
	pause := document.StallMillis(threshold, document.Doublings(int64(rec.Attempts), rec.Stuck != nil))
	return rec.LastModified.Add(time.Duration(pause) * time.Millisecond)
}

// undecided reports whether a transfer is a hold that is neither posted nor voided. It
// waits until it expires: also if its process has died before all of it was held, as the
// caller may ask again.
func undecided(rec transfer.Record) bool { return rec.Hold && rec.State == transfer.StatePreparing }

func (v recoveryView) tellPlan(w *page) {
	w.line("%d stalled, %s expired", v.Stalled, count(v.Expired, "hold"))
	var rows [][]string
	for _, t := range v.Transfers {
		why := "stalled since " + timeText(t.LastModified) + t.stuckText()
		if t.Hold && t.State == transfer.StatePreparing {
			why = "expired " + timeText(t.ExpiresAt)
		}
		rows = append(rows, []string{clean(t.ID), string(t.State), why})
	}
	header := []string{"ID", "STATE", "WHY"}
	if len(rows) > 0 {
		w.table(header, rows)
	}
	if v.Waiting == 0 {
		return
	}
	waits := " waits for its"
	if v.Waiting > 1 {
		waits = " wait for their"
	}
	w.line("%s%s next try; --stall-threshold 0s retries now", count(v.Waiting, "transfer"), waits)
	rows = nil
	for _, t := range v.WaitingTransfers {
		rows = append(rows, []string{clean(t.ID), string(t.State), "next try " + timeText(t.NextTry) + t.stuckText()})
	}
	w.table(header, rows)
}

// stuckText says what a transfer is stuck at.
func (v recordView) stuckText() string {
	if v.Stuck == nil {
		return ""
	}
	return ", stuck: " + clean(v.Stuck.Code+" "+v.Stuck.Account)
}

func (v recoveryView) tellReport(w *page) {
	r := v.Report
	if r == nil {
		return
	}
	left := ""
	if v.Waiting > 0 {
		left = fmt.Sprintf("; %d left for later", v.Waiting)
	}
	w.line("found %d: %d succeeded, %d failed (%d of them expired holds), %d stuck%s",
		r.Found, r.Succeeded, r.Failed, r.Expired, r.Stuck, left)
}
