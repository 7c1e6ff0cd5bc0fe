package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/mongotransfer/transfer"
)

// checkView is what check and setup answer.
type checkView struct {
	Database string `json:"database"`
	OK       bool   `json:"ok"`
	Problem  string `json:"problem,omitempty"`
}

func (p *program) checkCommand() *cobra.Command {
	return p.command("check", "say whether the server and the collections are fit, and everything is there",
		"Check asks what setup checks, and writes nothing. What is wrong or missing is a finding: exit code 4.",
		cobra.NoArgs, p.with(needDatabase, func(ctx context.Context, s *session, _ []string) error {
			view := checkView{Database: s.database.Name()}
			err := s.Check(ctx)
			if err != nil && !errors.Is(err, transfer.ErrUnsupportedDeployment) {
				return err
			}
			if view.OK = err == nil; !view.OK {
				view.Problem = err.Error()
			}
			if printed := p.answer(view, view.write); printed != nil || view.OK {
				return printed
			}
			return ErrFindings
		}))
}

func (v checkView) write(w *page) {
	if v.OK {
		w.line("%s is fit, and everything is there", v.Database)
		return
	}
	w.lines(v.Problem)
}

func (p *program) setupCommand() *cobra.Command {
	return p.command("setup", "create what is missing: collections, indexes and notes",
		"Setup creates what the library needs. On a complete deployment it writes nothing.\n"+
			"Where there is no note yet, the flags say how the collections are used, from then on for all processes.",
		cobra.NoArgs, p.with(needDatabase, func(ctx context.Context, s *session, _ []string) error {
			if err := s.Setup(ctx); err != nil {
				return err
			}
			view := checkView{Database: s.database.Name(), OK: true}
			return p.answer(view, view.write)
		}))
}
