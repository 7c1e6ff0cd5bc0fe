package overload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"
)

const (
	// heapFloor and heapPerCaller bound the memory in use: a caller's stack, request and
	// record, twice, because of garbage.
	heapFloor     = 192 << 20
	heapPerCaller = 24 << 10
	// goroutinesFloor and goroutinesPerCaller bound the goroutines, including those of
	// the callers.
	goroutinesFloor     = 1000
	goroutinesPerCaller = 2
	// leftGoroutines is how many more goroutines there may be after a scenario than
	// before it.
	// Those belong to the runtime.
	leftGoroutines = 10
	leaveLimit     = 10 * time.Second
)

// scenario is one kind of overload.
type scenario struct {
	number int
	name   string
	play   func(context.Context, *scene) error
}

func scenarios() []scenario {
	return []scenario{
		{1, "congestion, on a fast line", playFastLine},
		{2, "congestion, on a line of 300 KB/s", playNarrowLine},
		{3, "a second cluster is of no use", playOutage},
		{4, "thousands wait", playWaiters},
		{5, "thousands ask for one transfer that hangs", playHanging},
		{6, "one of three clusters is silent", playSlow},
		{7, "recovery while four clusters are silent", playRecover},
		{8, "an account is locked", playLocked},
		{9, "a big neighbour", playNeighbours},
		{10, "more calls arrive than are served", playArrivals},
		{11, "callers who ask again at once", playImpatient},
	}
}

// Run plays scenarios one after the other, prints what each of them measures as it comes,
// and returns all of it.
// An error means that a scenario could not be played.
// Whether everything holds is in the report.
func Run(ctx context.Context, config Config, out io.Writer) (*Report, error) {
	report := &Report{out: out}
	if err := config.check(); err != nil {
		return report, err
	}
	if config.Soak > 0 {
		return report, playScenario(ctx, config, report, scenario{name: "soak of " + config.Soak.String(), play: playSoak})
	}
	var failed []error
	for _, s := range scenarios() {
		if !config.plays(s.number) {
			continue
		}
		failed = append(failed, playScenario(ctx, config, report, s))
		if ctx.Err() != nil {
			break
		}
	}
	return report, errors.Join(failed...)
}

// playScenario plays one scenario, and makes sure that it leaves nothing behind.
func playScenario(ctx context.Context, config Config, report *Report, what scenario) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", what.name, err)
			report.print("  " + err.Error())
		}
	}()
	report.title(what)
	begun, before := time.Now(), runtime.NumGoroutine()
	s := &scene{Config: config, report: report}
	runtime.GC() // the garbage of another scenario doesn't count
	u := watchUsage(ctx)
	err = what.play(ctx, s)
	u.stop()
	if err := errors.Join(err, s.end()); err != nil {
		return err
	}
	s.atMost("heap in use, MB", u.heap>>20, int64(heapFloor+heapPerCaller*s.callers)>>20)
	s.atMost("goroutines", u.goroutines, int64(goroutinesFloor+goroutinesPerCaller*s.callers))
	_, _, err = eventually(ctx, leaveLimit, func() (bool, error) { return runtime.NumGoroutine() <= before+leftGoroutines, nil })
	s.atMost("goroutines left behind", int64(runtime.NumGoroutine()-before), leftGoroutines)
	s.note("played in", time.Since(begun).Round(time.Second))
	return err
}
