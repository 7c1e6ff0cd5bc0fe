package soak

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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
	found := strings.Join(report.Stolen, "\n")
	require.Contains(t, found, "accounts have -1 together")
	require.Contains(t, found, "account account-0 has")
	require.Contains(t, found, "audit: ")
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
		"a post":                 {answer{ask: ask{verb: "post", part: 1}, status: 200}, transferDocument{State: "Success", Posted: &one}, true},
		"a post of another part": {answer{ask: ask{verb: "post", part: 1}, status: 200}, transferDocument{State: "Success", Posted: &two}, false},
		"a void":                 {answer{ask: ask{verb: "void"}, status: 200}, failed("voided"), true},
		"no void":                {answer{ask: ask{verb: "void"}, status: 200}, failed("expired"), false},
	} {
		require.Equal(t, c.honest, c.told.trueOf(c.stored), name)
	}
}
