package httplimit

import (
	"sync/atomic"

	"github.com/quotient-go/quotient"
)

// hold is a permit that outlives the call that took it. It may be ended from any goroutine and any number of
// times: the permit is released once.
type hold struct {
	permit quotient.Permit
	over   atomic.Bool
}

func (h *hold) end() {
	if h.over.CompareAndSwap(false, true) {
		h.permit.Release()
	}
}

// closeWriter is a connection that can end one direction, as TCP can.
type closeWriter interface{ CloseWrite() error }
