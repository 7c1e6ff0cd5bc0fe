package overload

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	transfer "github.com/mongotransfer/transfer"
)

const (
	// The callers elsewhere never use the locked account.
	// The callers there do.
	elsewhereCallers = 128
	thereCallers     = 16
)

// playLocked locks one account in an open transaction of a user.
// The callers that don't use the account don't notice.
func playLocked(ctx context.Context, s *scene) error {
	s.callers = elsewhereCallers + thereCallers
	b, m, err := s.openAndJoin(ctx)
	if err != nil {
		return err
	}
	const patience = 5 * time.Second
	elsewhere := gather(ctx, elsewhereCallers, patience, m.moves(func() transfer.Request { return b.move(1) }))
	there := gather(ctx, thereCallers, patience, m.moves(func() transfer.Request {
		req := b.move(1)
		req.From = account(0)
		return req
	}))
	window := s.duration(4*time.Second, 700*time.Millisecond)
	var before, during float64
	turns := s.number(2, 1)
	var calm time.Duration // the longest call before the first lock
	var passed int64
	for turn := range turns {
		pause(ctx, window)
		before += elsewhere.rate(ctx, window) / float64(turns)
		if turn == 0 {
			calm = time.Duration(elsewhere.longest.Swap(0))
		}
		if err := b.lock(ctx, account(0), func() {
			done := there.done.Load()
			during += elsewhere.rate(ctx, s.duration(8*time.Second, 5500*time.Millisecond)) / float64(turns)
			passed += there.done.Load() - done
		}); err != nil {
			return err
		}
		pause(ctx, window) // so that the calls that waited are counted
	}
	s.within("longest of those elsewhere", time.Duration(elsewhere.longest.Load()), 2*time.Second)
	s.note("longest of them before", calm.Round(time.Millisecond))
	elsewhere.disperse()
	there.disperse()
	s.keeps("transfers elsewhere", before, during, 0.5)
	s.atMost("callers elsewhere left in doubt", elsewhere.doubt.Load(), 0)
	s.atMost("callers elsewhere whose time ended", elsewhere.unsent.Load(), 0)
	s.atMost("transfers of the locked account meanwhile", passed, int64(turns*thereCallers))
	s.note("callers of the locked account left in doubt", there.doubt.Load())
	s.expected("callers elsewhere told something odd", &elsewhere.tally)
	s.expected("callers of the locked account told something odd", &there.tally)
	took, err := b.drained(ctx)
	if err != nil {
		return err
	}
	s.within("until all is final, after the last answer", took, drainLimit)
	s.atMost("commands under way at once", m.home().counts.inFlight.peak.Load(), mostInFlight)
	return b.audit(ctx)
}

// lock calls meanwhile while a transaction has written to an account, as a user's own
// transaction might, and then commits the transaction.
func (b *bank) lock(ctx context.Context, id string, meanwhile func()) error {
	c := b.observer.home()
	session, err := c.client.StartSession()
	if err != nil {
		return err
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	_, _, err = eventually(ctx, giveUp, func() (bool, error) {
		if err := session.StartTransaction(); err != nil {
			return false, err
		}
		note := bson.D{{Key: "$set", Value: bson.D{{Key: "note", Value: time.Now()}}}}
		_, err := b.accounts(c, "").UpdateByID(mongo.NewSessionContext(ctx, session), id, note)
		if err != nil { // A transfer has just written to it.
			return false, session.AbortTransaction(ctx)
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	meanwhile()
	return session.CommitTransaction(ctx)
}
