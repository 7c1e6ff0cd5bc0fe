package rights

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// processNotes is the collection in which processes note that they live.
const processNotes = "transfers.processes"

// What a process logs, once, where it lacks a right to the notes.
const (
	mayNotNote = "this process may not note that it lives: if it dies, its transfers are left alone for the stall threshold"
	mayNotRead = "notes of other processes may not be read: what dead ones leave is taken over after the stall threshold"
)

// A user who lacks a right to the notes that processes live can do everything that the
// role is for.
// Each of these rights does something all the same, and the log says, once, what is
// lacking.
func (v *guarded) notesAreOptional() {
	full := readRole(v.t, "service")
	place := slices.IndexFunc(full.Privileges, func(p privilege) bool { return p.Resource.Collection == processNotes })
	notes := full.Privileges[place]
	require.ElementsMatch(v.t, []string{"find", "insert", "update", "remove"}, notes.Actions)
	none := full
	for _, action := range notes.Actions {
		none = none.without(notes, action)
	}
	for name, row := range map[string]struct {
		role           role
		notes, remains bool
	}{
		"all":            {full, true, false},
		"without insert": {full.without(notes, "insert"), false, false},
		"without update": {full.without(notes, "update"), false, false},
		"without remove": {full.without(notes, "remove"), true, true},
		"none":           {none, false, false},
	} {
		v.sub(name, func(v *guarded) {
			_, db := v.user(row.role)
			var log bank.Logged
			c := v.over(db, transfer.WithLogger(slog.New(&log)), transfer.WithOwner("noted"))
			for i, what := range serviceVerbs() {
				require.NoError(v.t, v.timed(what, c, fmt.Sprint(name, i)), what.name)
			}
			require.Equal(v.t, row.notes, v.notesOf("noted") == 1)
			require.Equal(v.t, map[bool]int{true: 0, false: 1}[row.notes], log.Count(mayNotNote))
			require.NoError(v.t, c.Close(v.t.Context()))
			require.Equal(v.t, row.remains, v.notesOf("noted") == 1)
			_, err := v.root.Collection(processNotes).DeleteMany(v.t.Context(), bson.D{})
			require.NoError(v.t, err)
			v.finish()
		})
	}
	v.sub("without find", func(v *guarded) { v.blindWorker(full.without(notes, "find")) })
}

// notesOf returns how many processes of a name have noted that they live.
func (v *guarded) notesOf(name string) int64 {
	v.t.Helper()
	byName := bson.D{{Key: "_id", Value: bson.D{{Key: "$regex", Value: "^" + name + "-"}}}}
	n, err := v.root.Collection(processNotes).CountDocuments(v.t.Context(), byName)
	require.NoError(v.t, err)
	return n
}

// blindWorker requires that a worker who may not read notes works, and says so once.
func (v *guarded) blindWorker(r role) {
	t := v.t
	v.toTheEnd(v.all, oneUnit("quiet"))
	long := bson.D{{Key: "$set", Value: bson.D{
		{Key: "state", Value: "Committed"}, {Key: "open", Value: true}, {Key: "owner", Value: "dead-process-execution"},
		{Key: "lastModified", Value: time.Now().Add(-10 * time.Second)},
	}}}
	_, err := v.root.Collection("transfers").UpdateByID(t.Context(), "quiet", long)
	require.NoError(t, err)
	_, db := v.user(r)
	var log bank.Logged
	c := v.over(db, transfer.WithLogger(slog.New(&log)))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	require.Eventually(t, func() bool { return log.Count(mayNotRead) > 0 }, time.Minute, 10*time.Millisecond)
	_, err = v.all.Submit(t.Context(), oneUnit("blind"))
	require.NoError(t, err)
	_, err = v.all.Wait(t.Context(), "blind")
	require.NoError(t, err)
	require.NoError(t, c.Healthy(t.Context()))
	cancel()
	require.NoError(t, bank.Within(t, ended))
	require.Equal(t, 1, log.Count(mayNotRead))
	v.finish()
}
