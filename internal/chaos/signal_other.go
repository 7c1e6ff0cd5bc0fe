//go:build !unix

package chaos

import (
	"os/exec"
	"syscall"
)

// Stopping a process is a notion of Unix: sending these fails.
const (
	signalStop   = syscall.Signal(-1)
	signalResume = syscall.Signal(-1)
)

func separate(*exec.Cmd) {}
