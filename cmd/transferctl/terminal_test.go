package main

import (
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/internal/mongotest"
	"github.com/mongotransfer/transfer/internal/systemtest/bank"
)

// asProgram makes the test's own program be transferctl.
const asProgram = "TRANSFERCTL_AS_PROGRAM"

// terminal is a terminal emulator in which the program runs, as a process of its own that
// has the terminal for itself.
type terminal struct {
	t     *testing.T
	line  *os.File // the emulator's end of the line to the process
	child *exec.Cmd
	drawn chan struct{} // has room for one: something was drawn
	ended chan error
	all   strings.Builder // all that the process has written, once it has ended

	mu     sync.Mutex // of the screen, but for its answers
	screen *vt.Emulator
}

// openTerminal runs the program in a terminal of a size.
func openTerminal(t *testing.T, width, height int, args ...string) *terminal {
	t.Helper()
	x := &terminal{
		t: t, screen: vt.NewEmulator(width, height), drawn: make(chan struct{}, 1), ended: make(chan error, 1),
		child: exec.CommandContext(t.Context(), os.Args[0], args...),
	}
	x.child.Env = append(os.Environ(), asProgram+"=1", "MONGODB_URI="+mongotest.URI(), "TERM=xterm-256color", "NO_COLOR=")
	var err error
	x.line, err = pty.StartWithSize(x.child, &pty.Winsize{Cols: uint16(width), Rows: uint16(height)})
	require.NoError(t, err)
	go func() { // the emulator's answers to the process's questions
		_, _ = io.Copy(x.line, x.screen)
	}()
	go func() {
		_, _ = io.Copy(io.MultiWriter(x, &x.all), x.line)
		x.ended <- x.child.Wait()
	}()
	t.Cleanup(func() {
		_ = x.child.Process.Kill()
		_ = x.line.Close()
		answers, ok := x.screen.InputPipe().(io.Closer)
		require.True(t, ok)
		require.NoError(t, answers.Close())
	})
	return x
}

// Write draws what the process writes.
func (x *terminal) Write(p []byte) (int, error) {
	x.mu.Lock()
	_, err := x.screen.Write(p)
	x.mu.Unlock()
	select {
	case x.drawn <- struct{}{}:
	default:
	}
	return len(p), err
}

// text returns what the screen shows, and whether it is the alternate one.
func (x *terminal) text() (text string, alternate bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.screen.String(), x.screen.IsAltScreen()
}

// shows waits until the screen has all of these texts, and returns it.
func (x *terminal) shows(texts ...string) string {
	x.t.Helper()
	limit := time.NewTimer(5 * time.Minute)
	defer limit.Stop()
	for {
		screen, _ := x.text()
		missing := ""
		for _, text := range texts {
			if !strings.Contains(screen, text) {
				missing = text
			}
		}
		if missing == "" {
			return screen
		}
		select {
		case <-x.drawn:
		case err := <-x.ended:
			require.Fail(x.t, "the program has ended", "%v: %q is not on\n%s", err, missing, screen)
		case <-limit.C:
			require.Fail(x.t, "it is not shown", "%q is not on\n%s", missing, screen)
		}
	}
}

// press types keys.
func (x *terminal) press(keys string) {
	x.t.Helper()
	_, err := io.WriteString(x.line, keys)
	require.NoError(x.t, err)
}

// ends waits for the program's end, and requires its exit code.
func (x *terminal) ends(code int) {
	x.t.Helper()
	limit := time.NewTimer(5 * time.Minute)
	defer limit.Stop()
	select {
	case err := <-x.ended:
		if code != 0 {
			require.Error(x.t, err, x.all.String())
		}
		require.Equal(x.t, code, x.child.ProcessState.ExitCode(), x.all.String())
	case <-limit.C:
		require.Fail(x.t, "the program doesn't end")
	}
}

// resize gives the terminal another size, of which the process learns.
func (x *terminal) resize(width, height int) {
	x.t.Helper()
	x.mu.Lock()
	x.screen.Resize(width, height)
	x.mu.Unlock()
	require.NoError(x.t, pty.Setsize(x.line, &pty.Winsize{Cols: uint16(width), Rows: uint16(height)}))
}

// watched is a bank in which there is something to see.
func watched(t *testing.T, evil string) *bank.Bank {
	t.Helper()
	b := bank.NewWith(t, []transfer.Option{transfer.WithEvents(transfer.EventHandler{})}, 1000, 0)
	b.WithIndexes()
	b.MustHold("held", 20, time.Hour)
	_, err := b.Cancel(t.Context(), "held", "so that there is an event")
	require.NoError(t, err)
	b.MustHold("still-held", 20, 3*time.Hour)
	b.Silence("still-held", time.Hour)
	b.Dying(bank.Decision, bank.Lost, func(ctx context.Context, c *transfer.Coordinator) error {
		_, err := c.Transfer(ctx, bank.Move("lost"+evil, "a", "b", 7))
		return err
	}, func(*mongo.Database) []transfer.Option {
		return []transfer.Option{transfer.WithEvents(transfer.EventHandler{})}
	})
	b.Silence("lost"+evil, time.Hour)
	return b
}

// The live view shows numbers, what hangs, and what goes on meanwhile; it fits any size,
// pauses, obeys no ID, and leaves the terminal as it was.
func TestWatchInATerminal(t *testing.T) {
	t.Parallel()
	const evil = "\x1b]0;owned\a\x1b[2J"
	b := watched(t, evil)
	x := openTerminal(t, 120, 40, "--database", b.DB.Name(), "--events", "", "watch", "--interval", "100ms")
	screen := x.shows("transfers of "+b.DB.Name()+".transfers", "IDLE", `lost\x1b]0;owned\a\x1b[2J`, "UNDELIVERED", "q quits")
	require.Regexp(t, `held +1 `, screen)
	require.Regexp(t, `preparing +1 `, screen)
	require.Regexp(t, `stuck +0`, screen)
	require.Regexp(t, `undelivered +\d`, screen)
	require.Regexp(t, `oldest due +\d`, screen)
	_, alternate := x.text()
	require.True(t, alternate)

	b.MustHold("another", 5, time.Hour)
	x.shows("held              2")
	x.press("p")
	x.shows("paused")
	b.MustHold("unseen", 5, time.Hour)
	x.press("p")
	x.shows("held              3", "q quits · p pauses")

	x.resize(60, 12)
	x.shows("q quits", "UNFINISHED")
	x.resize(120, 40)
	x.shows("UNDELIVERED")
	x.press("q")
	x.ends(exitDone)
	_, alternate = x.text()
	require.False(t, alternate, "the terminal is as it was")
	require.NotContains(t, x.all.String(), "owned\a", "no ID reaches the terminal as it is")
	b.ExpireAll()
	b.RecoverAll(transfer.WithEvents(transfer.EventHandler{}))
	require.Empty(t, b.MustAudit().Findings)
}

// Ctrl-C ends the view, too.
func TestWatchIsInterrupted(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 1)
	x := openTerminal(t, 80, 24, "--database", b.DB.Name(), "watch")
	x.shows("scheduled")
	x.press("\x03")
	x.ends(exitDone)
}

// Somebody at a terminal is asked, and their answer counts.
func TestAskedAtATerminal(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0)
	b.MustHold("held", 20, time.Hour)
	x := openTerminal(t, 120, 24, "--database", b.DB.Name(), "cancel", "held")
	x.shows(`cancel "held", which is Preparing (held): a -20, b +20`, "Go on? Type yes:")
	x.press("no\r")
	x.ends(exitFailed)
	b.RequireStanding("a", 80, 100, 0)
	x = openTerminal(t, 120, 24, "--database", b.DB.Name(), "cancel", "held")
	x.shows("Go on? Type yes:")
	x.press("yes\r")
	x.ends(exitDone)
	b.CheckBooks(bank.Balances(100, 0))
}

// Programs get a document for each look, with rates that count each transfer once.
func TestWatchForPrograms(t *testing.T) {
	t.Parallel()
	b := watched(t, "")
	d := atDesk(t, b.DB)
	looks := d.run("watch", "--json", "--looks", "2", "--interval", "100ms").done().documents()
	require.Len(t, looks, 2)
	require.EqualValues(t, 1, looks[0]["stats"].(map[string]any)["held"])
	require.Equal(t, "lost", looks[0]["idle"].([]any)[0].(map[string]any)["id"])
	require.Len(t, looks[1]["idle"], 1, "a hold is not idle")
	require.NotEmpty(t, looks[1]["undelivered"])
	require.Contains(t, d.run("watch").requires(exitUsage).err, "needs a terminal")
	d.run("watch", "--json", "--interval", "1ms").requires(exitUsage)
	b.ExpireAll()
	b.RecoverAll(transfer.WithEvents(transfer.EventHandler{}))
	require.Empty(t, b.MustAudit().Findings)
}

// Between two looks, each transfer is counted once, at the server's time.
func TestRates(t *testing.T) {
	t.Parallel()
	b := bank.New(t, 100, 0).WithIndexes()
	b.MustMove("before", 1)
	s, err := (&program{
		surroundings: surroundings{lookup: atDesk(t, b.DB).variable}, flags: globalFlags{
			database: b.DB.Name(), transfers: "transfers", policy: "resume", stallThreshold: time.Minute,
		},
	}).open(t.Context(), needDeployment)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.close(t.Context())) }()
	l := &looker{s: s, threshold: time.Minute}
	first, err := s.serverTime(t.Context())
	require.NoError(t, err)
	x := sample{at: first.Add(rateDelay)}
	require.NoError(t, l.rates(t.Context(), &x))
	require.True(t, x.firstRates)
	b.MustMove("one", 1)
	_, err = b.Transfer(t.Context(), bank.Move("refused", "b", "a", 50))
	require.ErrorIs(t, err, transfer.ErrInsufficientFunds)
	_, err = b.DB.Collection("transfers").UpdateMany(t.Context(), bson.D{{Key: "_id", Value: bson.D{{Key: "$ne", Value: "before"}}}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "createdAt", Value: first.Add(time.Second)}}}})
	require.NoError(t, err)
	_, err = b.DB.Collection("transfers").UpdateByID(t.Context(), "before",
		bson.D{{Key: "$set", Value: bson.D{{Key: "createdAt", Value: first}}}})
	require.NoError(t, err)
	for second, want := range []float64{2, 0} {
		x = sample{at: first.Add(time.Duration(second+1)*time.Second + rateDelay)}
		require.NoError(t, l.rates(t.Context(), &x))
		require.InDelta(t, want, x.begun, 1e-9)
		require.InDelta(t, want/2, x.failed, 1e-9)
	}
}
