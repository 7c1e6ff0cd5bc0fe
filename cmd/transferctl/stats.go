package main

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/mongotransfer/transfer"
)

// statsView counts what is unfinished, for programs.
type statsView struct {
	Scheduled   int64     `json:"scheduled"`
	Due         int64     `json:"due"`
	Preparing   int64     `json:"preparing"`
	Held        int64     `json:"held"`
	Overdue     int64     `json:"overdue"`
	Committed   int64     `json:"committed"`
	Rollback    int64     `json:"rollback"`
	Stuck       int64     `json:"stuck"`
	Undelivered int64     `json:"undelivered"`
	Oldest      time.Time `json:"oldest,omitzero"`
}

func (p *program) statsCommand() *cobra.Command {
	return p.command("stats", "how many transfers are unfinished, and since when the oldest is due",
		"Stats counts what is unfinished, by indexes: it is quick however many transfers there are.",
		cobra.NoArgs, p.with(needDeployment, func(ctx context.Context, s *session, _ []string) error {
			stats, err := s.Stats(ctx)
			if err != nil {
				return err
			}
			return p.answer(statsView(stats), func(w *page) { w.table([]string{"WHAT", "TRANSFERS", ""}, statsRows(stats)) })
		}))
}

func statsRows(s transfer.Stats) [][]string {
	count := func(name string, n int64, meaning string) []string {
		return []string{name, strconv.FormatInt(n, 10), meaning}
	}
	return [][]string{
		count("scheduled", s.Scheduled, "wait for their time, or for funds"),
		count("due", s.Due, "wait for a worker"),
		count("preparing", s.Preparing, "under way, not decided"),
		count("held", s.Held, "holds"),
		count("overdue", s.Overdue, "holds that have expired"),
		count("committed", s.Committed, "decided, not everything is in place"),
		count("rollback", s.Rollback, "being rolled back"),
		count("stuck", s.Stuck, "could not be finished"),
		count("undelivered", s.Undelivered, "with an event that waits or was given up"),
		{"oldest", timeText(s.Oldest), "since when the oldest is due"},
	}
}
