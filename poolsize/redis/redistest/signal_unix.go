//go:build unix

package redistest

import (
	"os"
	"syscall"
)

// interrupt asks a server to end in an orderly way.
const interrupt = syscall.SIGTERM

func pause(p *os.Process) error  { return p.Signal(syscall.SIGSTOP) }
func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
