// Command cmd runs the library on real servers under faults and prints a table.
// It fails if anything is wrong, or if the run did too little.
// See package chaos.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/mongotransfer/transfer/internal/chaos"
)

func main() {
	if chaos.IsWorker() {
		exitIf(chaos.WorkerMain(os.Stdin, os.Stdout))
		return
	}
	config := chaos.Default()
	flag.DurationVar(&config.For, "for", config.For, "how long the load and the faults last")
	flag.IntVar(&config.Workers, "workers", config.Workers, "worker processes")
	flag.IntVar(&config.Clients, "clients", config.Clients, "clients of each worker")
	flag.IntVar(&config.Accounts, "accounts", config.Accounts, "accounts")
	flag.Uint64Var(&config.Seed, "seed", config.Seed, "what the requests and the faults are drawn from; their timing differs all the same")
	flag.Int64Var(&config.Theft, "theft", 0, "units that are taken behind the library's back, to see that it is found")
	flag.Func("faults", "groups of faults, with commas between them; all, unless given: "+strings.Join(config.Faults, ","),
		func(groups string) error {
			config.Faults = strings.FieldsFunc(groups, func(r rune) bool { return r == ',' })
			return nil
		})
	flag.Parse()
	exitIf(run(config))
}

// run prints the report, and returns the error of the run.
func run(config chaos.Config) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	report, err := chaos.Run(ctx, config, os.Stderr)
	if err != nil {
		return err
	}
	if err := report.Print(os.Stdout); err != nil {
		return err
	}
	return report.Err()
}

func exitIf(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
