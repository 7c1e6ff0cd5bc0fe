//go:build !unix

package chaos

import (
	"os/exec"
	"syscall"
)

// A process can be stopped on Unix only, so sending these signals fails.
const (
	signalStop   = syscall.Signal(-1)
	signalResume = syscall.Signal(-1)
)

func separate(*exec.Cmd) {}
