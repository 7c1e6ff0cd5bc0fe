package overload

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	transfer "github.com/mongotransfer/transfer"
)

// playOutage moves money between two clusters of which the second is out of reach for a while: first it falls silent, then it refuses
// connections. What is under way ends soon after, and what was sent to it meanwhile is no more than what would have been sent anyway.
func playOutage(ctx context.Context, s *scene) error {
	s.callers = steady
	uri, err := s.server(ctx)
	if err != nil {
		return err
	}
	b, err := s.open(ctx, map[string]string{"far": uri})
	if err != nil {
		return err
	}
	m, err := b.join(ctx, lines{"far": 0})
	if err != nil {
		return err
	}
	o := outage{bank: b, member: m}
	if err := o.calm(ctx); err != nil {
		return err
	}
	if err := o.strike(ctx, "silent", silent, s.long(30*time.Second, 4*time.Second)); err != nil {
		return err
	}
	if err := o.strike(ctx, "refusing", refusing, s.long(15*time.Second, 1500*time.Millisecond)); err != nil {
		return err
	}
	for ledger, c := range m.clusters {
		s.atMost("commands under way at once to "+name(ledger), c.counts.inFlight.peak.Load(), mostInFlight)
	}
	return b.audit(ctx)
}

// name names a ledger.
func name(ledger string) string {
	if ledger == "" {
		return "home"
	}
	return ledger
}

// outage is one as it is played.
type outage struct {
	bank   *bank
	member *member
	needed float64 // statements to the second cluster for each transfer, when all is well
}

// gather starts callers who move money from each cluster to the other.
func (o *outage) gather(ctx context.Context) *crowd {
	return gather(ctx, steady, giveUp, o.member.moves(func() transfer.Request {
		if o.bank.issued.Load()%2 == 0 {
			return o.bank.across("", "far")
		}
		return o.bank.across("far", "")
	}))
}

func (o *outage) sent() int64 { return o.member.clusters["far"].counts.statements.Load() }

// calm counts what is sent when all is well.
func (o *outage) calm(ctx context.Context) error {
	s := o.bank.scene
	c := o.gather(ctx)
	s.tell("transfers in a second, when all is well", int(c.rate(ctx, s.long(5*time.Second, time.Second))))
	c.disperse()
	s.expected("callers told something odd when all was well", &c.tally)
	if _, err := o.bank.drained(ctx); err != nil {
		return err
	}
	final, err := o.bank.final(ctx)
	o.needed = ratio(float64(o.sent()), float64(final))
	return err
}

// strike puts the second cluster out of reach for so long.
func (o *outage) strike(ctx context.Context, what string, t traffic, howLong time.Duration) error {
	s := o.bank.scene
	far := o.member.clusters["far"].line
	c := o.gather(ctx)
	pause(ctx, s.long(2*time.Second, 500*time.Millisecond))
	before, err := o.bank.final(ctx)
	if err != nil {
		return err
	}
	sent := o.sent()
	far.set(t)
	pause(ctx, howLong)
	c.leave()
	far.set(flowing)
	healed := time.Now()
	c.disperse()
	if _, err := o.bank.drained(ctx); err != nil {
		return err
	}
	s.within(what+": until all is final, once it is back", time.Since(healed), drainLimit)
	after, err := o.bank.final(ctx)
	if err != nil {
		return err
	}
	s.times(what+": statements sent, and needed", float64(o.sent()-sent), o.needed*float64(after-before), 2)
	s.atMost(what+": callers left in doubt", c.doubt.Load(), 0)
	s.expected(what+": callers told something odd", &c.tally)
	return nil
}

// final returns how many transfers are final.
func (b *bank) final(ctx context.Context) (int64, error) {
	return b.transfers(b.observer).CountDocuments(ctx, bson.D{
		{Key: "state", Value: bson.D{{Key: "$in", Value: bson.A{"Success", "Fail"}}}},
	})
}
