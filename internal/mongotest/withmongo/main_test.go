package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// The command finds the server in its environment, and its exit code is passed on.
func TestExitCodeIsPassedOn(t *testing.T) {
	assert.Equal(t, 7, withServer("sh", "-c", `[ -n "$MONGODB_URI" ] && exit 7`))
	assert.Equal(t, 0, withServer("true"))
}

// A command that can't be run, or that a signal ends, fails.
func TestFailedCommand(t *testing.T) {
	assert.Equal(t, 1, withServer("no-such-command"))
	assert.Equal(t, 1, withServer("sh", "-c", "kill -KILL $$"))
}
