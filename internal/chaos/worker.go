package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
)

const (
	// workerVariable is the environment variable that makes this program a worker.
	workerVariable = "TRANSFER_CHAOS_WORKER"
	// workerName is the name by which the servers know the workers.
	workerName = "chaos worker"
	// stallThreshold is short, so that workers take over from one that is stopped.
	stallThreshold = time.Second
	// dialLimit is how long a worker waits for a silent server before it tries another
	// one.
	dialLimit = time.Second
	// endLimit is how long a worker may take to finish what it has begun, once it is
	// asked to end.
	endLimit = 20 * time.Second
)

// job is what a worker reads from its standard input.
// When the input ends, the worker ends.
type job struct {
	Config
	URI string
	// Routes maps the address of each member to the address of the wire that leads there.
	Routes map[string]string
	Slot   int
	Life   int // how many workers had the slot before
	// Again holds the transfers for which the slot's last worker got no answer.
	Again []string
}

// IsWorker reports whether this process was started as a worker.
// Such a process calls WorkerMain and nothing else.
func IsWorker() bool { return os.Getenv(workerVariable) != "" }

// WorkerMain runs a worker from its start to its end.
func WorkerMain(in io.Reader, out io.Writer) error {
	var j job
	input := json.NewDecoder(in)
	if err := input.Decode(&j); err != nil {
		return fmt.Errorf("a worker got no job: %w", err)
	}
	ctx, end := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, in)
		end()
		// The parent may be dead, or the library may hang.
		// Nothing else would end this process.
		time.AfterFunc(2*endLimit, func() { os.Exit(3) })
	}()
	return newWorker(j, out).work(ctx)
}

// worker is one process of the run.
type worker struct {
	job
	bank   bank
	report *reporter
}

func newWorker(j job, out io.Writer) *worker {
	return &worker{job: j, bank: bank{seed: j.Seed, accounts: j.Accounts}, report: newReporter(out)}
}

// returnAt returns what the worker's callers wait for, which depends on its slot.
func (j job) returnAt() transfer.ReturnAt {
	return []transfer.ReturnAt{transfer.AtSettled, transfer.AtCommit, transfer.AtSuccess}[j.Slot%3]
}

// dialer connects a worker to the wires instead of the servers.
type dialer map[string]string

// DialContext implements options.ContextDialer.
func (d dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	wire, known := d[address]
	if !known {
		return nil, fmt.Errorf("no wire leads to %s", address)
	}
	return new(net.Dialer).DialContext(ctx, network, wire)
}

func (w *worker) work(ctx context.Context) error {
	opts := options.Client().ApplyURI(w.URI).SetAppName(workerName).SetDialer(dialer(w.Routes)).
		SetConnectTimeout(dialLimit).SetHeartbeatInterval(dialLimit / 2)
	client, err := mongo.Connect(opts)
	if err != nil {
		return err
	}
	db := client.Database(database)
	coord, err := transfer.NewCoordinator(db, documents(db), transfer.WithStallThreshold(stallThreshold), transfer.WithReturnAt(w.returnAt()),
		eventful(func(r receipt) { w.report.write(entry{Took: &r}) }))
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	// It fails if the coordinator is closed or the server is unsuitable, which calls
	// report as well.
	all.Go(func() { _ = coord.Run(ctx) })
	all.Go(func() { w.recover(ctx, db) })
	for i := range w.Clients {
		c := newCaller(w, coord, i)
		all.Go(func() { c.work(ctx) })
	}
	all.Wait()
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
	defer cancel()
	if err := coord.Close(limited); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// recover sweeps with a threshold of zero, with either policy.
// So it also takes over transfers whose executors are alive.
func (w *worker) recover(ctx context.Context, db *mongo.Database) {
	rng := rand.New(rand.NewPCG(w.Seed, uint64(w.Slot)<<32+uint64(w.Life)))
	for n := 0; between(ctx, rng, time.Second, 5*time.Second); n++ {
		policy := []transfer.StallPolicy{transfer.Resume, transfer.RollBack}[rng.IntN(2)]
		coord, err := transfer.NewCoordinator(db, documents(db), eventless(), transfer.WithStallThreshold(0), transfer.WithStallPolicy(policy))
		if err != nil {
			return
		}
		limited, cancel := context.WithTimeout(ctx, endLimit)
		report, err := coord.Recover(limited)
		_ = coord.Close(limited) // What it has begun continues, or is left to others.
		cancel()
		e := entry{Call: fmt.Sprintf("%d-%d-recover-%d", w.Slot, w.Life, n), Verb: verbRecover, Recovered: &report}
		w.report.write(e.answer(transfer.Record{}, err))
	}
}

// pause waits, and reports whether the context is still alive.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
