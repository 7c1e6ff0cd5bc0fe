package main

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/cmd/transferctl/internal/tutorial"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// A plan that is out of date, because another run has converted everything meanwhile,
// changes nothing.
func TestConvertByAnOldPlan(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t).WithIndexes()
	oldBooks(t, b.DB)
	books := oldBooksOf(b.DB)
	plan, err := books.Plan(t.Context(), false)
	require.NoError(t, err)
	require.Len(t, plan.Steps, 11)
	atDesk(t, b.DB).run("convert", "--yes").done()
	for _, step := range plan.Steps {
		require.ErrorIs(t, books.End(t.Context(), step), tutorial.ErrChanged, step.ID)
	}
	requireConverted(t, b)
}

// What somebody has corrected since the plan was made is not carried out as it was
// planned, and neither is what another run has settled.
func TestConvertByAPlanBeforeACorrection(t *testing.T) {
	t.Parallel()
	for name, correct := range map[string]bson.D{
		"the value":       {{Key: "value", Value: 3}},
		"the source":      {{Key: "source", Value: "C"}},
		"the destination": {{Key: "destination", Value: "C"}},
		"the taking over": {{Key: "takenOver", Value: bson.D{{Key: "as", Value: "old:x"}, {Key: "settled", Value: true}}}},
	} {
		b := bank.NewBare(t).WithIndexes()
		oldBooks(t, b.DB)
		books := oldBooksOf(b.DB)
		plan, err := books.Plan(t.Context(), false)
		require.NoError(t, err)
		_, err = books.Transactions.UpdateMany(t.Context(), bson.D{}, bson.D{{Key: "$set", Value: correct}})
		require.NoError(t, err)
		before := b.Raw("accounts")
		for _, step := range plan.Steps {
			require.ErrorIs(t, books.End(t.Context(), step), tutorial.ErrChanged, "%s: %s", name, step.ID)
		}
		require.Equal(t, before, b.Raw("accounts"))
	}
}

// Three people convert at once. Each of them may be told that somebody else is there;
// each transaction happens once all the same.
func TestConvertTwiceAtOnce(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t).WithIndexes()
	for range 5 {
		b.Clear()
		oldBooks(t, b.DB)
		var people sync.WaitGroup
		told := make([]string, 3)
		for i := range told {
			people.Go(func() {
				var text strings.Builder
				d := atDesk(t, b.DB)
				code := run(context.WithoutCancel(t.Context()), []string{"--database", b.DB.Name(), "convert", "--yes"}, surroundings{
					in: strings.NewReader(""), out: &text, err: &text, lookup: d.variable, now: time.Now,
				})
				if code != exitDone {
					told[i] = text.String()
				}
			})
		}
		people.Wait()
		for _, text := range told {
			if text != "" {
				require.True(t, strings.Contains(text, "somebody else works on the transactions") || strings.Contains(text, "wrongTotal") ||
					strings.Contains(text, "there is a transfer old:nothing already"), text)
			}
		}
		atDesk(t, b.DB).run("convert", "--yes", "--stall-threshold", "0s").done()
		requireConverted(t, b)
	}
}

// A transfer that was asked for is not asked for again, even when the library has
// forgotten its ID.
func TestConvertAsksOnce(t *testing.T) {
	t.Parallel()
	b := bank.NewBare(t).WithIndexes()
	oldBooks(t, b.DB)
	d := atDesk(t, b.DB)
	d.run("convert", "--yes").done()
	_, err := b.DB.Collection("transfers").DeleteMany(t.Context(), bson.D{})
	require.NoError(t, err)
	d.run("convert", "--yes").done()
	require.Empty(t, b.IDs(transfer.Query{}))
	require.Equal(t, map[string]int64{"A": 10_000 - converted, "B": 10_000 + converted, "C": 5}, b.Balances())
}
