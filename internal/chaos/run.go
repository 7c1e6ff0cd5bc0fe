package chaos

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
)

const (
	members = 3
	// patienceFactor is how many times longer than asked for the storm may last to meet
	// its minimum of each fault, since machines differ.
	patienceFactor = 3
	// startLimit is how long it may take until the servers and the accounts are there.
	startLimit = 5 * time.Minute
	// recoveryLimit is how long recovery alone may take at the end to finish all
	// transfers.
	recoveryLimit = 2 * time.Minute
	// drainTime is how long a server may take to perform what has reached it.
	drainTime = time.Second
	// auditLimit is how long it may take to read everything.
	auditLimit = 5 * time.Minute
)

// run is one run of the harness.
type run struct {
	Config
	bank bank
	set  *mongotest.Set
	// client reaches the servers directly, not over the wires.
	client   *mongo.Client
	db       *mongo.Database
	coord    *transfer.Coordinator
	tally    *tally
	findings *findings
	journal  *journal
	late     *late
	wires    []*wire
	// calm ends the delays of messages.
	calm    context.CancelFunc
	slots   []*slot
	checker *checker
	// arrived counts the messages that arrived after everything else was over.
	arrived map[string]int
	last    *audit
	// doorsCompared is how many accounts were compared with the last answer to closing or
	// reopening them.
	doorsCompared int
	// frozenCompared is the same for freezing and unfreezing.
	frozenCompared int
}

// Run runs the load and the faults, checks the result, and reports it.
// It writes its progress to the log.
// An error says why there is no report.
func Run(ctx context.Context, config Config, log io.Writer) (Report, error) {
	if err := config.check(); err != nil {
		return Report{}, err
	}
	r := &run{
		Config: config, bank: bank{seed: config.Seed, accounts: config.Accounts},
		tally: newTally(), findings: newFindings(), journal: newJournal(),
	}
	begun := time.Now()
	say := func(format string, args ...any) {
		at := time.Since(begun).Round(100 * time.Millisecond)
		// Only progress is lost.
		_, _ = fmt.Fprintf(log, "chaos %6s: %s\n", at, fmt.Sprintf(format, args...))
	}
	say("starting a replica set of %d members; seed %d", members, config.Seed)
	if err := r.start(ctx); err != nil {
		return Report{}, fmt.Errorf("set up: %w", err)
	}
	defer r.stop()

	checking, endCheck := context.WithCancel(ctx)
	defer endCheck()
	var checks sync.WaitGroup
	checks.Go(func() { r.checker.work(checking) })
	say("load and faults, for %s", config.For)
	if err := r.storm(ctx); err != nil {
		return Report{}, err
	}
	r.drain(ctx)
	say("all is healed; recovery alone, until no transfer is open")
	r.recover(ctx)
	if err := r.audit(ctx, "after the recovery"); err != nil {
		return Report{}, err
	}
	say("the messages that were held back arrive")
	r.arrived = r.late.deliverAll(ctx)
	r.recover(ctx)
	if err := r.audit(ctx, "after the late messages"); err != nil {
		return Report{}, err
	}
	endCheck()
	checks.Wait()
	say("all is checked")
	return r.report(), ctx.Err()
}

// start starts the servers, opens the accounts, and starts the workers.
func (r *run) start(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if r.set, err = mongotest.StartSet(ctx, members); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			r.stop()
		}
	}()
	opts := options.Client().ApplyURI(r.set.URI()).SetConnectTimeout(dialLimit).SetHeartbeatInterval(dialLimit / 2)
	if r.client, err = mongo.Connect(opts); err != nil {
		return err
	}
	r.db = r.client.Database(database)
	r.coord, err = transfer.NewCoordinator(r.db, documents(r.db), transfer.WithStallThreshold(0), eventful(r.journal.delivered))
	if err != nil {
		return err
	}
	if err := r.open(ctx); err != nil {
		return err
	}
	return r.startWorkers(ctx)
}

// open opens the accounts.
func (r *run) open(ctx context.Context) error {
	if err := r.coord.Setup(ctx); err != nil {
		return err
	}
	if err := openOrders(ctx, r.db); err != nil {
		return err
	}
	r.checker = &checker{db: r.db, put: map[string]int64{}, findings: r.findings, seen: map[string]transfer.State{}}
	for _, account := range r.bank.initial() {
		if _, err := r.coord.OpenAccount(ctx, account); err != nil {
			return err
		}
		r.checker.put[account.Currency] += units(account.Balance)
	}
	return nil
}

// startWorkers opens the wires, and starts the workers that use them.
func (r *run) startWorkers(ctx context.Context) error {
	routes := map[string]string{}
	r.late = newLate(r.set.Hosts(), r.Seed, r.tally)
	// The wires outlive the start.
	ctx, r.calm = context.WithCancel(context.WithoutCancel(ctx))
	for i, host := range r.set.Hosts() {
		w, err := newWire(ctx, host, r.Seed+uint64(i), r.tally, r.late)
		if err != nil {
			return err
		}
		if !r.has(Wires) {
			w.settle()
		}
		r.wires = append(r.wires, w)
		routes[host] = w.address()
	}
	for i := range r.Workers {
		s := &slot{job: job{Config: r.Config, URI: r.set.URI(), Routes: routes, Slot: i}}
		if err := s.start(r.journal); err != nil {
			return err
		}
		r.slots = append(r.slots, s)
	}
	return nil
}

// storm runs the load and the faults for the configured time, and then heals everything.
func (r *run) storm(ctx context.Context) error {
	storming, end := context.WithTimeout(ctx, patienceFactor*r.For)
	defer end()
	t := &trouble{set: r.set, slots: r.slots, journal: r.journal, tally: r.tally, findings: r.findings, seed: r.Seed}
	var troubles sync.WaitGroup
	for group, hurt := range map[string]func(context.Context){Workers: t.workers, Members: t.members, Commands: t.commands} {
		if r.has(group) {
			troubles.Go(func() { hurt(storming) })
		}
	}
	troubles.Go(func() { r.steal(storming) })
	for more := pause(storming, r.For); more && len(r.missingFaults(r.tally.all())) > 0; more = pause(storming, time.Second) {
	}
	end()
	troubles.Wait()
	for _, w := range r.wires {
		w.settle()
	}
	var ends sync.WaitGroup
	for _, s := range r.slots {
		ends.Go(func() {
			if err := s.process.end(); err != nil {
				r.findings.add(fmt.Sprint("end ", s.job.Slot), "%v", err)
			}
		})
	}
	ends.Wait()
	return ctx.Err()
}

// steal takes money behind the library's back, if the run should show that this is found.
func (r *run) steal(ctx context.Context) {
	for r.Theft != 0 && pause(ctx, r.For/4) {
		limited, cancel := context.WithTimeout(ctx, snapshotLimit)
		// A theft whose answer was lost is not repeated.
		untouched := bson.D{{Key: "_id", Value: accountName(0)}, {Key: "robbed", Value: nil}}
		_, err := r.db.Collection("accounts").UpdateOne(limited, untouched, bson.D{
			{Key: "$inc", Value: bson.D{{Key: "balance", Value: -r.Theft}}}, {Key: "$set", Value: bson.D{{Key: "robbed", Value: true}}},
		})
		cancel()
		if err == nil {
			return
		}
	}
}

// drain cuts the wires, and waits until everything that was sent over them has arrived.
// Recovery has to be alone.
func (r *run) drain(ctx context.Context) {
	for _, w := range r.wires {
		w.close()
	}
	r.late.all.Wait()
	pause(ctx, drainTime)
}

// recover runs recovery, alone, until no transfer is open and no event is left.
func (r *run) recover(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, recoveryLimit)
	defer cancel()
	var runs sync.WaitGroup
	running, end := context.WithCancel(ctx)
	// It fails with the same error as the sweeps.
	runs.Go(func() { _ = r.coord.Run(running) })
	defer runs.Wait()
	defer end()
	for {
		report, err := r.coord.Recover(ctx)
		open, events := int64(-1), int64(-1)
		if err == nil {
			open, err = r.db.Collection("transfers").CountDocuments(ctx, bson.D{{Key: "open", Value: true}})
		}
		if err == nil {
			events, err = r.coord.Count(ctx, transfer.Query{Undelivered: true})
		}
		if err == nil && open == 0 && events == 0 {
			return
		}
		if !pause(ctx, 100*time.Millisecond) {
			r.findings.add("recovery", "recovery does not come to its end: %d transfers are open, and %d have events left; "+
				"the last sweep said %+v, %v", open, events, report, err)
			return
		}
	}
}

// audit checks everything that is stored and everything that was answered.
func (r *run) audit(ctx context.Context, when string) error {
	ctx, cancel := context.WithTimeout(ctx, auditLimit)
	defer cancel()
	a, err := newAudit(ctx, r.db, r.bank, r.findings, when)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	a.balances()
	a.states(r.journal.asked, r.checker.decided())
	a.answers(r.journal.answers)
	a.cancellations(r.journal.answers)
	a.holds(r.journal.answers)
	a.reversals(r.journal.asked, r.journal.answers)
	a.paidOrders()
	a.events(r.journal.receiptsNow())
	r.doorsCompared += a.doors(r.journal.answers, r.late.doors())
	r.frozenCompared += a.frozen(r.journal.answers)
	r.last = a
	return nil
}

// stop ends everything that start has started.
func (r *run) stop() {
	for _, s := range r.slots {
		_ = s.process.kill() // It fails if the process has ended.
	}
	if r.calm != nil {
		r.calm()
		r.late.all.Wait()
	}
	for _, w := range r.wires {
		w.close()
	}
	now, cancel := context.WithCancel(context.Background())
	cancel()
	if r.coord != nil {
		_ = r.coord.Close(now)
	}
	if r.client != nil {
		_ = r.client.Disconnect(now)
	}
	if err := r.set.Stop(); err != nil {
		r.findings.add("servers", "the servers: %v", err)
	}
}
