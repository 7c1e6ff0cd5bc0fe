// Command cmd runs examples/service as several processes under faults, prints what they
// needed and the answers by outcome, and fails if anything is wrong.
// See package soak.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/mongotransfer/transfer/internal/soak"
)

func main() {
	config := soak.Default()
	flag.DurationVar(&config.For, "for", config.For, "how long the load and the faults last")
	flag.IntVar(&config.Processes, "processes", config.Processes, "processes of the service")
	flag.BoolVar(&config.Lasting, "lasting", false, "whether the first process is spared, and judged by its memory and its goroutines")
	flag.IntVar(&config.Clients, "clients", config.Clients, "clients")
	flag.IntVar(&config.Accounts, "accounts", config.Accounts, "accounts")
	flag.Parse()
	if err := run(config); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run prints the report, and returns the error of the run.
func run(config soak.Config) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	report, err := soak.Run(ctx, config, os.Stderr)
	if err != nil {
		return err
	}
	if err := report.Print(os.Stdout); err != nil {
		return err
	}
	return report.Err()
}
