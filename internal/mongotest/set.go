package mongotest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

const (
	// electionTimeout is after how long without a primary a Set elects another one.
	electionTimeout   = time.Second
	heartbeatInterval = electionTimeout / 2
	// memberLimit is how long a member may take to answer a question about itself.
	// After that it counts as stopped.
	memberLimit = time.Second
)

// Set is a replica set of several mongods of the caller's own, whose members can be hurt.
// It fails over within some seconds.
// It is safe for concurrent use, as long as one goroutine at a time kills and restarts a
// given member.
type Set struct {
	nodes []*node
	stop  func() error
}

// StartSet starts a replica set of n members and returns it once it has a primary.
// It uses the mongod on the PATH or the one in the cache folder, which is fetched if need
// be.
// It never uses a container, because its processes are killed and paused.
// The context bounds the start alone.
// The set runs until Stop is called or this process ends, and like every server of this
// package it leaves nothing behind.
func StartSet(ctx context.Context, n int) (*Set, error) {
	path, err := findMongod(ctx)
	if err != nil {
		return nil, fmt.Errorf("mongotest: no mongod could be had for a replica set: %w", err)
	}
	folder := filepath.Join(os.TempDir(), "mongotest-"+rand.Text())
	kept, pipe, err := keep(folder)
	if err != nil {
		return nil, err
	}
	s := &Set{}
	s.stop = sync.OnceValue(func() error {
		var failed []error
		for _, node := range s.nodes {
			if process := node.running(); process != nil {
				failed = append(failed, process.stop())
			}
		}
		return errors.Join(append(failed, kept.stop())...)
	})
	if err := s.start(ctx, n, path, folder, pipe); err != nil {
		return nil, fmt.Errorf("mongotest: %w", errors.Join(err, s.Stop()))
	}
	return s, nil
}

// findMongod returns the path of a mongod that runs here.
func findMongod(ctx context.Context) (string, error) {
	path, err := exec.LookPath("mongod")
	if err == nil {
		err = checkMongod(ctx, path)
	}
	if err == nil {
		return path, nil
	}
	path, fetchErr := fetchedMongod(ctx)
	if fetchErr == nil {
		fetchErr = checkMongod(ctx, path)
	}
	if fetchErr != nil {
		return "", errors.Join(err, fetchErr)
	}
	return path, nil
}

func (s *Set) start(ctx context.Context, n int, path, folder string, pipe *os.File) error {
	for i := range n {
		address, err := steadyAddress(ctx)
		if err != nil {
			return err
		}
		at := filepath.Join(folder, fmt.Sprint("node", i))
		node := &node{member: memberAt(address, at), path: path, pipe: pipe}
		s.nodes = append(s.nodes, node)
		if err := node.start(ctx); err != nil {
			return err
		}
	}
	settings := bson.D{
		{Key: "electionTimeoutMillis", Value: electionTimeout.Milliseconds()},
		{Key: "heartbeatIntervalMillis", Value: heartbeatInterval.Milliseconds()},
		{Key: "heartbeatTimeoutSecs", Value: int(electionTimeout.Seconds())},
	}
	create := func(ctx context.Context, client *mongo.Client) error {
		return createSet(ctx, client, settings, s.Hosts()...)
	}
	if err := s.nodes[0].reach(ctx, s.nodes[0].running().ended, create); err != nil {
		return err
	}
	for i := range s.nodes {
		if err := s.ready(ctx, i); err != nil {
			return err
		}
	}
	_, err := s.Primary(ctx)
	return err
}

// ready waits until a member has the set's data, so that it counts in elections and
// majorities.
func (s *Set) ready(ctx context.Context, i int) error {
	return poll(ctx, "wait for a member to have the data", func() error {
		var reply struct {
			IsWritablePrimary bool `bson:"isWritablePrimary"`
			Secondary         bool `bson:"secondary"`
		}
		err := s.ask(ctx, i, bson.D{{Key: "hello", Value: 1}}, &reply)
		if err == nil && !reply.IsWritablePrimary && !reply.Secondary {
			err = fmt.Errorf("%s has not yet", s.nodes[i].host)
		}
		return err
	})
}

// URI returns the connection string of the set.
func (s *Set) URI() string {
	return "mongodb://" + strings.Join(s.Hosts(), ",") + "/?replicaSet=" + replicaSet
}

// Hosts returns the members' addresses, as the set itself names them.
func (s *Set) Hosts() []string {
	hosts := make([]string, len(s.nodes))
	for i, node := range s.nodes {
		hosts[i] = node.host
	}
	return hosts
}

// Stop ends all members and removes their data.
// It can be called more than once.
func (s *Set) Stop() error { return s.stop() }

// Kill ends a member as a power cut does, even while it is paused, and returns when it
// has ended.
func (s *Set) Kill(ctx context.Context, i int) error { return s.nodes[i].kill(ctx) }

// Restart starts a killed member again, at the same address with the same data, and
// returns when it takes part in the set again.
func (s *Set) Restart(ctx context.Context, i int) error {
	if err := s.nodes[i].start(ctx); err != nil {
		return err
	}
	return s.ready(ctx, i)
}

// Pause stops a member where it is.
// The member keeps its connections and doesn't answer.
func (s *Set) Pause(i int) error { return s.nodes[i].signal(signalStop) }

// Resume lets a paused member continue.
func (s *Set) Resume(i int) error { return s.nodes[i].signal(signalResume) }

// Primary waits until there is a primary, and returns its number.
// A member may be paused, or not know yet that it was replaced.
// It doesn't count as the primary if another member was elected after it.
func (s *Set) Primary(ctx context.Context) (int, error) {
	primary := -1
	err := poll(ctx, "wait for a primary", func() error {
		if primary = s.primaryNow(ctx); primary < 0 {
			return errors.New("no member is the primary")
		}
		return nil
	})
	return primary, err
}

// primaryNow asks all members at once.
// It returns -1 if no member is the primary.
func (s *Set) primaryNow(ctx context.Context) int {
	elections := make([]string, len(s.nodes))
	var wg sync.WaitGroup
	for i := range s.nodes {
		wg.Go(func() {
			var reply struct {
				IsWritablePrimary bool          `bson:"isWritablePrimary"`
				ElectionID        bson.ObjectID `bson:"electionId"`
			}
			ctx, cancel := context.WithTimeout(ctx, memberLimit)
			defer cancel()
			if s.ask(ctx, i, bson.D{{Key: "hello", Value: 1}}, &reply) == nil && reply.IsWritablePrimary {
				elections[i] = reply.ElectionID.Hex()
			}
		})
	}
	wg.Wait()
	primary, latest := -1, ""
	for i, election := range elections {
		if election > latest {
			primary, latest = i, election
		}
	}
	return primary
}

// StepDown makes the primary step down, for as long as it takes to elect another one.
func (s *Set) StepDown(ctx context.Context) error {
	primary, err := s.Primary(ctx)
	if err != nil {
		return err
	}
	return s.ask(ctx, primary, bson.D{
		{Key: "replSetStepDown", Value: 5}, {Key: "secondaryCatchUpPeriodSecs", Value: 2}, {Key: "force", Value: true},
	}, nil)
}

// FailPoint sets the failpoint failCommand of a member.
// The mode is "off", "alwaysOn" or a document such as {times: 1}.
// The data says which commands fail, and how.
// FailPoint returns how many commands have met the failpoint since the member was
// started.
func (s *Set) FailPoint(ctx context.Context, i int, mode any, data bson.D) (int64, error) {
	command := bson.D{{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: mode}}
	if data != nil {
		command = append(command, bson.E{Key: "data", Value: data})
	}
	var reply struct {
		Count int64 `bson:"count"`
	}
	err := s.ask(ctx, i, command, &reply)
	return reply.Count, err
}

// ask runs a command on a member's admin database.
// The reply may be nil.
func (s *Set) ask(ctx context.Context, i int, command bson.D, reply any) error {
	return s.nodes[i].reach(ctx, s.nodes[i].running().ended, func(ctx context.Context, client *mongo.Client) error {
		result := client.Database("admin").RunCommand(ctx, command)
		if reply == nil {
			return result.Err()
		}
		return result.Decode(reply)
	})
}
