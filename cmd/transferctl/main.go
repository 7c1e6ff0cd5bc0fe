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

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], surroundings{
		in: os.Stdin, out: os.Stdout, err: os.Stderr,
		asks:   term.IsTerminal(os.Stdin.Fd()) && term.IsTerminal(os.Stderr.Fd()),
		shows:  term.IsTerminal(os.Stdin.Fd()) && term.IsTerminal(os.Stdout.Fd()),
		lookup: os.Getenv, now: time.Now,
	})
	stop()
	os.Exit(code)
}
