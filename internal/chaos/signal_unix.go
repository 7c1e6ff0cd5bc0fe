//go:build unix

package chaos

import (
	"os/exec"
	"syscall"
)

const (
	signalStop   = syscall.SIGSTOP
	signalResume = syscall.SIGCONT
)

// separate gives the process a group of its own. When its parent dies, the group is an orphan: then the system wakes a stopped process in
// it, and ends it.
func separate(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
