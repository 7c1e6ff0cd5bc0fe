//go:build !unix

package mongotest

import "os/exec"

// detach does nothing: sessions are a notion of Unix.
func detach(*exec.Cmd) {}

// kill ends the command.
func kill(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
