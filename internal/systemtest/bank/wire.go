package bank

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Fault is what happens to one message on its way to the server.
type Fault string

// The faults. Their texts are the names of subtests.
const (
	Lost       Fault = "the message is lost"
	AnswerLost Fault = "the answer is lost"
	Held       Fault = "the message is held back, and arrives after everything else is over"
	Swallowed  Fault = "the message is lost, and nobody is told"
	Delayed    Fault = "the message is held back, and nobody is told"
	Resent     Fault = "the server calls itself overloaded, when it has done what it was asked, " +
		"and the driver sends the message again"
)

// Wire is the network between one client and the server. It can do something to one of
// the commands that are sent to a collection, and cut everything off from then on, as if
// the process had died.
type Wire struct {
	// At is the command that is struck, counted from 0; -1 strikes none.
	At int
	// Of, if it is set, selects the commands among which At counts.
	Of func(command string) bool
	// Is, if it is set, selects the command that is struck, in place of At: the first one
	// for which it is true. See [Step.Selector].
	Is func(message []byte) bool
	// To, if it is set, is the collection to which the commands are sent among which At
	// counts.
	To string
	// What happens to that command.
	What Fault
	// Also says what happens to other commands.
	Also map[int]Fault
	// AlsoAt says what happens to the first command of other steps.
	AlsoAt map[Step]Fault
	// Die lets nothing get through any more after the command that is struck.
	Die bool
	// OnDeath, if there is one, is called when the wire is cut.
	OnDeath func()
	// OnStrike, if there is one, is called when a command is struck.
	OnStrike func()
	// Commands are those that were sent, for the story of a failure.
	Commands []string

	// Idle makes the wire count nothing and do nothing, until SetIdle ends that.
	Idle bool

	mu     sync.Mutex
	seen   int           // commands, by which Also counts
	chosen int           // commands of which At is one
	steps  map[Step]bool // of AlsoAt, that came
	struck bool
	dead   bool
	late   []func() error // deliveries whose time has come
}

// CutOff is the error of everything that a wire doesn't let through.
func CutOff() error { return errors.New("the wire is cut") }

// Client returns the options of a client over this wire. It asks the server now and then
// what it is: to be told of changes, it would open one connection more, and a test has
// hundreds of clients.
func (w *Wire) Client() *options.ClientOptions {
	return options.Client().SetDialer(w).SetMaxPoolSize(4).SetServerMonitoringMode(options.ServerMonitoringModePoll)
}

// DialContext implements options.ContextDialer.
func (w *Wire) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	dead := w.dead
	w.mu.Unlock()
	if dead {
		return nil, CutOff()
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	return &wiredConn{Conn: conn, wire: w}, err
}

// Deliver lets the messages that were held back arrive, and waits until the server has
// answered them.
func (w *Wire) Deliver(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	late := w.late
	w.late = nil
	w.mu.Unlock()
	for _, arrive := range late {
		require.NoError(t, arrive())
	}
}

// Waits reports whether a message is held back that [Wire.Deliver] would let arrive.
func (w *Wire) Waits() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.late) > 0
}

// Cut lets nothing get through from now on.
func (w *Wire) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead = true
}

// Sent returns how many commands were sent since the last Forget.
func (w *Wire) Sent() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen
}

// SentSoFar returns the commands that were sent, while others may still be sent.
func (w *Wire) SentSoFar() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.Commands)
}

// Forget makes the wire one over which nothing was sent yet.
func (w *Wire) Forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen, w.chosen = 0, 0
}

// Faults counts what has happened to messages.
func (w *Wire) Faults() map[Fault]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	struck := map[Fault]int{}
	for n, what := range w.Also {
		if n < w.seen {
			struck[what]++
		}
	}
	for step := range w.steps {
		struck[w.AlsoAt[step]]++
	}
	if w.struck {
		struck[w.What]++
	}
	return struck
}

// HasStruck reports whether the command that is struck was sent.
func (w *Wire) HasStruck() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.struck
}

func (w *Wire) isDead() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dead
}

// judge returns what happens to a message over a connection.
func (w *Wire) judge(c *wiredConn, message []byte) Fault {
	command, counts := CommandIn(message)
	if !counts {
		return ""
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead {
		return Lost // it was cut a moment ago, over another connection
	}
	if w.Idle {
		return ""
	}
	w.Commands = append(w.Commands, command)
	w.seen++
	chosen := (w.Of == nil || w.Of(command)) && (w.To == "" || isTo(message, command, w.To))
	if chosen {
		w.chosen++
	}
	strikes := chosen && w.chosen-1 == w.At
	if w.Is != nil {
		strikes = !w.struck && w.Is(message)
	}
	if !strikes {
		return w.alsoStruck(message)
	}
	w.struck, w.dead = true, w.Die
	if w.What == Held || w.What == Delayed {
		c.broken.Store(true) // OnStrike may make the driver close it
	}
	if w.OnStrike != nil {
		w.OnStrike()
	}
	return w.What
}

// alsoStruck returns what happens to a message that is not the one that is struck.
func (w *Wire) alsoStruck(message []byte) Fault {
	if len(w.AlsoAt) == 0 {
		return w.Also[w.seen-1]
	}
	if w.steps == nil {
		w.steps = map[Step]bool{}
	}
	steps, _ := stepsOf(message)
	for _, step := range steps {
		if what := w.AlsoAt[step]; what != "" && !w.steps[step] {
			w.steps[step] = true
			return what
		}
	}
	return ""
}

// SetIdle makes the wire count nothing and do nothing, or ends that.
func (w *Wire) SetIdle(idle bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Idle = idle
}

// Writes selects the commands that may change something.
func Writes(command string) bool { return command != "find" }

// Reads selects the commands that change nothing.
func Reads(command string) bool { return !Writes(command) }

// isTo reports whether a command is sent to a collection.
func isTo(message []byte, command, collection string) bool {
	name := binary.LittleEndian.AppendUint32([]byte("\x02"+command+"\x00"), uint32(len(collection)+1))
	return bytes.Contains(message, append(name, collection+"\x00"...))
}

// CommandIn names the command of a message, if it is one on a collection of the test's.
// A process notes that it lives whenever it likes: that is none.
func CommandIn(message []byte) (string, bool) {
	if bytes.Contains(message, []byte(processNotes+"\x00")) {
		return "", false
	}
	for _, command := range []string{"insert", "update", "findAndModify", "find"} {
		if bytes.Contains(message, []byte("\x02"+command+"\x00")) {
			return command, true
		}
	}
	return "", false
}
