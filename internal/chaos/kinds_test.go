package chaos

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
)

// An ID determines its request, in every process.
func TestIDsTellWhatTheyStandFor(t *testing.T) {
	b := bank{seed: 1, accounts: leastAccounts}
	id := payID("order-7", "1-2-3")
	order, pays := orderOf(id)
	require.True(t, pays)
	require.Equal(t, "order-7", order)
	require.Equal(t, effect(id, "order-7"), b.request(id).Effects)
	original, reverses := originalOf(reversalID(id, "1-2-4"))
	require.True(t, reverses)
	require.Equal(t, id, original)
	for _, other := range []string{"1-2-3", "shared-5", drainID(doorName(0), 7, "x"), holdPrefix + "1-2-3"} {
		_, pays := orderOf(other)
		_, reverses := originalOf(other)
		require.False(t, pays || reverses, other)
		require.Equal(t, other == holdPrefix+"1-2-3", isHold(other))
		require.Equal(t, b.request(other), bank{seed: 1, accounts: leastAccounts}.request(other))
	}
}

// A partly posted hold, 10 of 30, is right at each of its steps, and wrong in each way in
// which it could be wrong.
func TestCheckKnowsParts(t *testing.T) {
	const rich, poor = "rich", "poor"
	both := map[string]int64{rich: -30, poor: 30}
	tests := []struct {
		name       string
		state      transfer.State
		rich, poor int64
		markers    map[string]int64
		want       string
	}{
		{"held", transfer.StatePreparing, 70, 0, both, ""},
		{"posted", transfer.StateCommitted, 70, 0, both, ""},
		{"the rest returned", transfer.StateCommitted, 90, 0, map[string]int64{poor: 30}, ""},
		{"the part arrived", transfer.StateCommitted, 70, 10, map[string]int64{rich: -30}, ""},
		{"all of it arrived", transfer.StateCommitted, 70, 30, map[string]int64{rich: -30}, "in transit are 20"},
		{"all of it returned", transfer.StateCommitted, 100, 0, map[string]int64{poor: 30}, "in transit are 10"},
		{"nothing returned", transfer.StateCommitted, 70, 0, map[string]int64{poor: 30}, "in transit are 10"},
	}
	for _, test := range tests {
		c := &checker{put: map[string]int64{"": 100}, findings: newFindings(), seen: map[string]transfer.State{}}
		accounts := map[string]accountDocument{rich: {ID: rich, Balance: test.rich}, poor: {ID: poor, Balance: test.poor}}
		for id, amount := range test.markers {
			account := accounts[id]
			account.Pending = map[string]int64{"hold x": amount}
			accounts[id] = account
		}
		moved := transferDocument{ID: "hold x", State: test.state, Hold: true, Held: true, Legs: []legDocument{{rich, -30}, {poor, 30}}}
		if test.state == transfer.StateCommitted {
			moved.Posted = 10
		}
		c.check(accounts, map[string]transferDocument{"hold x": moved})
		requireFound(t, c.findings, test.want, test.name)
	}
}

func requireFound(t *testing.T, f *findings, want, name string) {
	t.Helper()
	_, told := f.all()
	if want == "" {
		require.Empty(t, told, name)
		return
	}
	require.Contains(t, strings.Join(told, "\n"), want, name)
}

// A hold is decided only in allowed ways, by a caller that asked for that.
func TestWrongHolds(t *testing.T) {
	document := func(id string, state transfer.State, code string, change func(*transferDocument)) transferDocument {
		d := transferDocument{ID: id, State: state, Hold: isHold(id), Held: isHold(id), Legs: []legDocument{{"a", -30}, {"b", 30}}}
		d.Failure.Code = code
		if change != nil {
			change(&d)
		}
		return d
	}
	success, fail := transfer.StateSuccess, transfer.StateFail
	posted := func(part int64) []entry { return []entry{{Verb: verbPost, Word: done, ID: "hold x", Part: part}} }
	voided := []entry{{Verb: verbVoid, Word: done, ID: "hold x"}}
	for name, test := range map[string]struct {
		stored  transferDocument
		entries []entry
		want    string
	}{
		"posted":             {document("hold x", success, "", nil), posted(0), ""},
		"in part":            {document("hold x", success, "", func(d *transferDocument) { d.Posted = 10 }), posted(10), ""},
		"in another part":    {document("hold x", success, "", func(d *transferDocument) { d.Posted = 10 }), posted(0), "is posted with 10"},
		"too much":           {document("hold x", success, "", func(d *transferDocument) { d.Posted = 30 }), posted(30), "no part of it"},
		"by nobody":          {document("hold x", success, "", nil), nil, "nobody who asked"},
		"by who was refused": {document("hold x", success, "", nil), []entry{{Verb: verbPost, Word: refused, ID: "hold x"}}, "nobody who asked"},
		"by who is in doubt": {document("hold x", success, "", nil), []entry{{Verb: verbPost, Word: inDoubt, ID: "hold x"}}, ""},
		"never held":         {document("hold x", success, "", func(d *transferDocument) { d.Held = false }), posted(0), "never held"},
		"voided":             {document("hold x", fail, "voided", nil), voided, ""},
		"voided by nobody":   {document("hold x", fail, "voided", nil), nil, "nobody who asked"},
		"expired":            {document("hold x", fail, "expired", nil), nil, ""},
		"stalled":            {document("hold x", fail, "stalled", nil), nil, "taken for stalled"},
		"held and refused":   {document("hold x", fail, "insufficientFunds", nil), nil, "failed for insufficientFunds"},
		"refused":            {document("hold x", fail, "insufficientFunds", func(d *transferDocument) { d.Held = false }), nil, ""},
		"no hold":            {document("x", success, "", nil), nil, ""},
		"no hold, expired":   {document("x", fail, "expired", nil), nil, "is no hold"},
		"no hold, held":      {document("x", success, "", func(d *transferDocument) { d.Held = true }), nil, "is no hold"},
		"became a hold":      {document("x", success, "", func(d *transferDocument) { d.Hold = true }), nil, "should not be"},
	} {
		a := &audit{findings: newFindings(), transfers: map[string]transferDocument{test.stored.ID: test.stored}}
		a.holds(test.entries)
		requireFound(t, a.findings, test.want, name)
	}
}

// An order is paid by one payment, and doesn't show it before.
func TestWrongOrders(t *testing.T) {
	mine, another := payID("order-1", "x"), payID("order-1", "y")
	live := map[string]transferDocument{mine: {ID: mine, State: transfer.StatePreparing}, another: {ID: another, State: transfer.StateSuccess}}
	for want, o := range map[string]orderDocument{
		"":                      {ID: "order-1", Status: unpaid, Pending: map[string]int64{mine: 0}},
		"by several":            {ID: "order-1", Status: unpaid, Pending: map[string]int64{mine: 0, another: 0}},
		`which is "Success"`:    {ID: "order-1", Status: unpaid, Pending: map[string]int64{another: 0}},
		"which does not pay it": {ID: "order-2", Status: unpaid, Pending: map[string]int64{mine: 0}},
		"paid already":          {ID: "order-1", Status: paid, Pending: map[string]int64{mine: 0}},
	} {
		c := &checker{findings: newFindings()}
		c.checkOrders([]orderDocument{o}, live)
		requireFound(t, c.findings, want, want)
	}
	for name, test := range map[string]struct {
		order orderDocument
		wrong bool
	}{
		"paid":            {orderDocument{ID: "order-1", Status: paid, PaidBy: another}, false},
		"not paid":        {orderDocument{ID: "order-1", Status: unpaid}, true},
		"paid by another": {orderDocument{ID: "order-1", Status: paid, PaidBy: mine}, true},
		"still reserved":  {orderDocument{ID: "order-1", Status: paid, PaidBy: another, Pending: map[string]int64{mine: 0}}, true},
		"gone":            {orderDocument{ID: "order-9", Status: unpaid}, true},
	} {
		a := &audit{findings: newFindings(), transfers: live, orders: map[string]orderDocument{test.order.ID: test.order}}
		a.paidOrders()
		found, _ := a.findings.all()
		require.Equal(t, test.wrong, found > 0, name)
	}
}

// counting changes what the transfer x counts as reversed.
func counting(all map[string]transferDocument, units int64) map[string]transferDocument {
	x := all["x"]
	x.Reversed = map[string]int64{"%00a": units, "%00b": -units}
	all["x"] = x
	return all
}

// A transfer counts what its reversals have moved, which is no more than it has moved.
// Each answer about it is true.
func TestWrongReversals(t *testing.T) {
	shop := bank{accounts: 10}
	for asked := int64(0); asked == 0 || asked > 90; asked = units(shop.request("x").Amount) {
		shop.seed++
	}
	id := func(all bool, n int) string {
		for ; shop.reversal(reversalID("x", fmt.Sprint(n))).All != all; n += 10 {
		}
		return reversalID("x", fmt.Sprint(n))
	}
	one, two, part := id(true, 1), id(true, 2), id(false, 3)
	world := func(reversedBy string, first, second transfer.State) map[string]transferDocument {
		legs := []legDocument{{"a", 30}, {"b", -30}}
		x := transferDocument{ID: "x", State: transfer.StateSuccess, ReversedBy: reversedBy, Legs: []legDocument{{"a", -30}, {"b", 30}}}
		if reversedBy != "" {
			x.Reversed = map[string]int64{"%00a": 30, "%00b": -30}
		}
		return map[string]transferDocument{
			"x": x, one: {ID: one, State: first, Reverses: "x", Legs: legs}, two: {ID: two, State: second, Reverses: "x", Legs: legs},
		}
	}
	success, fail := transfer.StateSuccess, transfer.StateFail
	told := func(id string, w word, succeeded bool) []entry {
		return []entry{{Verb: verbReverse, ID: id, Word: w, Succeeded: succeeded}}
	}
	for name, test := range map[string]struct {
		stored  map[string]transferDocument
		entries []entry
		want    string
	}{
		"reversed":                     {world(one, success, fail), told(two, alreadyReversed, false), ""},
		"not reversed":                 {world("", fail, fail), nil, ""},
		"twice":                        {world(one, success, success), nil, "has the successful reversals"},
		"by one that failed":           {world(two, success, fail), nil, "has the successful reversals"},
		"without a trace":              {world("", success, fail), nil, "has the successful reversals"},
		"counted wrongly":              {counting(world(one, success, fail), 29), nil, "has the successful reversals"},
		"told that it is too much":     {counting(world(one, success, fail), 30), told(part, reversalExceeds, false), ""},
		"told so, with enough left":    {world("", fail, fail), told(part, reversalExceeds, false), "as much left"},
		"told that it is":              {world("", fail, fail), told(two, alreadyReversed, false), "it is not"},
		"told that it is, by its own":  {world(one, success, fail), told(one, alreadyReversed, false), "by this very one"},
		"told that it can't be":        {world("", fail, fail), told(one, notReversible, false), ""},
		"told that it can't be, known": {world("", fail, fail), told(one, notReversible, true), "knew that it has succeeded"},
		"told that nothing is stored":  {world("", fail, fail), told(one, unwritten, false), "has stored it"},
	} {
		a := &audit{bank: shop, findings: newFindings(), transfers: test.stored}
		a.reversals(map[string]int{one: 1, two: 1}, test.entries)
		requireFound(t, a.findings, test.want, name)
	}
	a := &audit{bank: shop, findings: newFindings(), transfers: world(one, success, fail)}
	require.True(t, a.asAsked(a.transfers[one]))
	document := a.transfers["x"]
	document.Posted = 10
	a.transfers["x"] = document
	require.False(t, a.asAsked(a.transfers[one]), "it moves back what was posted")
	document.Pending = map[string]int64{one: 0}
	a.transfers["x"] = document
	a.reversals(nil, nil)
	requireFound(t, a.findings, "is reserved by a reversal still", "reserved")
}

// The audit accepts true answers to holds and finds false ones.
func TestLiesAboutHolds(t *testing.T) {
	later := time.Now().Add(time.Hour)
	held := transferDocument{State: transfer.StateFail, Hold: true, Held: true, ExpiresAt: later, LastModified: later}
	held.Failure.Code = "expired"
	early := held
	early.LastModified = later.Add(-time.Second)
	posted := transferDocument{State: transfer.StateSuccess, Hold: true, Held: true, Posted: 10}
	never := transferDocument{State: transfer.StateFail, Hold: true}
	preparing, success := transfer.StatePreparing, transfer.StateSuccess
	for name, test := range map[string]struct {
		entry  entry
		stored transferDocument
		lie    bool
	}{
		"held":                         {entry{Verb: verbHold, Word: done, State: preparing}, held, false},
		"held, and posted since":       {entry{Verb: verbHold, Word: done, State: success}, posted, false},
		"held, and never was":          {entry{Verb: verbHold, Word: done, State: preparing}, never, true},
		"held, and failed":             {entry{Verb: verbHold, Word: done, State: transfer.StateFail}, held, true},
		"posted":                       {entry{Verb: verbPost, Word: done, State: success, Part: 10}, posted, false},
		"posted with another amount":   {entry{Verb: verbPost, Word: done, State: success}, posted, true},
		"posted, and expired":          {entry{Verb: verbPost, Word: done, State: success}, held, true},
		"posted and held":              {entry{Verb: verbPost, Word: done, State: preparing, Part: 10}, posted, true},
		"expired":                      {entry{Verb: verbPost, Word: refused, Code: "expired"}, held, false},
		"voided, and expired":          {entry{Verb: verbPost, Word: refused, Code: "voided"}, held, true},
		"another amount":               {entry{Verb: verbPost, Word: conflict}, posted, false},
		"another amount, and the same": {entry{Verb: verbPost, Word: conflict, Part: 10}, posted, true},
		"another amount, and none":     {entry{Verb: verbPost, Word: conflict}, held, true},
		"not held":                     {entry{Verb: verbPost, Word: notHeld}, posted, false},
		"not held, and it was":         {entry{Verb: verbPost, Word: notHeld, Held: true}, posted, true},
		"voided":                       {entry{Verb: verbVoid, Word: done, State: transfer.StateFail}, held, false},
		"voided, and posted":           {entry{Verb: verbVoid, Word: done, State: transfer.StateFail}, posted, true},
		"too late to void":             {entry{Verb: verbVoid, Word: tooLate}, posted, false},
		"too late to void, and it was": {entry{Verb: verbVoid, Word: tooLate}, held, true},
		"void of what is no hold":      {entry{Verb: verbVoid, Word: notHeld}, held, true},
		"extended":                     {entry{Verb: verbExtend, Word: done, State: preparing, ExpiresAt: later.Add(-1)}, held, false},
		"extended, and voided":         {entry{Verb: verbExtend, Word: done, State: transfer.StateFail}, held, true},
		"extended, and that is lost":   {entry{Verb: verbExtend, Word: done, State: preparing, ExpiresAt: later.Add(1)}, held, true},
		"extended, and expired before": {entry{Verb: verbExtend, Word: done, State: preparing, ExpiresAt: later}, early, true},
		"too late to extend":           {entry{Verb: verbExtend, Word: tooLate}, posted, false},
		"extend what has expired":      {entry{Verb: verbExtend, Word: refused, Code: "expired"}, held, false},
		"extend what has not":          {entry{Verb: verbExtend, Word: refused, Code: "voided"}, held, true},
		"extend what is not held":      {entry{Verb: verbExtend, Word: notHeld}, never, false},
		"not held yet":                 {entry{Verb: verbExtend, Word: notHeld}, posted, false},
		"extended, and it was held":    {entry{Verb: verbExtend, Word: notHeld, Held: true}, posted, true},
		"not held, and has expired":    {entry{Verb: verbExtend, Word: notHeld, Held: true}, held, true},
		"void of something else":       {entry{Verb: verbVoid, Word: conflict}, held, true},
	} {
		lie := lieOf(test.entry, test.stored, true)
		require.Equal(t, test.lie, lie != "", "%s: %s", name, lie)
	}
}
