package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/mongotransfer/transfer"
)

// fullScreen is a view with everything on it: numbers, trouble, lists and an error.
func fullScreen(listed int) *watchScreen {
	at := time.Date(2024, 3, 1, 12, 0, 0, 0, time.UTC)
	x := sample{at: at, begun: 12.5, failed: 1, stats: transfer.Stats{
		Scheduled: 1, Due: 2, Preparing: 3, Held: 4, Overdue: 5, Committed: 6, Rollback: 7, Stuck: 8, Undelivered: 9,
		Oldest: at.Add(-12 * time.Minute),
	}}
	for i := range listed {
		rec := transfer.Record{ID: fmt.Sprint("order-\x1b", i), State: transfer.StateCommitted, LastModified: at.Add(-time.Hour)}
		x.idle = append(x.idle, rec)
		rec.Stuck = &transfer.Failure{Code: "accountNotFound", Account: "shop\x1b[2J", Message: "account not found"}
		x.stuck = append(x.stuck, rec)
		rec.Undelivered = []transfer.UndeliveredEvent{{Kind: transfer.EventSucceeded, Attempts: 20, GivenUp: true}}
		x.givenUp = append(x.givenUp, rec)
	}
	return &watchScreen{
		title: "bank.transfers", interval: time.Second, looked: true, latest: x, history: []float64{0, 1, 12.5},
		err: errors.New("no server\x1b[2J"),
	}
}

// What is in trouble is on the screen, with why.
func TestWatchShowsTrouble(t *testing.T) {
	t.Parallel()
	w := fullScreen(1)
	w.width, w.height = 120, 40
	screen := ansi.Strip(w.draw())
	for _, text := range []string{
		"begun      12.5/s  ▁▁█   failed 1.0/s", "stuck             8", "overdue           5", "undelivered       9",
		"oldest due   12m00s", `this look failed: no server\x1b[2J`,
		`accountNotFound shop\x1b[2J: account not found`, "succeeded, tried 20 times, given up", "q quits",
	} {
		require.Contains(t, screen, text)
	}
	require.Regexp(t, `STUCK +STATE +IDLE FOR +WHY\norder-\\x1b0 +Committed +1h00m `, screen)
}

// The view fits any terminal, however small, and always says how to leave it where there
// is a line for it.
func TestWatchFitsAnyTerminal(t *testing.T) {
	t.Parallel()
	for _, listed := range []int{0, 1, maxListed} {
		for height := 1; height <= 60; height += 3 {
			for width := 1; width <= 140; width += 9 {
				w := fullScreen(listed)
				w.width, w.height = width, height
				lines := strings.Split(w.draw(), "\n")
				require.LessOrEqual(t, len(lines), height, "%d×%d", width, height)
				for _, line := range lines {
					require.LessOrEqual(t, ansi.StringWidth(line), width, "%d×%d", width, height)
				}
			}
		}
	}
	w := fullScreen(maxListed)
	w.width, w.height = 100, 40
	screen := ansi.Strip(w.draw())
	require.Contains(t, screen, "q quits")
	for _, title := range []string{"STUCK", "IDLE ", "UNDELIVERED"} {
		require.Contains(t, screen, title, "the lists share the room")
	}
}

// What is in trouble is seen in the smallest corner, and a long ID hides nothing.
func TestWatchShowsTroubleOnASmallScreen(t *testing.T) {
	t.Parallel()
	w := fullScreen(0)
	w.width, w.height = 40, 10
	for _, failed := range []error{nil, errors.New("no server")} {
		w.err = failed
		screen := ansi.Strip(w.draw())
		for _, text := range []string{
			"stuck             8  due               2\n", "overdue           5", "undelivered       9", "oldest due   12m00s", "q quits",
		} {
			require.Contains(t, screen, text)
		}
	}
	w = fullScreen(1)
	w.latest.stuck[0].ID, w.width, w.height = strings.Repeat("long", 60), 80, 24
	screen := ansi.Strip(w.draw())
	require.Contains(t, screen, "longlonglonglonglonglongl…  Committed  1h00m     accountNotFound")
}

// A number of seconds, minutes, hours or days is short.
func TestAge(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 300 * time.Millisecond: "0.3s", 61 * time.Second: "1m01s", 90 * time.Minute: "1h30m", 72 * time.Hour: "3d",
	} {
		require.Equal(t, want, age(d))
	}
}
