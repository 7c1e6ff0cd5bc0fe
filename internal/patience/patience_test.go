package patience

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// desk is a bank whose transfers wait for funds.
type desk struct {
	*storetest.Bank

	patience *Patience
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	b := storetest.New(t)
	return &desk{b, New(b.Store.Catalog)}
}

// submitted stores a transfer that waits for funds, and returns it as a worker reads it.
func (d *desk) submitted(id string, until time.Time, legs ...document.Leg) document.Transfer {
	d.T.Helper()
	a := d.Attempt(id, legs...)
	a.Transfer.FundsUntil = until.UTC().Truncate(time.Millisecond)
	result, err := d.Store.InsertInitiated(d.T.Context(), &a.Transfer)
	require.NoError(d.T, err)
	require.Equal(d.T, protocol.Applied, result)
	return d.read(id)
}

// read reads a transfer as a worker does.
func (d *desk) read(id string) document.Transfer {
	d.T.Helper()
	t, found, err := d.Store.ReadTransfer(d.T.Context(), id)
	require.NoError(d.T, err)
	require.True(d.T, found)
	return t
}

// requireAdmitted requires that a look admits a transfer, or that it does not.
func (d *desk) requireAdmitted(want bool, t document.Transfer) {
	d.T.Helper()
	admitted, over, err := d.patience.Admit(d.T.Context(), t)
	require.NoError(d.T, err)
	require.Equal(d.T, want, admitted, t.ID)
	if require.Equal(d.T, want, over != nil); want {
		over()
	}
}

// A pause is up to a quarter shorter than it may be, by chance.
func TestPauseLengths(t *testing.T) {
	t.Parallel()
	for postponed, seconds := range map[int64]int{-1: 1, 0: 1, 1: 2, 2: 4, 3: 8, 4: 16, 5: 32, 6: 60, 7: 60, 63: 60, 1 << 40: 60} {
		whole := time.Duration(seconds) * time.Second
		lengths := map[time.Duration]bool{}
		for range 100 {
			length := pause(postponed)
			require.LessOrEqual(t, length, whole)
			require.GreaterOrEqual(t, length, whole*3/4)
			lengths[length] = true
		}
		require.Greater(t, len(lengths), 10, "not all end together")
	}
}

// What lacks money is put off for about a second, then two, and so on up to a minute, and
// no further than its deadline.
// What was asked for stays readable, and no account is touched.
func TestPauses(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.Put(storetest.Account("alice", nil), storetest.Account("bob", nil))
	until := time.Now().Add(10 * time.Minute).UTC().Truncate(time.Millisecond)
	asked := time.Now().Add(-time.Minute).UTC().Truncate(time.Millisecond)
	a := d.Attempt("t", d.Leg("alice", -101), d.Leg("bob", 101))
	a.Transfer.NotBefore, a.Transfer.FundsUntil = asked, until
	_, err := d.Store.InsertInitiated(t.Context(), &a.Transfer)
	require.NoError(t, err)
	const late = 2 * time.Second // by which the server's clock may be more than was read
	for n, seconds := range []int64{1, 2, 4, 8, 16, 32, 60, 60} {
		if n > 0 { // its time has come
			d.Change("transfers", "t", bson.M{"$set": bson.M{"notBefore": asked.Add(time.Second)}})
		}
		before := time.Now()
		d.requireAdmitted(false, d.read("t"))
		after, put := time.Now(), d.read("t")
		require.EqualValues(t, n+1, put.Postponed)
		require.Equal(t, asked, put.AskedNotBefore)
		require.Equal(t, until, put.FundsUntil)
		whole := time.Duration(seconds) * time.Second
		assert.LessOrEqual(t, put.NotBefore.Sub(after), whole, "look %d", n)
		assert.Greater(t, put.NotBefore.Sub(before), whole*3/4-late, "look %d", n)
		require.Equal(t, protocol.Initiated, put.State)
		require.Nil(t, put.Failure)
		require.Equal(t, &document.Failure{Code: "insufficientFunds", Account: "alice", Message: "insufficient funds"}, put.Waiting)
	}
	d.Change("transfers", "t", bson.M{"$set": bson.M{"notBefore": asked, "fundsUntil": time.Now().Add(20 * time.Second)}})
	d.requireAdmitted(false, d.read("t"))
	put := d.read("t")
	require.Equal(t, put.FundsUntil, put.NotBefore, "it is run at its deadline, and no later")
	d.requireAdmitted(true, put)
	d.Has("accounts", storetest.Account("alice", nil))
	d.Has("accounts", storetest.Account("bob", nil))
}

// A search finds a transfer whose last pause is over by the server's clock.
// It is run then, though the process's clock is behind; and where a deadline has passed
// before anybody has looked, it is run at once.
func TestDeadline(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	legs := []document.Leg{d.Leg("alice", -60), d.Leg("bob", 60)} // they don't exist, and nobody looks
	past := d.submitted("past", time.Now().Add(-time.Hour), legs...)
	d.requireAdmitted(true, past)
	last := past
	last.FundsUntil = time.Now().Add(time.Hour)
	last.NotBefore = last.FundsUntil
	require.False(t, Waits(last))
	d.requireAdmitted(true, last)
	never := d.submitted("never", time.Time{}, legs...)
	require.False(t, Waits(never))
	d.requireAdmitted(true, never)
	for _, find := range d.Log.Take() {
		assert.NotEqual(t, "accounts", find.Text(find.Name), "a look for nothing")
	}
}

// The money of what is run at its deadline is counted for nobody else until that has
// ended, whether it had waited to the end or nobody had looked at it.
// So is that of one which the look expects to be refused: it may be wrong by then.
func TestMoneyIsKeptForWhatIsRun(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.Put(storetest.Account("alice", nil), storetest.Account("bob", nil), storetest.Account("carol", bson.M{"frozen": true}))
	legs := []document.Leg{d.Leg("alice", -60), d.Leg("bob", 60)} // alice has 100
	ended := d.submitted("ended", time.Now().Add(time.Hour), legs...)
	ended.NotBefore = ended.FundsUntil
	second := d.submitted("second", time.Now().Add(time.Hour), legs...)
	for _, first := range []document.Transfer{
		d.submitted("past", time.Now().Add(-time.Hour), legs...),
		ended,
		d.submitted("frozen", time.Now().Add(time.Hour), d.Leg("alice", -60), d.Leg("carol", 60)),
	} {
		admitted, over, err := d.patience.Admit(t.Context(), first)
		require.NoError(t, err)
		require.True(t, admitted)
		d.requireAdmitted(false, second)
		over()
		require.Empty(t, d.patience.promises.kept, "nothing is kept for ever")
	}
	d.requireAdmitted(true, second)
	_, over, err := d.patience.Admit(t.Context(), d.submitted("never", time.Time{}, legs...))
	require.NoError(t, err)
	d.requireAdmitted(true, second)
	over()
}

// Only the lack of funds is worth a wait, and the floor, other debits and every payer
// count.
// Whatever else would be refused is run at once, to be refused.
func TestWhatIsWaitedFor(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	payee := storetest.Account("bob", nil)
	for name, row := range map[string]struct {
		payer, payee bson.M
		waits        bool
	}{
		"enough":                   {payer: bson.M{"balance": int64(60)}},
		"too little":               {payer: bson.M{"balance": int64(59)}, waits: true},
		"too little above floor":   {payer: bson.M{"floor": int64(41)}, waits: true},
		"enough above floor":       {payer: bson.M{"floor": int64(40)}},
		"no floor":                 {payer: bson.M{"balance": int64(0), "floor": bson.MinKey{}}},
		"too little, many at once": {payer: bson.M{"balance": int64(0), "pending": bson.M{"other": int64(-60)}}, waits: true},
		"closed":                   {payer: bson.M{"balance": int64(0), "closed": true}},
		"frozen":                   {payer: bson.M{"balance": int64(0), "frozen": true}},
		"another currency":         {payer: bson.M{"balance": int64(0), "currency": "EUR"}},
		"another kind":             {payer: bson.M{"balance": decimal(t, "0.00")}},
		"an odd floor":             {payer: bson.M{"balance": int64(0), "floor": "none"}},
		"no map":                   {payer: bson.M{"balance": int64(0), "pending": "none"}},
		"missing":                  {payer: nil},
		"closed payee":             {payer: bson.M{"balance": int64(0)}, payee: bson.M{"closed": true}},
		"frozen payee":             {payer: bson.M{"balance": int64(0)}, payee: bson.M{"frozen": true}},
		"payee's currency":         {payer: bson.M{"balance": int64(0)}, payee: bson.M{"currency": "EUR"}},
	} {
		accounts := d.DB.Collection("accounts")
		_, err := accounts.DeleteMany(t.Context(), bson.M{})
		require.NoError(t, err)
		if row.payer != nil {
			d.Put(storetest.Account("alice", row.payer))
		}
		d.Put(storetest.Account("bob", row.payee))
		waiting := d.submitted(name, time.Now().Add(time.Hour), d.Leg("alice", -60), d.Leg("bob", 60))
		d.requireAdmitted(!row.waits, waiting)
		require.Equal(t, row.waits, d.read(name).Waiting != nil, name)
	}
	_, err := d.DB.Collection("accounts").DeleteMany(t.Context(), bson.M{})
	require.NoError(t, err)
	d.Put(storetest.Account("alice", bson.M{"balance": int64(0)}), payee)
	missing := d.submitted("no payee", time.Now().Add(time.Hour), d.Leg("alice", -60), d.Leg("carol", 60))
	d.requireAdmitted(true, missing)
	d.PutIn("accounts_eu", storetest.Account("alice", bson.M{"balance": int64(1)}))
	two := d.submitted("two payers", time.Now().Add(time.Hour),
		d.Leg("bob", 62), d.Leg("alice", -60), d.LegIn("eu", "alice", d.Leg("", -2).Amount))
	d.requireAdmitted(false, two)
	require.Equal(t, &document.Failure{
		Code: "insufficientFunds", Account: "alice", Message: "insufficient funds", Others: 1,
	}, d.read("two payers").Waiting)
	elsewhere := d.submitted("elsewhere", time.Now().Add(time.Hour), d.Leg("alice", -60), d.Leg("bob", 60))
	elsewhere.Legs[0].Namespace = "bank.elsewhere"
	d.requireAdmitted(true, elsewhere)
	elsewhere.Legs[0].Ledger = "us"
	d.requireAdmitted(true, elsewhere)
}

func decimal(t *testing.T, text string) bson.Decimal128 {
	t.Helper()
	parsed, err := bson.ParseDecimal128(text)
	require.NoError(t, err)
	return parsed
}

// A transfer is put off only as it was read.
// Of two workers who find it lacking one puts it off, and once it is claimed, cancelled,
// or another one of the same ID, nobody does.
func TestOnlyWhatIsAsReadIsPutOff(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.Put(storetest.Account("alice", nil), storetest.Account("bob", nil))
	now := time.Now().UTC().Truncate(time.Millisecond)
	for name, change := range map[string]bson.M{
		"claimed":             {"state": "Preparing"},
		"cancelled":           {"state": "Rollback"},
		"final":               {"state": "Fail"},
		"another payload":     {"digest": bson.Binary{Subtype: 0x80, Data: []byte{1, 43}}},
		"another deadline":    {"fundsUntil": now.Add(2 * time.Hour)},
		"one that won't wait": {"fundsUntil": nil},
		"another time":        {"notBefore": now.Add(time.Minute)},
		"put off":             {"postponed": int64(1)},
	} {
		read := d.submitted(name, now.Add(time.Hour), d.Leg("alice", -101), d.Leg("bob", 101))
		d.Change("transfers", name, bson.M{"$set": change})
		before := d.Raw("transfers", name)
		d.requireAdmitted(false, read)
		require.Equal(t, before, d.Raw("transfers", name), name)
	}
	again := d.submitted("again", now.Add(time.Hour), d.Leg("alice", -101), d.Leg("bob", 101))
	d.requireAdmitted(false, again)
	once := d.Raw("transfers", "again")
	d.requireAdmitted(false, again)
	require.Equal(t, once, d.Raw("transfers", "again"))
	d.requireAdmitted(false, d.read("again"))
	require.EqualValues(t, 2, d.read("again").Postponed)
}

// Many looks at once share their commands.
func TestLooksShareCommands(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.Put(storetest.Account("alice", nil), storetest.Account("bob", nil))
	const many = 300
	all := make([]document.Transfer, many)
	for i := range all {
		all[i] = d.submitted(fmt.Sprint("t", i), time.Now().Add(time.Hour), d.Leg("alice", -101), d.Leg("bob", 101))
	}
	d.Log.Take()
	var looks sync.WaitGroup
	for _, waiting := range all {
		looks.Go(func() {
			admitted, _, err := d.patience.Admit(t.Context(), waiting)
			if assert.NoError(t, err) {
				assert.False(t, admitted)
			}
		})
	}
	looks.Wait()
	sent := len(d.Log.Take())
	t.Logf("%d looks took %d commands", many, sent)
	require.Less(t, sent, many/2)
	n, err := d.DB.Collection("transfers").CountDocuments(t.Context(), bson.M{"postponed": 1, "state": "Initiated"})
	require.NoError(t, err)
	require.EqualValues(t, many, n)
}

// A server that does not answer leaves a transfer as it is.
func TestLookFails(t *testing.T) {
	d := newDesk(t)
	d.Put(storetest.Account("alice", nil), storetest.Account("bob", nil))
	waiting := d.submitted("t", time.Now().Add(time.Hour), d.Leg("alice", -101), d.Leg("bob", 101))
	before := d.Raw("transfers", "t")
	for _, command := range []string{"find", "update"} {
		stop := d.Failing(10, []string{command}, bson.M{"errorCode": 96})
		admitted, over, err := d.patience.Admit(t.Context(), waiting)
		require.Error(t, err, command)
		require.False(t, admitted)
		require.Nil(t, over)
		require.Equal(t, before, d.Raw("transfers", "t"))
		stop()
	}
}
