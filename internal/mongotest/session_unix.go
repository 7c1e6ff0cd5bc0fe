//go:build unix

package mongotest

import (
	"os/exec"
	"syscall"
)

// detach starts the command in a session of its own. Ctrl-C in a terminal goes to all processes of the foreground group:
// the one that has to clean up must not be among them.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

// kill ends the command and all that it started.
func kill(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

// The signals by which a [Set] hurts its members.
const (
	signalKill   = syscall.SIGKILL
	signalStop   = syscall.SIGSTOP
	signalResume = syscall.SIGCONT
)
