package upgrade

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// verbs are calls of a process that does not set up the deployment.
func verbs(c *transfer.Coordinator) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Check":    c.Check,
		"Adopt":    c.Adopt,
		"Run":      c.Run,
		"Recover":  func(ctx context.Context) error { _, err := c.Recover(ctx); return err },
		"Transfer": func(ctx context.Context) error { _, err := c.Transfer(ctx, bank.Move("t", "a", "b", 1)); return err },
		"Again": func(ctx context.Context) error {
			_, err := c.Transfer(ctx, bank.Move("plain-3", "a", "b", 1))
			return err
		},
		"Submit": func(ctx context.Context) error { _, err := c.Submit(ctx, bank.Move("t", "a", "b", 1)); return err },
		"Post":   func(ctx context.Context) error { _, err := c.Post(ctx, "hold-clean"); return err },
		"Cancel": func(ctx context.Context) error { _, err := c.Cancel(ctx, "plain-3", "no"); return err },
		"Reverse": func(ctx context.Context) error {
			_, err := c.Reverse(ctx, transfer.Reversal{ID: "back", Of: "plain-7", All: true})
			return err
		},
		"OpenAccount": func(ctx context.Context) error { _, err := c.OpenAccount(ctx, transfer.Account{ID: "z"}); return err },
		"Audit":       func(ctx context.Context) error { _, err := c.Audit(ctx); return err },
		"BalanceAt":   func(ctx context.Context) error { _, err := c.BalanceAt(ctx, "a", time.Now()); return err },
	}
}

// Nothing but Setup goes on with a deployment of the earlier release: processes of that
// release may be at work.
// Setup raises the format of each note, and changes nothing else.
func TestOnlySetupRaisesTheFormat(t *testing.T) {
	t.Parallel()
	b := newEarlier(t)
	before := b.Contents()
	for verb, call := range verbs(b.NewCoordinator(b.DB, rooms(b.DB)...)) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err := call(ctx)
		cancel()
		require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment, verb)
		require.NotErrorIs(t, err, transfer.ErrInDoubt, verb)
		require.ErrorContains(t, err, "this release writes format 2, and "+b.DB.Name()+".", verb)
		require.ErrorContains(t, err, "was set up in format 1: stop all processes of the earlier release", verb)
		require.ErrorContains(t, err, "run Setup once", verb)
	}
	require.Equal(t, before, b.Contents())

	require.NoError(t, b.Setup(t.Context()))
	for collection, format := range formats(b) {
		require.EqualValues(t, 2, format, collection)
		b.Change(collection, "deployment", bson.M{"$set": bson.M{"format": int64(1)}, "$inc": bson.M{"changes": -1}})
	}
	require.Equal(t, before, b.Contents())

	require.NoError(t, b.Setup(t.Context()))
	raised := b.Contents()
	require.NoError(t, b.Setup(t.Context()))
	require.Equal(t, raised, b.Contents(), "it is raised")
	c := b.NewCoordinator(b.DB, rooms(b.DB)...)
	require.NoError(t, c.Check(t.Context()))
	_, err := c.Transfer(t.Context(), bank.Move("new", "a", "b", 1))
	require.NoError(t, err)
	require.NotZero(t, subtype(b, "new"), "what is stored now, the earlier release can't read")
}

// A Setup that refuses one of the collections, for whatever reason, raises no note.
func TestRefusedSetupRaisesNothing(t *testing.T) {
	t.Parallel()
	b := newEarlier(t)
	before := b.Contents()
	for name, opt := range map[string]transfer.Option{
		"another field":       transfer.WithFields(transfer.Fields{Pending: "reserved"}),
		"another kind":        transfer.WithLedger("papers", b.DB.Collection("orders")),
		"other transfers":     transfer.WithTransfers(b.DB.Collection("payments")),
		"another form of IDs": transfer.WithAccountIDs(transfer.ObjectIDs),
	} {
		opts := rooms(b.DB)
		if name == "another kind" {
			opts = bank.Mirror(b.DB)
		}
		c := b.NewCoordinator(b.DB, append(opts, opt)...)
		require.ErrorIs(t, c.Setup(t.Context()), transfer.ErrUnsupportedDeployment, name)
		_, err := c.Recover(t.Context())
		require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment, name)
		require.Equal(t, before, b.Contents(), name)
	}
	b.Change("mirror.transfer", "deployment", bson.M{"$set": bson.M{"events": true}})
	require.ErrorContains(t, b.NewCoordinator(b.DB, rooms(b.DB)...).Setup(t.Context()), "that this release does not know")
	b.Change("mirror.transfer", "deployment", bson.M{"$set": bson.M{"format": int64(0)}, "$unset": bson.M{"events": ""}})
	require.ErrorContains(t, b.NewCoordinator(b.DB, rooms(b.DB)...).Setup(t.Context()), "set up in format 0: use an earlier release")
	for collection, format := range formats(b) {
		require.LessOrEqual(t, format, int64(1), collection)
	}
}

// A process that ends in the middle of Setup leaves notes of both formats, which the next
// Setup raises.
// Until then a collection whose note was not raised is refused.
func TestSetupThatWasCutShort(t *testing.T) {
	t.Parallel()
	b := newEarlier(t)
	b.Change("transfers.transfer", "deployment", bson.M{"$set": bson.M{"format": int64(2)}})
	c := b.NewCoordinator(b.DB, rooms(b.DB)...)
	_, err := c.Transfer(t.Context(), bank.Move("t", "a", "b", 1))
	require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment)
	require.NoError(t, c.Setup(t.Context()))
	_, err = c.Transfer(t.Context(), bank.Move("t", "a", "b", 1))
	require.NoError(t, err)
}

// Many processes may call Setup at once.
func TestSetupsAtOnce(t *testing.T) {
	t.Parallel()
	b := newEarlier(t)
	var all sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		c := b.NewCoordinator(b.DB, rooms(b.DB)...)
		all.Go(func() { errs[i] = c.Setup(t.Context()) })
	}
	all.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	for collection, format := range formats(b) {
		require.EqualValues(t, 2, format, collection)
	}
}

// A Setup that fails after it has read the notes leaves them as they are, and the same
// process is refused as before.
func TestFailedSetupRaisesNothing(t *testing.T) {
	t.Parallel()
	b := newEarlier(t)
	index := mongo.IndexModel{Keys: bson.M{"other": 1}, Options: options.Index().SetName("unfinished")}
	_, err := b.DB.Collection("transfers").Indexes().CreateOne(t.Context(), index)
	require.NoError(t, err)
	before := b.Contents()
	require.ErrorIs(t, b.Setup(t.Context()), transfer.ErrUnsupportedDeployment)
	_, err = b.Transfer(t.Context(), bank.Move("t", "a", "b", 1))
	require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment)
	require.ErrorContains(t, err, "was set up in format 1")
	require.Equal(t, before, b.Contents())
}

// Between the moment at which Setup reads a note and that at which it raises it, another
// process raises it: to the same format, or to one of a later release, which stays.
func TestSetupComesSecond(t *testing.T) {
	t.Parallel()
	for format, late := range map[int64]bool{2: false, 3: true} {
		b := newEarlier(t)
		w := &bank.Wire{At: 0, Of: func(command string) bool { return command == "findAndModify" }}
		w.OnStrike = func() {
			b.Change("transfers.transfer", "deployment", bson.M{"$set": bson.M{"format": format}})
		}
		db := b.Through(w.Client())
		err := b.NewCoordinator(db, rooms(db)...).Setup(t.Context())
		require.True(t, w.HasStruck())
		require.Equal(t, format, formats(b)["transfers.transfer"])
		if late {
			require.ErrorIs(t, err, transfer.ErrUnsupportedDeployment)
			require.ErrorContains(t, err, "was set up in format 3: use a later release")
			require.EqualValues(t, 1, formats(b)["accounts.transfer"], "it goes no further")
			continue
		}
		require.NoError(t, err)
	}
}
