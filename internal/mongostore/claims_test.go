package mongostore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/protocol"
)

// full returns a work on a transfer with every field that a caller can set.
func (b *bank) full(id string) *Attempt {
	b.t.Helper()
	w := b.work(id, b.leg("alice", -60), b.legIn("eu", "bob", dec("60.50")))
	w.Transfer.Currency = "EUR"
	w.Transfer.Metadata = encode(bson.M{"order": "17"})
	w.Transfer.NotBefore = time.UnixMilli(1_700_000_000_000).UTC()
	return w
}

// stored returns a transfer as it is stored, without its times, which are asserted to lie around now.
func (b *bank) stored(id string, times ...string) bson.M {
	b.t.Helper()
	document := asMap(b.t, b.raw("transfers", id))
	for _, name := range times {
		at, ok := document[name].(bson.DateTime)
		require.True(b.t, ok, "%s: %v", name, document[name])
		assert.WithinDuration(b.t, time.Now(), at.Time(), time.Minute, name)
		delete(document, name)
	}
	return document
}

// shape is the stored form of the full work's transfer, as the architecture's page shows it.
func (b *bank) shape(id string, changes bson.M) bson.M {
	shape := bson.M{
		"_id": id, "state": "Preparing", "open": true, "epoch": int64(1), "owner": "owner of " + id, "currency": "EUR",
		"legs": bson.A{
			bson.M{"ledger": "", "ns": b.db.Name() + ".accounts", "account": "alice", "amount": int64(-60)},
			bson.M{"ledger": "eu", "ns": b.db.Name() + ".accounts_eu", "account": "bob", "amount": decimal("60.50")},
		},
		"digest":    bson.Binary{Data: []byte{1, 42}},
		"metadata":  bson.M{"order": "17"},
		"notBefore": bson.DateTime(1_700_000_000_000),
	}
	for key, value := range changes {
		shape[key] = value
		if value == nil {
			delete(shape, key)
		}
	}
	return shape
}

// An inserted transfer has exactly the documented fields, of the documented types; an empty one has no others.
func TestInsertStoresTheDocumentedShape(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	w := b.full("order")
	answer := b.on(w, claim(protocol.Insert))
	want := protocol.Answer{Result: protocol.Applied, Transfer: protocol.Image{Found: true, State: protocol.Preparing, Epoch: 1, Mine: true}}
	assert.Equal(t, want, answer)
	assert.Equal(t, b.shape("order", nil), b.stored("order", "createdAt", "lastModified"))
	assert.Equal(t, b.raw("transfers", "order").Lookup("createdAt"), b.raw("transfers", "order").Lookup("lastModified"))
	assert.Equal(t, protocol.Preparing, w.Transfer.State)
	assert.EqualValues(t, 1, w.Transfer.Epoch)

	b.on(b.work("plain", b.leg("alice", -60)), claim(protocol.Insert))
	assert.Equal(t, bson.M{
		"_id": "plain", "state": "Preparing", "open": true, "epoch": int64(1), "owner": "owner of plain",
		"digest": bson.Binary{Data: []byte{1, 42}},
		"legs":   bson.A{bson.M{"ledger": "", "ns": b.db.Name() + ".accounts", "account": "alice", "amount": int64(-60)}},
	}, b.stored("plain", "createdAt", "lastModified"))

	again := b.full("order")
	again.Owner = "another"
	before := b.raw("transfers", "order")
	assert.Equal(t, protocol.Answer{Result: protocol.NotMatched}, b.on(again, claim(protocol.Insert)))
	assert.Equal(t, before, b.raw("transfers", "order"))
}

// A transfer that is stored for a worker is claimed once, in its first epoch.
func TestClaimFromInitiated(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	w := b.full("order")
	result, err := b.store.InsertInitiated(t.Context(), &w.Transfer)
	require.NoError(t, err)
	require.Equal(t, protocol.Applied, result)
	initiated := bson.M{"state": "Initiated", "owner": nil, "epoch": int64(0)}
	assert.Equal(t, b.shape("order", initiated), b.stored("order", "createdAt", "lastModified"))
	result, err = b.store.InsertInitiated(t.Context(), &w.Transfer)
	require.Error(t, err)
	assert.Equal(t, protocol.NotMatched, result)
	for _, how := range []protocol.ClaimKind{protocol.TakeOver, protocol.TakeToCancel} {
		assert.Equal(t, protocol.NotMatched, b.on(w, claim(how)).Result)
	}
	assert.Equal(t, protocol.NotMatched, b.on(w, decide(protocol.Committed, 0)).Result)
	assert.Equal(t, b.shape("order", initiated), b.stored("order", "createdAt", "lastModified"))

	answer := b.on(w, claim(protocol.FromInitiated))
	assert.Equal(t, protocol.Image{Found: true, State: protocol.Preparing, Epoch: 1, Mine: true}, answer.Transfer)
	assert.Equal(t, b.shape("order", nil), b.stored("order", "createdAt", "lastModified"))
	assert.EqualValues(t, 1, w.Transfer.Epoch)
	assert.Equal(t, w.Owner, w.Transfer.Owner)
	for _, how := range []protocol.ClaimKind{protocol.FromInitiated, protocol.CancelInitiated} {
		assert.Equal(t, protocol.NotMatched, b.on(w, claim(how)).Result)
	}
	assert.Equal(t, b.shape("order", nil), b.stored("order", "createdAt", "lastModified"))
}

// A transfer that nobody has claimed is cancelled at once, with its reason.
func TestCancelInitiated(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	w := b.full("order")
	w.Describe = func(r protocol.Refusal) string { return "because: " + r.Reason.String() }
	_, err := b.store.InsertInitiated(t.Context(), &w.Transfer)
	require.NoError(t, err)
	op := claim(protocol.CancelInitiated)
	op.Refusal = protocol.Refusal{Reason: protocol.Cancelled, Participant: protocol.NoParticipant}
	answer := b.on(w, op)
	assert.Equal(t, protocol.Image{Found: true, State: protocol.Rollback, Epoch: 1, Mine: true}, answer.Transfer)
	failure := bson.M{"code": "cancelled", "ledger": "", "account": "", "message": "because: cancelled"}
	want := b.shape("order", bson.M{"state": "Rollback", "failure": failure})
	assert.Equal(t, want, b.stored("order", "createdAt", "lastModified"))
	assert.Equal(t, &document.Failure{Code: "cancelled", Message: "because: cancelled"}, w.Transfer.Failure)
	assert.Equal(t, protocol.NotMatched, b.on(w, claim(protocol.FromInitiated)).Result)
}

// Whether a transfer has stalled is for the server's clock to say. The process's clock may be off by a year.
func TestTakeOverGoesByTheServersClock(t *testing.T) {
	t.Parallel()
	for name, off := range map[string]time.Duration{"right": 0, "a year ahead": 8760 * time.Hour, "a year behind": -8760 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBank(t, func(c *config) { c.Now = func() time.Time { return time.Now().Add(off) } })
			first := b.full("order")
			require.Equal(t, protocol.Applied, b.on(first, claim(protocol.Insert)).Result)
			assert.Equal(t, b.shape("order", nil), b.stored("order", "createdAt", "lastModified"))
			w := b.full("order")
			w.Owner, w.Threshold = "second", time.Hour
			assert.False(t, b.store.LooksStalled(t.Context(), first.Transfer, time.Hour))
			assert.Equal(t, protocol.NotMatched, b.on(w, claim(protocol.TakeOver)).Result)

			w.Threshold = 0
			answer := b.on(w, claim(protocol.TakeOver))
			assert.Equal(t, protocol.Image{Found: true, State: protocol.Preparing, Epoch: 2, Mine: true}, answer.Transfer)
			want := b.shape("order", bson.M{"owner": "second", "epoch": int64(2), "attempts": int64(1)})
			assert.Equal(t, want, b.stored("order", "createdAt", "lastModified"))

			w.Threshold = time.Hour
			b.change("transfers", "order", bson.M{"$set": bson.M{"lastModified": time.Now().Add(-time.Hour + time.Minute)}})
			assert.Equal(t, protocol.NotMatched, b.on(w, claim(protocol.TakeOver)).Result)
			b.change("transfers", "order", bson.M{"$set": bson.M{"lastModified": time.Now().Add(-time.Hour - time.Second)}})
			stored, err := document.DecodeTransfer(b.raw("transfers", "order"))
			require.NoError(t, err)
			assert.True(t, b.store.LooksStalled(t.Context(), stored, time.Hour))
			answer = b.on(w, claim(protocol.TakeOver))
			assert.EqualValues(t, 3, answer.Transfer.Epoch)
			assert.EqualValues(t, 3, w.Transfer.Epoch)
			b.stored("order", "createdAt", "lastModified")
			assert.Equal(t, protocol.NotMatched, b.on(w, claim(protocol.TakeOver)).Result, "it was touched just now")
		})
	}
}

// What can be taken over, and to what end, depends on the state alone; a cancel does not wait.
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
			w := b.claimed(string(row.state)+" "+string('0'+rune(how)), b.leg("alice", -60))
			b.change("transfers", w.Transfer.ID, bson.M{"$set": bson.M{"state": row.state}})
			before := b.raw("transfers", w.Transfer.ID)
			if how == protocol.TakeToCancel {
				w.Threshold = time.Hour
			}
			answer := b.on(w, claim(how))
			if !matches {
				assert.Equal(t, protocol.Answer{Result: protocol.NotMatched}, answer, w.Transfer.ID)
				assert.Equal(t, before, b.raw("transfers", w.Transfer.ID))
				continue
			}
			image := protocol.Image{Found: true, State: row.state, Epoch: 2, Mine: true}
			assert.Equal(t, protocol.Answer{Result: protocol.Applied, Transfer: image}, answer, w.Transfer.ID)
		}
	}
}

// A work that was made from a transfer of another life, with the same ID and another payload, claims nothing.
func TestClaimRequiresTheDigest(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.claimed("order", b.leg("alice", -60))
	for state, claims := range map[protocol.State][]protocol.ClaimKind{
		protocol.Preparing: {protocol.TakeOver, protocol.TakeToCancel},
		protocol.Initiated: {protocol.FromInitiated, protocol.CancelInitiated},
	} {
		b.change("transfers", "order", bson.M{"$set": bson.M{"state": state}})
		before := b.raw("transfers", "order")
		w := b.work("order", b.leg("alice", -60))
		for _, digest := range [][]byte{nil, {}, {1}, {1, 43}} {
			w.Transfer.Digest = digest
			for _, how := range claims {
				assert.Equal(t, protocol.NotMatched, b.on(w, claim(how)).Result, "%v, %d", digest, how)
			}
		}
		assert.Equal(t, before, b.raw("transfers", "order"))
	}
}

// A decision needs the state and the epoch, and is stored once; its time only where money moves, its reason only where it doesn't.
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
		w := b.full(id)
		require.Equal(t, protocol.Applied, b.on(w, claim(protocol.Insert)).Result)
		before := b.raw("transfers", id)
		for _, epoch := range []int64{0, 2} {
			assert.Equal(t, protocol.NotMatched, b.on(w, decide(row.to, epoch)).Result)
		}
		assert.Equal(t, protocol.NotMatched, b.on(w, finish(protocol.Success)).Result)
		assert.Equal(t, protocol.NotMatched, b.on(w, finish(protocol.Fail)).Result)
		require.Equal(t, before, b.raw("transfers", id))
		op := decide(row.to, 1)
		op.Clean, op.Refusal.Participant = row.clean, 1
		b.applied(w, op)
		assert.Equal(t, row.to, w.Transfer.State)
		assert.Equal(t, b.shape(id, row.want), b.stored(id, row.times...))
		before = b.raw("transfers", id)
		for _, to := range []protocol.State{row.to, row.others} {
			assert.Equal(t, protocol.NotMatched, b.on(w, decide(to, 1)).Result, "decided twice")
		}
		assert.Equal(t, before, b.raw("transfers", id))
	}
}

// A transfer is finished once, from the state that its end belongs to, by whoever comes; it is then no longer in the index of open work.
func TestFinish(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	for decision, ends := range map[protocol.State][2]protocol.State{
		protocol.Committed: {protocol.Success, protocol.Fail}, protocol.Rollback: {protocol.Fail, protocol.Success},
	} {
		id := string(decision)
		w := b.claimed(id, b.leg("alice", -60))
		b.applied(w, decide(decision, 1))
		before := asMap(t, b.raw("transfers", id))
		other := b.work(id, b.leg("alice", -60))
		other.Owner = "another"
		assert.Equal(t, protocol.NotMatched, b.on(other, finish(ends[1])).Result)
		b.applied(other, finish(ends[0]))
		assert.Equal(t, ends[0], other.Transfer.State)
		after := asMap(t, b.raw("transfers", id))
		delete(before, "open")
		before["state"], before["lastModified"] = string(ends[0]), after["lastModified"]
		assert.Equal(t, before, after)
		for _, end := range ends {
			assert.Equal(t, protocol.NotMatched, b.on(w, finish(end)).Result)
		}
		assert.Equal(t, protocol.NotMatched, b.on(w, claim(protocol.TakeOver)).Result)
		assert.Equal(t, after, asMap(t, b.raw("transfers", id)))
	}
}

// A verify matches while the transfer is Preparing, of this epoch and this owner, and always changes the document: one that
// changed nothing
// would be answered without asking a majority.
func TestVerifyAlwaysWrites(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	w := b.claimed("order", b.leg("alice", -60))
	verify := about(protocol.Verify)
	verify.Epoch = 1
	for range 30 {
		before := b.raw("transfers", "order")
		b.log.take()
		require.Equal(t, protocol.Applied, b.on(w, verify).Result)
		modified, _ := b.log.take()[0].reply.Lookup("nModified").AsInt64OK()
		require.EqualValues(t, 1, modified)
		require.NotEqual(t, before, b.raw("transfers", "order"))
	}
	b.stored("order", "lastModified")
	assert.EqualValues(t, 30, asMap(t, b.raw("transfers", "order"))["verified"])

	before := b.raw("transfers", "order")
	wrong := verify
	wrong.Epoch = 2
	assert.Equal(t, protocol.NotMatched, b.on(w, wrong).Result)
	other := b.work("order", b.leg("alice", -60))
	other.Owner = "another"
	assert.Equal(t, protocol.NotMatched, b.on(other, verify).Result)
	assert.Equal(t, before, b.raw("transfers", "order"))
	b.applied(w, decide(protocol.Committed, 1))
	assert.Equal(t, protocol.NotMatched, b.on(w, verify).Result, "it is decided")
}

// The failure names the participant that refused as the caller knows it.
func TestFailureNamesTheParticipant(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	w := b.work("order", b.leg("alice", -60), b.legIn("eu", "bob", money.Units(60)))
	w.Describe = func(r protocol.Refusal) string { return "at " + w.participants[r.Participant].leg.Account }
	assert.Equal(t, document.Failure{Code: "overflow", Ledger: "eu", Account: "bob", Message: "at bob"},
		w.failure(protocol.Refusal{Reason: protocol.Overflow, Participant: 1}))
}
