package overload

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	transfer "github.com/mongotransfer/transfer"
)

const (
	// deadLedgers is how many ledgers are silent at once.
	deadLedgers = 4
	// recoverLimit is how long they may keep recovery from the other ledgers.
	recoverLimit = 3 * time.Second
)

// playRecover kills a process that has claimed transfers on many clusters, and recovers
// while four of the clusters are silent.
// The transfers that stalled elsewhere are finished all the same.
func playRecover(ctx context.Context, s *scene) error {
	each, elsewhere := s.number(300, 300), s.number(200, 50)
	s.callers = deadLedgers*each + elsewhere
	b, over, err := s.openFive(ctx)
	if err != nil {
		return err
	}
	ids, release, err := b.strand(ctx, over, each, elsewhere)
	if err != nil {
		return err
	}
	delete(over, "healthy")
	m, err := b.join(ctx, over, transfer.WithStallThreshold(0))
	if err != nil {
		return err
	}
	for ledger := range over {
		m.clusters[ledger].line.set(silent)
	}
	sweeping, leave := context.WithCancel(ctx)
	swept := make(chan struct{})
	go func() {
		defer close(swept)
		_, _ = m.Recover(sweeping) // It is cut short.
	}()
	took, _, err := eventually(ctx, time.Minute, func() (bool, error) {
		open, err := b.still(ctx, ids)
		return open == 0, err
	})
	s.within("until all that was stalled elsewhere is final", took, recoverLimit)
	if err == nil {
		var hang int64
		hang, err = b.unfinished(ctx)
		s.atLeast("transfers that hang meanwhile", hang, int64(deadLedgers*each))
	}
	leave()
	<-swept
	if err != nil {
		return err
	}
	release()
	for ledger := range over {
		m.clusters[ledger].line.set(flowing)
	}
	if err := b.recoverAll(ctx, m); err != nil {
		return err
	}
	return b.audit(ctx)
}

// openFive opens a bank with five ledgers besides the default one, and returns over which
// lines a member reaches them.
// Four of the ledgers are on one server: each member has four clients there, and takes
// them for four clusters.
func (s *scene) openFive(ctx context.Context) (*bank, lines, error) {
	far, err := s.server(ctx)
	if err != nil {
		return nil, nil, err
	}
	servers, over := map[string]string{"healthy": s.Home}, lines{"healthy": 0}
	for i := range deadLedgers {
		ledger := fmt.Sprint("dead-", i)
		servers[ledger], over[ledger] = far, 0
	}
	b, err := s.open(ctx, servers)
	return b, over, err
}

// strand leaves transfers behind that a process has claimed before it died, and claims
// those of the healthy ledger last.
// It returns their IDs, and a function that lets everything arrive that the dead process
// has sent.
func (b *bank) strand(ctx context.Context, over lines, perLedger, healthy int) (ids []string, release func(), err error) {
	dying, err := b.join(ctx, over)
	if err != nil {
		return nil, nil, err
	}
	for ledger := range over {
		dying.clusters[ledger].line.hold(isUpdate)
	}
	var all []*flood
	for ledger := range over {
		if ledger != "healthy" {
			all = append(all, rush(ctx, perLedger, giveUp, dying.moves(func() transfer.Request { return b.across("", ledger) })))
		}
	}
	if err := b.claimed(ctx, int64(perLedger*(len(over)-1))); err != nil {
		return nil, nil, err
	}
	requests := make(chan transfer.Request, healthy)
	for range healthy {
		req := b.across("", "healthy")
		ids = append(ids, req.ID)
		requests <- req
	}
	all = append(all, rush(ctx, healthy, giveUp, dying.moves(func() transfer.Request { return <-requests })))
	if err := b.claimed(ctx, int64(perLedger*(len(over)-1)+healthy)); err != nil {
		return nil, nil, err
	}
	if err := leave(dying); err != nil {
		return nil, nil, err
	}
	for _, f := range all {
		f.leave()
		f.answered()
	}
	return ids, func() {
		for ledger := range over {
			dying.clusters[ledger].line.hold(nil)
		}
	}, nil
}

// still returns how many of these transfers are not final.
func (b *bank) still(ctx context.Context, ids []string) (int64, error) {
	return b.transfers(b.observer).CountDocuments(ctx, bson.D{
		{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}, {Key: "open", Value: true},
	})
}

// recoverAll sweeps until no transfer is in progress.
func (b *bank) recoverAll(ctx context.Context, m *member) error {
	_, done, err := eventually(ctx, giveUp, func() (bool, error) {
		if _, err := m.Recover(ctx); err != nil {
			return false, err
		}
		n, err := b.unfinished(ctx)
		return n == 0, err
	})
	if err == nil && !done {
		b.scene.note("still under way", "after "+giveUp.String())
	}
	return err
}
