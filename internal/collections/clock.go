package collections

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

	"github.com/mongotransfer/transfer/internal/wire"
)

// ServerTime returns what the clock of the transfers' server shows.
func (s *Catalog) ServerTime(ctx context.Context) (time.Time, error) {
	answer, err := Hello(wire.Detached(ctx), s.Transfers)
	return answer.LocalTime, err
}

const (
	// ClockAge is how long a correction of the process's clock is used.
	ClockAge = time.Minute
	// ClockLeap is by how much the process's clock may be set, or its machine sleep, before the correction is of no use any more.
	ClockLeap = time.Second
)

// MaxAsking is how many ask a server for hello at once: some, so that one lost answer doesn't hold up the others, and not all that
// start together.
const MaxAsking = 4

// FailureMemory is for how long a server that has not answered hello is not asked again.
const FailureMemory = time.Second

// minWireVersion is that of MongoDB 5.0.
const minWireVersion = 13

// ErrUnsupported is returned for a server that the protocol can't be run on.
var ErrUnsupported = errors.New("unsupported deployment")

// ServerClock estimates the server's time from the process's clock. No decision about money rests on it.
type ServerClock struct {
	Mu     sync.Mutex
	Now    func() time.Time
	Offset time.Duration
	Read   time.Time // when the server's was known
	Wall   time.Time // the same, as a clock on the wall shows it, which may be set
}

// ReachedTime returns a time that the server's clock has certainly reached.
func (s *Catalog) ReachedTime(ctx context.Context) (time.Time, error) {
	if now, fresh := s.Clock.Estimate(); fresh {
		return now, nil
	}
	if err := s.Asking.Acquire(ctx); err != nil {
		return time.Time{}, err
	}
	defer s.Asking.Release()
	if now, fresh := s.Clock.Estimate(); fresh {
		return now, nil
	}
	answer, err := Hello(ctx, s.Transfers)
	if err != nil {
		return time.Time{}, err
	}
	s.Clock.Correct(answer.LocalTime)
	now, _ := s.Clock.Estimate()
	return now, nil
}

// Turns are taken by those who ask a server for hello.
type Turns chan struct{}

// Acquire waits for a turn; ctx ends the wait. Every call that gets nil is followed by next.
func (t Turns) Acquire(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t Turns) Release() { <-t }

// Estimate returns the server's time, and whether the correction is fresh enough to rely on.
func (c *ServerClock) Estimate() (time.Time, bool) {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	now := c.Now()
	age := now.Sub(c.Read) // by a clock that nobody sets, and that may stand still while the machine sleeps
	leap := now.Round(0).Sub(c.Wall) - age
	fresh := !c.Read.IsZero() && age >= 0 && age < ClockAge && leap.Abs() < ClockLeap
	return now.Add(c.Offset).UTC().Truncate(time.Millisecond), fresh // as it will be read back
}

// Correct takes in what the server's clock was a moment ago, so that no estimate is ahead of it.
func (c *ServerClock) Correct(server time.Time) {
	c.Mu.Lock()
	defer c.Mu.Unlock()
	c.Read = c.Now()
	c.Wall = c.Read.Round(0)
	c.Offset = server.Sub(c.Read)
}

// HelloAnswer is what a server says of itself.
type HelloAnswer struct {
	SetName        string    `bson:"setName"`
	Message        string    `bson:"msg"`
	MaxWireVersion int       `bson:"maxWireVersion"`
	LocalTime      time.Time `bson:"localTime"`
}

func (h HelloAnswer) Routed() bool { return h.Message == "isdbgrid" }

func Hello(ctx context.Context, c *mongo.Collection) (HelloAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, wire.CommandLimit)
	defer cancel()
	var answer HelloAnswer
	command := bson.D{{Key: "hello", Value: 1}}
	err := c.Database().RunCommand(ctx, command, options.RunCmd().SetReadPreference(readpref.Primary())).Decode(&answer)
	return answer, wire.ServerErrorOf(err, "hello", c.Database().Name())
}

// Supported refuses servers without majority writes or too old ones.
func (h HelloAnswer) Supported() error {
	if h.SetName == "" && !h.Routed() {
		return fmt.Errorf("%w: a standalone server can't acknowledge by majority; start it as a replica set, of one member if need be",
			ErrUnsupported)
	}
	if h.MaxWireVersion < minWireVersion {
		return fmt.Errorf("%w: MongoDB 5.0 or later is needed, and the server speaks wire version %d only", ErrUnsupported, h.MaxWireVersion)
	}
	return nil
}

// ServerCheck is what is known of a client whose server was not found to be usable yet.
type ServerCheck struct {
	Turns   Turns
	failure LatestFailure // of hello
}

// NewServerCheck returns the check of a client whose server nobody has asked yet.
func NewServerCheck() *ServerCheck { return &ServerCheck{Turns: make(Turns, MaxAsking)} }

// RecordFailure notes that a server has not answered.
func (f *ServerCheck) RecordFailure(now time.Time, err error) { f.failure.Record(now, err) }

// RecentFailure returns why the server did not answer a moment ago, nil if it did.
// Those who have waited for a turn meanwhile get the same answer.
// Otherwise hundreds of transfers to a cluster that is away would ask it one after the
// other, and hold up those to the other clusters for minutes.
func (f *ServerCheck) RecentFailure(now time.Time) error {
	return f.failure.Within(now, FailureMemory)
}

// CheckServer makes sure, once, that a collection's server can be used.
func (s *Catalog) CheckServer(ctx context.Context, c *mongo.Collection) error {
	client := c.Database().Client()
	if _, known := s.CheckedClients.Load(client); known {
		return nil
	}
	// Each client has turns of its own: a server that hangs keeps nobody from the others.
	own, _ := s.ServerChecks.LoadOrStore(client, NewServerCheck())
	f, _ := own.(*ServerCheck)
	if err := f.Turns.Acquire(ctx); err != nil {
		return err
	}
	defer f.Turns.Release()
	if _, known := s.CheckedClients.Load(client); known {
		return nil
	}
	if err := f.RecentFailure(s.Clock.Now()); err != nil {
		return err
	}
	answer, err := Hello(ctx, c)
	if err != nil {
		if ctx.Err() == nil { // else it says nothing of the server
			f.RecordFailure(s.Clock.Now(), err)
		}
		return err
	}
	if err := answer.Supported(); err != nil {
		return err
	}
	s.CheckedClients.Store(client, answer.Routed())
	return nil
}

// Routed reports whether a collection is reached through a mongos. Its server was asked before: see Connect.
func (s *Catalog) Routed(c *mongo.Collection) bool {
	routed, known := s.CheckedClients.Load(c.Database().Client())
	return known && routed == true
}
