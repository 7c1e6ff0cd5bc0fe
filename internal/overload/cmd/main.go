// Command cmd puts too much load on the library, on real servers, and prints what it
// measures.
// It fails if anything is not as it must be.
// See package overload.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/overload"
)

func main() {
	var config overload.Config
	flag.BoolVar(&config.Short, "short", false, "play the short form, as the tests do")
	flag.DurationVar(&config.Soak, "soak", 0, "instead of the scenarios, play a mixed load for so long")
	flag.Func("only", "numbers of scenarios, with commas between them; all, unless given", func(list string) error {
		for number := range strings.SplitSeq(list, ",") {
			n, err := strconv.Atoi(number)
			if err != nil {
				return err
			}
			config.Only = append(config.Only, n)
		}
		return nil
	})
	flag.Parse()
	if err := run(config); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run prints the report, and returns its error.
func run(config overload.Config) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	server, err := mongotest.Start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	config.Home = server.URI()
	report, err := overload.Run(ctx, config, os.Stdout)
	return errors.Join(err, report.Err())
}
