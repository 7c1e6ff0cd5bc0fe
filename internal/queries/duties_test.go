package queries_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer/internal/liveness"
	"github.com/mongotransfer/transfer/internal/queries"
	"github.com/mongotransfer/transfer/internal/storetest"
)

// quietFor is how long a transfer in progress was not modified in these tests.
const quietFor = 5 * time.Minute

// work returns an unfinished transfer, with changes.
func work(id string, changes bson.M) bson.M {
	t := bson.M{
		"_id": id, "state": "Preparing", "open": true, "epoch": int64(1), "owner": "process-" + id + "-x",
		"createdAt": time.Now(), "lastModified": time.Now(), "legs": bson.A{},
	}
	maps.Copy(t, changes)
	return t
}

// inProgress are the fields of a transfer that nobody has touched for longer than that.
func inProgress() bson.M {
	long := time.Now().Add(-time.Hour)
	return bson.M{"createdAt": long, "lastModified": long}
}

// with returns fields and some more.
func with(fields, more bson.M) bson.M {
	all := maps.Clone(fields)
	maps.Copy(all, more)
	return all
}

// An idle worker learns by one question which kinds of work there are, and of none where
// there is nothing to do.
func TestDuties(t *testing.T) {
	t.Parallel()
	later, before := time.Now().Add(time.Hour), time.Now().Add(-time.Minute)
	submitted := bson.M{"state": "Initiated", "epoch": int64(0)}
	held := bson.M{"hold": true, "held": true, "expiresAt": later}
	for name, row := range map[string]struct {
		fields bson.M
		want   []queries.Duty
	}{
		"submitted":             {submitted, []queries.Duty{queries.Submitted}},
		"due":                   {with(submitted, bson.M{"notBefore": before}), []queries.Duty{queries.Submitted}},
		"scheduled for later":   {with(submitted, bson.M{"notBefore": later}), nil},
		"expired":               {with(held, bson.M{"expiresAt": before}), []queries.Duty{queries.Expired}},
		"held":                  {with(held, inProgress()), nil},
		"quiet":                 {inProgress(), []queries.Duty{queries.Quiet}},
		"quiet and committed":   {with(inProgress(), bson.M{"state": "Committed"}), []queries.Duty{queries.Quiet}},
		"a posted hold":         {with(inProgress(), bson.M{"hold": true, "state": "Committed"}), []queries.Duty{queries.Quiet}},
		"in progress":           {bson.M{}, nil},
		"modified":              {with(inProgress(), bson.M{"lastModified": time.Now()}), nil},
		"stuck":                 {with(inProgress(), bson.M{"stuck": bson.M{"code": "unwritable"}}), nil},
		"taken over thrice":     {with(inProgress(), bson.M{"attempts": int64(3)}), []queries.Duty{queries.Quiet}},
		"taken over ever again": {with(inProgress(), bson.M{"attempts": int64(4)}), nil},
		"final":                 {with(inProgress(), bson.M{"state": "Success", "open": false}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := storetest.New(t)
			require.NoError(t, b.Store.Setup(t.Context()))
			b.PutIn("transfers", work("t", row.fields))
			duties, err := b.Store.Duties(t.Context(), quietFor)
			require.NoError(t, err)
			require.Equal(t, row.want, duties)
			owners, err := b.Store.QuietOwners(t.Context(), quietFor, 10)
			require.NoError(t, err)
			abandoned := idsOf(b, b.Store.Abandoned(t.Context(), []string{"process-t-"}, quietFor))
			if len(row.want) > 0 && row.want[0] == queries.Quiet {
				require.Equal(t, []string{"process-t-x"}, owners)
				require.Equal(t, []string{"t"}, abandoned)
				require.Empty(t, idsOf(b, b.Store.Abandoned(t.Context(), []string{"process-"}, 24*time.Hour)))
				require.Empty(t, idsOf(b, b.Store.Abandoned(t.Context(), []string{"other-", "process-t-y"}, quietFor)))
			} else {
				require.Empty(t, owners)
				require.Empty(t, abandoned)
			}
		})
	}
}

// However many transfers a process has left, one owner of it is returned, and however odd
// others are, they keep nobody from being found.
// No more than a number of transfers is gone through.
func TestQuietOwners(t *testing.T) {
	t.Parallel()
	b := storetest.New(t)
	ownedBy := func(id string, owner any) bson.M { return work(id, with(inProgress(), bson.M{"owner": owner})) }
	for i, owner := range []any{"one-host-1-P-X", "one-host-1-P-Y", "one-host-1-P-Z", "one-host-1-Q-X", "Ünicode-P-X"} {
		b.PutIn("transfers", ownedBy(fmt.Sprint(i), owner))
	}
	found := func(most int) (processes []string) {
		owners, err := b.Store.QuietOwners(t.Context(), quietFor, most)
		require.NoError(t, err)
		for _, owner := range owners {
			processes = append(processes, liveness.ProcessOf(owner))
		}
		slices.Sort(processes)
		return processes
	}
	all := []string{"one-host-1-P", "one-host-1-Q", "Ünicode-P"}
	require.Equal(t, all, found(5))
	require.NotEqual(t, all, found(2))
	for i, odd := range []any{"", "-", "odd", "-odd", "odd-", "\xff-\xfe\xff-X", nil, 7, bson.A{"a-b"}, bson.M{"a": "b-c"}} {
		b.PutIn("transfers", ownedBy(fmt.Sprint("odd", i), odd))
	}
	require.Equal(t, []string{"", "", "odd", "one-host-1-P", "one-host-1-Q", "Ünicode-P", "\xff-\xfe\xff"}, found(100))
}

// The question reads next to nothing, however many transfers are scheduled, held or in
// progress.
func TestDutiesReadLittle(t *testing.T) {
	t.Parallel()
	const each = 1000
	b := storetest.New(t)
	require.NoError(t, b.Store.Setup(t.Context()))
	var all []bson.M
	for i := range each {
		later := time.Now().Add(time.Hour)
		all = append(all,
			work(fmt.Sprint("later", i), bson.M{"state": "Initiated", "epoch": int64(0), "notBefore": later}),
			work(fmt.Sprint("held", i), with(inProgress(), bson.M{"hold": true, "held": true, "expiresAt": later})),
			work(fmt.Sprint("fresh", i), nil),
			work(fmt.Sprint("final", i), bson.M{"state": "Success", "open": nil}),
		)
	}
	b.PutIn("transfers", all...)
	b.Log.Take()
	duties, err := b.Store.Duties(t.Context(), quietFor)
	require.NoError(t, err)
	require.Empty(t, duties)
	searches, documents := examinedBy(b)
	require.Positive(t, searches)
	require.LessOrEqual(t, documents, int64(10))
	_, err = b.Store.QuietOwners(t.Context(), quietFor, 100)
	require.NoError(t, err)
	examinedBy(b)
}

// examinedBy returns how many searches the latest command has made, which is an
// aggregation, and how many documents they have examined.
// It requires that each search has used an index.
func examinedBy(b *storetest.Bank) (searches int, documents int64) {
	b.T.Helper()
	asked := b.Log.Take()
	require.Equal(b.T, []string{"aggregate"}, storetest.Names(asked))
	var plan bson.Raw
	question := bson.D{
		{Key: "aggregate", Value: "transfers"}, {Key: "pipeline", Value: asked[0].Body.Lookup("pipeline")}, {Key: "cursor", Value: bson.D{}},
	}
	explain := bson.D{{Key: "explain", Value: question}, {Key: "verbosity", Value: "executionStats"}}
	require.NoError(b.T, b.DB.RunCommand(b.T.Context(), explain).Decode(&plan))
	require.NotContains(b.T, plan.String(), "COLLSCAN")
	require.Contains(b.T, plan.String(), "IXSCAN")
	return examinedIn(plan)
}

// examinedIn returns how many searches a plan has, and how many documents they examine.
func examinedIn(plan bson.Raw) (searches int, documents int64) {
	elements, _ := plan.Elements()
	for _, e := range elements {
		n := e.Value()
		if e.Key() == "totalDocsExamined" {
			examined, _ := n.AsInt64OK()
			return 1, examined
		}
		if inner, isDocument := n.DocumentOK(); isDocument {
			s, d := examinedIn(inner)
			searches, documents = searches+s, documents+d
		}
		if list, isArray := n.ArrayOK(); isArray {
			s, d := examinedIn(bson.Raw(list))
			searches, documents = searches+s, documents+d
		}
	}
	return searches, documents
}
