package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer/internal/mongotest"
)

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(runHere(os.Args[1:]))
	}
	if at := os.Getenv(killedAt); at != "" {
		os.Exit(convertAndDie(at))
	}
	os.Exit(mongotest.Main(m))
}

// desk is somebody who runs commands on a database.
type desk struct {
	t      *testing.T
	db     *mongo.Database
	answer string // what they type where they are asked
	seated bool   // they can be asked
	env    map[string]string

	monitor *event.CommandMonitor // of all commands; nil: none
	now     func() time.Time
}

func atDesk(t *testing.T, db *mongo.Database) *desk {
	return &desk{t: t, db: db, now: time.Now, env: map[string]string{"MONGODB_URI": mongotest.URI()}}
}

// answered is what a command has answered.
type answered struct {
	t        *testing.T
	code     int
	out, err string
}

// run runs a command on the desk's database.
func (d *desk) run(args ...string) answered {
	d.t.Helper()
	if d.db != nil {
		args = append([]string{"--database", d.db.Name()}, args...)
	}
	return d.runBare(args...)
}

// runBare runs a command as it stands.
func (d *desk) runBare(args ...string) answered {
	d.t.Helper()
	var out, errs bytes.Buffer
	ctx, cancel := context.WithTimeout(d.t.Context(), 10*time.Minute)
	defer cancel()
	code := run(ctx, args, surroundings{
		in: strings.NewReader(d.answer), out: &out, err: &errs, asks: d.seated,
		lookup: d.variable, now: d.now, monitor: d.monitor,
	})
	return answered{d.t, code, out.String(), errs.String()}
}

// requires requires an exit code.
func (a answered) requires(code int) answered {
	a.t.Helper()
	require.Equal(a.t, code, a.code, "%s%s", a.out, a.err)
	return a
}

// done requires that a command was carried out without a complaint.
func (a answered) done() answered {
	a.t.Helper()
	a.requires(exitDone)
	require.Empty(a.t, a.err)
	return a
}

// rows returns the lines of the answer, with single spaces.
func (a answered) rows() []string {
	var rows []string
	for line := range strings.Lines(a.out) {
		rows = append(rows, strings.Join(strings.Fields(line), " "))
	}
	return rows
}

// documents returns the answer's lines as JSON.
func (a answered) documents() []map[string]any {
	a.t.Helper()
	found := []map[string]any{}
	for line := range strings.Lines(a.out) {
		var document map[string]any
		require.NoError(a.t, json.Unmarshal([]byte(line), &document), line)
		found = append(found, document)
	}
	return found
}

// document returns the answer's only document.
func (a answered) document() map[string]any {
	a.t.Helper()
	all := a.documents()
	require.Len(a.t, all, 1)
	return all[0]
}

// column returns a field of each document, as texts.
func (a answered) column(field string) []string {
	a.t.Helper()
	found := []string{}
	for _, document := range a.documents() {
		found = append(found, fmt.Sprint(document[field]))
	}
	return found
}

func (d *desk) variable(name string) string { return d.env[name] }
