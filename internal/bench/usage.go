package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// tick is the unit in which Linux counts the processor time of processes, on all
// platforms on which Go runs.
const tick = 10 * time.Millisecond

// isMongod reports whether the process with that number on this machine is a mongod.
// A process in a container has another number outside.
func isMongod(pid int) bool {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return err == nil && bytes.HasPrefix(name, []byte("mongod"))
}

// processorTime returns the processor time that processes have used so far, and false if
// it can't be known.
func processorTime(pids ...int) (time.Duration, bool) {
	var sum time.Duration
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, false
		}
		// The name, in brackets, may hold anything.
		// The 12th and 13th field after it are the time in user mode and in system mode.
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		for i := 11; i <= 12; i++ {
			if i >= len(fields) {
				return 0, false
			}
			n, err := strconv.Atoi(string(fields[i]))
			if err != nil {
				return 0, false
			}
			sum += time.Duration(n) * tick
		}
	}
	return sum, len(pids) > 0
}
