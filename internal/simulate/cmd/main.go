// Simulate plays seeded runs of the protocol in a world full of faults, or walks through
// every interleaving of small ones.
// The exit code is 1 if an invariant of the protocol is broken; then it prints how.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"time"
)

func main() {
	seeds := flag.String("seeds", "0-100000", "which runs to play: from one seed up to another, or a single one, whose story is told")
	limit := flag.Duration("for", 0, "play seeds from the first one on for so long, whatever the last one is; or search for so long at most")
	cores := flag.Int("cores", runtime.GOMAXPROCS(0), "how many runs to play at a time")
	search := flag.Bool("search", false, "search through every interleaving instead: of one transfer, then of two")
	flag.Parse()
	if flag.NArg() > 0 || *cores < 1 {
		flag.Usage()
		os.Exit(2)
	}
	out := report{out: os.Stdout, now: time.Now}
	var ok bool
	if *search {
		ok = out.searches(*limit)
	} else {
		first, behind, err := parseSeeds(*seeds)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		ok = out.plays(first, behind, *limit, *cores)
	}
	if !ok {
		os.Exit(1)
	}
}
