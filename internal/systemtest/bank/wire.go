package bank

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Fault is what happens to one message on its way to the server.
type Fault string

const (
	Lost       Fault = "the message is lost"
	AnswerLost Fault = "the answer is lost"
	Held       Fault = "the message is held back, and arrives after everything else is over"
	Swallowed  Fault = "the message is lost, and nobody is told"
	Resent     Fault = "the server calls itself overloaded, when it has done what it was asked, and the driver sends the message again"
)

// Wire is the network between one client and the server. It can do something to one of the commands that are sent to a collection, and
// cut everything off from then on, as if the process had died.
type Wire struct {
	Mu       sync.Mutex
	At       int           // which command, counted from 0
	What     Fault         // what happens to it
	Also     map[int]Fault // what happens to others
	Die      bool          // after the one at nothing gets through any more
	OnDeath  func()
	OnStrike func()
	Idle     bool // nothing is counted and nothing happens
	Seen     int
	Struck   bool
	Dead     bool
	late     []func() error // deliveries that are due
	Commands []string       // that were seen, for the story of a failure
}

// CutOff is the error of everything that a wire doesn't let through.
func CutOff() error { return errors.New("the wire is cut") }

// Client returns the options of a client over this wire.
func (w *Wire) Client() *options.ClientOptions {
	return options.Client().SetDialer(w).SetMaxPoolSize(4)
}

// DialContext implements options.ContextDialer.
func (w *Wire) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	w.Mu.Lock()
	dead := w.Dead
	w.Mu.Unlock()
	if dead {
		return nil, CutOff()
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	return &wiredConn{Conn: conn, wire: w}, err
}

// Deliver lets the messages that were held back arrive, and waits until the server has answered them.
func (w *Wire) Deliver(t *testing.T) {
	t.Helper()
	w.Mu.Lock()
	late := w.late
	w.late = nil
	w.Mu.Unlock()
	for _, arrive := range late {
		require.NoError(t, arrive())
	}
}

func (w *Wire) HasStruck() bool {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	return w.Struck
}

func (w *Wire) isDead() bool {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	return w.Dead
}

// judge tells what is to happen to a message.
func (w *Wire) judge(message []byte) Fault {
	command, counts := CommandIn(message)
	if !counts {
		return ""
	}
	w.Mu.Lock()
	defer w.Mu.Unlock()
	if w.Idle {
		return ""
	}
	w.Commands = append(w.Commands, command)
	w.Seen++
	if w.Seen-1 != w.At {
		return w.Also[w.Seen-1]
	}
	w.Struck, w.Dead = true, w.Die
	if w.OnStrike != nil {
		w.OnStrike()
	}
	return w.What
}

func (w *Wire) SetIdle(idle bool) {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	w.Idle = idle
}

// CommandIn names the command of a message, if it is one on a collection of the test's.
func CommandIn(message []byte) (string, bool) {
	for _, command := range []string{"insert", "update", "findAndModify", "find"} {
		if bytes.Contains(message, []byte("\x02"+command+"\x00")) {
			return command, true
		}
	}
	return "", false
}
