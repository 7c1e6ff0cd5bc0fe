package mongostore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
)

const (
	// clockAge is how long a correction of the process's clock is used.
	clockAge = time.Minute
	// clockLeap is by how much the process's clock may be set, or its machine sleep, before the correction is of no use any more.
	clockLeap = time.Second
)

// maxAsking is how many ask a server for hello at once: some, so that one lost answer doesn't hold up the others, and not all that
// start together.
const maxAsking = 4

// failureMemory is for how long a server that has not answered hello is not asked again.
const failureMemory = time.Second

// minWireVersion is that of MongoDB 5.0.
const minWireVersion = 13

// ErrUnsupported is returned for a server that the protocol can't be run on.
var ErrUnsupported = errors.New("unsupported deployment")

// serverClock estimates the server's time from the process's clock. No decision about money rests on it.
type serverClock struct {
	mu     sync.Mutex
	now    func() time.Time
	offset time.Duration
	read   time.Time // when the server's was known
	wall   time.Time // the same, as a clock on the wall shows it, which may be set
}

// serverTime returns a time that the server's clock has certainly reached.
func (s *Catalog) serverTime(ctx context.Context) (time.Time, error) {
	if now, fresh := s.clock.estimate(); fresh {
		return now, nil
	}
	if err := s.asking.acquire(ctx); err != nil {
		return time.Time{}, err
	}
	defer s.asking.release()
	if now, fresh := s.clock.estimate(); fresh {
		return now, nil
	}
	answer, err := hello(ctx, s.transfers)
	if err != nil {
		return time.Time{}, err
	}
	s.clock.correct(answer.LocalTime)
	now, _ := s.clock.estimate()
	return now, nil
}

// turns are taken by those who ask a server for hello.
type turns chan struct{}

// acquire waits for a turn; ctx ends the wait. Every call that gets nil is followed by next.
func (t turns) acquire(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t turns) release() { <-t }

// estimate returns the server's time, and whether the correction is fresh enough to rely on.
func (c *serverClock) estimate() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	age := now.Sub(c.read) // by a clock that nobody sets, and that may stand still while the machine sleeps
	leap := now.Round(0).Sub(c.wall) - age
	fresh := !c.read.IsZero() && age >= 0 && age < clockAge && leap.Abs() < clockLeap
	return now.Add(c.offset).UTC().Truncate(time.Millisecond), fresh // as it will be read back
}

// correct takes in what the server's clock was a moment ago, so that no estimate is ahead of it.
func (c *serverClock) correct(server time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read = c.now()
	c.wall = c.read.Round(0)
	c.offset = server.Sub(c.read)
}

// LooksStalled guesses whether a takeover with this threshold would get the transfer: the server's
// clock decides. See standingStill.
func (s *Queries) LooksStalled(ctx context.Context, t Transfer, threshold time.Duration) bool {
	if threshold <= 0 {
		return true
	}
	now, err := s.serverTime(detached(ctx))
	if err != nil {
		return false
	}
	age := now.Sub(t.LastModified).Milliseconds()
	return age >= stallMillis(threshold, doublings(t.Attempts, t.Stuck != nil)) || -age > stallMillis(threshold, 0)
}

// LooksExpired guesses whether a hold has expired: the server's clock decides.
func (s *Queries) LooksExpired(ctx context.Context, t Transfer) bool {
	now, err := s.serverTime(detached(ctx))
	return err == nil && !now.Before(t.ExpiresAt)
}

// helloAnswer is what a server says of itself.
type helloAnswer struct {
	SetName        string    `bson:"setName"`
	Message        string    `bson:"msg"`
	MaxWireVersion int       `bson:"maxWireVersion"`
	LocalTime      time.Time `bson:"localTime"`
}

func (h helloAnswer) routed() bool { return h.Message == "isdbgrid" }

func hello(ctx context.Context, c *mongo.Collection) (helloAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, CommandLimit)
	defer cancel()
	var answer helloAnswer
	command := bson.D{{Key: "hello", Value: 1}}
	err := c.Database().RunCommand(ctx, command, options.RunCmd().SetReadPreference(readpref.Primary())).Decode(&answer)
	return answer, serverErrorOf(err, "hello", c.Database().Name())
}

// supported refuses servers without majority writes or too old ones.
func (h helloAnswer) supported() error {
	if h.SetName == "" && !h.routed() {
		return fmt.Errorf("%w: a standalone server can't acknowledge by majority; start it as a replica set, of one member if need be",
			ErrUnsupported)
	}
	if h.MaxWireVersion < minWireVersion {
		return fmt.Errorf("%w: MongoDB 5.0 or later is needed, and the server speaks wire version %d only", ErrUnsupported, h.MaxWireVersion)
	}
	return nil
}

// serverCheck is what is known of a client whose server has not been seen to be fit.
type serverCheck struct {
	turns  turns
	mu     sync.Mutex
	failed error // of the latest hello
	at     time.Time
}

func newServerCheck() *serverCheck { return &serverCheck{turns: make(turns, maxAsking)} }

// recordFailure takes down that a server has not answered.
func (f *serverCheck) recordFailure(now time.Time, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed, f.at = err, now
}

// recentFailure returns why the server has not answered a moment ago. Whoever has waited for a turn meanwhile is told the same: hundreds of
// transfers to a cluster that is away would otherwise ask it one after the other, and hold up those to the others for minutes.
func (f *serverCheck) recentFailure(now time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if age := now.Sub(f.at); age < 0 || age >= failureMemory {
		return nil
	}
	return f.failed
}

// checkServer makes sure, once, that a collection's server can be used.
func (s *Catalog) checkServer(ctx context.Context, c *mongo.Collection) error {
	client := c.Database().Client()
	if _, known := s.checkedClients.Load(client); known {
		return nil
	}
	// Each client has turns of its own: a server that hangs keeps nobody from the others.
	own, _ := s.serverChecks.LoadOrStore(client, newServerCheck())
	f, _ := own.(*serverCheck)
	if err := f.turns.acquire(ctx); err != nil {
		return err
	}
	defer f.turns.release()
	if _, known := s.checkedClients.Load(client); known {
		return nil
	}
	if err := f.recentFailure(s.clock.now()); err != nil {
		return err
	}
	answer, err := hello(ctx, c)
	if err != nil {
		if ctx.Err() == nil { // else it says nothing of the server
			f.recordFailure(s.clock.now(), err)
		}
		return err
	}
	if err := answer.supported(); err != nil {
		return err
	}
	s.checkedClients.Store(client, answer.routed())
	return nil
}

// routed reports whether a collection is reached through a mongos. Its server was asked before: see Connect.
func (s *Catalog) routed(c *mongo.Collection) bool {
	routed, known := s.checkedClients.Load(c.Database().Client())
	return known && routed == true
}
