package soak

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/outside"
)

const (
	database = "soak"
	world    = "world"
	// openingBalance is the balance of each account at the beginning.
	openingBalance = 1000
	// stall is the stall threshold of the processes.
	// It is short so that they take over from each other.
	stall = 3 * time.Second
	// kills is how often each process is killed in a turn.
	kills = 2
	// calm is how long nothing is wrong in a turn where one process lasts.
	calm = 15 * time.Second
	// endLimit is how long recovery and the check may take, and deliveryLimit how long
	// the delivery of what is left: longer than an event may be in one process's hand.
	endLimit      = 5 * time.Minute
	deliveryLimit = time.Minute
)

// errEnded says that the process has ended that was to last.
var errEnded = errors.New("the process that was to last has ended")

// Config describes a run.
type Config struct {
	// For is how long the load and the faults last: at least one turn of each fault.
	// The default is 15 seconds.
	For time.Duration
	// Processes is the number of processes of the service. The default is 3.
	Processes int
	// Lasting says that the first process is neither killed nor restarted, so that its
	// memory and its goroutines can be judged over the time.
	// The default is that all are.
	Lasting bool
	// Clients is the number of clients. The default is 8.
	Clients int
	// Accounts is the number of accounts. The default is 12.
	Accounts int
	// Theft is how many units are taken after the check, to see that the check finds
	// that.
	// By default there is none.
	Theft int64
}

// Default returns the configuration of a short run.
func Default() Config {
	return Config{For: 15 * time.Second, Processes: 3, Clients: 8, Accounts: 12}
}

// check returns an error if the run can't be.
func (c Config) check() error {
	if c.Processes < 1 || c.Processes < 2 && c.Lasting || c.Clients < 1 || c.Accounts < 2 {
		return errors.New("a run has a process that is killed, a client and two accounts at least")
	}
	return nil
}

// run is one run of the harness.
type run struct {
	Config
	say   func(format string, args ...any)
	users users
	owner *mongo.Client
	// coord is the owner's.
	// It opens the accounts, and recovers at the end.
	coord  *transfer.Coordinator
	slots  []*slot
	hook   *hook
	usage  *usage
	book   *book
	counts map[string]int // of faults
}

// Run runs the service, the load and the faults, and checks the result.
// It writes its progress to the log.
// An error says why there is no report.
func Run(ctx context.Context, c Config, log io.Writer) (Report, error) {
	if err := c.check(); err != nil {
		return Report{}, err
	}
	begun := time.Now()
	r := &run{Config: c, book: newBook(), counts: map[string]int{}, usage: newUsage(c.Processes)}
	r.say = func(format string, args ...any) {
		at := time.Since(begun).Round(100 * time.Millisecond)
		// Only progress is lost.
		_, _ = fmt.Fprintf(log, "soak %7s: %s\n", at, fmt.Sprintf(format, args...))
	}
	server, err := mongotest.StartWithUsers(ctx)
	if err != nil {
		return Report{}, err
	}
	defer func() { _ = server.Stop() }()
	if r.hook, err = newHook(ctx); err != nil {
		return Report{}, err
	}
	defer func() { _ = r.hook.server.Close() }()
	defer r.killAll()
	folder, err := os.MkdirTemp("", "soak-")
	if err != nil {
		return Report{}, err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	if err := r.start(ctx, server.URI(), folder); err != nil {
		return Report{}, fmt.Errorf("set up: %w", err)
	}
	defer func() { _ = r.owner.Disconnect(context.WithoutCancel(ctx)) }()
	live, err := r.watched(ctx)
	if err != nil {
		return Report{}, err
	}
	return r.judge(ctx, live)
}

// judge recovers what is left, and checks everything, once all processes have ended.
func (r *run) judge(ctx context.Context, live []string) (Report, error) {
	r.say("all processes are stopped; recovery, then the check")
	ctx, cancel := context.WithTimeout(ctx, endLimit)
	defer cancel()
	findings, err := r.check(ctx)
	if r.Lasting {
		live = append(live, r.usage.drift(0)...)
	}
	report := Report{Faults: r.counts, Answers: r.book.counts(), Usage: r.usage.summary(), Findings: append(live, findings...)}
	if err != nil || r.Theft == 0 {
		return report, err
	}
	taken := bson.D{{Key: "$inc", Value: bson.D{{Key: "balance", Value: -r.Theft}}}}
	if _, err := r.owner.Database(database).Collection("accounts").UpdateByID(ctx, account(0), taken); err != nil {
		return report, err
	}
	report.Stolen, err = r.check(ctx)
	return report, err
}

// start builds the service, opens the accounts with their money, and starts the
// processes.
func (r *run) start(ctx context.Context, uri, folder string) error {
	root, err := outside.Root()
	if err != nil {
		return err
	}
	if err := outside.Copy(filepath.Join(root, "examples", "service"), folder); err != nil {
		return err
	}
	r.say("building the service")
	program, err := outside.Build(ctx, folder)
	if err != nil {
		return err
	}
	if r.owner, err = mongo.Connect(options.Client().ApplyURI(uri)); err != nil {
		return err
	}
	db := r.owner.Database(database)
	if r.coord, err = transfer.NewCoordinator(db, r.hook.option(), transfer.WithStallThreshold(0)); err != nil {
		return err
	}
	if err := r.open(ctx); err != nil {
		return err
	}
	r.users = users{db: db, password: rand.Text()}
	if err := r.users.create(ctx); err != nil {
		return err
	}
	_, host, _ := strings.Cut(uri, "@")
	for range r.Processes {
		s, err := newSlot(ctx, program, r.users.uri(host), r.hook.address)
		if err != nil {
			return err
		}
		r.slots = append(r.slots, s)
		if err := s.start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// open opens the accounts, and pays money in from the world outside.
func (r *run) open(ctx context.Context) error {
	if err := r.coord.Setup(ctx); err != nil {
		return err
	}
	if _, err := r.coord.OpenAccount(ctx, transfer.Account{ID: world, NoFloor: true}); err != nil {
		return err
	}
	for n := range r.Accounts {
		if _, err := r.coord.OpenAccount(ctx, transfer.Account{ID: account(n)}); err != nil {
			return err
		}
		_, err := r.coord.Transfer(ctx, transfer.Request{
			ID: "deposit-" + account(n), From: world, To: account(n), Amount: transfer.Units(openingBalance),
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func account(n int) string { return fmt.Sprintf("account-%d", n) }

// watched runs the storm, and meanwhile audits, opens the windows, and looks at what the
// processes need.
func (r *run) watched(ctx context.Context) (findings []string, err error) {
	watching, end := context.WithCancel(ctx)
	defer end()
	var looks sync.WaitGroup
	defer looks.Wait()
	looks.Go(func() { r.usage.watch(watching, r.slots) })
	var audits, pages int
	var audited error
	var amiss []string
	looks.Go(func() { amiss, pages = r.windows(watching) })
	looks.Go(func() { findings, audits, audited = r.auditLive(watching) })
	err = r.storm(ctx)
	end()
	looks.Wait()
	r.counts["audits while the processes worked"] = audits
	r.counts["pages of the window"] = pages
	return append(findings, amiss...), errors.Join(err, audited)
}

// mortal returns the processes that may be killed and restarted.
func (r *run) mortal() []*slot {
	if r.Lasting {
		return r.slots[1:]
	}
	return r.slots
}

// storm runs the clients while the faults happen, and then stops all processes.
func (r *run) storm(ctx context.Context) error {
	working, end := context.WithCancel(ctx)
	defer end()
	var clients sync.WaitGroup
	for n := range r.Clients {
		c := newClient(r, n)
		clients.Go(func() { c.work(working) })
	}
	over := time.Now().Add(r.For)
	var err error
	for turn := 0; err == nil && (turn == 0 || time.Now().Before(over)); turn++ {
		err = r.turn(ctx, turn)
	}
	end()
	clients.Wait()
	for _, s := range r.slots {
		err = errors.Join(err, s.end())
	}
	return err
}

// turn makes each fault happen to each process.
func (r *run) turn(ctx context.Context, turn int) error {
	if r.Lasting {
		r.say("turn %d: nothing is wrong for a while", turn+1)
		pause(ctx, calm)
	}
	r.say("turn %d: a right is missing", turn+1)
	if err := r.withoutRight(ctx); err != nil {
		return err
	}
	r.say("turn %d: processes are killed", turn+1)
	for range kills {
		for _, s := range r.mortal() {
			if err := s.kill(); err != nil {
				return err
			}
			r.counts["killed"]++
			if err := s.start(ctx); err != nil {
				return err
			}
			pause(ctx, time.Second)
		}
	}
	r.say("turn %d: a rolling restart", turn+1)
	for _, s := range r.mortal() {
		if err := s.end(); err != nil {
			return err
		}
		r.counts["restarted"]++
		if err := s.start(ctx); err != nil {
			return err
		}
	}
	pause(ctx, time.Second)
	return ctx.Err()
}

// withoutRight takes the right to change accounts from the service, and later grants it
// again.
// That lasts longer than the processes take to take over from each other.
// Requests that the service couldn't carry out are repeated, and then succeed.
func (r *run) withoutRight(ctx context.Context) error {
	if err := r.users.grant(ctx, false); err != nil {
		return err
	}
	before := r.book.counts()[unanswered]
	pause(ctx, askLimit+stall)
	if r.book.counts()[unanswered] > before {
		r.counts["requests that met the missing right"]++
	}
	if err := r.users.grant(ctx, true); err != nil {
		return err
	}
	r.counts["right granted"]++
	pause(ctx, 2*time.Second)
	for n, s := range r.slots { // as Kubernetes restarts a container that has ended
		if again, err := s.revive(ctx); err != nil {
			return err
		} else if again && n == 0 && r.Lasting {
			return errEnded
		} else if again {
			r.say("process %d had ended without the right, and was started again", n+1)
			r.counts["ended without the right"]++
		}
	}
	return nil
}

func (r *run) killAll() {
	for _, s := range r.slots {
		_ = s.kill() // It has already ended, if all went well.
	}
}

// pause waits for the given time, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
