package transferhttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
	"github.com/mongotransfer/transfer/transferhttp"
)

// section returns what a reader sees under a heading, up to the next one.
func (a answer) section(id string) string {
	found := regexp.MustCompile(`(?s)aria-labelledby="` + id + `".*?</section>`).FindString(a.body)
	return answer{body: "<" + found}.text()
}

// Where nothing is wrong the overview says so: what is held, waits for its time or has
// just begun does not need attention.
func TestOverviewIsCalm(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1000, 0).WithIndexes()
	b.MustMove("done", 1)
	p := open(t, b.Coordinator)
	calm := p.get("./")
	require.Contains(t, calm.section("attention"), "Nothing is stuck or late.")
	require.Contains(t, calm.section("lately"), "Nothing is recorded here")
	require.Contains(t, calm.section("audit"), "None is known here")

	b.MustHold("held", 1, time.Hour)
	_, err := b.Submit(t.Context(), bank.Later("scheduled", 1))
	require.NoError(t, err)
	b.MustSubmit("just submitted")
	b.StallHalf("just begun", 1)
	b.StallAt("just committed", bank.Clears, bank.Lost, 1)
	for _, id := range []string{"held", "scheduled"} {
		b.Silence(id, time.Hour)
	}
	overview := open(t, b.Coordinator).get("./")
	require.Contains(t, overview.section("attention"), "Nothing is stuck or late.")
	require.Regexp(t, `1 Preparing .*1 Committed .*1 Due .*1 Scheduled .*1 Held`, overview.section("unfinished"))
	_, err = b.Void(t.Context(), "held")
	require.NoError(t, err)
	b.CancelWaiting()
	b.RecoverAll()
	b.CheckBooks(bank.Balances(1000, 0))
}

// The overview names what is stuck, overdue or late, the worst first, and nothing else,
// and counts what is unfinished.
func TestOverviewShowsWhatNeedsAttention(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1000, 0).WithIndexes()
	for _, id := range []string{"fine", "overdue"} {
		b.MustHold(id, 1, time.Hour)
		b.Silence(id, time.Hour)
	}
	b.Expire("overdue")
	b.StallAt("stuck", bank.Clears, bank.Lost, 1)
	b.SetField("transfers", "stuck", "stuck", bson.M{"code": "accountNotFound", "ledger": "", "account": "x", "message": "it is gone"})
	b.StallHalf("late", 1)
	b.MustSubmit("waits for a worker")
	for _, id := range []string{"late", "stuck", "waits for a worker"} {
		b.Silence(id, 2*time.Minute)
	}
	overview := open(t, b.Coordinator).get("./")
	attention := overview.section("attention")
	require.Regexp(t, `Stuck 1 .*stuck it is gone .*Overdue holds 1 .*overdue .*Late 2 .*late .*waits for a worker`, attention)
	require.NotContains(t, attention, "fine")
	for _, counted := range []string{"1 Stuck", "1 Overdue", "1 Preparing", "1 Committed", "0 Rollback", "1 Due", "0 Scheduled", "2 Held"} {
		require.Contains(t, overview.section("unfinished"), counted)
	}
	require.Contains(t, overview.section("unfinished"), "The oldest was due")
	require.Less(t, strings.Index(overview.body, "Needs attention"), strings.Index(overview.body, "Unfinished now"))

	b.Change("transfers", "stuck", bson.M{"$unset": bson.M{"stuck": ""}})
	for _, id := range []string{"fine", "overdue"} {
		_, err := b.Void(t.Context(), id)
		require.NoError(t, err)
	}
	b.CancelWaiting()
	b.RecoverAll()
	b.CheckBooks(bank.Balances(1000, 0))
}

// Events that were not delivered are shown, and those that were given up stand out.
func TestOverviewShowsUndeliveredEvents(t *testing.T) {
	t.Parallel()
	b := bank.NewWith(t, []transfer.Option{transfer.WithEvents(transfer.EventHandler{
		Kinds: []transfer.EventKind{transfer.EventSucceeded}, MaxAttempts: 1,
		Handle: func(context.Context, transfer.Event) error { return errors.New("the consumer is away") },
	})}, 1000, 0).WithIndexes()
	b.MustMove("t<1>", 1)
	require.Regexp(t, `Undelivered events 1 .*t<1> succeeded 0`, open(t, b.Coordinator).get("./").section("undelivered"))
	working, stop := context.WithCancel(t.Context())
	worker := make(chan error, 1)
	go func() { worker <- b.Run(working) }()
	require.Eventually(t, func() bool {
		rec, err := b.Get(t.Context(), "t<1>")
		return err == nil && len(rec.Undelivered) == 1 && rec.Undelivered[0].GivenUp
	}, time.Minute, 10*time.Millisecond)
	stop()
	require.NoError(t, <-worker)
	p := open(t, b.Coordinator)
	require.Contains(t, p.get("./").section("attention"), "Events that were given up")
	require.NotContains(t, p.get("./").section("attention"), "Nothing is stuck or late")
	require.Regexp(t, `1 of these has an event that was given up: call Redeliver.*succeeded given up 1`, p.get("./").section("undelivered"))
	require.Contains(t, p.get(withID("transfer", "t<1>")).section("timeline"), "event succeeded: not delivered, after 1 attempt, and given up")
	require.Contains(t, p.get("transfers?show=undelivered").text(), "t<1>")
	require.Contains(t, p.get("transfers?show=undelivered").text(), "was given up after 1 attempt ")
	require.Contains(t, p.get(withID("transfer", "t<1>")).text(), "was given up after 1 attempt:")
	b.CheckBooks(bank.Balances(1000, 0))
}

// Each list has the transfers of its name and no others, page by page, each once.
func TestLists(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1000, 0).WithIndexes()
	b.MustMove("t", 1)
	_, err := b.Transfer(t.Context(), bank.Move("refused", "b", "a", 500))
	require.ErrorIs(t, err, transfer.ErrInsufficientFunds)
	b.MustHold("held", 1, time.Hour)
	_, err = b.Submit(t.Context(), bank.Later("later", 1))
	require.NoError(t, err)
	_, err = b.Reverse(t.Context(), transfer.Reversal{ID: "reversal", Of: "t", All: true})
	require.NoError(t, err)
	p := open(t, b.Coordinator)
	for query, want := range map[string][]string{
		"":                                   {"reversal", "later", "held", "refused", "t"},
		"?show=unfinished":                   {"later", "held"},
		"?show=held":                         {"held"},
		"?show=overdue":                      nil,
		"?show=stuck":                        nil,
		"?show=late":                         nil,
		"?show=submitted":                    {"later"},
		"?show=preparing":                    {"held"},
		"?show=committed":                    nil,
		"?show=rollback":                     nil,
		"?show=failed":                       {"refused"},
		"?show=undelivered":                  nil,
		"?reverses=t":                        {"reversal"},
		"?account=a&show=failed":             {"refused"},
		"?account=nobody":                    nil,
		"?account=b&show=unfinished&ledger=": {"later", "held"},
	} {
		require.Equal(t, want, p.walk("transfers"+query, "transfer"), query)
	}
	require.Contains(t, p.get("transfers").body, `<option value="" selected>`)
	require.Contains(t, p.get("transfers?show=held").body, `<option value="held" selected>`)
	require.Contains(t, p.get("transfers?account=%22x").body, `value="&#34;x"`)

	many := b.Plant("t", 2*transferhttp.ListPage+7, bson.M{})
	require.Equal(t, transferhttp.ListPage, strings.Count(p.get("transfers").body, `scope="row"`))
	ids := p.walk("transfers", "transfer")
	require.Len(t, ids, len(many)+5)
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(ids))), len(many)+5)
	require.Len(t, p.walk("transfers?account=a", "transfer"), len(many)+5, "the choice stays from page to page")
	require.Len(t, p.walk("transfers?show=failed", "transfer"), 1)
}

// walk returns the IDs of a list, page by page, in order.
func (p pane) walk(address, page string) (ids []string) {
	p.t.Helper()
	row := regexp.MustCompile(`<th scope="row"><a class="id" href="([^"]*)"`)
	for next := address; next != ""; {
		a := p.get(next)
		for _, found := range row.FindAllStringSubmatch(a.body, -1) {
			link, err := url.Parse(answer{body: `href="` + found[1] + `"`}.links()[0])
			require.NoError(p.t, err)
			require.Equal(p.t, page, link.Path)
			ids = append(ids, link.Query().Get("id"))
		}
		next = ""
		if found := regexp.MustCompile(`href="[^"]*" rel="next"`).FindString(a.body); found != "" {
			next = answer{body: found}.links()[0]
		}
	}
	return ids
}

// One transfer is explained: where it stands at each account, what to do, and what has
// happened when.
// The page asks again by itself while that can change.
func TestOneTransfer(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1000, 0).WithIndexes()
	recorder := transferhttp.NewRecorder()
	c := b.NewCoordinator(b.DB, transfer.WithObserver(recorder.Observer(transfer.Observer{})))
	_, err := c.Hold(t.Context(), bank.Move("held", "a", "b", 60), time.Hour)
	require.NoError(t, err)
	p := open(t, c, transferhttp.WithRecorder(recorder))
	held := p.get("transfer?id=held")
	require.Contains(t, held.section("explained"), "a −60 reserved")
	require.Contains(t, held.section("explained"), "b +60 reserved")
	require.Contains(t, held.section("explained"), "Post takes the money")
	require.Regexp(t, `stored .*held .*now .* in 60 min the hold expires`, held.section("timeline"))
	require.Regexp(t, `hold Moved Preparing .*claim .*prepare`, held.section("calls"))
	require.Contains(t, held.body, `data-refresh="5"`)
	require.Contains(t, held.body, `<noscript><meta http-equiv="refresh" content="5"></noscript>`)
	require.NotContains(t, p.get("transfer?id=held&still=1").body, "refresh=\"5\"")
	require.NotContains(t, p.get("transfer?id=held&still=1").body, "http-equiv")

	_, err = c.Post(t.Context(), "held", transfer.PostAmount(transfer.Units(50)))
	require.NoError(t, err)
	_, err = c.Transfer(t.Context(), bank.Move("refused", "b", "a", 500))
	require.ErrorIs(t, err, transfer.ErrInsufficientFunds)
	done := p.get("transfer?id=held")
	require.Regexp(t, `stored .*committed: the money has moved, or will .*finished: Success`, done.section("timeline"))
	require.NotContains(t, done.section("timeline"), "expires", "it was posted before")
	require.Contains(t, done.section("record"), "no longer held, posted 50")
	require.Contains(t, done.section("record"), "Legs, as they were held")
	require.Contains(t, done.body, `<strong class="amount">50 of 60</strong>`)
	later := bank.Move("never", "a", "b", 1)
	later.NotBefore = time.Now().Add(time.Hour)
	_, err = c.Submit(t.Context(), later)
	require.NoError(t, err)
	require.Contains(t, p.get("transfer?id=never").section("timeline"), "in 60 min may begin")
	_, err = c.Cancel(t.Context(), "never", "by a test")
	require.NoError(t, err)
	require.NotContains(t, p.get("transfer?id=never").section("timeline"), "may begin")
	require.NotContains(t, done.body, "data-refresh")
	require.Contains(t, p.get("transfer?id=refused").section("explained"), "insufficientFunds : b : insufficient funds")
	require.Contains(t, p.get("transfer?id=refused").section("calls"), "transfer Failed")
	require.Contains(t, open(t, c).get("transfer?id=held").section("calls"), "None are recorded here")
	b.CheckBooks(bank.Balances(1000, 0))
}

// A transfer's effects, metadata and legs in several ledgers are shown.
func TestOneTransferWithEverything(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t)
	c := b.NewCoordinator(b.DB,
		transfer.WithLedger("points", b.DB.Collection("points")), transfer.WithDocuments("orders", b.DB.Collection("orders")))
	points, err := c.Ledger("points")
	require.NoError(t, err)
	for _, account := range []transfer.Account{{ID: "x", Balance: transfer.Units(5), Currency: "EUR"}, {ID: "y", Currency: "EUR"}} {
		_, err := c.OpenAccount(t.Context(), account)
		require.NoError(t, err)
		account.Currency = "PTS"
		_, err = points.Open(t.Context(), account)
		require.NoError(t, err)
	}
	b.Insert("orders", bson.M{"_id": int32(7), "status": "open"})
	_, err = c.Transfer(t.Context(), transfer.Request{
		ID: "all", Legs: []transfer.Leg{
			{Account: "x", Amount: transfer.Units(-2), Currency: "EUR"}, {Account: "y", Amount: transfer.Units(2), Currency: "EUR"},
			{Ledger: "points", Account: "x", Amount: transfer.Units(-1), Currency: "PTS"},
			{Ledger: "points", Account: "y", Amount: transfer.Units(1), Currency: "PTS"},
		},
		Effects: []transfer.Effect{{
			Documents: "orders", ID: int32(7), Require: bson.D{{Key: "status", Value: "open"}}, Set: bson.D{{Key: "status", Value: "</pre>"}},
		}},
		Metadata: map[string]any{"b": 1, "a": map[string]any{"at": time.Unix(0, 0), "nan": []any{1.5, nil}}},
	})
	require.NoError(t, err)
	p := open(t, c)
	page := p.get("transfer?id=all")
	require.Contains(t, page.section("explained"), "x of points −1")
	require.Contains(t, page.section("explained"), `of orders settled`)
	require.Contains(t, page.section("record"), "+1 PTS")
	require.Contains(t, page.section("record"), `Effect on orders _id 7 require { "status": "open" } set { "status": "</pre>" }`)
	require.Contains(t, page.section("record"), `{ "a": { "at": { "$date": "1970-01-01T00:00:00Z" }, "nan": [ 1.5, null ] }, "b": 1 }`)
	require.Contains(t, page.links(), "account?id=x&ledger=points")
	require.Contains(t, p.get("account?id=x&ledger=points").text(), "available 4 PTS")
	require.Contains(t, p.get("account?id=x&ledger=points").section("statement"), "−1 4")
	require.Equal(t, []string{"x", "y"}, p.walk("accounts?ledger=points", "account"))
	require.Equal(t, []string{"all"}, p.walk("transfers?ledger=points&account=x", "transfer"))
	report, err := c.Audit(t.Context())
	require.NoError(t, err)
	require.Empty(t, report.Findings)
}

// An account shows its standing, what is unfinished on it, and its statement, page by
// page, newest first and each entry once.
func TestOneAccount(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1000, 0).WithIndexes()
	n := 2*transferhttp.StatementPage + 3
	for i := range n {
		b.MustMove(fmt.Sprint("t", i), 1)
	}
	b.MustHold("held", 60, time.Hour)
	p := open(t, b.Coordinator)
	payer := p.get("account?id=a")
	require.Contains(t, payer.text(), fmt.Sprintf("available %d posted %d incoming 0 floor 0", 1000-n-60, 1000-n))
	require.Regexp(t, `held Preparing held −60`, payer.section("markers"))
	require.Regexp(t, fmt.Sprintf(`t%d b −1 %d`, n-1, 1000-n), payer.section("statement"))
	require.Contains(t, p.get("account?id=b").text(), "incoming 60")
	require.NotContains(t, payer.body, "data-refresh", "a page that is read stays as it is")

	entries := slices.DeleteFunc(p.walk("account?id=b", "transfer"), func(id string) bool { return id == "held" })
	want := make([]string, n)
	for i := range want {
		want[i] = fmt.Sprint("t", n-1-i)
	}
	require.Equal(t, want, entries)

	frozen := true
	_, err := b.UpdateAccount(t.Context(), "b", transfer.AccountChange{Frozen: &frozen, Metadata: map[string]any{"<i>": "</pre>"}})
	require.NoError(t, err)
	require.Contains(t, p.get("account?id=b").text(), "frozen")
	require.Contains(t, p.get("account?id=b").text(), `{ "<i>": "</pre>" }`)
	_, err = b.Void(t.Context(), "held")
	require.NoError(t, err)
	b.CheckBooks(bank.Balances(1000, 0))
}

// The accounts are listed page by page, each once, and what is no account is among them.
func TestAccounts(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t)
	want := bank.Numbered("a", 2*transferhttp.ListPage)
	slices.Sort(want)
	for _, id := range want {
		b.Insert("accounts", bson.M{"_id": id, "balance": int64(5)})
	}
	b.Insert("accounts", bson.M{"_id": "zodd", "balance": 1.5})
	p := open(t, b.Coordinator)
	require.Equal(t, append(want, "zodd"), p.walk("accounts", "account"))
	require.Contains(t, p.get("accounts?beyond=z").body, `class="bad"`)
}

// IDs that are ObjectIds are links as any others.
func TestObjectIDs(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t, transfer.WithAccountIDs(transfer.ObjectIDs))
	x, y := bson.NewObjectID().Hex(), bson.NewObjectID().Hex()
	for _, id := range []string{x, y} {
		_, err := b.OpenAccount(t.Context(), transfer.Account{ID: id, NoFloor: true})
		require.NoError(t, err)
	}
	_, err := b.Transfer(t.Context(), bank.Move("t", x, y, 3))
	require.NoError(t, err)
	p := open(t, b.Coordinator)
	require.Equal(t, []string{x, y}, p.walk("accounts", "account"))
	require.Contains(t, p.get(withID("account", y)).section("statement"), "+3 3")
	require.Equal(t, http.StatusBadRequest, p.ask(http.MethodGet, "account?id=alice").StatusCode)
	require.Empty(t, b.MustAudit().Findings)
}

// Many who look at the overview at once, and one after another within a second, cost the
// server one look.
func TestOverviewsShareALook(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1000, 0).WithIndexes()
	b.MustHold("held", 1, time.Hour)
	sent := &commands{}
	c := b.NewCoordinator(b.Through(sent.client()))
	now := time.Now()
	clock := func() time.Time { return now }
	p := open(t, c, transferhttp.WithClock(clock))
	p.get("./") // the first use reads the deployment's notes
	sent.take()
	now = now.Add(time.Hour)
	p.get("./")
	alone := sent.take()
	require.NotEmpty(t, alone)
	now = now.Add(time.Hour)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { assert.Equal(t, http.StatusOK, p.ask(http.MethodGet, "./").StatusCode) })
	}
	all.Wait()
	require.Equal(t, alone, sent.take())
	now = now.Add(999 * time.Millisecond)
	p.get("./")
	require.Empty(t, sent.take())
	now = now.Add(time.Millisecond)
	p.get("./")
	require.Equal(t, alone, sent.take())
	_, err := b.Void(t.Context(), "held")
	require.NoError(t, err)
	b.CheckBooks(bank.Balances(1000, 0))
}

// A page costs the server what the documentation says: so many commands, however much
// there is, and lists of so many.
func TestPagesCost(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1000, 0).WithIndexes()
	b.MustMove("t", 1)
	b.MustHold("overdue", 1, time.Hour)
	b.Silence("overdue", time.Hour)
	b.Expire("overdue")
	overdue := b.Plant("overdue", 300, bson.M{})
	moved := b.Plant("t", 300, bson.M{})
	for i, id := range moved {
		b.SetField("transfers", id, "committedAt", time.Now().Add(-time.Duration(i)*time.Minute))
	}
	sent := &commands{}
	c := b.NewCoordinator(b.Through(sent.client()))
	now := time.Now()
	p := open(t, c, transferhttp.WithClock(func() time.Time { return now }))
	for _, page := range []struct {
		address        string
		commands, most int
		lists          []int64
	}{
		{"./", 4, 200, []int64{200}},
		{"transfers", 1, 51, []int64{51}},
		{"transfers?show=overdue", 1, 51, []int64{51}},
		{"accounts", 2, 51, []int64{51}},
		{"transfer?id=t", 3, 1, nil},
		{"account?id=b", 9, 26, []int64{21}},
	} {
		if page.address == "account?id=b" {
			b.Remove("transfers", overdue...) // it costs what is under way on it
		}
		p.get(page.address) // the first use reads the deployment's notes
		now = now.Add(time.Hour)
		sent.take()
		p.get(page.address)
		most := sent.limits()
		got := sent.but("hello", "killCursors")
		t.Log(page.address, got, most)
		assert.LessOrEqual(t, len(got), page.commands, "%s: %s", page.address, got)
		assert.Subset(t, most, page.lists, page.address)
		for _, limit := range most {
			assert.LessOrEqual(t, limit, int64(page.most), page.address)
		}
	}
	b.Remove("transfers", moved...)
	_, err := b.Void(t.Context(), "overdue")
	require.NoError(t, err)
	b.CheckBooks(bank.Balances(1000, 0))
}

// A reader who leaves while a look is taken doesn't end it for the others.
func TestAReaderMayLeave(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 10, 0)
	h := transferhttp.Handler(b.Coordinator, transferhttp.WithLimit(10*time.Minute))
	var arrived atomic.Int64
	p := mount(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived.Add(1)
		h.ServeHTTP(w, r)
	}))
	done := transferhttp.OccupyReads(h)
	leaving, leave := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(leaving, http.MethodGet, p.URL+prefix+"/", nil)
	require.NoError(t, err)
	first := make(chan error, 1)
	go func() {
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			_ = response.Body.Close()
		}
		first <- err
	}()
	require.Eventually(t, func() bool { return transferhttp.Looking(h) }, time.Minute, time.Millisecond)
	const others = 30 // some of which wait for the look by the time that the first one leaves
	var all sync.WaitGroup
	for range others {
		all.Go(func() { assert.Equal(t, http.StatusOK, p.ask(http.MethodGet, "./").StatusCode) })
	}
	require.Eventually(t, func() bool { return arrived.Load() == 1+others }, time.Minute, time.Millisecond)
	leave()
	require.ErrorIs(t, <-first, context.Canceled)
	require.Eventually(t, func() bool { return transferhttp.Looking(h) }, time.Minute, time.Millisecond)
	done()
	all.Wait()
}

// No more pages than a few read from the server at once; those that don't get a place in
// time say so, and hold no place.
func TestReadsAreBounded(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 10, 0)
	b.MustMove("t", 1)
	pages := []string{"./", "transfers", "accounts", "transfer?id=t", "account?id=a"}
	h := transferhttp.Handler(b.Coordinator, transferhttp.WithLimit(100*time.Millisecond))
	p := mount(t, h)
	done := transferhttp.OccupyReads(h)
	for _, address := range pages {
		require.Equal(t, http.StatusServiceUnavailable, p.ask(http.MethodGet, address).StatusCode, address)
	}
	done()
	p = open(t, b.Coordinator)
	for range 2 * transferhttp.MostReads {
		for _, address := range pages {
			p.get(address)
		}
	}
	b.CheckBooks(bank.Balances(10, 0))
}
