package main

import (
	"context"
	"errors"
	"io"
	"runtime/debug"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"go.mongodb.org/mongo-driver/v2/event"
)

// surroundings are what a program finds around itself.
type surroundings struct {
	in       io.Reader
	out, err io.Writer
	asks     bool                  // there is somebody to ask
	shows    bool                  // the output is a terminal that can show a live view
	lookup   func(string) string   // a variable of the environment
	now      func() time.Time      // this machine's, by which no command goes
	monitor  *event.CommandMonitor // of all commands; nil: none
}

// program is one run of transferctl.
type program struct {
	surroundings
	flags globalFlags

	// begun says that a command has begun, so that no error is one of usage alone.
	begun bool
}

// run runs a command and returns the exit code.
func run(ctx context.Context, args []string, around surroundings) int {
	p := &program{surroundings: around}
	root := p.root()
	root.SetArgs(args)
	root.SetIn(p.in)
	root.SetOut(p.out)
	root.SetErr(p.err)
	err := root.ExecuteContext(ctx)
	if err != nil && !p.begun {
		err = &usageError{err}
		p.flags.json = p.flags.json || slices.Contains(args, "--json") // it may come behind what is wrong
	}
	return p.end(err)
}

// root returns the command that has all others.
func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "transferctl",
		Short: "look after the transfers of a MongoDB database",
		Long: "Transferctl looks after the transfers of a MongoDB database.\n\n" +
			"Where the database is, --uri says, or the variable MONGODB_URI.\n" +
			"How it is used, the notes of the deployment say.\n\n" +
			"Exit codes: 0 done, 1 failed, 2 usage, 3 not found, 4 findings, 5 the server is away.",
		Version:       version(debug.ReadBuildInfo()),
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("which command? See transferctl --help")
		},
	}
	root.CompletionOptions.DisableDefaultCmd = true
	p.flags.register(root.PersistentFlags())
	root.AddCommand(
		p.checkCommand(), p.setupCommand(), p.showCommand(), p.listCommand(), p.statsCommand(), p.recoverCommand(),
		p.cancelCommand(), p.reverseCommand(), p.auditCommand(), p.repairCommand(), p.accountsCommand(), p.rolesCommand(),
		p.watchCommand(), p.convertCommand(), p.redeliverCommand(), p.adoptCommand(), p.statementCommand(),
		p.freezeCommand("freeze", true), p.freezeCommand("unfreeze", false),
	)
	return root
}

// version names the version of this module, and the commit that it was built from, as far
// as the build has recorded them.
func version(build *debug.BuildInfo, ok bool) string {
	if !ok || build.Main.Version == "" {
		return "unknown"
	}
	text := build.Main.Version
	for _, setting := range build.Settings {
		switch {
		case setting.Key == "vcs.revision":
			text += ", commit " + setting.Value
		case setting.Key == "vcs.modified" && setting.Value == "true":
			text += ", with changes"
		}
	}
	return text
}

// action is what a command does, with the arguments that are no flags.
type action func(ctx context.Context, args []string) error

// command returns a command without flags of its own.
func (p *program) command(use, short, long string, args cobra.PositionalArgs, do action) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Long: long, Args: args,
		RunE: func(c *cobra.Command, args []string) error {
			if err := p.flags.check(); err != nil {
				return err
			}
			p.begun = true
			ctx := c.Context()
			if p.flags.timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, p.flags.timeout)
				defer cancel()
			}
			err := do(ctx, args)
			if p.flags.timeout > 0 && errors.Is(ctx.Err(), context.DeadlineExceeded) && exitCode(err) == exitAway {
				return &overError{p.flags.timeout, err}
			}
			return err
		},
	}
}

// onSession is an action with a deployment.
type onSession func(ctx context.Context, s *session, args []string) error

// with returns an action that opens the deployment, and closes it again.
func (p *program) with(need need, do onSession) action {
	return func(ctx context.Context, args []string) error {
		s, err := p.open(ctx, need)
		if err != nil {
			return err
		}
		err = do(ctx, s, args)
		return errors.Join(err, s.close(ctx))
	}
}
