package mongotest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"
)

const (
	replicaSet = "rs0"
	// oldestMajor is the oldest major version of MongoDB that the library works with.
	oldestMajor = 5
	// mongodLimit is how long a mongod may take from its start until it takes writes.
	mongodLimit = time.Minute
	// mongodAttempts is how many free ports are tried: any other process may take one before mongod does.
	mongodAttempts = 5
	// exitPortTaken is mongod's exit status when it can't listen on its port.
	exitPortTaken = 48
)

// supervisor runs a mongod in a folder of its own, as supervise does, and removes the folder at the end. Its arguments are the
// folder and the command.
const supervisor = `
PATH=$PATH:/usr/bin:/bin
folder=$1
shift
mkdir -m 700 "$folder" "$folder/data" || exit
` + supervise + `
rm -rf "$folder"
exit "$status"
`

// supervise runs a mongod until either of the two ends: the mongod, or the standard input. Then it prints what the log says about
// the reason. The watcher reads the pipe from 9 because a shell gives a command in the background no standard input. The
// supervisor's own output is a pipe that may have no reader any more: hence the ignored SIGPIPE.
const supervise = `
exec 9<&0
"$@" </dev/null >"$folder/log" 2>&1 9<&- &
mongod=$!
trap 'kill -KILL "$mongod"; wait "$mongod"' HUP INT TERM
trap '' PIPE
{ read -r _; kill -KILL "$mongod"; } <&9 >/dev/null 2>&1 &
watcher=$!
wait "$mongod"
status=$?
kill "$watcher" 2>/dev/null
grep '"s":"[EF]"' "$folder/log" || tail -n 10 "$folder/log"
`

var errPortTaken = errors.New("the port was taken by another process")

func startFromPath(ctx context.Context) (*Server, error) {
	path, err := exec.LookPath("mongod")
	if err != nil {
		return nil, err
	}
	return startMongod(ctx, path)
}

// startMongod runs a mongod and returns once it takes writes.
func startMongod(ctx context.Context, path string) (*Server, error) {
	if err := checkMongod(ctx, path); err != nil {
		return nil, err
	}
	var server *Server
	err := errPortTaken
	for attempt := 0; attempt < mongodAttempts && errors.Is(err, errPortTaken); attempt++ {
		server, err = startMongodOnce(ctx, path)
	}
	return server, err
}

func startMongodOnce(ctx context.Context, path string) (*Server, error) {
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	folder := filepath.Join(os.TempDir(), "mongotest-"+rand.Text())
	var output bytes.Buffer
	process, err := startChild(supervised(supervisor, path, folder, address, &output))
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	ctx, cancel := context.WithTimeout(ctx, mongodLimit)
	defer cancel()
	if err := memberAt(address, folder).initiate(ctx, process.ended); err != nil {
		stopErr := process.stop()
		if process.cmd.ProcessState.ExitCode() == exitPortTaken {
			err = errPortTaken
		}
		return nil, fmt.Errorf("%s does not run: %w (%v)\n%s", path, errors.Join(err, stopErr), process.cmd.ProcessState, output.Bytes())
	}
	return newServer("mongodb://"+address+"/?replicaSet="+replicaSet, process.stop), nil
}

// supervised returns the command that runs a mongod under a supervisor.
func supervised(script, path, folder, address string, output *bytes.Buffer) *exec.Cmd {
	host, port, _ := net.SplitHostPort(address)
	args := append([]string{"-c", script, "mongotest", folder, path}, serverFlags()...)
	args = append(args, "--dbpath", filepath.Join(folder, "data"), "--bind_ip", host, "--port", port)
	// A socket in the temp folder would survive a mongod that is killed.
	args = append(args, "--nounixsocket")
	cmd := exec.Command("/bin/sh", args...)
	// It must not have our own output: go test waits until nobody holds that any more.
	cmd.Stdout, cmd.Stderr = output, output
	return cmd
}

// serverFlags returns the flags of mongod that are the same in a container. Without diagnostic data and with a small cache
// several servers fit on a small machine. What a TTL index lets expire goes within a second or two. The files of what
// was dropped go after a minute, and not five: tests drop a dozen of them for each database, and a server that runs out of them aborts.
func serverFlags() []string {
	return []string{
		"--replSet", replicaSet,
		"--wiredTigerCacheSizeGB", "0.5",
		"--setParameter", "enableTestCommands=1",
		"--setParameter", "diagnosticDataCollectionEnabled=false",
		"--setParameter", "ttlMonitorSleepSecs=1",
		"--setParameter", "minSnapshotHistoryWindowInSeconds=60",
	}
}

// checkMongod says why a mongod can't run here, is too old or of another version than is
// asked for, or nil.
func checkMongod(ctx context.Context, path string) error {
	output, err := exec.CommandContext(ctx, path, "--version").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s --version: %w: %s", path, err, bytes.TrimSpace(output))
	}
	version := regexp.MustCompile(`db version v((\d+)\.\S*)`).FindSubmatch(output)
	if version == nil {
		return fmt.Errorf("%s --version names no version: %s", path, bytes.TrimSpace(output))
	}
	if major, err := strconv.Atoi(string(version[2])); err != nil || major < oldestMajor {
		return fmt.Errorf("%s is older than version %d.0: %s", path, oldestMajor, bytes.TrimSpace(output))
	}
	if err := checkWanted(string(version[1])); err != nil {
		return fmt.Errorf("%s can't be used: %w", path, err)
	}
	return nil
}

// freeAddress returns a local address on which nothing listens at the moment.
func freeAddress(ctx context.Context) (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	address := listener.Addr().String()
	return address, listener.Close()
}
