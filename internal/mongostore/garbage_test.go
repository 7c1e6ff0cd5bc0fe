package mongostore_test

import (
	"math/rand/v2"
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

// anything draws a value of any type.
func (l lottery) anything(depth int) any {
	if depth > 0 && l.odds(3) {
		if l.odds(2) {
			return bson.A{l.anything(depth - 1), l.anything(depth - 1)}
		}
		return bson.M{"ledger": "", "ns": "x", pick(l, "account", "amount", "code", "order"): l.anything(depth - 1)}
	}
	return pick[any](l, nil, bson.Null{}, "text", "Preparing", int32(5), int64(-5), 5.5, true, decimal("NaN"), decimal("12.5"),
		decimal("1E+6000"),
		bson.DateTime(5), bson.ObjectID{1}, bson.Binary{Data: []byte{1}}, bson.MinKey{}, bson.MaxKey{}, bson.Regex{Pattern: "("},
		bson.Timestamp{T: 1}, bson.Undefined{}, bson.JavaScript("x"), bson.Symbol("s"), bson.A{}, bson.M{}, "\x00")
}

// garbage draws a document with the given field names, and values of any type.
func (l lottery) garbage(names ...string) bson.Raw {
	document := bson.D{}
	for _, name := range names {
		if !l.odds(4) {
			document = append(document, bson.E{Key: name, Value: l.anything(2)})
		}
	}
	return encode(document)
}

// damaged returns a document with a few bytes changed or cut off.
func (l lottery) damaged(document bson.Raw) bson.Raw {
	damaged := append(bson.Raw{}, document...)
	for range 1 + l.IntN(4) {
		damaged[l.IntN(len(damaged))] = byte(l.IntN(256))
	}
	if l.odds(3) {
		damaged = damaged[:l.IntN(len(damaged))]
	}
	return damaged
}

// Other programs write to documents too. Whatever is stored, reading it returns a value
// or an error, and never panics.
func TestGarbageIsReadOrRefused(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	l := lottery{rand.New(rand.NewPCG(7, 7))}
	read, refused := 0, 0
	count := func(err error) {
		if err == nil {
			read++
		} else {
			refused++
		}
	}
	for range 3000 {
		transfer := l.garbage("_id", "state", "open", "legs", "currency", "digest", "epoch", "owner", "attempts", "createdAt",
			"committedAt", "failure", "metadata")
		doc := l.garbage("_id", "balance", "pending", "fence", "floor", "currency", "closed", "frozen", "metadata")
		if l.odds(4) {
			transfer, doc = l.damaged(transfer), l.damaged(doc)
		}
		decoded, err := document.DecodeTransfer(transfer)
		count(err)
		if err != nil {
			require.ErrorIs(t, err, document.ErrUnreadable)
		}
		_, err = b.Store.NewAttempt(decoded, "me")
		count(err)
		_, err = b.Store.Fields.View(doc).Account(b.Store.IDs)
		count(err)
		for _, amount := range []money.Amount{money.Units(-60), dec("60.5")} {
			a := b.Attempt("order", b.LegIn("", "alice", amount))
			facts := b.Store.FactsOf(a, a.Participant(0), doc)
			b.Store.NewMergedUpdate(&mongostore.Call{Attempt: a, Op: storetest.PrepareWith(0, facts.Fence)})
			a.Evidence(0)
		}
	}
	assert.Greater(t, read, 200)
	assert.Greater(t, refused, 200)
}

// A stored transfer reads back as it was.
func TestTransferRoundTrip(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	a := b.full("order")
	require.Equal(t, protocol.Applied, b.On(a, storetest.Claim(protocol.Insert)).Result)
	for _, op := range []protocol.Operation{storetest.Decide(protocol.Rollback, 1), storetest.Finish(protocol.Fail)} {
		b.Applied(a, op)
		read, found, err := b.Store.ReadTransfer(t.Context(), "order")
		require.NoError(t, err)
		require.True(t, found)
		if read.State == protocol.Rollback { // the server's time of the decision is not known here
			assert.WithinDuration(t, read.LastModified, a.Transfer.LastModified, time.Minute)
			read.LastModified = a.Transfer.LastModified
		}
		assert.Equal(t, a.Transfer, read)
	}
	_, found, err := b.Store.ReadTransfer(t.Context(), "other")
	require.NoError(t, err)
	assert.False(t, found)
	assert.Equal(t, &document.Failure{Code: "insufficientFunds", Account: "alice"}, a.Transfer.Failure)
}

// Fields of a wrong type make a stored transfer unreadable, and not another transfer.
func TestWrongTypesAreUnreadable(t *testing.T) {
	t.Parallel()
	leg := func(amount any) bson.A {
		return bson.A{bson.M{"ledger": "", "ns": "x.y", "account": "alice", "amount": amount}}
	}
	for name, value := range map[string]any{
		"_id": int64(5), "state": int32(1), "legs": "none", "epoch": 1.5, "digest": int64(1), "createdAt": "now",
		"owner": int64(1), "metadata": "text",
	} {
		doc := bson.M{"_id": "order", "state": "Preparing", "legs": leg(int64(5)), "epoch": int64(1), name: value}
		_, err := document.DecodeTransfer(encode(doc))
		require.ErrorIs(t, err, document.ErrUnreadable, name)
	}
	odd := bson.A{bson.M{"ledger": "", "ns": "x.y", "account": "alice", "amount": int64(5), "currency": 978}}
	_, err := document.DecodeTransfer(encode(bson.M{"_id": "order", "legs": odd}))
	require.ErrorIs(t, err, document.ErrUnreadable, "a currency that is a number")
	for _, amount := range []any{5.0, "5", nil, decimal("NaN"), decimal("Infinity"), decimal("1E+65"), true, bson.M{}, bson.A{int64(5)}} {
		_, err := document.DecodeTransfer(encode(bson.M{"_id": "order", "legs": leg(amount)}))
		require.ErrorIs(t, err, document.ErrUnreadable, "%v", amount)
	}
}
