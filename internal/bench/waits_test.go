package main

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
)

// Waits are writes by a majority, one after the other, that begin and end within a
// transfer.
// Writes side by side are one wait.
// Reads, writes that nobody waits for, and what earlier transfers have left are none.
func TestWaits(t *testing.T) {
	t.Parallel()
	// A capital letter begins a write, and a small one ends it.
	// The letters r and q stand for a read.
	for events, want := range map[string]int{
		"":               0,
		"AaBbCc":         3,
		"AaBCbcDd":       3, // settle and record, side by side
		"ABab":           1,
		"AaBbCcD":        3, // D is for later
		"ADaBbdCc":       3, // D is of an earlier transfer
		"AaBCbDcd":       3, // D follows B
		"RrAaRrBb":       2,
		"AEeFfaBb":       3, // two waits beside A
		"<AaBb>CcDdEeFf": 4, // those before the beginning don't count
		"<AB>abCc":       1,
	} {
		c := &chain{}
		c.begin()
		for _, e := range events {
			switch {
			case e == '<':
			case e == '>':
				c.begin()
			case e == 'R':
				c.started(t.Context(), &event.CommandStartedEvent{RequestID: int64(e), Command: command(t, "")})
			case e < 'a':
				c.started(t.Context(), &event.CommandStartedEvent{RequestID: int64(e), Command: command(t, "majority")})
			default:
				c.ended(int64(e) - 'a' + 'A')
			}
		}
		assert.Equal(t, want, c.end(), events)
		c.started(t.Context(), &event.CommandStartedEvent{RequestID: 1, Command: command(t, "majority")})
		c.ended(1)
		assert.Equal(t, want, c.end(), "after the end")
	}
	assert.InDelta(t, 3, waitsOf([]int{3, 5, 3, 1}), 0)
	assert.True(t, math.IsNaN(waitsOf(nil)))
}

// command returns a command with a write concern, or without one.
func command(t *testing.T, concern string) bson.Raw {
	t.Helper()
	d := bson.D{{Key: "update", Value: "accounts"}}
	if concern != "" {
		d = append(d, bson.E{Key: "writeConcern", Value: bson.D{{Key: "w", Value: concern}, {Key: "j", Value: true}}})
	}
	raw, err := bson.Marshal(d)
	require.NoError(t, err)
	return raw
}
