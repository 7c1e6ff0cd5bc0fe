package transfer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/mongotest"
)

// answerLimit is how long a call on a healthy server may take before the test takes it for hanging.
const answerLimit = 20 * time.Second

// vault is a database whose documents are stored by hand.
type vault struct {
	db    *mongo.Database
	count atomic.Int64 // of names
}

func newVault(f *testing.F) *vault {
	f.Helper()
	v := &vault{db: mongotest.Database(f)}
	c, err := NewCoordinator(v.db)
	require.NoError(f, err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.NoError(f, c.Setup(ctx))
	return v
}

// coordinator returns one that knows nothing of earlier inputs, and stops working when the input is done with.
func (v *vault) coordinator(t *testing.T, opts ...Option) *Coordinator {
	t.Helper()
	c, err := NewCoordinator(v.db, opts...)
	require.NoError(t, err)
	t.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		_ = c.Close(now)
	})
	return c
}

// name returns an ID that no document of this database has.
func (v *vault) name(kind string) string { return fmt.Sprintf("%s-%d", kind, v.count.Add(1)) }

// store stores a document until the input is done with, and reports whether the server took it.
func (v *vault) store(t *testing.T, collection string, document bson.D) bool {
	t.Helper()
	c := v.db.Collection(collection)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), answerLimit)
		defer cancel()
		_, err := c.DeleteOne(ctx, bson.D{document[0]})
		require.NoError(t, err)
	})
	_, err := c.InsertOne(t.Context(), document)
	return err == nil
}

func (v *vault) raw(t *testing.T, collection, id string) bson.Raw {
	t.Helper()
	document, err := v.db.Collection(collection).FindOne(t.Context(), bson.D{{Key: "_id", Value: id}}).Raw()
	require.NoError(t, err)
	return document
}

// storedAccount draws an account's document: each field sane, missing, a number, or anything.
func (d *dice) storedAccount(id string, kind money.Kind, currency string) bson.D {
	document := bson.D{{Key: "_id", Value: id}}
	balances := []any{int64(1000), int32(1000), int64(1) << 49}
	if kind == money.Decimal {
		balances = []any{decimalOf("1000.00"), decimalOf("1E+3"), decimalOf("2000000000000000000"),
			decimalOf("999999999999999999.9999999999999999")} // of which some sums are rounded
	}
	for _, field := range []struct {
		name string
		sane any
	}{
		{"balance", choose(d, balances...)}, {"pending", bson.D{}}, {"fence", bson.ObjectID{7}}, {"floor", int64(0)},
		{"currency", currency}, {"closed", false},
	} {
		value := field.sane
		switch d.roll(8) {
		case 4:
			continue
		case 5:
			value = d.number()
		case 6, 7:
			value = d.value(2)
		}
		document = append(document, bson.E{Key: field.name, Value: value})
	}
	return document
}

// richAccount returns an account from which any amount of a kind can be taken, and which has room for any.
func richAccount(id string, kind money.Kind, currency string) bson.D {
	document := bson.D{{Key: "_id", Value: id}, {Key: "balance", Value: int64(1) << 50}, {Key: "floor", Value: bson.MinKey{}}}
	if kind == money.Decimal {
		document[1].Value = decimalOf("5000000000000000000.000000000001")
	}
	if currency != "" {
		document = append(document, bson.E{Key: "currency", Value: currency})
	}
	return document
}

// exactBalance reads a stored balance, which has to be an amount.
func exactBalance(t *testing.T, document bson.Raw) *big.Rat {
	t.Helper()
	amount, err := money.FromBSON(document.Lookup("balance"))
	require.NoError(t, err, "the balance of %s", document)
	return exactly(t, Amount{amount})
}

// rest returns a document without its fence, without an empty map of markers, and without the named fields.
func rest(t *testing.T, document bson.Raw, without ...string) bson.D {
	t.Helper()
	elements, err := document.Elements()
	require.NoError(t, err)
	var kept bson.D
	for _, e := range elements {
		pending, isMap := e.Value().DocumentOK()
		noMarkers := e.Key() == "pending" && isMap && len(pending) == 5
		if e.Key() == "fence" || noMarkers || len(without) > 0 && e.Key() == without[0] {
			continue
		}
		kept = append(kept, bson.E{Key: e.Key(), Value: e.Value()})
	}
	return kept
}

// Whatever is stored in an account, a transfer with it moves exactly its amount, or is refused and leaves the document as it was. It
// always comes to an end, and it never leaves a marker.
func FuzzStoredAccount(f *testing.F) {
	v := newVault(f)
	f.Add([]byte{})
	for field := range 6 {
		for kind := range byte(8) {
			for amount := range byte(2) {
				input := []byte{2 * amount, 0, kind % 3, 0, 0, 0, 0, 0, 0}
				input[3+field] = 7
				f.Add(append(input[:4+field], kind, kind+amount, kind, amount, 3, 5))
			}
		}
	}
	for amount := range byte(6) {
		f.Add([]byte{amount, 0, 3, 0, 0, 0, 0, 0, 0, 0}) // first out of the longest decimal
		f.Add([]byte{amount, 0, 3, 0, 0, 0, 0, 0, 0, 1}) // first into it
	}
	tooLong := []byte{2, 0, 0, 5, 4} // the server takes a coefficient of 35 digits for zero
	tooLong = binary.LittleEndian.AppendUint64(tooLong, (6176-20)<<49|0x1ed09bead87c0)
	f.Add(binary.LittleEndian.AppendUint64(tooLong, 0x378d8e6400000000))
	f.Fuzz(func(t *testing.T, data []byte) {
		d := (*dice)(&data)
		amount := choose(d, Units(60), Units(1<<48), Amount{money.Units(60).Decimal()}, Amount{money.Max(money.Decimal)},
			Units(1), leastDecimal(t))
		currency := choose(d, "", "", "EUR")
		odd, rich := v.name("odd"), v.name("rich")
		if !v.store(t, "accounts", d.storedAccount(odd, amount.exact.Kind(), currency)) {
			return
		}
		require.True(t, v.store(t, "accounts", richAccount(rich, amount.exact.Kind(), currency)))
		c := v.coordinator(t)
		ways := [][2]string{{odd, rich}, {rich, odd}}
		if d.roll(2) == 1 {
			slices.Reverse(ways)
		}
		for _, way := range ways {
			req := Request{ID: v.name("transfer"), From: way[0], To: way[1], Amount: amount, Currency: currency}
			v.requireTrueAnswer(t, c, req, odd)
		}
	})
}

func leastDecimal(t *testing.T) Amount {
	t.Helper()
	least, err := ParseDecimal("0.000000000001")
	require.NoError(t, err)
	return least
}

// requireTrueAnswer runs a transfer and requires that the documents say what its answer says.
func (v *vault) requireTrueAnswer(t *testing.T, c *Coordinator, req Request, odd string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), answerLimit)
	defer cancel()
	before := map[string]bson.Raw{req.From: v.raw(t, "accounts", req.From), req.To: v.raw(t, "accounts", req.To)}
	rec, err := c.Transfer(ctx, req)
	var refused *RefusedError
	if !errors.As(err, &refused) {
		require.NoError(t, err, "%s", before[odd])
		require.Equal(t, StateSuccess, rec.State)
	} else {
		require.Equal(t, StateFail, rec.State)
		require.Equal(t, odd, refused.Account)
	}
	t.Logf("%s: %v", before[odd], err)
	moved := exactly(t, req.Amount)
	for id, sign := range map[string]int64{req.From: -1, req.To: 1} {
		after := v.raw(t, "accounts", id)
		if refused != nil {
			require.Equal(t, rest(t, before[id], "balance"), rest(t, after, "balance"), "%v", err)
			if id == odd {
				require.Equal(t, before[id].Lookup("balance"), after.Lookup("balance"))
				continue
			}
			moved = new(big.Rat)
		}
		change := new(big.Rat).Sub(exactBalance(t, after), exactBalance(t, before[id]))
		require.Zero(t, change.Cmp(new(big.Rat).Mul(moved, big.NewRat(sign, 1))), "%s became %s: %v", before[id], after, err)
		require.Equal(t, rest(t, before[id], "balance"), rest(t, after, "balance"))
	}
}
