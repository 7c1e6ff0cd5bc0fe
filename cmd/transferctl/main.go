// Transferctl is the command line for who operates a service that uses the library: what
// is there, what hangs, what is wrong, and what to do about it.
//
// docs/transferctl.md describes it. Each command is a file of its name.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/charmbracelet/x/term"
)

func main() { os.Exit(runHere(os.Args[1:])) }

// runHere runs a command in the surroundings of this process.
func runHere(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return run(ctx, args, surroundings{
		in: os.Stdin, out: os.Stdout, err: os.Stderr,
		asks:   term.IsTerminal(os.Stdin.Fd()) && term.IsTerminal(os.Stderr.Fd()),
		shows:  term.IsTerminal(os.Stdin.Fd()) && term.IsTerminal(os.Stdout.Fd()),
		lookup: os.Getenv, now: time.Now,
	})
}
