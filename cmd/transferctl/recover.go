package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/mongotransfer/transfer"
)

// maxPlanned is how many transfers recover lists before it begins.
const maxPlanned = 100

// recoveryView is what recover would do, or has done, for programs.
type recoveryView struct {
	DryRun    bool          `json:"dryRun,omitempty"`
	Stalled   int64         `json:"stalled"`
	Expired   int64         `json:"expiredHolds"`
	Transfers []recordView  `json:"transfers"`
	Report    *recoveryDone `json:"report,omitempty"`
	LeftOut   []leftOut     `json:"leftOut,omitempty"`
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

// planned lists what a sweep would take over now.
func (p *program) planned(ctx context.Context, s *session) (recoveryView, error) {
	view := recoveryView{Transfers: []recordView{}, LeftOut: s.left}
	stalled := transfer.Query{
		States:  []transfer.State{transfer.StatePreparing, transfer.StateCommitted, transfer.StateRollback},
		IdleFor: p.flags.stallThreshold, Unfinished: true,
	}
	held := stalled
	held.Holds = true
	now, err := s.serverTime(ctx) // by which holds expire
	if err != nil {
		return view, err
	}
	overdue := transfer.Query{ExpiresBefore: now}
	all, err := s.Count(ctx, stalled)
	if err != nil {
		return view, err
	}
	holds, err := s.Count(ctx, held)
	if err != nil {
		return view, err
	}
	if view.Expired, err = s.Count(ctx, overdue); err != nil {
		return view, err
	}
	view.Stalled = all - holds
	for _, q := range []transfer.Query{stalled, overdue} {
		for rec, err := range s.List(ctx, q) {
			if err != nil && transfer.OutcomeOf(err) == transfer.InDoubt {
				p.note("%v", err) // one that can't be read keeps no other from being recovered
				continue
			}
			if err != nil {
				return view, err
			}
			if rec.Held != !q.ExpiresBefore.IsZero() {
				continue
			}
			if undecided(rec) && !rec.Held {
				view.Stalled--
				if rec.ExpiresAt.After(now) {
					continue
				}
				view.Expired++
			}
			if len(view.Transfers) < maxPlanned {
				view.Transfers = append(view.Transfers, viewOf(rec))
			}
		}
	}
	view.Stalled = max(view.Stalled, 0) // others go on meanwhile
	return view, nil
}

// undecided reports whether a transfer is a hold that is neither posted nor voided. It
// waits until it expires: also if its process has died before all of it was held, as the
// caller may ask again.
func undecided(rec transfer.Record) bool { return rec.Hold && rec.State == transfer.StatePreparing }

func (v recoveryView) tellPlan(w *page) {
	w.line("%d stalled, %s expired", v.Stalled, count(v.Expired, "hold"))
	var rows [][]string
	for _, t := range v.Transfers {
		why := "stalled since " + timeText(t.LastModified)
		switch {
		case t.Hold && t.State == transfer.StatePreparing:
			why = "expired " + timeText(t.ExpiresAt)
		case t.Stuck != nil:
			why += ", stuck: " + t.Stuck.Code + " " + t.Stuck.Account
		}
		rows = append(rows, []string{t.ID, string(t.State), why})
	}
	if len(rows) > 0 {
		w.table([]string{"ID", "STATE", "WHY"}, rows)
	}
}

func (v recoveryView) tellReport(w *page) {
	if r := v.Report; r != nil {
		w.line("found %d: %d succeeded, %d failed (%d of them expired holds), %d stuck", r.Found, r.Succeeded, r.Failed, r.Expired, r.Stuck)
	}
}
