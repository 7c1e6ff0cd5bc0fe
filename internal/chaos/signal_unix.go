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

// separate puts the process into a group of its own.
// When its parent dies, the group is an orphan.
// Then the system wakes a stopped process in the group and ends it.
func separate(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
