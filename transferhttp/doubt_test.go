package transferhttp_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
	"github.com/mongotransfer/transfer/transferhttp"
)

// A stuck transfer that can't be read is stuck all the same.
func TestOverviewShowsWhatCantBeRead(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1000, 0).WithIndexes()
	b.StallAt("stuck", bank.Clears, bank.Lost, 1)
	b.SetField("transfers", "stuck", "stuck", bson.M{"code": "accountNotFound", "ledger": "", "account": "x", "message": "it is gone"})
	b.Silence("stuck", time.Hour)
	legs := b.Raw("transfers")[0]["legs"]
	b.SetField("transfers", "stuck", "legs.0.amount", "<all>")
	attention := open(t, b.Coordinator).get("./").section("attention")
	require.NotContains(t, attention, "Nothing is stuck")
	require.Regexp(t, `Stuck 1 .*stuck.*legs\.0\.amount`, attention)
	b.SetField("transfers", "stuck", "legs", legs)
	b.Change("transfers", "stuck", bson.M{"$unset": bson.M{"stuck": ""}})
	b.RecoverAll()
	b.CheckBooks(bank.Balances(1000, 0))
}

// Events that were given up come first, behind however many newer ones that are tried on.
func TestOldEventsThatWereGivenUp(t *testing.T) {
	t.Parallel()
	events := transfer.WithEvents(transfer.EventHandler{})
	b := bank.NewWith(t, []transfer.Option{events}, 1000, 0).WithIndexes()
	b.MustMove("lost", 1)
	b.SetField("transfers", "lost", "outbox.0.due", bson.MaxKey{})
	for i := range 15 {
		b.MustMove(fmt.Sprint("newer", i), 1)
	}
	overview := open(t, b.Coordinator).get("./")
	require.NotContains(t, overview.section("attention"), "Nothing is stuck")
	require.Regexp(t, `1 of these has an event that was given up.* lost succeeded given up`, overview.section("undelivered"))
	b.CheckBooks(bank.Balances(1000, 0))
}

// Where more stands still than is looked at, the overview doesn't claim that nothing is
// late, unless the oldest of all is not.
func TestOverviewDoesntKnowWhatItHasntSeen(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1000, 0).WithIndexes()
	b.StallHalf("late", 1)
	b.MustHold("held", 1, time.Hour)
	b.Silence("held", time.Hour)
	many := b.Plant("held", 220, bson.M{})
	attention := open(t, b.Coordinator).get("./").section("attention")
	require.Contains(t, attention, "Nothing is stuck or late.")
	b.Silence("late", time.Hour)
	b.SetField("transfers", "late", "createdAt", time.Now().Add(-time.Hour))
	attention = open(t, b.Coordinator).get("./").section("attention")
	require.NotContains(t, attention, "Nothing is stuck")
	require.Contains(t, attention, "Late, perhaps ?")
	b.Remove("transfers", many...)
	require.Contains(t, open(t, b.Coordinator).get("./").section("attention"), "Late 1 ")
	late := b.Plant("late", 12, bson.M{})
	require.Contains(t, open(t, b.Coordinator).get("./").section("attention"), "Late 10 or more ")
	b.Remove("transfers", late...)
	_, err := b.Void(t.Context(), "held")
	require.NoError(t, err)
	b.RecoverAll()
	b.CheckBooks(bank.Balances(1000, 0))
}

// A list that goes on behind what can't be read says so.
func TestListOfWhatCantBeRead(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1000, 0).WithIndexes()
	b.MustMove("t", 1)
	b.MustMove("u", 1)
	odd := b.Plant("u", transferhttp.ListPage, bson.M{"legs": "odd", "createdAt": time.Now().Add(time.Hour)})
	p := open(t, b.Coordinator)
	require.Equal(t, []string{"u", "t"}, p.walk("transfers", "transfer"), "the page ends with the first of them")
	odd = append(odd, b.Plant("t", 1, bson.M{"legs": "odd", "createdAt": time.Now().Add(time.Hour)})...)
	require.Contains(t, p.get("transfers").text(), "There may be more, which this page can't lead to")
	b.Remove("transfers", odd...)
	require.NotContains(t, p.get("transfers").text(), "There may be more")
	b.CheckBooks(bank.Balances(1000, 0))
}

// What of an account could not be read is not said to be nothing.
func TestAccountThatIsReadInPart(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1000, 0, 0).WithIndexes()
	b.MustMove("t", 1)
	_, err := b.Transfer(t.Context(), bank.Move("u", "a", "c", 1))
	require.NoError(t, err)
	b.SetField("transfers", "t", "legs.0.amount", "odd")
	p := open(t, b.Coordinator)
	for _, account := range []string{"a", "b"} {
		page := p.ask(http.MethodGet, "account?id="+account)
		require.Equal(t, http.StatusInternalServerError, page.StatusCode)
		require.Contains(t, page.text(), "Something could not be read.")
		require.Contains(t, page.section("statement"), "What was moved on it is not known now.")
		require.NotContains(t, page.text(), "Nothing was moved")
		require.Contains(t, page.section("markers"), "Nothing.")
	}
	b.SetField("transfers", "t", "legs.0.amount", int64(-1))
	require.Contains(t, p.get("account?id=b").section("statement"), "+1 1")
	b.CheckBooks(bank.Balances(1000, 0, 0))
}

// Where an account's history is gone, wholly or in part, nothing is said of what it was.
func TestAccountWhoseHistoryIsGone(t *testing.T) {
	t.Parallel()
	const gone = "What was before is not kept any more."
	b := bank.NewWith(t, []transfer.Option{transfer.WithRetention(time.Hour)}, 1000, 0).WithIndexes()
	b.MustMove("t", 1)
	require.NotContains(t, open(t, b.Coordinator).get("account?id=b").section("statement"), gone)
	b.SetField("transfers.retention", time.Hour.Milliseconds(), "since", time.Now().Add(-100*time.Hour))
	p := open(t, b.NewCoordinator(b.DB)) // one that has not read about retentions yet
	statement := p.get("account?id=b").section("statement")
	require.Contains(t, statement, "+1 1")
	require.Contains(t, statement, gone)
	b.Remove("transfers", "t")
	statement = p.get("account?id=b").section("statement")
	require.Contains(t, statement, gone)
	require.NotContains(t, statement, "+1 1")
	require.NotContains(t, statement, "Nothing was moved")
	b.CheckBooks(bank.Balances(999, 1))
}

// The page of a transfer goes on asking where the server is away for a moment, and ends
// with that where there is no such transfer.
func TestTransferIsFollowedThroughAnOutage(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1000, 0).WithIndexes()
	b.MustHold("held", 1, time.Hour)
	h := transferhttp.Handler(b.Coordinator, transferhttp.WithLimit(100*time.Millisecond))
	p := mount(t, h)
	done := transferhttp.OccupyReads(h)
	away := p.ask(http.MethodGet, "transfer?id=held")
	require.Equal(t, http.StatusServiceUnavailable, away.StatusCode)
	require.Contains(t, away.body, `data-refresh="5"`)
	require.Contains(t, away.body, `<noscript><meta http-equiv="refresh" content="5"></noscript>`)
	require.Contains(t, away.links(), "transfer?id=held&still=1")
	still := p.ask(http.MethodGet, "transfer?id=held&still=1")
	require.NotContains(t, still.body, "data-refresh")
	require.Contains(t, still.links(), "transfer?id=held")
	done()
	require.NotContains(t, open(t, b.Coordinator).ask(http.MethodGet, "transfer?id=nothing").body, "data-refresh")
	_, err := b.Void(t.Context(), "held")
	require.NoError(t, err)
	b.CheckBooks(bank.Balances(1000, 0))
}

// Where recovery should have gone on with a transfer a while ago, its page says that
// nobody has, and who should.
func TestTransferThatNobodyGoesOnWith(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1000, 0).WithIndexes()
	b.StallHalf("t", 1)
	p := open(t, b.Coordinator)
	require.NotContains(t, p.get("transfer?id=t").text(), "Nobody has tried")
	b.Silence("t", time.Hour)
	page := p.get("transfer?id=t")
	require.Contains(t, page.section("explained"), "Nobody has tried: does some process call Run?")
	require.Contains(t, page.section("timeline"), "from here on recovery goes on with it")
	b.RecoverAll()
	require.NotContains(t, p.get("transfer?id=t").text(), "Nobody has tried")
	b.CheckBooks(bank.Balances(1000, 0))
}

// What the address has beside what the page asks of it is in none of its links.
func TestLinksHaveOnlyTheirOwn(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1000, 0).WithIndexes()
	b.MustHold("held", 1, time.Hour)
	p := open(t, b.Coordinator)
	for _, address := range []string{"./", "transfer?id=held&id=other", "transfers?show=held", "accounts?ledger=", "account?id=a&id=b"} {
		address += strings.Replace("?foreign=xyzzy&foreign=xyzzy", "?", map[bool]string{true: "&", false: "?"}[strings.Contains(address, "?")], 1)
		require.NotContains(t, p.get(address).body, "xyzzy", address)
		require.NotContains(t, p.get(address).body, "id=other", address)
	}
	_, err := b.Void(t.Context(), "held")
	require.NoError(t, err)
	b.CheckBooks(bank.Balances(1000, 0))
}

// A page that is not there leads to those that are, however far below them it was asked
// for, and looks as they do.
func TestFarBelow(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 10, 0)
	p := open(t, b.Coordinator)
	for address, up := range map[string]string{
		"nothing": "", "transfers/": "../", "transfer/t/x": "../../", "a%2Fb": "", strings.Repeat("x/", 5000): strings.Repeat("../", 100),
	} {
		a := p.ask(http.MethodGet, address)
		require.Equal(t, http.StatusNotFound, a.StatusCode)
		require.Subset(t, a.links(), []string{up + "./", up + "transfers", up + "accounts"})
		require.Contains(t, a.body, `<link rel="stylesheet" href="`+up+`window.css?v=`)
		require.Contains(t, a.body, `action="`+up+`transfer"`)
	}
	b.CheckBooks(bank.Balances(10, 0))
}

// A file is kept under the address that has its version, and under no other: where two
// versions of a service answer, the one's page asks the other for its style.
func TestAssetsAreKept(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 10, 0)
	p := open(t, b.Coordinator)
	kept := 0
	for _, link := range p.get("./").links() {
		if !strings.HasPrefix(link, "window.") {
			continue
		}
		kept++
		require.Equal(t, "private, max-age=86400", p.get(link).Header.Get("Cache-Control"), link)
		name, _, _ := strings.Cut(link, "?")
		for _, other := range []string{name, name + "?v=0123456789ab", link + "0"} {
			require.Equal(t, "no-store", p.get(other).Header.Get("Cache-Control"), other)
		}
	}
	require.Equal(t, 3, kept)
	b.CheckBooks(bank.Balances(10, 0))
}

// The overview says how old is what it shows, where that is not from just now.
// A look that fails is not repeated at once, whoever asks.
func TestOldLook(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 10, 0).WithIndexes()
	c := &clock{at: time.Now()}
	h := transferhttp.Handler(b.Coordinator, transferhttp.WithLimit(10*time.Minute), transferhttp.WithClock(c.now))
	p := mount(t, h)
	require.NotContains(t, p.get("./").text(), "was read")
	c.add(time.Hour)
	done := transferhttp.OccupyReads(h)
	answers := make(chan answer, 1)
	go func() { answers <- p.ask(http.MethodGet, "./") }()
	require.Eventually(t, func() bool { return transferhttp.Looking(h) }, time.Minute, time.Millisecond)
	c.add(3 * time.Second)
	done()
	require.Equal(t, http.StatusOK, (<-answers).StatusCode)
	c.add(29 * time.Second)
	require.Contains(t, p.get("./").section("attention"), "MongoDB was read 29 s ago. As that took long, it is not read more often.")
	c.add(time.Second)
	require.NotContains(t, p.get("./").text(), "was read")

	h = transferhttp.Handler(b.Coordinator, transferhttp.WithLimit(100*time.Millisecond), transferhttp.WithClock(c.now))
	p = mount(t, h)
	done = transferhttp.OccupyReads(h)
	require.Equal(t, http.StatusServiceUnavailable, p.ask(http.MethodGet, "./").StatusCode)
	done()
	c.add(999 * time.Millisecond)
	require.Equal(t, http.StatusServiceUnavailable, p.ask(http.MethodGet, "./").StatusCode)
	require.Eventually(t, func() bool {
		c.add(time.Minute)
		return p.ask(http.MethodGet, "./").StatusCode == http.StatusOK
	}, 2*time.Minute, time.Millisecond)
	b.CheckBooks(bank.Balances(10, 0))
}

// What is written on a page of a document that others have written is of bounded size.
func TestExtendedIsBounded(t *testing.T) {
	t.Parallel()
	text := transferhttp.Extended(strings.Repeat("<", 1<<20))
	require.Less(t, len(text), 129<<10)
	require.Contains(t, text, "and 917506 bytes more")
	require.NotContains(t, transferhttp.Extended(fmt.Sprint(transfer.Units(1))), "more")
}

// The page of an account whose balance is no amount says so, and which transfers are
// unfinished on it.
func TestAccountWhoseBalanceIsADouble(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1000, 0).WithIndexes()
	b.MustHold("held", 1, time.Hour)
	b.SetField("accounts", "b", "balance", 0.5)
	p := open(t, b.Coordinator)
	page := p.get("account?id=b")
	require.Regexp(t, `^.*Account b It can't be used: .*the balance is not of the amount's kind`, page.text())
	require.Regexp(t, `held Preparing .*\+1`, page.section("markers"))
	require.NotContains(t, page.body, "<dt>available</dt>")
	require.NotContains(t, page.text(), "Nothing was moved")
	require.NotContains(t, page.body, `id="statement"`)
	require.Contains(t, page.links(), "transfers?account=b")
	require.Contains(t, p.get("accounts").links(), "account?id=b")
	b.SetField("accounts", "b", "balance", int64(0))
	require.Contains(t, p.get("account?id=b").body, "<dt>available</dt>")
	_, err := b.Void(t.Context(), "held")
	require.NoError(t, err)
	b.CheckBooks(bank.Balances(1000, 0))
}

// A window on no coordinator is refused when it is made, and not by its first reader.
func TestHandlerWithoutACoordinator(t *testing.T) {
	t.Parallel()
	require.PanicsWithValue(t, "transferhttp: Handler needs a Coordinator, and got nil", func() { transferhttp.Handler(nil) })
	require.PanicsWithValue(t, "transferhttp: option 1 of Handler is nil", func() {
		transferhttp.Handler(&transfer.Coordinator{}, transferhttp.WithRecorder(nil), nil)
	})
}
