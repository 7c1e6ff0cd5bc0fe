package soak

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mongotransfer/transfer"
)

const (
	// samplePeriod is the time between two looks at what the processes need.
	samplePeriod = time.Second
	// leastSamples is how many make a judgement.
	leastSamples = 60
	// heapDrift and goroutinesDrift are how much more the last quarter may need than the
	// second one, besides a fifth of that.
	heapDrift       = 2 << 20
	goroutinesDrift = 30
	// auditPeriod is the pause between two audits of the live data.
	auditPeriod = 10 * time.Second
	// stalledAfter is the threshold of these audits. What has stalled is no finding
	// there: the processes take up ever more rarely what the missing right has stopped
	// again and again. The check in the end wants all of it finished.
	stalledAfter = time.Hour
	// lines is how many lines the summary has for the time of a run.
	lines = 12
)

// sample is what a process needs at one moment.
type sample struct {
	at         time.Duration // since the beginning
	heap       int64         // bytes in use, after the latest garbage collection
	resident   int64         // bytes of memory; 0 where the system doesn't say
	goroutines int64
}

// usage is what the processes need over the time. It is safe for concurrent use.
type usage struct {
	mu      sync.Mutex
	samples [][]sample // by process
}

func newUsage(processes int) *usage { return &usage{samples: make([][]sample, processes)} }

// watch looks at the processes again and again, until ctx ends. One that is just killed
// or started does not answer.
func (u *usage) watch(ctx context.Context, slots []*slot) {
	begun := time.Now()
	for pause(ctx, samplePeriod); ctx.Err() == nil; pause(ctx, samplePeriod) {
		for i, s := range slots {
			seen, err := s.look(ctx)
			if err != nil {
				continue
			}
			seen.at = time.Since(begun)
			u.mu.Lock()
			u.samples[i] = append(u.samples[i], seen)
			u.mu.Unlock()
		}
	}
}

// look asks the slot's process what it needs.
func (s *slot) look(ctx context.Context) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, samplePeriod)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.admin+"/debug/vars", nil)
	if err != nil {
		return sample{}, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return sample{}, err
	}
	defer func() { _ = answer.Body.Close() }()
	var vars struct{ Goroutines, LiveHeapBytes int64 }
	if err := json.NewDecoder(answer.Body).Decode(&vars); err != nil {
		return sample{}, err
	}
	return sample{heap: vars.LiveHeapBytes, goroutines: vars.Goroutines, resident: residentOf(s.now().cmd.Process.Pid)}, nil
}

// residentOf returns how much memory a process has, where Linux says so.
func residentOf(pid int) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for text := bufio.NewScanner(bytes.NewReader(status)); text.Scan(); {
		if fields := strings.Fields(text.Text()); len(fields) > 1 && fields[0] == "VmRSS:" {
			kilobytes, _ := strconv.ParseInt(fields[1], 10, 64) // 0 stands for unknown.
			return kilobytes << 10
		}
	}
	return 0
}

// summary returns what the processes needed, as lines of a table.
func (u *usage) summary() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	var table []string
	for i, all := range u.samples {
		step := max(1, len(all)/lines)
		for from := 0; from+step <= len(all); from += step {
			part := all[from : from+step]
			table = append(table, fmt.Sprintf("process %d, from %6s: heap %5d KB, resident %6d KB, goroutines %4d", i+1,
				part[0].at.Round(time.Second), median(part, heapOf)>>10, median(part, residentIn)>>10, median(part, goroutinesOf)))
		}
	}
	return table
}

// drift returns what a process needs more and more of.
func (u *usage) drift(process int) (findings []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := u.samples[process]
	if len(all) < leastSamples {
		return []string{fmt.Sprintf("process %d was looked at %d times, and that says nothing of memory", process+1, len(all))}
	}
	for _, need := range []struct {
		name string
		of   func(sample) int64
		more int64
	}{
		{"bytes of heap", heapOf, heapDrift}, {"goroutines", goroutinesOf, goroutinesDrift},
	} {
		n := len(all) / 4
		second, last := median(all[n:2*n], need.of), median(all[3*n:], need.of)
		if bound := second + second/5 + need.more; last > bound {
			findings = append(findings, fmt.Sprintf("process %d has %d %s in the last quarter of the time, after %d in the second: "+
				"at most %d are allowed", process+1, last, need.name, second, bound))
		}
	}
	return findings
}

func heapOf(s sample) int64       { return s.heap }
func residentIn(s sample) int64   { return s.resident }
func goroutinesOf(s sample) int64 { return s.goroutines }

func median(samples []sample, of func(sample) int64) int64 {
	numbers := make([]int64, len(samples))
	for i, s := range samples {
		numbers[i] = of(s)
	}
	if len(numbers) == 0 {
		return 0
	}
	slices.Sort(numbers)
	return numbers[len(numbers)/2]
}

// auditLive audits again and again while the processes work, until ctx ends.
func (r *run) auditLive(ctx context.Context) (findings []string, audits int, err error) {
	coord, err := transfer.NewCoordinator(r.owner.Database(database), r.hook.option(), transfer.WithStallThreshold(stalledAfter))
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = coord.Close(context.WithoutCancel(ctx)) }()
	known := map[string]bool{}
	for pause(ctx, auditPeriod); ctx.Err() == nil; pause(ctx, auditPeriod) {
		expected := []transfer.ExpectedTotal{{Sum: transfer.Units(0)}}
		report, err := coord.AuditWith(ctx, transfer.AuditOptions{Expected: expected})
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return findings, audits, fmt.Errorf("audit while the processes work: %w", err)
		}
		audits++
		for _, f := range report.Findings {
			if text := f.String(); !known[text] {
				known[text] = true
				findings = append(findings, "audit while the processes work: "+text)
			}
		}
	}
	return findings, audits, nil
}
