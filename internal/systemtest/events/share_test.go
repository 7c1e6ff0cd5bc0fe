package events

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// Three workers share what was finished while none ran, and what they finish themselves:
// each event is delivered, and nearly all of them once.
func TestWorkersShare(t *testing.T) {
	t.Parallel()
	const n = 1000
	b := bank.NewWith(t, []transfer.Option{silent()}, 10_000, 0).WithIndexes()
	ids := bank.Numbered("t", n)
	var requests []transfer.Request
	for _, id := range ids {
		requests = append(requests, bank.Move(id, "a", "b", 1))
	}
	in := newInbox()
	var workers []*transfer.Coordinator
	for range 3 {
		workers = append(workers, b.NewCoordinator(b.DB, in.option()))
	}
	move := func(c *transfer.Coordinator, some []transfer.Request) {
		_, errs := c.TransferMany(t.Context(), some)
		for _, err := range errs {
			require.NoError(t, err)
		}
	}
	move(b.Coordinator, requests[:n/2])
	var ends []func()
	begun := time.Now()
	for _, c := range workers {
		ends = append(ends, bank.InBackground(t, c))
	}
	move(workers[0], requests[n/2:3*n/4])
	move(workers[1], requests[3*n/4:])
	in.await(t, eventIDs(transfer.EventSucceeded, ids...)...)
	for _, end := range ends {
		end()
	}
	took := time.Since(begun)
	requireDelivered(b)
	total := 0
	for _, all := range in.taken() {
		total += len(all)
	}
	require.Len(t, in.taken(), n, "there is no other event")
	if took < 20*time.Second { // no lease has run out
		require.LessOrEqual(t, total, n+n/100, "they are delivered nearly always once")
	}
	b.CheckBooks(bank.Balances(10_000, 0))
}

// The environment of a process that delivers for a test.
const (
	processDatabase = "TRANSFER_TEST_EVENTS_DATABASE"
	processHangs    = "TRANSFER_TEST_EVENTS_HANGS"
)

// TestDeliveringProcess is run by the processes of TestKilledProcess. It prints the event
// that it has in hand, and hangs there.
func TestDeliveringProcess(t *testing.T) {
	name := os.Getenv(processDatabase)
	if name == "" {
		return // There is nothing to test: this is not a process that another test has started.
	}
	handle := func(ctx context.Context, e transfer.Event) error {
		_, _ = fmt.Fprintln(os.Stdout, "in hand", e.ID)
		<-ctx.Done()
		return ctx.Err()
	}
	c, err := transfer.NewCoordinator(mongotest.Client(t).Database(name),
		transfer.WithEvents(transfer.EventHandler{Handle: handle}))
	require.NoError(t, err)
	go func() { _ = c.Run(t.Context()) }()
	if id := os.Getenv(processHangs); id != "" {
		_, err = c.Transfer(t.Context(), bank.Move(id, "a", "b", 60))
		require.NoError(t, err)
	}
	select {}
}

// What a process had in hand when it was killed is delivered by another one within 30 s:
// what it has finished itself, and what it has taken over.
func TestKilledProcess(t *testing.T) {
	t.Parallel()
	b := bank.NewWith(t, []transfer.Option{silent()}, 100, 0).WithIndexes()
	b.MustMove("found", 10)
	process := exec.Command(os.Args[0], "-test.run=^TestDeliveringProcess$", "-test.timeout=10m")
	process.Env = append(os.Environ(), "MONGODB_URI="+mongotest.URI(), processDatabase+"="+b.DB.Name(), processHangs+"=own")
	output, err := process.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, process.Start())
	hangs := time.AfterFunc(5*time.Minute, func() { _ = process.Process.Kill() })
	t.Cleanup(func() { _, _, _ = hangs.Stop(), process.Process.Kill(), process.Wait() })
	inHand := map[string]bool{}
	for lines := bufio.NewScanner(output); len(inHand) < 2 && lines.Scan(); {
		if id, found := strings.CutPrefix(lines.Text(), "in hand "); found {
			inHand[id] = true
		}
	}
	require.Equal(t, map[string]bool{"own:succeeded": true, "found:succeeded": true}, inHand)
	require.NoError(t, process.Process.Kill())
	killed := time.Now()
	for _, id := range []string{"own", "found"} {
		due, is := outboxOf(b, id)[0]["due"].(bson.DateTime)
		require.True(t, is)
		require.Less(t, due.Time().Sub(killed), 30*time.Second, "the dead one keeps it from others for no longer")
	}

	in := newInbox()
	end := bank.InBackground(t, b.NewCoordinator(b.DB, in.option()))
	in.await(t, "own:succeeded", "found:succeeded")
	end()
	requireDelivered(b)
	require.GreaterOrEqual(t, in.taken()["own:succeeded"][0].Attempt, 2, "that of the dead one counts")
	b.CheckBooks(bank.Balances(100, 0))
}

// A worker that ends gives its handlers a few seconds, and puts back what they have not
// delivered, and what it has not begun with: another worker has it at once, and no
// attempt counts.
func TestGracefulEnd(t *testing.T) {
	t.Parallel()
	// Others may keep a machine busy for longer than a worker waits when it ends.
	for round := 0; !endsGracefully(t); round++ {
		require.Less(t, round, 5, "a worker that ends does not put back what it has in hand")
	}
}

// endsGracefully plays the test, and reports whether all was put back.
func endsGracefully(t *testing.T) bool {
	t.Helper()
	first := newInbox()
	begun := make(chan struct{}, 1000)
	first.judge = func(ctx context.Context, e transfer.Event) error {
		begun <- struct{}{}
		if e.Record.ID < "t3" {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}
	b := bank.NewWith(t, []transfer.Option{first.option()}, 1000, 0).WithIndexes()
	end := bank.InBackground(t, b.Coordinator)
	ids := bank.Numbered("t", 600)
	var requests []transfer.Request
	for _, id := range ids {
		requests = append(requests, bank.Move(id, "a", "b", 1))
	}
	_, errs := b.TransferMany(t.Context(), requests)
	for _, err := range errs {
		require.NoError(t, err)
	}
	for range 256 { // as many as run at once
		bank.Within(t, begun)
	}
	end()
	done := first.taken()
	var left []string
	for _, id := range eventIDs(transfer.EventSucceeded, ids...) {
		if len(done[id]) == 0 {
			left = append(left, id)
		}
	}
	require.NotEmpty(t, left)
	second := newInbox()
	end = bank.InBackground(t, b.NewCoordinator(b.DB, second.option()))
	second.await(t, left...)
	end()
	requireDelivered(b)
	again := len(second.taken()) != len(left)
	for _, all := range second.taken() {
		again = again || all[0].Attempt != 1
	}
	b.CheckBooks(bank.Balances(1000, 0))
	return !again
}
