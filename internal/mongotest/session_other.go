//go:build !unix

package mongotest

import (
	"os/exec"
	"syscall"
)

// detach does nothing, because sessions exist on Unix only.
func detach(*exec.Cmd) {}

// kill ends the command.
func kill(cmd *exec.Cmd) { _ = cmd.Process.Kill() }

// These signals exist on Unix only, so sending the last two fails.
const (
	signalKill   = syscall.SIGKILL
	signalStop   = syscall.Signal(-1)
	signalResume = syscall.Signal(-1)
)
