package mongotest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
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
	// mongodLimit is how long a mongod may take from its start until it accepts writes.
	mongodLimit = time.Minute
	// mongodAttempts is how many free ports are tried.
	// Another process may take a port before mongod does.
	mongodAttempts = 5
	// exitPortTaken is mongod's exit status when it can't listen on its port.
	exitPortTaken = 48
)

// supervisor runs a mongod in a folder of its own, as supervise does, and removes the
// folder at the end.
// Its arguments are the folder and the command.
const supervisor = `
PATH=$PATH:/usr/bin:/bin
folder=$1
shift
mkdir -m 700 "$folder" "$folder/data" || exit
` + supervise + `
rm -rf "$folder"
exit "$status"
`

// supervise runs a mongod until the mongod or the standard input ends.
// Then it prints what the log says about the reason.
// The watcher reads the pipe from 9, because a shell gives a background command no
// standard input.
// The supervisor's own output is a pipe that may have no reader any more, so SIGPIPE is
// ignored.
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

// startMongod runs a mongod and returns once it accepts writes.
func startMongod(ctx context.Context, path string) (*Server, error) {
	if err := checkMongod(ctx, path); err != nil {
		return nil, err
	}
	m, process, err := memberLaunch().start(ctx, path)
	if err != nil {
		return nil, err
	}
	return newServer("mongodb://"+m.host+"/?replicaSet="+replicaSet, process.stop), nil
}

// memberLaunch starts a mongod that becomes the primary of its set.
func memberLaunch() launch {
	return launch{
		flags: func(string) ([]string, error) { return memberFlags(), nil },
		ready: func(ctx context.Context, m member, ended <-chan struct{}) error { return m.initiate(ctx, ended) },
	}
}

// supervised returns the command that runs a mongod under a supervisor.
func supervised(script, path string, m member, flags []string, output *bytes.Buffer) *exec.Cmd {
	host, port, _ := net.SplitHostPort(m.host)
	args := append([]string{"-c", script, "mongotest", filepath.Dir(m.dbPath), path}, flags...)
	args = append(args, "--dbpath", m.dbPath, "--bind_ip", host, "--port", port)
	// A socket in the temp folder would survive a mongod that is killed.
	args = append(args, "--nounixsocket")
	cmd := exec.Command("/bin/sh", args...)
	// The child must not have our own output: go test waits until no process holds it.
	cmd.Stdout, cmd.Stderr = output, output
	return cmd
}

// memberFlags returns the flags of a mongod that becomes a member of a replica set.
// They are the same in a container.
func memberFlags() []string {
	return append([]string{"--replSet", replicaSet}, standaloneFlags()...)
}

// standaloneFlags returns the flags of every mongod.
// Without diagnostic data and with a small cache, several servers fit on a small machine.
// The server removes what a TTL index lets expire within a second or two.
// It removes the files of what was dropped after one minute, and not after five.
// Tests drop a dozen files for each database, and a server that runs out of them aborts.
// It closes files that nobody has used for some seconds, and not for ten minutes: among
// ten thousand open files it spends a quarter of its time on looking through them.
func standaloneFlags() []string {
	return []string{
		"--wiredTigerCacheSizeGB", "0.5",
		"--setParameter", "enableTestCommands=1",
		"--setParameter", "diagnosticDataCollectionEnabled=false",
		"--setParameter", "ttlMonitorSleepSecs=1",
		"--setParameter", "minSnapshotHistoryWindowInSeconds=60",
		"--wiredTigerEngineConfigString", "file_manager=(close_idle_time=5,close_scan_interval=2,close_handle_minimum=100)",
	}
}

// checkMongod returns an error if a mongod can't run here, is too old, or has another
// version than MONGODB_VERSION asks for.
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
