package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/mongotransfer/transfer"
)

// checkView is what check and setup answer.
type checkView struct {
	Database string    `json:"database"`
	OK       bool      `json:"ok"`
	Problem  string    `json:"problem,omitempty"`
	LeftOut  []leftOut `json:"leftOut,omitempty"`
}

func (p *program) checkCommand() *cobra.Command {
	return p.command("check", "say whether the server and the collections are fit, and everything is there",
		"Check asks what setup checks, and writes nothing. What is wrong, missing or left out is a finding: exit code 4.",
		cobra.NoArgs, p.with(needDatabase, func(ctx context.Context, s *session, _ []string) error {
			view := checkView{Database: s.database.Name(), LeftOut: s.left}
			err := s.Check(ctx)
			if err != nil && !errors.Is(err, transfer.ErrUnsupportedDeployment) {
				return err
			}
			if err != nil {
				view.Problem = asCommands(err.Error())
			}
			view.OK = err == nil && len(s.left) == 0 // nothing is known of what was left out
			if printed := p.answer(view, view.write); printed != nil || view.OK {
				return printed
			}
			return ErrFindings
		}))
}

func (v checkView) write(w *page) {
	switch {
	case v.Problem != "":
		w.lines(v.Problem)
	case len(v.LeftOut) > 0:
		w.line("%s is fit but for what was left out", v.Database)
	default:
		w.line("%s is fit, and everything is there", v.Database)
	}
	for _, name := range v.LeftOut {
		w.line("left out: %s", name)
	}
}

func (p *program) setupCommand() *cobra.Command {
	return p.command("setup", "create what is missing: collections, indexes and notes",
		"Setup creates what the library needs. On a complete deployment it writes nothing.\n"+
			"Where there is no note yet, the flags say how the collections are used, from then on for all processes.",
		cobra.NoArgs, p.with(needDatabase, func(ctx context.Context, s *session, _ []string) error {
			if err := s.Setup(ctx); err != nil {
				return err
			}
			view := checkView{Database: s.database.Name(), OK: true, LeftOut: s.left}
			return p.answer(view, view.write)
		}))
}
