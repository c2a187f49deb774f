//go:build unix

package redistest

import (
	"syscall"

	"github.com/quotient-go/quotient/internal/kept"
)

func pause(p *kept.Process) error  { return p.Signal(syscall.SIGSTOP) }
func resume(p *kept.Process) error { return p.Signal(syscall.SIGCONT) }
