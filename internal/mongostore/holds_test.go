package mongostore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// held returns an attempt at a hold of an hour that it has stored, prepared and marked as
// held.
func (b *bank) held(id string, legs ...document.Leg) *mongostore.Attempt {
	b.T.Helper()
	a := b.holding(id, legs...)
	b.Prepared(a)
	b.Applied(a, markHeld(1, true))
	return a
}

// holding returns an attempt at a hold of an hour that it has stored.
func (b *bank) holding(id string, legs ...document.Leg) *mongostore.Attempt {
	b.T.Helper()
	a := b.Attempt(id, legs...)
	a.Transfer.Hold, a.HoldFor = true, time.Hour
	b.Applied(a, storetest.Claim(protocol.Insert))
	return a
}

func markHeld(epoch int64, clean bool) protocol.Operation {
	op := storetest.About(protocol.MarkHeld)
	op.Epoch, op.Clean = epoch, clean
	return op
}

// A hold is stored with its expiry, by the server's clock, and is marked as held if it
// still belongs to its execution.
func TestMarkHeld(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	a := b.holding("order", b.Leg("alice", -60))
	expiry := b.Raw("transfers", "order").Lookup("expiresAt").Time()
	assert.Equal(t, b.Raw("transfers", "order").Lookup("createdAt").Time().Add(time.Hour), expiry)
	for _, spoil := range []bson.M{{"state": "Committed"}, {"state": "Rollback"}, {"epoch": int64(2)}, {"owner": "another"}} {
		restore := bson.M{}
		for name := range spoil {
			restore[name] = b.Raw("transfers", "order").Lookup(name)
		}
		b.Change("transfers", "order", bson.M{"$set": spoil})
		before := b.Raw("transfers", "order")
		assert.Equal(t, protocol.NotMatched, b.On(a, markHeld(1, true)).Result, "%v", spoil)
		assert.Equal(t, before, b.Raw("transfers", "order"))
		b.Change("transfers", "order", bson.M{"$set": restore})
	}
	shape := bson.M{
		"_id": "order", "state": "Preparing", "open": true, "epoch": int64(1), "owner": "owner of order", "hold": true, "held": true,
		"verified": int64(1), "digest": bson.Binary{Subtype: 0x80, Data: []byte{1, 42}}, "expiresAt": bson.NewDateTimeFromTime(expiry),
		"legs": bson.A{bson.M{"ledger": "", "ns": b.DB.Name() + ".accounts", "account": "alice", "amount": int64(-60)}},
	}
	assert.Equal(t, protocol.Applied, b.On(a, markHeld(1, false)).Result)
	assert.Equal(t, shape, b.stored("order", "createdAt", "lastModified"), "a dirty one")
	assert.Equal(t, protocol.Applied, b.On(a, markHeld(1, true)).Result)
	shape["clean"], shape["verified"] = true, int64(2)
	assert.Equal(t, shape, b.stored("order", "createdAt", "lastModified"), "a clean one")
	assert.True(t, a.Transfer.Held && a.Transfer.Clean, "the work knows it")
	look := b.On(a, storetest.About(protocol.LookTransfer)).Transfer
	assert.Equal(t, protocol.Image{Found: true, State: protocol.Preparing, Epoch: 1, Mine: true, Held: true, Clean: true}, look)
}

// One command marks several holds as held, and only some match. A deciding read shows
// which, also if the command has decisions besides them.
func TestShortCountOfHolds(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	var attempts []*mongostore.Attempt
	var rs requests
	for i := range 5 {
		attempts = append(attempts, b.holding(fmt.Sprint("t", i), b.Leg("alice", -60)))
	}
	b.Change("transfers", "t1", bson.M{"$set": bson.M{"epoch": int64(2)}})
	b.Change("transfers", "t2", bson.M{"$set": bson.M{"owner": "another", "held": true}})
	rs.add(attempts[0], markHeld(1, true))
	rs.add(attempts[1], markHeld(1, true))
	rs.add(attempts[2], markHeld(1, true))
	rs.add(attempts[3], storetest.Decide(protocol.Rollback, 1))
	b.Change("transfers", "t4", bson.M{"$set": bson.M{"state": "Rollback"}})
	rs.add(attempts[4], markHeld(1, true))
	applied, not := protocol.Applied, protocol.NotMatched
	assert.Equal(t, []protocol.Result{applied, not, not, applied, not}, b.batch(rs))
	assert.True(t, attempts[0].Transfer.Held)
}

// holdRow is a changed stored hold, and the results of claims on it.
type holdRow struct {
	name    string
	change  bson.M
	matches []protocol.ClaimKind
}

func holdRows() []holdRow {
	const resume, cancel, unheld, post, expire = protocol.TakeOver, protocol.TakeToCancel, protocol.TakeUnheld, protocol.Post, protocol.Expire
	past, future := time.Now().Add(-time.Second), time.Now().Add(time.Hour)
	return []holdRow{
		{"not held", bson.M{}, []protocol.ClaimKind{cancel, unheld}},
		{"held is null", bson.M{"held": nil}, []protocol.ClaimKind{cancel, unheld}},
		{"held", bson.M{"held": true}, []protocol.ClaimKind{cancel, post}},
		{"held, and its time is not over", bson.M{"held": true, "expiresAt": future}, []protocol.ClaimKind{cancel, post}},
		{"held, and its time is over", bson.M{"held": true, "expiresAt": past}, []protocol.ClaimKind{cancel, expire}},
		{"not held, and its time is over", bson.M{"expiresAt": past}, []protocol.ClaimKind{cancel, unheld, expire}},
		{"held, without a time", bson.M{"held": true, "expiresAt": nil}, []protocol.ClaimKind{cancel, expire}},
		{"no hold", bson.M{"hold": nil}, []protocol.ClaimKind{resume, cancel}},
		{"no hold, held", bson.M{"hold": false, "held": true}, []protocol.ClaimKind{resume, cancel}},
		{"no hold, with a time that is over", bson.M{"hold": nil, "expiresAt": past}, []protocol.ClaimKind{resume, cancel}},
		{"posted", bson.M{"held": true, "state": "Committed"}, []protocol.ClaimKind{resume}},
		{"voided", bson.M{"held": true, "state": "Rollback", "expiresAt": past}, []protocol.ClaimKind{resume}},
		{"refused", bson.M{"state": "Rollback"}, []protocol.ClaimKind{resume}},
		{"succeeded", bson.M{"held": true, "state": "Success", "expiresAt": past}, nil},
		{"failed", bson.M{"state": "Fail"}, nil},
		{"waiting", bson.M{"state": "Initiated"}, nil},
	}
}

// Claims match holds by their state, one by one and many together, with a known result.
func TestClaimsOfHolds(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	for _, together := range []bool{false, true} {
		for _, how := range []protocol.ClaimKind{
			protocol.TakeOver, protocol.TakeToCancel, protocol.TakeUnheld, protocol.Post, protocol.Expire,
		} {
			var rs requests
			for _, row := range holdRows() {
				a := b.holding(fmt.Sprintf("%s, %s, %t", row.name, how, together), b.Leg("alice", -60), b.Leg("bob", 60))
				b.Change("transfers", a.Transfer.ID, bson.M{"$set": row.change})
				a.Owner = "another"
				rs.add(a, storetest.Claim(how))
			}
			if together {
				b.batch(rs)
			}
			for i, row := range holdRows() {
				a, id := rs[i].Attempt, rs[i].Attempt.Transfer.ID
				if !together {
					rs[i].Answer = b.On(a, storetest.Claim(how))
				}
				b.checkClaim(rs[i].Answer, a, row, id, how)
			}
		}
	}
}

// checkClaim checks the answer to a claim, and the stored hold after it.
func (b *bank) checkClaim(answer protocol.Answer, a *mongostore.Attempt, row holdRow, id string, how protocol.ClaimKind) {
	b.T.Helper()
	matches := false
	for _, matched := range row.matches {
		matches = matches || matched == how
	}
	after := storetest.AsMap(b.T, b.Raw("transfers", id))
	if !matches {
		require.Equal(b.T, protocol.Answer{Result: protocol.NotMatched}, answer, id)
		require.EqualValues(b.T, 1, after["epoch"], id)
		return
	}
	require.Equal(b.T, protocol.Applied, answer.Result, id)
	require.EqualValues(b.T, 2, after["epoch"], id)
	state := protocol.Preparing
	if stored, is := row.change["state"].(string); is {
		state = protocol.State(stored)
	}
	if how == protocol.Post {
		state = protocol.Committed
		require.WithinDuration(b.T, time.Now(), after["committedAt"].(bson.DateTime).Time(), time.Minute)
	} else {
		require.Nil(b.T, after["committedAt"], id)
	}
	if how == protocol.TakeOver || how == protocol.TakeUnheld {
		require.EqualValues(b.T, 1, after["attempts"], id)
	} else {
		require.Nil(b.T, after["attempts"], "to decide is no recovery")
	}
	require.EqualValues(b.T, state, after["state"], id)
	require.Equal(b.T, state, answer.Transfer.State, id)
	require.True(b.T, answer.Transfer.Mine, id)
	require.Nil(b.T, after["posted"], id)
	require.WithinDuration(b.T, time.Now(), after["lastModified"].(bson.DateTime).Time(), time.Minute)
	require.Equal(b.T, a.Transfer.Epoch, answer.Transfer.Epoch, id)
}

// A hold that is not held is taken over for completion only if it has not changed for the
// threshold, by the server's clock.
func TestTakeUnheldGoesByTheServersClock(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	a := b.holding("order", b.Leg("alice", -60))
	a.Threshold = time.Hour
	assert.Equal(t, protocol.NotMatched, b.On(a, storetest.Claim(protocol.TakeUnheld)).Result)
	b.Change("transfers", "order", bson.M{"$set": bson.M{"lastModified": time.Now().Add(-2 * time.Hour)}})
	assert.Equal(t, protocol.Applied, b.On(a, storetest.Claim(protocol.TakeUnheld)).Result)
}

// The search for expired holds finds those that may be voided, oldest first.
// The search for stalled transfers finds no hold that may be decided.
func TestExpiredHoldsAreFound(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	for i, row := range holdRows() {
		a := b.holding(row.name, b.Leg("alice", -60))
		b.Change("transfers", row.name, bson.M{"$set": row.change})
		if at, is := row.change["expiresAt"].(time.Time); is && at.Before(time.Now()) {
			b.Change("transfers", row.name, bson.M{"$set": bson.M{"expiresAt": at.Add(-time.Duration(i) * time.Hour)}})
		}
		if a.Transfer.State = protocol.State(fmt.Sprint(row.change["state"])); a.Transfer.State.Final() {
			b.Change("transfers", row.name, bson.M{"$unset": bson.M{"open": ""}})
		}
	}
	var expired, stalled []string
	for found, err := range b.Store.Expired(t.Context()) {
		require.NoError(t, err)
		expired = append(expired, found.ID)
	}
	for found, err := range b.Store.Stalled(t.Context(), 0) {
		require.NoError(t, err)
		stalled = append(stalled, found.ID)
	}
	assert.Equal(t, []string{"held, without a time", "not held, and its time is over", "held, and its time is over"}, expired)
	assert.ElementsMatch(t, []string{"no hold", "no hold, held", "no hold, with a time that is over", "posted", "voided", "refused"}, stalled)
}

// A sweep for stalled transfers skips the holds that may still be decided, however many
// there are. It examines neither their documents nor their keys.
func TestSweepsPassOverHolds(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	require.NoError(t, b.Store.Setup(t.Context()))
	var holds []any
	for i := range 2000 {
		holds = append(holds, bson.M{
			"_id": fmt.Sprint("h", i), "state": "Preparing", "open": true, "hold": true, "held": true, "epoch": int64(1),
			"createdAt": time.Now(), "lastModified": time.Now().Add(-time.Hour), "expiresAt": time.Now().Add(time.Hour),
		})
	}
	_, err := b.DB.Collection("transfers").InsertMany(t.Context(), holds)
	require.NoError(t, err)
	b.Log.Take()
	for _, err := range b.Store.Stalled(t.Context(), time.Minute) {
		require.NoError(t, err)
		require.Fail(t, "a hold is taken for stalled")
	}
	find := b.Log.Take()[0]
	query := bson.D{{Key: "find", Value: find.Text("find")}, {Key: "filter", Value: find.Body.Lookup("filter")}}
	var reply struct {
		ExecutionStats struct {
			Keys      int `bson:"totalKeysExamined"`
			Documents int `bson:"totalDocsExamined"`
		} `bson:"executionStats"`
	}
	explain := bson.D{{Key: "explain", Value: query}, {Key: "verbosity", Value: "executionStats"}}
	require.NoError(t, b.DB.RunCommand(t.Context(), explain).Decode(&reply))
	assert.Less(t, reply.ExecutionStats.Keys, 20)
	assert.Zero(t, reply.ExecutionStats.Documents)
}

// If a part of a hold is posted, the credit gets that part and the debit gets the rest
// back, to the last digit.
// An undo gives everything back.
// A process that takes the posted hold over knows the part.
func TestPartOfAHold(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	for _, row := range []struct {
		held, part, alice, bob money.Amount
	}{
		{money.Units(60), money.Units(20), money.Units(80), money.Units(120)},
		{money.Units(60), money.Units(1), money.Units(99), money.Units(101)},
		{money.Units(60), money.Units(60), money.Units(40), money.Units(160)},
		{dec("60.50"), dec("0.000000000001"), dec("99.999999999999"), dec("100.000000000001")},
		{dec("60.50"), dec("60.499999999999"), dec("39.500000000001"), dec("160.499999999999")},
	} {
		for _, takenOver := range []bool{false, true} {
			hundred := any(int64(100))
			if row.held.Kind() == money.Decimal {
				hundred = decimal("100")
			}
			id := fmt.Sprintf("%s of %s, %t", row.part, row.held, takenOver)
			alice, bob := "alice "+id, "bob "+id
			b.Put(storetest.Account(alice, bson.M{"balance": hundred}), storetest.Account(bob, bson.M{"balance": hundred}))
			a := b.held(id, b.LegIn("", alice, row.held.Neg()), b.LegIn("", bob, row.held))
			a.Post = &row.part
			b.Applied(a, storetest.Claim(protocol.Post))
			assert.Equal(t, row.part.Canonical(), mustAmount(t, b.Raw("transfers", id).Lookup("posted")).Canonical())
			if takenOver {
				a = b.Attempt(id, b.LegIn("", alice, row.held.Neg()), b.LegIn("", bob, row.held))
				a.Owner = "another"
				b.Applied(a, storetest.Claim(protocol.TakeOver))
			}
			b.Applied(a, storetest.At(protocol.Settle, 0), storetest.At(protocol.Settle, 1), storetest.Finish(protocol.Success))
			for name, want := range map[string]money.Amount{alice: row.alice, bob: row.bob} {
				document := b.Raw("accounts", name)
				assert.Zero(t, want.Cmp(mustAmount(t, document.Lookup("balance"))), "%s: %s", name, document)
				assert.Equal(t, bson.Raw{5, 0, 0, 0, 0}, bson.Raw(document.Lookup("pending").Value))
			}
		}
	}
}

// Settles of parts share a statement with prepares on the same account, which may spend
// what they pay in. An undo pays back everything.
func TestPartsCoalesce(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.Put(storetest.Account("alice", bson.M{"balance": int64(100)}), storetest.Account("bob", bson.M{"balance": int64(0)}))
	part := money.Units(15)
	var posted []*mongostore.Attempt
	for i := range 2 {
		a := b.held(fmt.Sprint("h", i), b.Leg("alice", -50), b.Leg("bob", 50))
		a.Post = &part
		b.Applied(a, storetest.Claim(protocol.Post))
		posted = append(posted, a)
	}
	voided := b.holding("v", b.Leg("alice", -1), b.Leg("bob", 1))
	voided.Transfer.Posted = nil
	next := b.Claimed("n", b.Leg("alice", -70), b.Leg("carol", 70))
	prepare := b.Ready(next)[0]
	b.Has("accounts", storetest.Account("alice", bson.M{"balance": int64(0), "pending": bson.M{"h0": int64(-50), "h1": int64(-50)}}))
	rs := of(storetest.At(protocol.Settle, 0), posted...)
	rs.add(next, prepare)
	b.Log.Take()
	assert.Equal(t, all(3, protocol.Applied), b.batch(rs))
	assert.Equal(t, []int{1}, b.statements())
	b.Has("accounts", storetest.Account("alice", bson.M{"balance": int64(0), "pending": bson.M{"n": int64(-70)}}))
	assert.Equal(t, all(2, protocol.Applied), b.batch(of(storetest.At(protocol.Settle, 1), posted...)))
	b.Has("accounts", storetest.Account("bob", bson.M{"balance": int64(30)}))
}

// A part of a hold moves only money. A document that changes with it gets no balance.
func TestPartOfAHoldWithAnEffect(t *testing.T) {
	t.Parallel()
	b := newShop(t)
	b.Put(storetest.Account("alice", nil), storetest.Account("bob", nil))
	b.PutIn("orders", bson.M{"_id": "o", "status": "unpaid"})
	a, err := b.Store.NewAttempt(document.Transfer{
		ID: "h", Legs: []document.Leg{b.Leg("alice", -60), b.Leg("bob", 60)}, Effects: []document.Effect{b.effect("o", unpaid(), paid())},
		Hold: true, Digest: document.Digest{Format: document.Format, Sum: []byte{1}},
	}, "me")
	require.NoError(t, err)
	a.HoldFor = time.Hour
	b.Applied(a, storetest.Claim(protocol.Insert))
	b.Prepared(a)
	b.Applied(a, markHeld(1, true))
	part := money.Units(20)
	a.Post = &part
	b.Applied(a, storetest.Claim(protocol.Post))
	b.Applied(a, storetest.At(protocol.Settle, 0), storetest.At(protocol.Settle, 1), storetest.At(protocol.Settle, 2))
	b.Has("accounts", storetest.Account("alice", bson.M{"balance": int64(80)}))
	b.Has("accounts", storetest.Account("bob", bson.M{"balance": int64(120)}))
	b.Has("orders", bson.M{"_id": "o", "status": "paid", "by": "me", "pending": bson.M{}})
}
