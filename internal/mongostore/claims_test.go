package mongostore_test

import (
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

// full returns an attempt at a transfer with every field that a caller can set.
func (b *bank) full(id string) *mongostore.Attempt {
	b.T.Helper()
	bob := b.LegIn("eu", "bob", dec("60.50"))
	bob.Currency = "USD"
	a := b.Attempt(id, b.Leg("alice", -60), bob)
	a.Transfer.Currency = "EUR"
	a.Transfer.Metadata = encode(bson.M{"order": "17"})
	a.Transfer.NotBefore = time.UnixMilli(1_700_000_000_000).UTC()
	a.Transfer.FundsUntil = time.UnixMilli(1_800_000_000_000).UTC()
	return a
}

// stored returns a transfer as it is stored, without its times, which must lie around
// now.
func (b *bank) stored(id string, times ...string) bson.M {
	b.T.Helper()
	document := storetest.AsMap(b.T, b.Raw("transfers", id))
	for _, name := range times {
		at, ok := document[name].(bson.DateTime)
		require.True(b.T, ok, "%s: %v", name, document[name])
		assert.WithinDuration(b.T, time.Now(), at.Time(), time.Minute, name)
		delete(document, name)
	}
	return document
}

// shape is the stored form of the transfer of full, as the architecture's page shows it.
func (b *bank) shape(id string, changes bson.M) bson.M {
	shape := bson.M{
		"_id": id, "state": "Preparing", "open": true, "epoch": int64(1), "owner": "owner of " + id, "currency": "EUR",
		"legs": bson.A{
			bson.M{"ledger": "", "ns": b.DB.Name() + ".accounts", "account": "alice", "amount": int64(-60)},
			bson.M{"ledger": "eu", "ns": b.DB.Name() + ".accounts_eu", "account": "bob", "amount": decimal("60.50"), "currency": "USD"},
		},
		"digest":     bson.Binary{Subtype: 0x80, Data: []byte{1, 42}},
		"metadata":   bson.M{"order": "17"},
		"notBefore":  bson.DateTime(1_700_000_000_000),
		"fundsUntil": bson.DateTime(1_800_000_000_000),
	}
	for key, value := range changes {
		shape[key] = value
		if value == nil {
			delete(shape, key)
		}
	}
	return shape
}

// An inserted transfer has exactly the documented fields, of the documented types.
// An empty one has no other fields.
func TestInsertStoresTheDocumentedShape(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	a := b.full("order")
	answer := b.On(a, storetest.Claim(protocol.Insert))
	want := protocol.Answer{Result: protocol.Applied, Transfer: protocol.Image{Found: true, State: protocol.Preparing, Epoch: 1, Mine: true}}
	assert.Equal(t, want, answer)
	assert.Equal(t, b.shape("order", nil), b.stored("order", "createdAt", "lastModified"))
	assert.Equal(t, b.Raw("transfers", "order").Lookup("createdAt"), b.Raw("transfers", "order").Lookup("lastModified"))
	assert.Equal(t, protocol.Preparing, a.Transfer.State)
	assert.EqualValues(t, 1, a.Transfer.Epoch)

	b.On(b.Attempt("plain", b.Leg("alice", -60)), storetest.Claim(protocol.Insert))
	assert.Equal(t, bson.M{
		"_id": "plain", "state": "Preparing", "open": true, "epoch": int64(1), "owner": "owner of plain",
		"digest": bson.Binary{Subtype: 0x80, Data: []byte{1, 42}},
		"legs":   bson.A{bson.M{"ledger": "", "ns": b.DB.Name() + ".accounts", "account": "alice", "amount": int64(-60)}},
	}, b.stored("plain", "createdAt", "lastModified"))

	again := b.full("order")
	again.Owner = "another"
	before := b.Raw("transfers", "order")
	assert.Equal(t, protocol.Answer{Result: protocol.NotMatched}, b.On(again, storetest.Claim(protocol.Insert)))
	assert.Equal(t, before, b.Raw("transfers", "order"))
}

// A submitted transfer is claimed once, in its first epoch.
func TestClaimFromInitiated(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	a := b.full("order")
	result, err := b.Store.InsertInitiated(t.Context(), &a.Transfer)
	require.NoError(t, err)
	require.Equal(t, protocol.Applied, result)
	initiated := bson.M{"state": "Initiated", "owner": nil, "epoch": int64(0)}
	assert.Equal(t, b.shape("order", initiated), b.stored("order", "createdAt", "lastModified"))
	result, err = b.Store.InsertInitiated(t.Context(), &a.Transfer)
	require.Error(t, err)
	assert.Equal(t, protocol.NotMatched, result)
	for _, how := range []protocol.ClaimKind{protocol.TakeOver, protocol.TakeToCancel} {
		assert.Equal(t, protocol.NotMatched, b.On(a, storetest.Claim(how)).Result)
	}
	assert.Equal(t, protocol.NotMatched, b.On(a, storetest.Decide(protocol.Committed, 0)).Result)
	assert.Equal(t, b.shape("order", initiated), b.stored("order", "createdAt", "lastModified"))

	answer := b.On(a, storetest.Claim(protocol.FromInitiated))
	assert.Equal(t, protocol.Image{Found: true, State: protocol.Preparing, Epoch: 1, Mine: true}, answer.Transfer)
	assert.Equal(t, b.shape("order", nil), b.stored("order", "createdAt", "lastModified"))
	assert.EqualValues(t, 1, a.Transfer.Epoch)
	assert.Equal(t, a.Owner, a.Transfer.Owner)
	for _, how := range []protocol.ClaimKind{protocol.FromInitiated, protocol.CancelInitiated} {
		assert.Equal(t, protocol.NotMatched, b.On(a, storetest.Claim(how)).Result)
	}
	assert.Equal(t, b.shape("order", nil), b.stored("order", "createdAt", "lastModified"))
}

// A transfer without a claim is cancelled at once, with its reason.
func TestCancelInitiated(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	a := b.full("order")
	a.Describe = func(r protocol.Refusal) string { return "because: " + r.Reason.String() }
	_, err := b.Store.InsertInitiated(t.Context(), &a.Transfer)
	require.NoError(t, err)
	op := storetest.Claim(protocol.CancelInitiated)
	op.Refusal = protocol.Refusal{Reason: protocol.Cancelled, Participant: protocol.NoParticipant}
	answer := b.On(a, op)
	assert.Equal(t, protocol.Image{Found: true, State: protocol.Rollback, Epoch: 1, Mine: true}, answer.Transfer)
	failure := bson.M{"code": "cancelled", "ledger": "", "account": "", "message": "because: cancelled"}
	want := b.shape("order", bson.M{"state": "Rollback", "failure": failure})
	assert.Equal(t, want, b.stored("order", "createdAt", "lastModified"))
	assert.Equal(t, &document.Failure{Code: "cancelled", Message: "because: cancelled"}, a.Transfer.Failure)
	assert.Equal(t, protocol.NotMatched, b.On(a, storetest.Claim(protocol.FromInitiated)).Result)
}

// The server's clock decides whether a transfer has stalled. The process's clock may be
// off by a year.
func TestTakeOverGoesByTheServersClock(t *testing.T) {
	t.Parallel()
	for name, off := range map[string]time.Duration{"right": 0, "a year ahead": 8760 * time.Hour, "a year behind": -8760 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBank(t, func(c *storetest.Config) { c.Now = func() time.Time { return time.Now().Add(off) } })
			first := b.full("order")
			require.Equal(t, protocol.Applied, b.On(first, storetest.Claim(protocol.Insert)).Result)
			assert.Equal(t, b.shape("order", nil), b.stored("order", "createdAt", "lastModified"))
			a := b.full("order")
			a.Owner, a.Threshold = "second", time.Hour
			assert.False(t, b.Store.LooksStalled(t.Context(), first.Transfer, time.Hour))
			assert.Equal(t, protocol.NotMatched, b.On(a, storetest.Claim(protocol.TakeOver)).Result)

			a.Threshold = 0
			answer := b.On(a, storetest.Claim(protocol.TakeOver))
			assert.Equal(t, protocol.Image{Found: true, State: protocol.Preparing, Epoch: 2, Mine: true}, answer.Transfer)
			want := b.shape("order", bson.M{"owner": "second", "epoch": int64(2), "attempts": int64(1)})
			assert.Equal(t, want, b.stored("order", "createdAt", "lastModified"))

			a.Threshold = time.Hour
			b.Change("transfers", "order", bson.M{"$set": bson.M{"lastModified": time.Now().Add(-time.Hour + time.Minute)}})
			assert.Equal(t, protocol.NotMatched, b.On(a, storetest.Claim(protocol.TakeOver)).Result)
			b.Change("transfers", "order", bson.M{"$set": bson.M{"lastModified": time.Now().Add(-time.Hour - time.Second)}})
			stored, err := document.DecodeTransfer(b.Raw("transfers", "order"))
			require.NoError(t, err)
			assert.True(t, b.Store.LooksStalled(t.Context(), stored, time.Hour))
			answer = b.On(a, storetest.Claim(protocol.TakeOver))
			assert.EqualValues(t, 3, answer.Transfer.Epoch)
			assert.EqualValues(t, 3, a.Transfer.Epoch)
			b.stored("order", "createdAt", "lastModified")
			assert.Equal(t, protocol.NotMatched, b.On(a, storetest.Claim(protocol.TakeOver)).Result, "it was touched just now")
		})
	}
}

// The state alone decides whether a transfer can be taken over, and to what end. A cancel
// does not wait.
func TestWhichStatesAreTakenOver(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	for _, row := range []struct {
		state            protocol.State
		takeOver, cancel bool
	}{
		{protocol.Initiated, false, false},
		{protocol.Preparing, true, true},
		{protocol.Committed, true, false},
		{protocol.Rollback, true, false},
		{protocol.Success, false, false},
		{protocol.Fail, false, false},
		{"Held", false, false},
	} {
		for how, matches := range map[protocol.ClaimKind]bool{protocol.TakeOver: row.takeOver, protocol.TakeToCancel: row.cancel} {
			a := b.Claimed(string(row.state)+" "+string('0'+rune(how)), b.Leg("alice", -60))
			b.Change("transfers", a.Transfer.ID, bson.M{"$set": bson.M{"state": row.state}})
			before := b.Raw("transfers", a.Transfer.ID)
			if how == protocol.TakeToCancel {
				a.Threshold = time.Hour
			}
			answer := b.On(a, storetest.Claim(how))
			if !matches {
				assert.Equal(t, protocol.Answer{Result: protocol.NotMatched}, answer, a.Transfer.ID)
				assert.Equal(t, before, b.Raw("transfers", a.Transfer.ID))
				continue
			}
			image := protocol.Image{Found: true, State: row.state, Epoch: 2, Mine: true}
			assert.Equal(t, protocol.Answer{Result: protocol.Applied, Transfer: image}, answer, a.Transfer.ID)
		}
	}
}

// An attempt at an earlier transfer with the same ID and another payload claims nothing.
func TestClaimRequiresTheDigest(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.Claimed("order", b.Leg("alice", -60))
	for state, claims := range map[protocol.State][]protocol.ClaimKind{
		protocol.Preparing: {protocol.TakeOver, protocol.TakeToCancel},
		protocol.Initiated: {protocol.FromInitiated, protocol.CancelInitiated},
	} {
		b.Change("transfers", "order", bson.M{"$set": bson.M{"state": state}})
		before := b.Raw("transfers", "order")
		a := b.Attempt("order", b.Leg("alice", -60))
		for _, digest := range []document.Digest{
			{}, {Format: document.Format}, {Format: document.Format, Sum: []byte{1}}, {Format: document.Format, Sum: []byte{1, 43}},
			{Format: document.FormatBefore, Sum: []byte{1, 42}},
		} {
			a.Transfer.Digest = digest
			for _, how := range claims {
				assert.Equal(t, protocol.NotMatched, b.On(a, storetest.Claim(how)).Result, "%+v, %d", digest, how)
			}
		}
		assert.Equal(t, before, b.Raw("transfers", "order"))
	}
}

// A decision needs the state and the epoch, and is stored once.
// Its time is stored only if money moves, and its reason only if none does.
func TestDecide(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	failure := bson.M{"code": "insufficientFunds", "ledger": "eu", "account": "bob", "message": ""}
	for _, row := range []struct {
		to     protocol.State
		clean  bool
		want   bson.M
		times  []string
		others protocol.State
	}{
		{protocol.Committed, true, bson.M{"state": "Committed", "clean": true}, []string{"createdAt", "lastModified",
			"committedAt"}, protocol.Rollback},
		{protocol.Committed, false, bson.M{"state": "Committed"}, []string{"createdAt", "lastModified", "committedAt"}, protocol.Rollback},
		{protocol.Rollback, true, bson.M{"state": "Rollback", "clean": true, "failure": failure}, []string{"createdAt",
			"lastModified"}, protocol.Committed},
		{protocol.Rollback, false, bson.M{"state": "Rollback", "failure": failure}, []string{"createdAt", "lastModified"}, protocol.Committed},
	} {
		id := string(row.to)
		if row.clean {
			id += ", clean"
		}
		a := b.full(id)
		require.Equal(t, protocol.Applied, b.On(a, storetest.Claim(protocol.Insert)).Result)
		before := b.Raw("transfers", id)
		for _, epoch := range []int64{0, 2} {
			assert.Equal(t, protocol.NotMatched, b.On(a, storetest.Decide(row.to, epoch)).Result)
		}
		assert.Equal(t, protocol.NotMatched, b.On(a, storetest.Finish(protocol.Success)).Result)
		assert.Equal(t, protocol.NotMatched, b.On(a, storetest.Finish(protocol.Fail)).Result)
		require.Equal(t, before, b.Raw("transfers", id))
		op := storetest.Decide(row.to, 1)
		op.Clean, op.Refusal.Participant = row.clean, 1
		b.Applied(a, op)
		assert.Equal(t, row.to, a.Transfer.State)
		assert.Equal(t, b.shape(id, row.want), b.stored(id, row.times...))
		before = b.Raw("transfers", id)
		for _, to := range []protocol.State{row.to, row.others} {
			assert.Equal(t, protocol.NotMatched, b.On(a, storetest.Decide(to, 1)).Result, "decided twice")
		}
		assert.Equal(t, before, b.Raw("transfers", id))
	}
}

// A transfer is finished once, from the state that belongs to its end, by any process.
// After that it is no longer in the index of open work.
func TestFinish(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	for decision, ends := range map[protocol.State][2]protocol.State{
		protocol.Committed: {protocol.Success, protocol.Fail}, protocol.Rollback: {protocol.Fail, protocol.Success},
	} {
		id := string(decision)
		a := b.Claimed(id, b.Leg("alice", -60))
		b.Applied(a, storetest.Decide(decision, 1))
		before := storetest.AsMap(t, b.Raw("transfers", id))
		other := b.Attempt(id, b.Leg("alice", -60))
		other.Owner = "another"
		assert.Equal(t, protocol.NotMatched, b.On(other, storetest.Finish(ends[1])).Result)
		b.Applied(other, storetest.Finish(ends[0]))
		assert.Equal(t, ends[0], other.Transfer.State)
		after := storetest.AsMap(t, b.Raw("transfers", id))
		delete(before, "open")
		before["state"], before["lastModified"] = string(ends[0]), after["lastModified"]
		assert.Equal(t, before, after)
		for _, end := range ends {
			assert.Equal(t, protocol.NotMatched, b.On(a, storetest.Finish(end)).Result)
		}
		assert.Equal(t, protocol.NotMatched, b.On(a, storetest.Claim(protocol.TakeOver)).Result)
		assert.Equal(t, after, storetest.AsMap(t, b.Raw("transfers", id)))
	}
}

// A verify matches a transfer in Preparing with this epoch and this owner, and always
// changes the document.
// A write without a change would be answered without asking a majority.
func TestVerifyAlwaysWrites(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	a := b.Claimed("order", b.Leg("alice", -60))
	verify := storetest.About(protocol.Verify)
	verify.Epoch = 1
	for range 30 {
		before := b.Raw("transfers", "order")
		b.Log.Take()
		require.Equal(t, protocol.Applied, b.On(a, verify).Result)
		modified, _ := b.Log.Take()[0].Reply.Lookup("nModified").AsInt64OK()
		require.EqualValues(t, 1, modified)
		require.NotEqual(t, before, b.Raw("transfers", "order"))
	}
	b.stored("order", "lastModified")
	assert.EqualValues(t, 30, storetest.AsMap(t, b.Raw("transfers", "order"))["verified"])

	before := b.Raw("transfers", "order")
	wrong := verify
	wrong.Epoch = 2
	assert.Equal(t, protocol.NotMatched, b.On(a, wrong).Result)
	other := b.Attempt("order", b.Leg("alice", -60))
	other.Owner = "another"
	assert.Equal(t, protocol.NotMatched, b.On(other, verify).Result)
	assert.Equal(t, before, b.Raw("transfers", "order"))
	b.Applied(a, storetest.Decide(protocol.Committed, 1))
	assert.Equal(t, protocol.NotMatched, b.On(a, verify).Result, "it is decided")
}

// The failure names the refusing participant as the caller does.
func TestFailureNamesTheParticipant(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	a := b.Attempt("order", b.Leg("alice", -60), b.LegIn("eu", "bob", money.Units(60)))
	a.Describe = func(r protocol.Refusal) string { return "at " + a.Participant(r.Participant).Leg().Account }
	assert.Equal(t, document.Failure{Code: "overflow", Ledger: "eu", Account: "bob", Message: "at bob"},
		a.Failure(protocol.Refusal{Reason: protocol.Overflow, Participant: 1}))
}
