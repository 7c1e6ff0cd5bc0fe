package chaos

import (
	"fmt"
	"strings"
	"time"

	"github.com/mongotransfer/transfer"
)

// missing returns what a run of this length must have done and this one has not.
func (r Report) missing() []string {
	missing := r.Config.missingFaults(r.Faults)
	want := func(what string, have, perMinute int) {
		missing = append(missing, r.Config.lacks(what, have, perMinute)...)
	}
	want("transfers that succeeded", r.Transfers[transfer.StateSuccess], 100)
	want("transfers that failed", r.Transfers[transfer.StateFail], 50)
	want("transfers that were taken over", r.Overtaken, 20)
	if r.Config.Workers > 1 { // the second answers at the commit
		want("transfers that were taken over after an answer at the commit", r.Promised, 5)
	}
	want("transfers that were cancelled in time", r.Answers[event{string(verbCancel), string(done)}], 10)
	for _, kind := range []string{
		holdPosted, holdPart, holdVoided, holdExpired, orderPaid, orderRefused,
		transferReversed, partReversed, reversalRefused, exchanged,
	} {
		want(kind, r.Kinds[kind], 5)
	}
	want("events that say succeeded", r.Events[transfer.EventSucceeded], 100)
	want("events that say failed", r.Events[transfer.EventFailed], 50)
	want("events that say held", r.Events[transfer.EventHeld], 5)
	want("holds extended", r.Answers[event{string(verbExtend), string(done)}], 5)
	want("reversals of what was reversed", r.Answers[event{string(verbReverse), string(alreadyReversed)}], 1)
	want("snapshots", r.Snapshots, 60)
	want("snapshots with money in transit", r.Moving, 20)
	if r.Config.has(Wires) {
		arrived := 0
		for _, n := range r.Arrived {
			arrived += n
		}
		want("messages that arrived when everything was over", arrived, 1)
	}
	return missing
}

// missingFaults returns the faults that a run of this length must have met more often.
func (c Config) missingFaults(have map[event]int) []string {
	var missing []string
	want := func(fault, at string, perMinute int) {
		missing = append(missing, c.lacks(strings.TrimSpace(at+" "+fault), have[event{fault, at}], perMinute)...)
	}
	if c.has(Workers) {
		want(faultKillWorker, "", 3)
		want(faultStopWorker, "", 3)
	}
	if c.has(Members) {
		for _, fault := range append(memberFaults(), failover) {
			want(fault, "", 1)
		}
	}
	if c.has(Commands) {
		for _, f := range failures() {
			want(f.fault, f.command, 1)
		}
	}
	if c.has(Wires) {
		for _, kind := range kinds() {
			for _, fault := range append(wireFaults(), faultLate) {
				want(fault, kind, 1)
			}
		}
	}
	return missing
}

// lacks returns a line if there is less of something than there must be.
// A run of less than a minute needs at least one of each.
func (c Config) lacks(what string, have, perMinute int) []string {
	least := max(1, int(time.Duration(perMinute)*c.For/time.Minute))
	if have >= least {
		return nil
	}
	return []string{fmt.Sprintf("%s: %d, at least %d are wanted", what, have, least)}
}

// kinds returns the kinds of messages that every run must have met with every fault.
// A findAndModify is rare, because it only claims what is claimed alone.
func kinds() []string {
	return []string{"insert transfers", "update transfers", "update accounts", "find transfers", "find accounts"}
}
