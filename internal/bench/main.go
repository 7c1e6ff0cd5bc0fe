// Command bench measures the library and its contenders on the same server, in
// alternating rounds.
// It prints all results, also those where the library loses.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/pprof"
	"syscall"
)

func main() {
	if os.Getenv(workerVariable) != "" {
		signal.Ignore(os.Interrupt) // The parent decides when to end.
		exitIf(work(context.Background(), os.Stdin, os.Stdout))
		return
	}
	var s settings
	if err := s.parse(os.Args[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		os.Exit(2) // The flags have printed the reason.
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	exitIf(profiled(s.cpuprofile, func() error { return measureAll(ctx, &s, os.Stdout) }))
}

func exitIf(err error) {
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// profiled writes a profile of what do does, if a file is named.
func profiled(name string, do func() error) (err error) {
	if name == "" {
		return do()
	}
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := pprof.StartCPUProfile(file); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	return do()
}
