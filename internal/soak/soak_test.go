package soak

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// Whatever happens to the processes of a service and to its rights, no unit is lost or
// minted, and every answer that a client got stays true.
// The check has teeth: it finds one unit that is then taken behind the library's back.
func TestServiceUnderFaults(t *testing.T) {
	config := Default()
	config.Theft = 1
	var log, table strings.Builder
	report, err := Run(t.Context(), config, &log)
	require.NoError(t, err, log.String())
	require.NoError(t, report.Print(&table))
	t.Log("\n" + log.String() + table.String())
	require.NoError(t, report.Err())
	require.Contains(t, table.String(), "process 3, from")
	found := strings.Join(report.Stolen, "\n")
	require.Contains(t, found, "accounts have -1 together")
	require.Contains(t, found, "account account-0 has")
	require.Contains(t, found, "audit: ")
}

// The check finds an event that was not delivered, one that is none, and one that is
// left.
func TestEventsAreMissed(t *testing.T) {
	t.Parallel()
	posted := transferDocument{ID: "t", State: "Success", Hold: true, Held: true}
	left := posted
	left.Outbox = []bson.M{{"kind": "succeeded"}}
	for name, c := range map[string]struct {
		taken  []string
		stored transferDocument
		want   []string
	}{
		"all":      {[]string{"t:held", "t:succeeded", "t:held"}, posted, nil},
		"one lost": {[]string{"t:held"}, posted, []string{"event t:succeeded was never delivered"}},
		"one made": {
			[]string{"t:held", "t:succeeded", "t:failed"}, posted, []string{"event t:failed was delivered, and is none"},
		},
		"one left": {
			[]string{"t:held", "t:succeeded"}, left, []string{"transfer t has events left: [{\"kind\":\"succeeded\"}]"},
		},
	} {
		h := hook{taken: map[string]int{}}
		for _, id := range c.taken {
			h.take(id)
		}
		require.Equal(t, c.want, h.events([]transferDocument{c.stored}), name)
	}
}

// A process that needs more and more is found, and one that needs much from the start is
// not.
func TestDrift(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		samples int
		needs   func(n int64) sample
		want    string
	}{
		"level":           {1200, func(n int64) sample { return sample{heap: 50<<20 + n%7<<20, goroutines: 1000 + n%50} }, ""},
		"a leak of bytes": {1200, func(n int64) sample { return sample{heap: n << 13, goroutines: 9} }, "bytes of heap"},
		"of goroutines":   {1200, func(n int64) sample { return sample{heap: 1 << 20, goroutines: n} }, "goroutines"},
		"too short":       {59, func(int64) sample { return sample{} }, "says nothing"},
	} {
		u := newUsage(1)
		for n := range c.samples {
			u.samples[0] = append(u.samples[0], c.needs(int64(n)))
		}
		found := strings.Join(u.drift(0), "\n")
		require.Contains(t, found, c.want, name)
		require.Equal(t, c.want == "", found == "", name)
	}
}

// Each kind of answer is compared with what is stored.
func TestLies(t *testing.T) {
	one, two := int64(1), int64(2)
	failed := func(code string) (d transferDocument) {
		d.State, d.Failure.Code = "Fail", code
		return d
	}
	for name, c := range map[string]struct {
		told   answer
		stored transferDocument
		honest bool
	}{
		"a success":              {answer{ask: ask{verb: "transfer"}, status: 201}, transferDocument{State: "Success"}, true},
		"no success":             {answer{ask: ask{verb: "transfer"}, status: 201}, failed("cancelled"), false},
		"committed":              {answer{ask: ask{verb: "transfer"}, status: 202, state: "moved"}, transferDocument{State: "Success"}, true},
		"committed, and failed":  {answer{ask: ask{verb: "transfer"}, status: 202, state: "moved"}, failed("cancelled"), false},
		"an odd status":          {answer{ask: ask{verb: "transfer"}, status: 409}, transferDocument{State: "Success"}, false},
		"a refusal":              {answer{ask: ask{verb: "transfer"}, status: 422, code: "x"}, failed("x"), true},
		"no refusal":             {answer{ask: ask{verb: "transfer"}, status: 422, code: "x"}, transferDocument{State: "Success"}, false},
		"another refusal":        {answer{ask: ask{verb: "transfer"}, status: 422, code: "x"}, failed("y"), false},
		"a hold":                 {answer{ask: ask{verb: "hold"}, status: 202}, transferDocument{Hold: true, Held: true}, true},
		"no hold":                {answer{ask: ask{verb: "hold"}, status: 202}, transferDocument{Hold: true}, false},
		"a schedule":             {answer{ask: ask{verb: "schedule"}, status: 202}, failed("insufficientFunds"), true},
		"no scheduled success":   {answer{ask: ask{verb: "schedule"}, status: 201}, failed("insufficientFunds"), false},
		"a post":                 {answer{ask: ask{verb: "post", part: 1}, status: 200}, transferDocument{State: "Success", Posted: &one}, true},
		"a post of another part": {answer{ask: ask{verb: "post", part: 1}, status: 200}, transferDocument{State: "Success", Posted: &two}, false},
		"a void":                 {answer{ask: ask{verb: "void"}, status: 200}, failed("voided"), true},
		"a void under way":       {answer{ask: ask{verb: "void"}, status: 202, state: "failed"}, failed("voided"), true},
		"no void under way":      {answer{ask: ask{verb: "void"}, status: 202, state: "failed"}, transferDocument{State: "Success"}, false},
		"no void":                {answer{ask: ask{verb: "void"}, status: 200}, failed("expired"), false},
	} {
		require.Equal(t, c.honest, c.told.trueOf(c.stored), name)
	}
}
