package mongotest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// keeper keeps a folder until its standard input ends, and then removes it.
// Each node's supervisor holds the other end of that pipe, as this process does.
// So the folder is removed when the last process that uses it has ended.
const keeper = `
PATH=$PATH:/usr/bin:/bin
trap '' HUP INT TERM PIPE
cat >/dev/null
rm -rf "$1"
`

// nodeSupervisor is the supervisor of a node.
// It keeps the folder, because the node may be started there again.
const nodeSupervisor = `
PATH=$PATH:/usr/bin:/bin
folder=$1
shift
mkdir -p "$folder/data" || exit
` + supervise + `
exit "$status"
`

// node is one mongod of a [Set].
// It can be killed, paused and started again, at the same address with the same data.
type node struct {
	member
	path string   // of the program
	pipe *os.File // of the keeper

	mu      sync.Mutex
	process *child // the last one that was started
}

// running returns the last process that was started, or nil.
// The process may have ended.
func (n *node) running() *child {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.process
}

// start starts the process and returns once it answers.
func (n *node) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, mongodLimit)
	defer cancel()
	return poll(ctx, "start "+n.host, func() error {
		err := n.startOnce(ctx)
		if err != nil && !errors.Is(err, errPortTaken) {
			cancel()
		}
		return err
	})
}

func (n *node) startOnce(ctx context.Context) error {
	var output bytes.Buffer
	// A member that copies from a paused one soon looks for another one. Until then a
	// majority has no new writes.
	flags := append(memberFlags(), "--setParameter", "oplogNetworkTimeoutBufferSeconds=1")
	cmd := supervised(nodeSupervisor, n.path, n.member, flags, &output)
	cmd.ExtraFiles = []*os.File{n.pipe}
	process, err := startChild(cmd)
	if err != nil {
		return fmt.Errorf("start %s: %w", n.path, err)
	}
	n.mu.Lock()
	n.process = process
	n.mu.Unlock()
	answers := func(context.Context, *mongo.Client) error { return nil }
	return process.awaitReady(n.path, &output, func() error { return n.reach(ctx, process.ended, answers) })
}

// signal sends a signal to the mongod, and not to its supervisor, which must stay awake
// to clean up.
func (n *node) signal(signal syscall.Signal) error {
	// A mongod keeps its process ID in its lock file, and empties the file when it ends
	// in good order.
	content, err := os.ReadFile(filepath.Join(n.dbPath, "mongod.lock"))
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		return fmt.Errorf("the lock file of %s: %w", n.host, err)
	}
	process, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return process.Signal(signal)
}

// kill ends the mongod as a power cut does, even while it is paused.
func (n *node) kill(ctx context.Context) error {
	process := n.running()
	select {
	case <-process.ended:
		return fmt.Errorf("%s does not run", n.host)
	default:
	}
	if err := n.signal(signalKill); err != nil {
		return err
	}
	select {
	case <-process.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// steadyAddress returns a local address on which nothing listens at the moment.
// The system never uses its port for an outgoing connection, so the address is free again
// when a node is restarted.
func steadyAddress(ctx context.Context) (string, error) {
	const lowest, highest = 10_000, 32_767 // The system chooses higher ones by itself.
	var failed error
	for range mongodAttempts {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(lowest+rand.IntN(highest-lowest)))
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err == nil {
			return address, listener.Close()
		}
		failed = errors.Join(failed, err)
	}
	return "", fmt.Errorf("find a free port: %w", failed)
}

// keep starts the keeper of a folder, and returns the end of its pipe.
func keep(folder string) (*child, *os.File, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.Command("/bin/sh", "-c", keeper, "mongotest", folder)
	cmd.Stdin = read
	process, err := runChild(cmd, write)
	return process, write, errors.Join(err, read.Close())
}
