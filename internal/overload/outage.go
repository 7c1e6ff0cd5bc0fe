package overload

import (
	"context"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	transfer "github.com/mongotransfer/transfer"
)

// playOutage moves money between two clusters. The second one fails for a while: it is
// silent, its writes hang, or it refuses connections.
// What is in progress ends soon after the outage.
// What was sent to the cluster meanwhile is no more than what it would have received
// anyway.
func playOutage(ctx context.Context, s *scene) error {
	s.callers = steadyCallers
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
	for _, t := range troubles(m.clusters["far"].line, s) {
		if err := o.strike(ctx, t); err != nil {
			return err
		}
	}
	for ledger, c := range m.clusters {
		s.atMost("commands under way at once to "+name(ledger), c.counts.inFlight.peak.Load(), mostInFlight)
	}
	return b.audit(ctx)
}

// trouble is one way in which a cluster fails.
type trouble struct {
	name       string
	howLong    time.Duration
	begin, end func()
}

func troubles(far *line, s *scene) []trouble {
	all := []trouble{{
		name: "silent", howLong: s.duration(30*time.Second, 1500*time.Millisecond),
		begin: func() { far.set(silent) }, end: func() { far.set(flowing) },
	}, {
		// Everything else is answered.
		name: "writes hang", howLong: s.duration(30*time.Second, 6*time.Second),
		begin: func() { far.hold(isUpdate) }, end: func() { far.hold(nil) },
	}}
	if !s.Short {
		all = append(all, trouble{
			name: "refusing", howLong: 15 * time.Second, begin: func() { far.set(refusing) }, end: func() { far.set(flowing) },
		})
	}
	return all
}

func isUpdate(command string) bool { return strings.HasPrefix(command, "update ") }

// name returns a ledger's name for the report.
func name(ledger string) string {
	if ledger == "" {
		return "home"
	}
	return ledger
}

// outage is an outage as it is played.
type outage struct {
	bank   *bank
	member *member
	// needed is how many statements the second cluster gets for each transfer while it
	// works.
	needed float64
}

// gather starts callers that move money from each cluster to the other.
func (o *outage) gather(ctx context.Context) *crowd {
	return gather(ctx, steadyCallers, giveUp, o.member.moves(func() transfer.Request {
		if o.bank.issued.Load()%2 == 0 {
			return o.bank.across("", "far")
		}
		return o.bank.across("far", "")
	}))
}

func (o *outage) sent() int64 { return o.member.clusters["far"].counts.statements.Load() }

// calm counts what is sent while the second cluster works.
func (o *outage) calm(ctx context.Context) error {
	s := o.bank.scene
	c := o.gather(ctx)
	s.note("transfers in a second, when all is well", int(c.rate(ctx, s.duration(5*time.Second, time.Second))))
	c.disperse()
	s.expected("callers told something odd when all was well", &c.tally)
	if _, err := o.bank.drained(ctx); err != nil {
		return err
	}
	final, err := o.bank.final(ctx)
	o.needed = ratio(float64(o.sent()), float64(final))
	return err
}

// strike makes the second cluster fail for a while.
func (o *outage) strike(ctx context.Context, t trouble) error {
	s := o.bank.scene
	c := o.gather(ctx)
	pause(ctx, s.duration(2*time.Second, 500*time.Millisecond))
	before, err := o.bank.final(ctx)
	if err != nil {
		return err
	}
	unfinished, err := o.bank.unfinished(ctx)
	if err != nil {
		return err
	}
	sent := o.sent()
	done := c.done.Load()
	t.begin()
	pause(ctx, t.howLong)
	s.atMost(t.name+": transfers done meanwhile", c.done.Load()-done, steadyCallers)
	c.leave()
	t.end()
	healed := time.Now()
	c.disperse()
	if _, err := o.bank.drained(ctx); err != nil {
		return err
	}
	s.within(t.name+": until all is final, once it is back", time.Since(healed), drainLimit)
	after, err := o.bank.final(ctx)
	if err != nil {
		return err
	}
	s.times(t.name+": statements sent, and needed", float64(o.sent()-sent), o.neededFor(after-before, unfinished), 2)
	s.atMost(t.name+": callers left in doubt", c.doubt.Load(), 0)
	s.expected(t.name+": callers told something odd", &c.tally)
	return nil
}

// neededFor returns how many statements the second cluster needs for n transfers, of
// which some were unfinished before.
// Those without a caller any more are answered: each needs one to remove its trace there.
func (o *outage) neededFor(n, unfinished int64) float64 {
	answered := min(max(unfinished-steadyCallers, 0), n)
	return o.needed*float64(n-answered) + float64(answered)
}

// final returns how many transfers are final.
func (b *bank) final(ctx context.Context) (int64, error) {
	return b.transfers(b.observer).CountDocuments(ctx, bson.D{
		{Key: "state", Value: bson.D{{Key: "$in", Value: bson.A{"Success", "Fail"}}}},
	})
}
