package transferhttp

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mongotransfer/transfer"
)

const (
	// slotLength and slotCount are what the charts show: the last half hour.
	slotLength = 15 * time.Second
	slotCount  = 120
	// recentCalls is how many calls are remembered one by one.
	recentCalls = 1024
	// Longer texts and longer lists of a call are cut.
	maxIDBytes    = 255
	maxErrorBytes = 300
	maxSums       = 100
	maxStages     = 16
)

// Recorder remembers what a Coordinator has done in the last half hour, for the charts of
// the window: rates and latencies by verb and outcome, the stages of the last thousand
// calls, takeovers, deliveries of events, and the last audit.
//
// It is what this process has done: each process has a Recorder of its own.
// It takes some three megabytes at most, however much is done, and about half a
// microsecond of each call.
// It is safe for many goroutines.
type Recorder struct {
	now     func() time.Time
	begun   time.Time
	elapsed func() time.Duration // since begun, whatever the process's clock is set to

	mu    sync.Mutex
	slots [slotCount]slot
	calls [recentCalls]transfer.TransferInfo
	next  int // the place of the next call
	audit lastAudit

	drawing sync.Mutex
	drawn   activity
	drawnAt int64 // the slot in which it was; 0: never
	draws   int   // how often
}

// slot is what was done in one span of time.
type slot struct {
	number                         int64 // of the span: see slotNumber
	verbs                          map[string]*tally
	stages                         map[string]*effort
	takeovers                      int
	delivered, undelivered, gaveUp int
	commands, operations, queued   int
	counted                        *transfer.Stats
}

// tally is what has become of the calls of one verb.
type tally struct {
	outcomes [outcomes]int
	took     histogram
}

// outcomes is the number of outcomes of a call, and of 0, which is none.
const outcomes = int(transfer.Unchanged) + 1

// effort is the time that calls have spent on one stage.
type effort struct {
	count int
	took  time.Duration
}

// lastAudit is the last audit that has ended, and the error of a later one.
type lastAudit struct {
	report   *transfer.AuditReport
	sums     int // of which the report has the first
	failed   string
	failedAt time.Time
}

// NewRecorder returns a Recorder that has seen nothing yet.
// Hand its Observer to [transfer.NewCoordinator], and itself to [WithRecorder].
func NewRecorder() *Recorder {
	now := time.Now // the process's clock comes in here
	begun := now()
	return &Recorder{now: now, begun: begun, elapsed: func() time.Duration { return now().Sub(begun) }}
}

// Observer returns an observer that reports to the Recorder, and to the next observer,
// what a Coordinator does: for [transfer.WithObserver].
// The next one is that of OpenTelemetry, for example, or transfer.Observer{} where there
// is none.
func (r *Recorder) Observer(next transfer.Observer) transfer.Observer {
	return transfer.Observer{
		TransferStarted: next.TransferStarted,
		TransferDone:    both(r.transferDone, next.TransferDone),
		CommandDone:     both(r.commandDone, next.CommandDone),
		TakenOver:       both(func(transfer.TakeoverInfo) { r.record(func(s *slot) { s.takeovers++ }) }, next.TakenOver),
		Swept:           next.Swept,
		EventDone:       both(r.eventDone, next.EventDone),
		Counted:         both(func(c transfer.Stats) { r.record(func(s *slot) { s.counted = &c }) }, next.Counted),
	}
}

// both returns a function that calls two, of which the second may be nil.
func both[T any](first, second func(T)) func(T) {
	if second == nil {
		return first
	}
	return func(info T) {
		first(info)
		second(info)
	}
}

// Audited remembers an audit for the overview, which shows the last one.
// It takes what Audit returns:
//
//	recorder.Audited(coord.Audit(ctx))
//
// An audit that has failed doesn't replace the report of the one before.
func (r *Recorder) Audited(report transfer.AuditReport, err error) {
	sums := len(report.Ledgers)
	report = keptReport(report)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.audit.failed, r.audit.failedAt = clip(err.Error(), maxErrorBytes), r.now()
		return
	}
	r.audit = lastAudit{report: &report, sums: sums}
}

// keptReport returns what is remembered of an audit, which is of bounded size.
func keptReport(report transfer.AuditReport) transfer.AuditReport {
	findings, ledgers := report.Findings, report.Ledgers
	report.Findings = make([]transfer.Finding, min(len(findings), maxFindings))
	report.Omitted += len(findings) - len(report.Findings)
	for i := range report.Findings {
		f := findings[i]
		for _, text := range []*string{&f.Code, &f.ID, &f.Detail, &f.Advice, &f.Ledger, &f.Account, &f.TransferID} {
			*text = strings.Clone(clip(*text, maxTroubleBytes))
		}
		report.Findings[i] = f
	}
	report.Ledgers = slices.Clone(ledgers[:min(len(ledgers), maxSums)])
	report.LeftOut = slices.Clone(report.LeftOut[:min(len(report.LeftOut), maxSums)])
	return report
}

// lastAudit returns what the overview shows of audits.
func (r *Recorder) lastAudit() lastAudit {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.audit
}

// record changes the current slot.
func (r *Recorder) record(change func(*slot)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	number := r.slotNumber()
	s := &r.slots[number%slotCount]
	if s.number != number {
		*s = slot{number: number, verbs: map[string]*tally{}, stages: map[string]*effort{}}
	}
	change(s)
}

// slotNumber returns the number of the current slot.
// The first is slotCount, so that none has the number of a slot that was never used.
func (r *Recorder) slotNumber() int64 { return slotCount + int64(max(r.elapsed(), 0)/slotLength) }

// knownVerbs and knownStages bound how much a slot has.
func knownVerbs() [13]string {
	return [...]string{
		"transfer", "submit", "hold", "extend", "post", "void", "cancel", "reverse", "run", "postpone", "recover", "expire", "other",
	}
}

func knownStages() [12]string {
	return [...]string{"wait", "read", "store", "claim", "prepare", "hold", "settle", "undo", "clear", "finish", "look", "other"}
}

// nameIn returns a name, or "other" where it is not among the known ones.
func nameIn(known []string, name string) string {
	for _, k := range known {
		if k == name {
			return name
		}
	}
	return "other"
}

func (r *Recorder) transferDone(info transfer.TransferInfo) {
	verbs, stages := knownVerbs(), knownStages()
	call := kept(info)
	r.record(func(s *slot) {
		verb := nameIn(verbs[:], info.Verb)
		if s.verbs[verb] == nil {
			s.verbs[verb] = &tally{}
		}
		t := s.verbs[verb]
		if o := int(info.Outcome); o < outcomes {
			t.outcomes[o]++
		}
		t.took.add(info.Took)
		for _, stage := range info.Stages {
			name := nameIn(stages[:], stage.Name)
			if s.stages[name] == nil {
				s.stages[name] = &effort{}
			}
			s.stages[name].count++
			s.stages[name].took += stage.Took
		}
		r.calls[r.next] = call
		r.next = (r.next + 1) % recentCalls
	})
}

// kept returns what is remembered of a call, which is of bounded size and holds no
// context.
func kept(info transfer.TransferInfo) transfer.TransferInfo {
	info.Context = context.Background()
	info.ID = strings.Clone(clip(info.ID, maxIDBytes)) // which may be a part of something long
	info.Stages = append([]transfer.Stage(nil), info.Stages[:min(len(info.Stages), maxStages)]...)
	if info.Err != nil {
		info.Err = keptError(strings.Clone(clip(info.Err.Error(), maxErrorBytes)))
	}
	return info
}

// keptError is the text of an error, without what it holds.
type keptError string

// Error returns the text.
func (e keptError) Error() string { return string(e) }

func (r *Recorder) commandDone(info transfer.CommandInfo) {
	r.record(func(s *slot) {
		s.commands++
		s.operations += info.Operations
		s.queued = max(s.queued, info.Queued)
	})
}

func (r *Recorder) eventDone(info transfer.EventInfo) {
	r.record(func(s *slot) {
		switch {
		case info.Err == nil:
			s.delivered++
		case info.GivenUp:
			s.gaveUp++
		default:
			s.undelivered++
		}
	})
}

// callsOf returns the remembered calls about a transfer, newest first.
func (r *Recorder) callsOf(id string) (calls []transfer.TransferInfo) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range recentCalls {
		call := &r.calls[(r.next-1-i+2*recentCalls)%recentCalls]
		if call.ID == id && call.Verb != "" {
			calls = append(calls, *call)
		}
	}
	return calls
}

// each calls a function for each slot of the charts, oldest first, also for those in
// which nothing was done, until the last one that is over.
// Known is false before there was a Recorder.
func (r *Recorder) each(f func(i int, s *slot, known bool)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := r.slotNumber() - slotCount + 1
	for i := range slotCount - 1 {
		number := first + int64(i)
		s := &r.slots[number%slotCount]
		if s.number != number {
			s = &slot{number: number}
		}
		f(i, s, number >= slotCount)
	}
}
