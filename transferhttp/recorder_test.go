package transferhttp_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
	"github.com/mongotransfer/transfer/transferhttp"
)

// clock is a clock that a test sets.
type clock struct {
	mu   sync.Mutex
	at   time.Time
	gone time.Duration
}

func (c *clock) elapsed() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gone
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
	c.gone += d
}

// jump sets what the clock shows, as an operator does.
func (c *clock) jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// charts returns the overview of a recorder, without what it shows of a server.
func charts(t *testing.T, r *transferhttp.Recorder) answer {
	t.Helper()
	b := bank.NewBare(t)
	bank.Kill(b.Coordinator)
	return open(t, b.Coordinator, transferhttp.WithRecorder(r)).ask("GET", "./")
}

// label returns how a chart is described to those who don't see it.
func (a answer) label(name string) string {
	return regexp.MustCompile(`(?s)id="chart-` + name + `".*?aria-label="([^"]*)"`).FindStringSubmatch(a.body)[1]
}

// tell reports some of everything to an observer.
func tell(t *testing.T, o transfer.Observer) {
	t.Helper()
	done := func(verb string, outcome transfer.Outcome, took time.Duration, n int) {
		for range n {
			o.TransferDone(transfer.TransferInfo{
				Context: t.Context(), ID: "t", Verb: verb, Outcome: outcome, Took: took,
				Stages: []transfer.Stage{{Name: "claim", Took: took / 4}, {Name: "settle", Took: 3 * took / 4}, {Name: "new", Took: 0}},
			})
		}
	}
	done("transfer", transfer.Moved, 10*time.Millisecond, 90)
	done("transfer", transfer.Failed, time.Second, 30)
	done("hold", transfer.InDoubt, 10*time.Second, 3)
	done("brand new", transfer.NothingStored, time.Millisecond, 3)
	done("run", transfer.Moved, time.Hour, 15)
	o.TakenOver(transfer.TakeoverInfo{})
	o.CommandDone(transfer.CommandInfo{Operations: 3, Queued: 5})
	o.CommandDone(transfer.CommandInfo{Operations: 6, Queued: 1})
	o.EventDone(transfer.EventInfo{})
	o.EventDone(transfer.EventInfo{Err: errors.New("away")})
	o.EventDone(transfer.EventInfo{Err: errors.New("away"), GivenUp: true})
	o.Counted(transfer.Stats{Preparing: 1, Committed: 2, Rollback: 4, Due: 8, Held: 16, Undelivered: 32})
}

// Rates, latencies and the rest are those of the calls that the recorder was told of, for
// half an hour.
func TestRecorder(t *testing.T) {
	t.Parallel()
	c := &clock{at: time.Unix(1_800_000_000, 0)}
	r := transferhttp.NewRecorderBy(c.now, c.elapsed)
	o := r.Observer(transfer.Observer{})
	empty := charts(t, r)
	require.Contains(t, empty.section("lately"), "Nothing in the last 30 minutes")
	require.Contains(t, empty.section("lately"), "It was started at 2027-01-15 08:00:00.000 UTC")
	c.add(time.Hour)
	tell(t, o)
	require.Contains(t, charts(t, r).label("calls"), "Last: done 0,", "the span that is not over yet is not drawn")

	c.add(15 * time.Second)
	page := charts(t, r)
	require.Equal(t, "Calls a second, over the last 30 minutes. "+
		"Last: done 6, refused 2, in doubt 0.2, nothing stored or changed 0.2. The highest was 8.4.", page.label("calls"))
	require.Regexp(t, `Last: 99 of 100 within 1[01].\d? ?s.*, 95 of 100 1.[012] s, half of them 1[012] ms`, page.label("latency"))
	require.Contains(t, page.label("unfinished"), "under way 7, due 8, held 16")
	require.Contains(t, page.label("events"), "undelivered 32")
	require.Contains(t, page.label("background"), "by Run and Recover 1.")
	lately := page.section("lately")
	require.Regexp(t, `transfer 120 30 0 1[012] ms 1.[012] s 1.[012] s hold 3 0 3 .* run 15 0 0 .* other 3 0 0 `, lately)
	require.Regexp(t, `claim 141 .* 25 % settle 141 .* 75 % other 141 0 µs 0 %`, lately)
	require.Contains(t, lately, "takeovers 1 shared commands 2 operations in each 4.5 longest queue for one 5 "+
		"events delivered 1 deliveries that failed 1 events given up 1")

	c.add(29*time.Minute + 30*time.Second)
	require.Contains(t, charts(t, r).section("lately"), "transfer 120 30")
	c.add(15 * time.Second)
	require.NotContains(t, charts(t, r).section("lately"), "transfer 120 30")
	c.add(15 * time.Second)
	require.NotContains(t, charts(t, r).section("lately"), "transfer 120 30", "nor where nothing has taken its place")
	o.TransferDone(transfer.TransferInfo{Verb: "transfer", Outcome: transfer.Moved})
	c.add(15 * time.Second)
	require.Contains(t, charts(t, r).section("lately"), "transfer 1 0 0", "a span's place is used anew")
}

// The charts don't mind what the process's clock is set to meanwhile.
func TestRecorderWhenTheClockIsSet(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]time.Duration{"back": -2 * time.Hour, "ahead": 2 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &clock{at: time.Unix(1_800_000_000, 0)}
			r := transferhttp.NewRecorderBy(c.now, c.elapsed)
			o := r.Observer(transfer.Observer{})
			tell(t, o)
			c.add(15 * time.Second)
			c.jump(d)
			o.TransferDone(transfer.TransferInfo{Verb: "hold", Outcome: transfer.Moved})
			c.add(15 * time.Second)
			page := charts(t, r)
			require.Contains(t, page.section("lately"), "transfer 120 30")
			require.Contains(t, page.section("lately"), "hold 4 0 3")
			require.Contains(t, page.label("calls"), "Last: done 0.07,")
			require.Contains(t, page.label("calls"), "The highest was 8.4.")
		})
	}
}

// What the charts show last is of the last minute or two, and not of some time ago.
func TestChartsTellTheLastMinute(t *testing.T) {
	t.Parallel()
	c := &clock{at: time.Unix(1_800_000_000, 0)}
	r := transferhttp.NewRecorderBy(c.now, c.elapsed)
	tell(t, r.Observer(transfer.Observer{}))
	c.add(time.Minute)
	page := charts(t, r)
	require.Contains(t, page.label("unfinished"), "under way 7, due 8, held 16")
	require.Contains(t, page.label("latency"), "99 of 100 within 10 s")
	c.add(15 * time.Second)
	page = charts(t, r)
	require.Contains(t, page.label("latency"), "99 of 100 within –, 95 of 100 –, half of them –. The highest was 10 s.")
	c.add(time.Minute)
	require.Contains(t, charts(t, r).label("unfinished"), "under way –, due –, held –. The highest was 16.")
}

// The charts are drawn once for each span, however many look at them: who draws keeps
// those waiting who record.
func TestChartsAreDrawnOnce(t *testing.T) {
	t.Parallel()
	c := &clock{at: time.Unix(1_800_000_000, 0)}
	r := transferhttp.NewRecorderBy(c.now, c.elapsed)
	o := r.Observer(transfer.Observer{})
	for spans := range 3 {
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { transferhttp.Draw(r) })
		}
		all.Wait()
		o.TransferDone(transfer.TransferInfo{Verb: "transfer", Outcome: transfer.Moved})
		require.Equal(t, spans+1, transferhttp.Drawn(r))
		c.add(15 * time.Second)
	}
}

// The figures beside a chart are those of its picture, small and large.
func TestChartLabels(t *testing.T) {
	t.Parallel()
	c := &clock{at: time.Unix(1_800_000_000, 0)}
	r := transferhttp.NewRecorderBy(c.now, c.elapsed)
	o := r.Observer(transfer.Observer{})
	for range 2 {
		o.TransferDone(transfer.TransferInfo{Verb: "transfer", Outcome: transfer.Moved, Took: 150 * time.Second})
	}
	o.TransferDone(transfer.TransferInfo{Verb: "hold", Outcome: transfer.Unchanged, Took: 9 * time.Millisecond})
	c.add(15 * time.Second)
	lately := charts(t, r).section("lately")
	require.Contains(t, lately, "Calls a second 0.2 30 min ago")
	require.Contains(t, lately, "done 0.13")
	require.Contains(t, lately, "hold 1 0 0 9.0 ms 9.0 ms 9.0 ms", "none took longer")
	require.Contains(t, lately, "How long callers waited 2.5 min 30 min ago")
	require.Contains(t, lately, "transfer 2 0 0 2.5 min 2.5 min 2.5 min", "no bucket ends there")
}

// An observer that comes next is told everything that it would be told alone.
func TestRecorderTellsTheNext(t *testing.T) {
	t.Parallel()
	var told []string
	tell := func(what string) { told = append(told, what) }
	r := transferhttp.NewRecorder()
	type key struct{}
	o := r.Observer(transfer.Observer{
		TransferStarted: func(ctx context.Context, _ transfer.TransferStart) context.Context {
			tell("started")
			return context.WithValue(ctx, key{}, "span")
		},
		TransferDone: func(transfer.TransferInfo) { tell("done") },
		CommandDone:  func(transfer.CommandInfo) { tell("command") },
		TakenOver:    func(transfer.TakeoverInfo) { tell("takeover") },
		Swept:        func(transfer.RecoveryReport, time.Duration) { tell("swept") },
		EventDone:    func(transfer.EventInfo) { tell("event") },
		Counted:      func(transfer.Stats) { tell("counted") },
	})
	require.Equal(t, "span", o.TransferStarted(t.Context(), transfer.TransferStart{}).Value(key{}))
	o.TransferDone(transfer.TransferInfo{ID: "t", Verb: "transfer"})
	o.CommandDone(transfer.CommandInfo{})
	o.TakenOver(transfer.TakeoverInfo{})
	o.Swept(transfer.RecoveryReport{}, 0)
	o.EventDone(transfer.EventInfo{})
	o.Counted(transfer.Stats{})
	require.Equal(t, []string{"started", "done", "command", "takeover", "swept", "event", "counted"}, told)
	alone := r.Observer(transfer.Observer{})
	require.Nil(t, alone.TransferStarted)
	require.Nil(t, alone.Swept)
}

// A Recorder of a Coordinator that works sees its calls, while pages are made of it.
func TestRecorderAtWork(t *testing.T) {
	t.Parallel()
	r := transferhttp.NewRecorder()
	b := bank.NewWith(t, []transfer.Option{transfer.WithObserver(r.Observer(transfer.Observer{}))}, 1000, 0)
	p := open(t, b.Coordinator, transferhttp.WithRecorder(r))
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			_, err := b.Transfer(t.Context(), bank.Move(fmt.Sprint("t", i), "a", "b", 1))
			assert.NoError(t, err)
		})
		all.Go(func() { p.ask("GET", "./") })
	}
	all.Wait()
	require.Regexp(t, `transfer Moved Success .*claim .*prepare .*settle`, p.get("transfer?id=t7").section("calls"))
	r.Audited(b.Audit(t.Context()))
	require.Regexp(t, `2 accounts, 20 transfers, 0 of them unfinished. Nothing was found. .*the default one none 2 1000 0`,
		p.get("./").section("audit"))
	b.CheckBooks(bank.Balances(1000, 0))
}

// heap returns how much memory is in use.
func heap() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// Whatever is recorded, it takes three megabytes at most.
func TestRecorderIsBounded(t *testing.T) {
	const enough = 3 << 20
	c := &clock{at: time.Now()}
	before := heap()
	r := transferhttp.NewRecorderBy(c.now, c.elapsed)
	o := r.Observer(transfer.Observer{})
	stages := make([]transfer.Stage, 400)
	for s := range stages {
		stages[s].Name = fmt.Sprint("stage", s)
	}
	for slot := range 130 {
		for i := range 26 {
			verbs := []string{
				"transfer", "submit", "hold", "extend", "post", "void", "cancel", "reverse", "run", "postpone", "recover", "expire",
				fmt.Sprint("verb", i),
			}
			o.TransferDone(transfer.TransferInfo{
				Context: context.WithValue(t.Context(), c, make([]byte, 1<<14)), ID: strings.Repeat(fmt.Sprint(slot, i), 1<<13),
				Verb: verbs[i%len(verbs)], Err: errors.New(strings.Repeat("x", 1<<14)), Stages: stages, Outcome: transfer.Outcome(i % 7),
			})
		}
		c.add(15 * time.Second)
	}
	require.Less(t, heap()-before, int64(enough))
	// An ID that is short, and a part of something long, doesn't keep that.
	for i := range transferhttp.RecentCalls {
		o.TransferDone(transfer.TransferInfo{ID: strings.Repeat(fmt.Sprint(i), 1<<14)[:9], Verb: "transfer"})
	}
	require.Less(t, heap()-before, int64(enough))
	require.Contains(t, charts(t, r).section("lately"), "other")
}

// An audit is remembered in a bounded size, whatever it has found, and whatever becomes
// of the report that was handed over.
func TestAuditIsBounded(t *testing.T) {
	const enough = 1 << 20
	c := &clock{at: time.Now()}
	r := transferhttp.NewRecorderBy(c.now, c.elapsed)
	report := transfer.AuditReport{Findings: make([]transfer.Finding, 1000), Ledgers: make([]transfer.LedgerTotal, 10_000), Omitted: 5}
	long := strings.Repeat("<", 1<<13)
	for i := range report.Findings {
		report.Findings[i] = transfer.Finding{Code: "odd", ID: fmt.Sprint(i, long), Detail: fmt.Sprint(i, long), Advice: fmt.Sprint(i, long)}
	}
	for i := range report.Ledgers {
		report.Ledgers[i] = transfer.LedgerTotal{Currency: fmt.Sprint("C", i)}
	}
	r.Audited(report, nil)
	report.Findings[0].Code, report.Ledgers[0].Currency = "changed", "changed"
	report = transfer.AuditReport{}
	before := heap()
	page := charts(t, r)
	r.Audited(transfer.AuditReport{}, nil)
	require.Less(t, before-heap(), int64(enough))
	require.NotContains(t, page.body, "changed")
	require.Contains(t, page.section("attention"), "The audit has findings 1005")
	require.Contains(t, page.section("audit"), "And 985 more.")
	require.Contains(t, page.section("audit"), "C99")
	require.Contains(t, page.section("audit"), "And 9900 more sums.")
	require.Less(t, len(page.body), 400<<10)
}

// The calls about a transfer are the last ones, newest first.
func TestRecentCalls(t *testing.T) {
	t.Parallel()
	r := transferhttp.NewRecorder()
	o := r.Observer(transfer.Observer{})
	b := bank.New(t, 10, 0)
	b.MustMove("t", 1)
	for i := range transferhttp.RecentCalls + 5 {
		info := transfer.TransferInfo{ID: "other", Verb: "transfer"}
		if i == 0 || i == 7 || i == 9 {
			info.ID, info.Err, info.Outcome = "t", fmt.Errorf("<call %d>", i), transfer.InDoubt
		}
		o.TransferDone(info)
	}
	calls := open(t, b.Coordinator, transferhttp.WithRecorder(r)).get("transfer?id=t").section("calls")
	require.Regexp(t, `InDoubt <call 9> .*InDoubt <call 7>`, calls)
	require.NotContains(t, calls, "<call 0>")
}

// The last audit is shown, its findings first among what needs attention; one that has
// failed doesn't hide it.
func TestLastAudit(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 10, 0).WithIndexes()
	b.MustMove("t", 1)
	r := transferhttp.NewRecorder()
	p := open(t, b.Coordinator, transferhttp.WithRecorder(r))
	require.Contains(t, p.get("./").section("audit"), "None is known here")
	var findings []transfer.Finding
	for i := range 25 {
		findings = append(findings, transfer.Finding{
			Code: "orphanMarker", ID: "a", Account: "<a>", Detail: fmt.Sprint("detail ", i), Advice: "Call <b>RepairMarker</b>",
		})
	}
	findings[1].TransferID = "t/1"
	r.Audited(transfer.AuditReport{Findings: findings, Omitted: 3, At: time.Now().Add(-time.Hour)}, nil)
	r.Audited(transfer.AuditReport{}, errors.New("it took too long"))
	page := p.get("./")
	require.Contains(t, page.section("attention"), "The audit has findings 28")
	require.NotContains(t, page.section("attention"), "Nothing is stuck")
	require.Regexp(t, `has not ended: it took too long .* 60 min ago: .*detail 0 Call <b>RepairMarker</b> .*And 8 more`, page.section("audit"))
	require.Contains(t, page.links(), "account?id=%3Ca%3E")
	require.Contains(t, page.links(), "transfer?id=t%2F1")
	r.Audited(transfer.AuditReport{Accounts: 5, LeftOut: []transfer.LeftOut{{Name: "usd", Namespace: "bank.usd"}}}, nil)
	require.NotContains(t, p.get("./").section("audit"), "has not ended")
	require.Contains(t, p.get("./").section("audit"), `Left out: ledger "usd" in bank.usd.`)
	b.CheckBooks(bank.Balances(10, 0))
}
