//go:build !unix

package mongotest

import (
	"os/exec"
	"syscall"
)

// detach does nothing: sessions are a notion of Unix.
func detach(*exec.Cmd) {}

// kill ends the command.
func kill(cmd *exec.Cmd) { _ = cmd.Process.Kill() }

// Signals are a notion of Unix as well: sending the last two fails.
const (
	signalKill   = syscall.SIGKILL
	signalStop   = syscall.Signal(-1)
	signalResume = syscall.Signal(-1)
)
