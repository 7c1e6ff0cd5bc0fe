//go:build unix

package mongotest

import (
	"os/exec"
	"syscall"
)

// detach starts the command in a session of its own.
// Ctrl-C in a terminal reaches all processes of the foreground group, and the one that
// has to clean up must not be among them.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

// kill ends the command and everything that it started.
func kill(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

// The signals that hurt the members of a [Set].
const (
	signalKill   = syscall.SIGKILL
	signalStop   = syscall.SIGSTOP
	signalResume = syscall.SIGCONT
)
