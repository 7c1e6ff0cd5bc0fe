package chaos

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
)

// The check of a snapshot has teeth: a transfer that moves 30 from one account to another
// is right at each of its steps, and in none of the ways in which it could be wrong.
func TestCheckFinds(t *testing.T) {
	const rich, poor, done = "rich", "poor", "poor%"
	both := map[string]int64{rich: -30, poor: 30}
	tests := []struct {
		name       string
		state      transfer.State // of the transfer
		rich, poor int64          // balances; 100 and 0 were put in
		markers    map[string]int64
		want       string // "" if all is well
	}{
		{"nothing prepared", transfer.StatePreparing, 100, 0, nil, ""},
		{"the debit prepared", transfer.StatePreparing, 70, 0, map[string]int64{rich: -30}, ""},
		{"both prepared", transfer.StatePreparing, 70, 0, both, ""},
		{"committed", transfer.StateCommitted, 70, 0, both, ""},
		{"the debit settled", transfer.StateCommitted, 70, 0, map[string]int64{poor: 30}, ""},
		{"the credit settled", transfer.StateCommitted, 70, 30, map[string]int64{rich: -30}, ""},
		{"committed by fact, and paid in", transfer.StatePreparing, 70, 30, map[string]int64{rich: -30, done: 30}, ""},
		{"committed, and paid in", transfer.StateCommitted, 70, 30, map[string]int64{rich: -30, done: 30}, ""},
		{"the debit cleared", transfer.StateCommitted, 70, 30, map[string]int64{done: 30}, ""},
		{"rolled back", transfer.StateRollback, 70, 0, both, ""},
		{"undone", transfer.StateRollback, 100, 0, map[string]int64{poor: 30}, ""},

		{"settled twice", transfer.StateCommitted, 70, 60, nil, "100 were put in; the balances are 130"},
		{"settled and still marked", transfer.StateCommitted, 70, 30, both, "in transit are 30"},
		{"lost", transfer.StateCommitted, 70, 0, nil, "the balances are 70, in transit are 0"},
		{"final and marked", transfer.StateSuccess, 70, 30, map[string]int64{rich: -30}, `which is "Success"`},
		{"marked before it was claimed", transfer.StateInitiated, 70, 0, map[string]int64{rich: -30}, `which is "Initiated"`},
		{"marked with another amount", transfer.StatePreparing, 69, 0, map[string]int64{rich: -31}, "none of its legs"},
		{"paid in by a done mark only", transfer.StatePreparing, 70, 0, map[string]int64{rich: -30, done: 30}, "in transit are 0"},
		{"paid in and rolled back", transfer.StateRollback, 70, 30, map[string]int64{rich: -30, done: 30}, "leaves none there"},
		{"paid in and reserved", transfer.StateCommitted, 70, 30, map[string]int64{done: 30, poor: 30}, "leaves none there"},
		{"paid in and final", transfer.StateSuccess, 70, 30, map[string]int64{done: 30}, `which is "Success"`},
		{"overdrawn", transfer.StateRollback, 110, -10, nil, "account poor has less than its floor"},
		{"decided the other way", transfer.StateCommitted, 70, 30, map[string]int64{rich: -30}, "moved was Rollback, and then Committed"},
	}
	for _, test := range tests {
		c := &checker{put: map[string]int64{"": 100}, findings: newFindings(), seen: map[string]transfer.State{}}
		if strings.HasPrefix(test.want, "moved was") {
			c.seen["moved"] = transfer.StateRollback
		}
		accounts := map[string]accountDocument{rich: {ID: rich, Balance: test.rich}, poor: {ID: poor, Balance: test.poor}}
		for id, amount := range test.markers {
			of, isDone := traceOf(id)
			account := accounts[of]
			if account.Pending == nil {
				account.Pending = map[string]int64{}
			}
			key := "moved"
			if isDone {
				key = "moved%"
			}
			account.Pending[key] = amount
			accounts[of] = account
		}
		moved := transferDocument{ID: "moved", State: test.state, Legs: []legDocument{{rich, -30}, {poor, 30}}}
		c.check(accounts, map[string]transferDocument{"moved": moved})
		_, told := c.findings.all()
		if test.want == "" {
			require.Empty(t, told, test.name)
			continue
		}
		require.Contains(t, strings.Join(told, "\n"), test.want, test.name)
	}
}

// Money that is missing in one currency is not made up for by more of another one.
func TestCheckFindsMixedCurrencies(t *testing.T) {
	rich, dollars := accountName(0), accountName(3)
	c := &checker{put: map[string]int64{"": 100, "USD": 100}, findings: newFindings(), seen: map[string]transfer.State{}}
	c.check(map[string]accountDocument{rich: {ID: rich, Balance: 100}, dollars: {ID: dollars, Balance: 100}}, nil)
	requireFound(t, c.findings, "", "as they were put in")
	c.check(map[string]accountDocument{rich: {ID: rich, Balance: 90}, dollars: {ID: dollars, Balance: 110}}, nil)
	requireFound(t, c.findings, `currency "USD": 100 were put in; the balances are 110, in transit are 0`, "mixed")
	requireFound(t, c.findings, `currency "": 100 were put in; the balances are 90, in transit are 0`, "mixed")
}

// A closed account has no markers, and a marker has a transfer.
func TestCheckFindsStrays(t *testing.T) {
	c := &checker{findings: newFindings(), seen: map[string]transfer.State{}}
	c.check(map[string]accountDocument{"a": {ID: "a", Closed: true, Pending: map[string]int64{"stray": 1}}}, nil)
	_, told := c.findings.all()
	require.Contains(t, strings.Join(told, "\n"), "account a is closed and has markers")
	require.Contains(t, strings.Join(told, "\n"), "account a has a marker of transfer stray")
}
