package main

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
)

// defaultLimit is how many rows a table has, unless a flag says it.
const defaultLimit = 100

// listFlags are the flags of list.
type listFlags struct {
	states, metadata       []string
	after, before, expires string
	count                  bool
	query                  transfer.Query
}

func (p *program) listCommand() *cobra.Command {
	var f listFlags
	c := p.command("list", "transfers, newest first",
		"List lists the transfers that all given flags select, newest first. With --json it writes one document a line.",
		cobra.NoArgs, p.with(needDeployment, func(ctx context.Context, s *session, _ []string) error {
			now, err := s.serverTime(ctx) // by which transfers are created, and holds expire
			if err != nil {
				return err
			}
			if err := f.complete(now); err != nil {
				return err
			}
			if f.count {
				n, err := s.Count(ctx, f.query)
				if err != nil {
					return err
				}
				return p.answer(map[string]int64{"count": n}, func(w *page) { w.line("%d", n) })
			}
			return p.list(ctx, s, f.query)
		}))
	flags, q := c.Flags(), &f.query
	flags.StringSliceVar(&f.states, "state", nil, "only in these states: Initiated, Preparing, Committed, Success, Rollback, Fail")
	flags.StringVar(&q.Ledger, "ledger", "", "only on accounts of this ledger")
	flags.StringVar(&q.Account, "account", "", "only on this account")
	flags.StringVar(&f.after, "after", "", "only created after this time (RFC 3339), or within this duration, such as 2h")
	flags.StringVar(&f.before, "before", "", "only created before this time, or longer ago than this duration")
	flags.StringArrayVar(&f.metadata, "metadata", nil, `only with this metadata, KEY=VALUE; a VALUE that is JSON is taken as such`)
	flags.BoolVar(&q.Unfinished, "unfinished", false, "only what is not final")
	flags.DurationVar(&q.IdleFor, "idle-for", 0, "only what is unfinished, and was not modified for so long")
	flags.BoolVar(&q.Stuck, "stuck", false, "only what could not be finished")
	flags.BoolVar(&q.Holds, "holds", false, "only holds that are held now")
	flags.StringVar(&f.expires, "expires-before", "", "only holds that expire before this time, or within this duration; 0s: overdue")
	flags.StringVar(&q.Reverses, "reverses", "", "only the reversals of this transfer")
	flags.BoolVar(&q.Undelivered, "undelivered", false, "only with an event that was not delivered")
	flags.StringVar(&q.Beyond, "beyond", "", "go on behind the transfer with this ID")
	flags.IntVar(&q.Limit, "limit", defaultLimit, "how many at most; 0: all")
	flags.BoolVar(&f.count, "count", false, "only how many there are")
	return c
}

// complete makes a query of the flags.
func (f *listFlags) complete(now time.Time) (err error) {
	for _, state := range f.states {
		f.query.States = append(f.query.States, transfer.State(state))
	}
	if f.query.After, err = timeFlag("--after", f.after, now, -1); err != nil {
		return err
	}
	if f.query.Before, err = timeFlag("--before", f.before, now, -1); err != nil {
		return err
	}
	if f.query.ExpiresBefore, err = timeFlag("--expires-before", f.expires, now, 1); err != nil {
		return err
	}
	for _, given := range f.metadata {
		key, value, ok := strings.Cut(given, "=")
		if !ok || key == "" {
			return usage("--metadata is KEY=VALUE, not %q", given)
		}
		if f.query.Metadata == nil {
			f.query.Metadata = map[string]any{}
		}
		f.query.Metadata[key] = metadataValue(value)
	}
	return nil
}

// timeFlag reads a time, or a duration from now.
func timeFlag(name, text string, now time.Time, sign time.Duration) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil {
		return now.Add(sign * d), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, usage("%s is a time such as 2024-03-01T12:00:00Z, or a duration such as 2h: not %q", name, text)
	}
	return t, nil
}

// metadataValue reads a value as extended JSON, or takes it as a text.
func metadataValue(text string) any {
	var read struct{ V any }
	if json.Valid([]byte(text)) && bson.UnmarshalExtJSON([]byte(`{"v":`+text+`}`), false, &read) == nil {
		return read.V
	}
	return text
}

// noteTypes says which values were not taken as texts: of a number that is stored as a
// text nothing is found.
func (p *program) noteTypes(metadata map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		if _, isText := metadata[key].(string); !isText {
			p.note(`nothing was found; --metadata %s=… was not taken as a text, which would be %[1]s='"…"'`, printable(key))
		}
	}
}

// list writes the transfers that a query selects. What can't be read is reported, and
// the rest follows.
func (p *program) list(ctx context.Context, s *session, q transfer.Query) error {
	var rows [][]string
	var unreadable []error
	last := ""
	for rec, err := range s.List(ctx, q) {
		if err != nil && transfer.OutcomeOf(err) == transfer.InDoubt {
			unreadable = append(unreadable, err)
			continue
		}
		if err != nil {
			return errors.Join(append(unreadable, err)...)
		}
		last = rec.ID
		if p.flags.json {
			if err := writeJSON(p.out, viewOf(rec)); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, row(rec))
	}
	if !p.flags.json {
		w := &page{out: p.out}
		w.table(rowHeader(), rows)
		if w.err != nil {
			return w.err
		}
		if q.Limit > 0 && len(rows) == q.Limit {
			p.note("there may be more: --limit, or --beyond %q", last)
		}
	}
	if last == "" {
		p.noteTypes(q.Metadata)
	}
	return errors.Join(unreadable...)
}
