package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/deployment"
	"github.com/mongotransfer/transfer/internal/wire"
)

// adoptView is what adopt has replaced.
type adoptView struct {
	Database string        `json:"database"`
	Replaced []replacement `json:"replaced"`
	LeftOut  []leftOut     `json:"leftOut,omitempty"`
}

// replacement is a thing that the notes and the records say otherwise than before. From
// is empty where they did not say it.
type replacement struct {
	What string `json:"what"`
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

func (v adoptView) write(w *page) {
	if len(v.Replaced) == 0 {
		w.line("nothing was to be replaced")
	}
	for _, r := range v.Replaced {
		w.line("replaced: %s: %q by %q", clean(r.What), r.From, r.To)
	}
	for _, name := range v.LeftOut {
		w.line("left out: %s", name)
	}
}

func (p *program) adoptCommand() *cobra.Command {
	return p.command("adopt", "change on purpose how the deployment's collections are used",
		"Adopt makes the configuration that the flags say that of the deployment; what no flag says stays as it is.\n"+
			"Stop all other processes first, and let recover finish what they have begun: docs/deployment.md has the steps.",
		cobra.NoArgs, p.with(needAdoption, func(ctx context.Context, s *session, _ []string) error {
			before, err := s.said(ctx)
			if err != nil {
				return err
			}
			if err := p.confirm(ctx, "let the notes and records of %s say from now on: %s",
				wire.NamespaceOf(s.transfers), s.configuration()); err != nil {
				return err
			}
			if err := s.Adopt(ctx); err != nil {
				return err
			}
			after, err := s.said(ctx)
			if err != nil {
				return err
			}
			view := adoptView{Database: s.database.Name(), Replaced: replaced(before, after), LeftOut: s.left}
			return p.answer(view, view.write)
		}))
}

// configuration says in one line what a session is configured with.
func (s *session) configuration() string {
	places := []string{"accounts in " + wire.NamespaceOf(s.accounts)}
	for _, r := range s.registered {
		places = append(places, fmt.Sprintf("%s %q in %s", r.kind, r.name, wire.NamespaceOf(r.Collection)))
	}
	kinds := "no events"
	if len(s.kinds) > 0 {
		kinds = fmt.Sprintf("events %v", s.kinds)
	}
	ids := "IDs as texts"
	if s.ids == transfer.ObjectIDs {
		ids = "IDs as ObjectIds"
	}
	return strings.Join(append(places, ids, "fields "+fieldsText(s.fields), kinds), ", ")
}

// fieldsText names the fields that have other names than usual.
func fieldsText(f transfer.Fields) string {
	var renamed []string
	for name, used := range map[string]string{
		"balance": f.Balance, "pending": f.Pending, "fence": f.Fence, "floor": f.Floor, "currency": f.Currency, "closed": f.Closed,
		"frozen": f.Frozen,
	} {
		if used != "" && used != name {
			renamed = append(renamed, name+"="+used)
		}
	}
	if len(renamed) == 0 {
		return "as usual"
	}
	slices.Sort(renamed)
	return strings.Join(renamed, " ")
}

// said returns what the notes and the records say about the session's collections.
func (s *session) said(ctx context.Context) (map[string]string, error) {
	declared, _, err := deployment.ReadDeclared(ctx, s.transfers)
	if err != nil {
		return nil, contactError(err)
	}
	said := map[string]string{}
	if len(declared.Events) > 0 {
		said["events"] = strings.Join(declared.Events, ",")
	}
	for _, n := range declared.Names {
		kind := "ledger"
		if n.Documents {
			kind = "documents"
		}
		stands := "a collection that is not there"
		if n.Here {
			stands = "the collection that is there"
		}
		said[fmt.Sprintf("%s %q (%s)", kind, n.Name, n.Namespace)] = stands
	}
	for _, c := range s.allAccounts() {
		note, found, err := deployment.ReadDeclaredAccounts(ctx, c)
		if err != nil {
			return nil, contactError(err)
		}
		if !found {
			continue
		}
		about := wire.NamespaceOf(c)
		said[about+" transfers"] = note.Transfers
		said[about+" fields"] = fieldsText(transfer.Fields(note.Fields))
		said[about+" ids"] = "texts"
		if note.ObjectIDs {
			said[about+" ids"] = "ObjectIds"
		}
	}
	return said, nil
}

// replaced returns what is said otherwise than before.
func replaced(before, after map[string]string) []replacement {
	all := []replacement{}
	everything := maps.Clone(before)
	maps.Copy(everything, after)
	for _, what := range slices.Sorted(maps.Keys(everything)) {
		if before[what] != after[what] {
			all = append(all, replacement{what, before[what], after[what]})
		}
	}
	return all
}
