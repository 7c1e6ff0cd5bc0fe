package mongostore_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/document"
	"github.com/mongotransfer/transfer/internal/money"
	"github.com/mongotransfer/transfer/internal/mongostore"
	"github.com/mongotransfer/transfer/internal/protocol"
	"github.com/mongotransfer/transfer/internal/storetest"
	"github.com/mongotransfer/transfer/internal/wire"
)

// largest returns the sizes of the largest command and of the largest first answer.
func largest(commands []*storetest.Command) (asked, answered int) {
	for _, c := range commands {
		asked, answered = max(asked, len(c.Body)), max(answered, len(c.Reply))
	}
	return asked, answered
}

// overhead is what the driver adds to a command, and a server to an answer.
const overhead = 4 << 10

// Looks at hundreds of documents with large IDs and requirements don't fit into one
// command.
// No command is too large for the server, and each look checks its own requirement.
func TestLargeRequirementsAreJudgedInPortions(t *testing.T) {
	t.Parallel()
	b := newShop(t)
	const orders = 512
	text := strings.Repeat("x", 60<<10)
	var (
		rs        requests
		documents []bson.M
		want      []bool
	)
	for i := range orders {
		id := fmt.Sprintf("%04d%s", i, strings.Repeat("y", 1000))
		value := bson.D{{Key: "text", Value: text}, {Key: "n", Value: i}}
		rs.add(b.changing(fmt.Sprint("t", i), b.effect(id, value, nil)), storetest.At(protocol.Look, 0))
		want = append(want, i%3 == 1)
		switch i % 3 {
		case 0:
			documents = append(documents, bson.M{"_id": id, "text": text, "n": i})
		case 1:
			documents = append(documents, bson.M{"_id": id, "text": text, "n": i + 1})
		default:
			documents = append(documents, bson.M{"_id": id, "text": text, "n": int64(i)})
		}
	}
	for some := range slices.Chunk(documents, 100) {
		b.PutIn("orders", some...)
	}
	b.Log.Take()
	require.Equal(t, all(orders, protocol.Applied), b.batch(rs))
	for i, call := range rs {
		require.Equal(t, want[i], call.Answer.Facts.Unmet, i)
	}
	commands := b.Log.Take()
	asked, _ := largest(commands)
	assert.LessOrEqual(t, asked, wire.MaxCommandBytes+overhead)
	assert.Greater(t, asked, wire.MaxCommandBytes*9/10, "they share their commands")
	explained := 0
	for _, c := range commands[1:] { // no transfer is stored, so the touch has matched nothing
		if c.Body.Lookup("projection", "text").Type != 0 { // this reads which requirements are not met, and no decision rests on it
			documents, err := c.Body.Lookup("filter", "_id", "$in").Array().Values()
			require.NoError(t, err)
			require.LessOrEqual(t, len(documents), mongostore.MaxExplained)
			explained += len(documents)
			continue
		}
		require.Equal(t, "linearizable", c.Text("readConcern", "level"))
	}
	require.Equal(t, (orders+1)/3, explained, "each of those that are refused")
}

// Large transfers are read in portions, each by a read as good as one for all, so that
// the answer comes in time.
func TestLargeTransfersAreReadInPortions(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	const size, most = 60 << 10, wire.MaxAnswerBytes / (60 << 10)
	attempts := make([]*mongostore.Attempt, 2*most+10)
	for i := range attempts {
		attempts[i] = b.Attempt(fmt.Sprint("t", i), b.Leg("alice", -60))
		attempts[i].Transfer.Metadata = encode(bson.M{"text": strings.Repeat("x", size)})
	}
	require.Equal(t, all(len(attempts), protocol.Applied), b.batch(of(storetest.Claim(protocol.Insert), attempts...)))
	b.Change("transfers", "t7", bson.M{"$set": bson.M{"state": "Rollback"}})
	for _, work := range attempts {
		work.Threshold = 0
	}
	for _, row := range []struct {
		op    protocol.Operation
		level string
		epoch int64
	}{
		{storetest.About(protocol.ReadTransfer), "majority", 1}, {storetest.About(protocol.LookTransfer), "linearizable", 1},
		{storetest.Claim(protocol.TakeOver), "majority", 2},
	} {
		rs := of(row.op, attempts...)
		b.Log.Take()
		require.Equal(t, all(len(attempts), protocol.Applied), b.batch(rs))
		for i, call := range rs {
			state := protocol.Preparing
			if i == 7 {
				state = protocol.Rollback
			}
			require.Equal(t, protocol.Image{Found: true, State: state, Epoch: row.epoch, Mine: true}, call.Answer.Transfer)
		}
		commands := b.Log.Take()
		if commands[0].Name == "update" {
			commands = commands[1:]
			for _, c := range commands {
				require.NotZero(t, c.Body.Lookup("readConcern", "afterClusterTime").Type, "after what it has changed")
			}
		}
		require.Equal(t, []string{"find", "find", "find"}, storetest.Names(commands))
		for _, c := range commands {
			require.Equal(t, row.level, c.Text("readConcern", "level"))
		}
		_, answered := largest(commands)
		require.LessOrEqual(t, answered, wire.MaxAnswerBytes+overhead)
	}
}

// If one portion has no answer, the others have theirs. A portion that was read in time
// is not read again, however much there is in total.
func TestPortionsAreAnsweredEach(t *testing.T) {
	b := newBank(t)
	const most = wire.MaxAnswerBytes / wire.ParticipantBytes
	attempts := make([]*mongostore.Attempt, most+10)
	accounts := make([]bson.M, len(attempts))
	for i := range attempts {
		id := fmt.Sprint("account ", i)
		attempts[i] = b.Attempt(fmt.Sprint("t", i), b.Leg(id, -60))
		attempts[i].Transfer.Metadata = encode(bson.M{"text": strings.Repeat("x", wire.ParticipantBytes)})
		accounts[i] = storetest.Account(id, nil)
	}
	b.Put(accounts[:len(accounts)-1]...)
	require.Equal(t, all(len(attempts), protocol.Applied), b.batch(of(storetest.Claim(protocol.Insert), attempts...)))
	data := bson.M{"failCommands": bson.A{"find"}, "appName": b.App, "errorCode": 8}
	for _, op := range []protocol.Operation{
		storetest.At(protocol.ReadFence, 0), storetest.About(protocol.ReadTransfer),
		storetest.About(protocol.LookTransfer), storetest.Claim(protocol.TakeOver),
	} {
		b.Failpoint(bson.M{"skip": 1}, data)
		rs := of(op, attempts...)
		results := b.batch(rs)
		b.Failpoint("off", bson.M{})
		read := slices.Index(results, protocol.Unknown)
		require.Positive(t, read, "%v", op)
		require.Equal(t, all(read, protocol.Applied), results[:read])
		require.Equal(t, all(len(rs)-read, protocol.Unknown), results[read:])
		for _, call := range rs[:read] {
			require.True(t, call.Answer.Facts.Found || call.Answer.Transfer.Found)
		}
		require.Error(t, rs[read].Cause)
		again := rs[read:]
		require.Equal(t, all(len(again), protocol.Applied), b.batch(again))
	}
	last := of(storetest.At(protocol.ReadFence, 0), attempts[len(attempts)-1])
	require.Equal(t, all(1, protocol.Applied), b.batch(last))
	require.False(t, last[0].Answer.Facts.Found, "what isn't there is answered, too")
}

// draw returns one of the statements that the store sends, with texts of at most most
// bytes.
func (b *bank) draw(random *rand.Rand, most int) wire.Statement {
	text := func(n int) string { return strings.Repeat("x", 1+random.IntN(n)) }
	amount := []money.Amount{money.Units(60), dec("60.000000000001")}[random.IntN(2)]
	account := func() string { return text(document.MaxIDBytes) }
	a := b.Attempt(account(), b.LegIn("", account(), amount.Neg()), b.LegIn("", account(), amount))
	a.Owner, a.Transfer.Currency = text(160), text(16)
	description := text(512)
	a.Describe = func(protocol.Refusal) string { return description }
	kinds := []protocol.Kind{protocol.Prepare, protocol.Pay, protocol.Settle, protocol.Undo, protocol.FenceOnly}
	op := storetest.At(kinds[random.IntN(len(kinds))], random.IntN(2))
	op.Fence, op.ReplaceFence = document.FenceOfToken(storetest.Fence0()), random.IntN(2) == 0
	switch random.IntN(6) {
	case 0:
		reason := document.Failure{Code: text(32), Ledger: text(64), Account: text(document.MaxIDBytes), Message: text(1 << 10)}
		return mongostore.NoteStatement(mongostore.StuckReason{Attempt: a, State: protocol.Committed}, reason)
	case 1:
		st, err := a.TakeoverStatement()
		require.NoError(b.T, err)
		return st
	case 2:
		return a.OwnershipStatement()
	case 3:
		to := []protocol.State{protocol.Committed, protocol.Rollback}[random.IntN(2)]
		return mongostore.ChangeStatement(of(storetest.Decide(to, 1), a))
	case 4:
		effect := b.effect(text(1000), bson.D{{Key: "x", Value: text(most)}}, bson.D{{Key: "y", Value: text(most)}})
		op.Participant = 0
		return b.Store.NewMergedUpdate(of(op, b.changing(a.Transfer.ID, effect))[0])
	}
	u := b.Store.NewMergedUpdate(of(op, a)[0])
	for i := range random.IntN(20) {
		other := b.Attempt(fmt.Sprint(i, text(200)), a.Transfer.Legs...)
		other.Transfer.Currency = a.Transfer.Currency
		u.Add(of(op, other)[0])
	}
	return u
}

// No command of writes exceeds the limit, unless a single statement does.
// Each statement is sent once, in its order.
func TestUpdatesAreSplitByTheirBytes(t *testing.T) {
	t.Parallel()
	b := newShop(t)
	random := rand.New(rand.NewPCG(3, 4))
	statements := make([]wire.Statement, 1000)
	for i := range statements {
		statements[i] = b.draw(random, 200<<10)
	}
	statements[500] = wire.Encoded(encode(bson.D{
		{Key: "q", Value: bson.D{}}, {Key: "u", Value: bson.D{{Key: "x", Value: strings.Repeat("x", wire.MaxCommandBytes+1)}}},
	}))
	commands := 0
	for rest := statements; len(rest) > 0; commands++ {
		m, n := wire.UpdateCommand(b.Store.Transfers, rest)
		require.Positive(t, n)
		require.True(t, n == 1 || len(m.Data) <= wire.MaxCommandBytes+overhead, "%d bytes of %d statements", len(m.Data), n)
		m.End()
		sent, err := bson.Raw(m.Data).Lookup("updates").Array().Values()
		require.NoError(t, err)
		require.Len(t, sent, n)
		for i, st := range rest[:n] {
			require.True(t, bytes.Equal(written(st), sent[i].Value))
		}
		rest = rest[n:]
	}
	require.Greater(t, commands, 2)
	require.Less(t, commands, 40)
}

// written returns a statement as it is sent.
func written(st wire.Statement) []byte {
	m := wire.NewMessage(0)
	st.Write(m)
	m.End()
	return m.Data
}

// The estimated size of a statement, and of a requirement, is not too small.
// A small estimate of the one costs time, and of the other makes a command too large.
func TestSizesAreNotTooSmall(t *testing.T) {
	t.Parallel()
	b := newShop(t)
	random := rand.New(rand.NewPCG(5, 6))
	for range 2000 {
		st := b.draw(random, 1000)
		if _, whole := st.(wire.Encoded); !whole {
			require.GreaterOrEqual(t, st.Size(), len(written(st)), "%T", st)
		}
	}
	for n := range 100 {
		var legs []document.Leg
		for range n {
			legs = append(legs, b.Leg(strings.Repeat("x", 1+random.IntN(document.MaxIDBytes)), 1<<40))
		}
		require := make(bson.D, n)
		for i := range require {
			require[i] = bson.E{Key: strings.Repeat("y", i+1), Value: bson.Null{}}
		}
		e := b.effect(strings.Repeat("x", 1+random.IntN(1000)), require, require)
		tr := document.Transfer{ID: "t", Legs: legs, Effects: []document.Effect{e, e}, Metadata: e.Set}
		assert.GreaterOrEqual(t, tr.Size(), len(tr.Encode()))
		a := b.changing("t", e)
		wanted := encode(bson.D{{Key: "$or", Value: bson.A{a.Participant(0).Requirement()}}})
		assert.GreaterOrEqual(t, mongostore.RequirementBytes(of(storetest.At(protocol.Look, 0), a)[0]), len(wanted))
	}
}
