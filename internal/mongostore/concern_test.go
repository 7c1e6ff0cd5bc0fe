package mongostore_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/mongotransfer/transfer/internal/accounts"
	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/queries"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// everyOperation makes the store perform all that it can.
func (b *bank) everyOperation(ctx context.Context) {
	b.T.Helper()
	t, s := b.T, b.Store
	require.NoError(t, s.Setup(ctx))
	token := bson.NewObjectID()
	for _, id := range []string{"alice", "bob"} {
		result, err := s.Open(ctx, "", document.Account{ID: id, Balance: money.Units(100)}, token)
		require.NoError(t, err)
		require.Equal(t, protocol.Applied, result)
	}
	result, err := s.Open(ctx, "eu", document.Account{ID: "carol", Balance: money.Units(0)}, token)
	require.NoError(t, err)
	require.Equal(t, protocol.Applied, result)
	fence := document.FenceOfToken(token)
	for _, closed := range []bool{true, false} {
		token := bson.NewObjectID()
		_, result, err = s.Change(ctx, "eu", "carol", fence, accounts.Change{Closed: &closed}, token)
		require.NoError(t, err)
		require.Equal(t, protocol.Applied, result)
		fence = document.FenceOfToken(token)
	}
	_, err = s.Status(ctx, "", "alice")
	require.NoError(t, err)
	_, _, err = s.Get(ctx, "", "alice")
	require.NoError(t, err)
	stream, err := s.Watch(ctx)
	require.NoError(t, err)
	_, err = stream.Next(ctx)
	require.NoError(t, err)
	stream.Close(ctx)
	_, err = s.ReadTransfers(ctx, []string{"order", "another"})
	require.NoError(t, err)
	_, err = s.Fingerprints(ctx, []string{"order", "another"})
	require.NoError(t, err)
	_, err = s.WhichExist(ctx, []string{"order", "another"})
	require.NoError(t, err)

	b.everyTransfer(ctx)
	_, _, err = s.ReadTransfer(ctx, "Success")
	require.NoError(t, err)
	for _, err := range s.List(ctx, queries.Query{Account: "alice"}) {
		require.NoError(t, err)
	}
	for _, err := range s.Stalled(ctx, 0) {
		require.NoError(t, err)
	}
}

// everyTransfer makes the store perform every operation of the protocol, for transfers
// from alice to bob and carol.
func (b *bank) everyTransfer(ctx context.Context) {
	b.T.Helper()
	t, s := b.T, b.Store
	perform := func(a *mongostore.Attempt, operations ...protocol.Operation) []protocol.Answer {
		answers := storetest.Perform(ctx, s, a, operations...)
		for i, answer := range answers {
			require.Equal(t, protocol.Applied, answer.Result, "%+v: %v", operations[i], a.Cause)
		}
		return answers
	}
	legs := []document.Leg{b.Leg("alice", -60), b.Leg("bob", 20), b.LegIn("eu", "carol", money.Units(40))}
	verify := storetest.About(protocol.Verify)
	verify.Epoch = 1
	for _, ending := range []protocol.State{protocol.Fail, protocol.Success} {
		id := string(ending)
		a := b.Attempt(id, legs...)
		_, err := s.InsertInitiated(ctx, &a.Transfer)
		require.NoError(t, err)
		for _, err := range s.Initiated(ctx, 0) {
			require.NoError(t, err)
		}
		perform(a, storetest.Claim(protocol.FromInitiated))
		perform(a, verify)
		read := perform(a, storetest.At(protocol.ReadFence, 0), storetest.At(protocol.ReadFence, 1), storetest.At(protocol.ReadFence, 2))
		perform(a, storetest.PrepareWith(0, read[0].Facts.Fence), storetest.PrepareWith(1, read[1].Facts.Fence),
			storetest.PrepareWith(2, read[2].Facts.Fence))
		perform(a, storetest.At(protocol.Look, 0), storetest.At(protocol.Look, 2))
		_, _, err = s.Get(ctx, "", "alice") // with a debit in flight
		require.NoError(t, err)
		perform(a, storetest.Claim(protocol.TakeToCancel))
		perform(a, storetest.About(protocol.ReadTransfer))
		perform(a, storetest.About(protocol.LookTransfer))
		if ending == protocol.Success {
			perform(a, storetest.At(protocol.Pay, 1))
			perform(a, storetest.Decide(protocol.Committed, 2))
			perform(a, storetest.At(protocol.Settle, 0), storetest.At(protocol.Clear, 1), storetest.At(protocol.Settle, 2))
		} else {
			perform(a, storetest.Decide(protocol.Rollback, 2))
			perform(a, storetest.At(protocol.Undo, 0), storetest.At(protocol.Undo, 1), storetest.At(protocol.Undo, 2))
			perform(a, storetest.At(protocol.FenceOnly, 0))
			perform(a, storetest.Claim(protocol.TakeOver))
		}
		perform(a, storetest.Finish(ending))
		overtaken := b.Attempt(id, legs...)
		perform(overtaken, storetest.At(protocol.Look, 1))
	}
	perform(b.Attempt("third", legs...), storetest.Claim(protocol.Insert))
	fourth := b.Attempt("fourth", legs...)
	_, err := s.InsertInitiated(ctx, &fourth.Transfer)
	require.NoError(t, err)
	perform(fourth, storetest.Claim(protocol.CancelInitiated))
}

// Every write asks for a journaled majority, and every read for what a majority has
// stored or more, whatever the client's settings are.
// An account is read together with the transfers of its debits, as a majority had stored
// both at one time.
// No write is a retryable one, which the driver would send twice.
func TestConcernsAreTheStoresOwn(t *testing.T) {
	t.Parallel()
	journaled := false
	for name, client := range map[string]*options.ClientOptions{
		"w: 1":         options.Client().SetWriteConcern(writeconcern.W1()).SetReadConcern(readconcern.Local()),
		"w: 0":         options.Client().SetWriteConcern(writeconcern.Unacknowledged()).SetReadConcern(readconcern.Available()),
		"j: false":     options.Client().SetWriteConcern(&writeconcern.WriteConcern{W: "majority", Journal: &journaled}),
		"secondaries":  options.Client().SetReadPreference(readpref.SecondaryPreferred()).SetRetryWrites(true),
		"linearizable": options.Client().SetReadConcern(readconcern.Linearizable()),
		"strict API":   options.Client().SetServerAPIOptions(options.ServerAPI(options.ServerAPIVersion1).SetStrict(true)),
		"small integers": options.Client().SetBSONOptions(&options.BSONOptions{IntMinSize: true, OmitEmpty: true,
			NilSliceAsEmpty: true, UseJSONStructTags: true}),
		"default document": options.Client().SetBSONOptions(&options.BSONOptions{DefaultDocumentM: true, ObjectIDAsHexString: true}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBankOf(t, client)
			b.everyOperation(t.Context())
			commands := b.Log.Take()
			b.checkConcerns(commands)
			for id, balance := range map[string]int64{"alice": 40, "bob": 120} {
				stored := storetest.AsMap(t, b.Raw("accounts", id))
				assert.NotNil(t, stored["fence"])
				delete(stored, "fence")
				assert.Equal(t, bson.M{"_id": id, "balance": balance, "pending": bson.M{}}, stored)
			}
		})
	}
}

// primaryModes returns the read preferences of a command to the primary.
// On a direct connection, as to a container, the driver itself writes primaryPreferred
// for primary.
func primaryModes() []string {
	modes := []string{"", "primary"}
	if strings.Contains(mongotest.URI(), "directConnection=true") {
		modes = append(modes, "primaryPreferred")
	}
	return modes
}

func (b *bank) checkConcerns(commands []*storetest.Command) {
	b.T.Helper()
	levels := map[string]int{}
	for _, c := range commands {
		if db := c.Text("$db"); db != b.DB.Name() {
			continue
		}
		_, err := c.Body.LookupErr("txnNumber")
		require.Error(b.T, err, "%s carries a transaction number: %s", c.Name, c.Body)
		mode := c.Text("$readPreference", "mode")
		assert.Contains(b.T, primaryModes(), mode, "%s", c.Body)
		switch c.Name {
		case "insert", "update", "findAndModify", "delete":
			concern, _ := c.Body.Lookup("writeConcern").DocumentOK()
			assert.Equal(b.T, encode(bson.D{{Key: "w", Value: "majority"}, {Key: "j", Value: true}}), concern, "%s", c.Body)
		case "create", "createIndexes":
			w, isNumber := c.Body.Lookup("writeConcern", "w").AsInt64OK()
			assert.False(b.T, isNumber && w == 0, "whether it failed is not known: %s", c.Body)
		case "find", "aggregate":
			level := c.Text("readConcern", "level")
			if level == "snapshot" {
				b.checkSnapshot(c, levels)
			} else {
				assert.Contains(b.T, []string{"majority", "linearizable"}, level, "%s", c.Body)
			}
			levels[level]++
		}
	}
	// A look at a transfer, at several existing ones, at an account, and one by an
	// attempt that is not the owner, in both lives; and the tries of Setup.
	assert.Equal(b.T, 7, levels["linearizable"])
	// An account without debits, and in both lives one with a debit, and its transfer.
	assert.Equal(b.T, 5, levels["snapshot"])
	assert.Greater(b.T, levels["majority"], 10)
	for _, name := range []string{"insert", "update", "findAndModify", "find", "aggregate"} {
		assert.Contains(b.T, storetest.Names(commands), name)
	}
}

// checkSnapshot checks a read of what is stored at one time: of an account, or of the
// transfers of its debits, at the time of the read of the account, which comes before.
func (b *bank) checkSnapshot(c *storetest.Command, levels map[string]int) {
	b.T.Helper()
	require.Equal(b.T, "find", c.Name)
	_, _, given := c.Body.Lookup("readConcern", "atClusterTime").TimestampOK()
	from, second := c.Text("find"), levels["snapshot"] > 0 && levels["snapshot"]%2 == 0
	assert.Equal(b.T, second, given, "%s", c.Body)
	if second {
		assert.Equal(b.T, "transfers", from)
	} else {
		assert.Equal(b.T, "accounts", from)
	}
}

// The store doesn't use a caller's transaction.
// Its writes stay when the caller aborts, and it sees what is outside of the transaction.
func TestCallersTransactionIsNotUsed(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	b.PutIn("notes", bson.M{"_id": "made before"})
	client := b.Store.Transfers.Database().Client()
	session, err := client.StartSession()
	require.NoError(t, err)
	defer session.EndSession(t.Context())
	require.NoError(t, session.StartTransaction())
	inTransaction := mongo.NewSessionContext(t.Context(), session)
	notes := b.Store.Transfers.Database().Collection("notes")
	_, err = notes.InsertOne(inTransaction, bson.M{"_id": "aborted"})
	require.NoError(t, err)
	b.Log.Take()

	b.everyOperation(inTransaction)

	commands := b.Log.Take()
	require.NotEmpty(t, commands)
	for _, c := range commands {
		id, _ := c.Body.Lookup("lsid").DocumentOK()
		assert.NotEqual(t, session.ID(), id, "%s is sent in the caller's session", c.Name)
		_, err := c.Body.LookupErr("autocommit")
		require.Error(t, err)
	}
	require.NoError(t, session.AbortTransaction(t.Context()))
	assert.Nil(t, b.Raw("notes", "aborted"))
	assert.Equal(t, "Success", b.Raw("transfers", "Success").Lookup("state").StringValue())
	assert.Equal(t, "Fail", b.Raw("transfers", "Fail").Lookup("state").StringValue())
	for id, balance := range map[string]int64{"alice": 40, "bob": 120} {
		stored := storetest.AsMap(t, b.Raw("accounts", id))
		assert.Equal(t, balance, stored["balance"])
		assert.Equal(t, bson.M{}, stored["pending"])
	}
	assert.True(t, slices.Contains(storetest.Names(commands), "createIndexes"))
}
