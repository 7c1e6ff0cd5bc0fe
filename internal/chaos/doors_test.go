package chaos

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The last clear answer to close or to reopen an account is true, unless something may
// have come after it.
func TestDoors(t *testing.T) {
	noon := time.Date(2024, 1, 1, 12, 0, 0, 0, time.UTC)
	at := func(second float64) time.Time { return noon.Add(time.Duration(second * float64(time.Second))) }
	call := func(name string, v verb, w word, began, ended float64) entry {
		return entry{Call: name, Verb: v, ID: "door", Word: w, Began: at(began), Ended: at(ended)}
	}
	closed := call("last", verbClose, done, 10, 11)
	tests := []struct {
		name   string
		others []entry
		last   entry
		late   float64
		closed bool // as stored
		judged int
		found  int
	}{
		{"closed", nil, closed, 0, true, 1, 0},
		{"closed, and is open", nil, closed, 0, false, 1, 1},
		{"reopened", nil, call("last", verbReopen, done, 10, 11), 0, false, 1, 0},
		{"reopened, and is closed", nil, call("last", verbReopen, done, 10, 11), 0, true, 1, 1},
		{"kept open", nil, call("last", verbClose, keptOpen, 10, 11), 0, false, 1, 0},
		{"kept open, and is closed", nil, call("last", verbClose, keptOpen, 10, 11), 0, true, 1, 1},
		{"not known", nil, call("last", verbClose, inDoubt, 10, 11), 0, false, 0, 0},
		{"after another", []entry{call("other", verbReopen, done, 8, 9.9)}, closed, 0, false, 1, 1},
		{"beside another", []entry{call("other", verbReopen, done, 8, 10.5)}, closed, 0, false, 0, 0},
		{"beside one that did nothing", []entry{call("other", verbReopen, unwritten, 8, 10.5)}, closed, 0, false, 1, 1},
		{"just after a doubtful one", []entry{call("other", verbReopen, inDoubt, 8, 9.9)}, closed, 0, false, 0, 0},
		{"just after one without an answer", []entry{call("other", verbReopen, unanswered, 8, 9.9)}, closed, 0, false, 0, 0},
		{"long after a doubtful one", []entry{call("other", verbReopen, inDoubt, 7, 8)}, closed, 0, false, 1, 1},
		{"before a late message", nil, closed, 12, false, 0, 0},
		{"after a late message", nil, closed, 8, false, 1, 1},
	}
	for _, test := range tests {
		a := &audit{findings: newFindings(), accounts: map[string]accountDocument{"door": {ID: "door", Closed: test.closed}}}
		judged := a.doors(append(test.others, test.last), map[string]time.Time{"door": at(test.late)})
		found, _ := a.findings.all()
		require.Equal(t, test.judged, judged, test.name)
		require.Equal(t, test.found, found, test.name)
	}
}

// The last answer to freeze or to unfreeze an account is true, unless another call was
// beside it or after it.
func TestFrozenDoors(t *testing.T) {
	noon := time.Date(2024, 1, 1, 12, 0, 0, 0, time.UTC)
	call := func(name string, v verb, w word, began, ended time.Duration) entry {
		return entry{Call: name, Verb: v, ID: "door", Word: w, Began: noon.Add(began * time.Second), Ended: noon.Add(ended * time.Second)}
	}
	frozen := call("last", verbFreeze, done, 10, 11)
	for _, test := range []struct {
		name   string
		others []entry
		last   entry
		frozen bool // as stored
		judged int
		found  int
	}{
		{"frozen", nil, frozen, true, 1, 0},
		{"frozen, and is not", nil, frozen, false, 1, 1},
		{"unfrozen", nil, call("last", verbUnfreeze, done, 10, 11), false, 1, 0},
		{"unfrozen, and is frozen", nil, call("last", verbUnfreeze, done, 10, 11), true, 1, 1},
		{"not known", nil, call("last", verbFreeze, inDoubt, 10, 11), false, 0, 0},
		{"after another", []entry{call("other", verbUnfreeze, done, 7, 8)}, frozen, false, 1, 1},
		{"beside another", []entry{call("other", verbUnfreeze, done, 7, 10)}, frozen, false, 0, 0},
		{"beside a close", []entry{call("other", verbClose, done, 7, 12)}, frozen, false, 1, 1},
		{"just after a doubtful one", []entry{call("other", verbUnfreeze, inDoubt, 8, 9)}, frozen, false, 0, 0},
	} {
		a := &audit{findings: newFindings(), accounts: map[string]accountDocument{"door": {ID: "door", Frozen: test.frozen}}}
		judged := a.frozen(append(test.others, test.last))
		found, _ := a.findings.all()
		require.Equal(t, test.judged, judged, test.name)
		require.Equal(t, test.found, found, test.name)
	}
}
