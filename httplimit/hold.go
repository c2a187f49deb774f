package httplimit

import "sync/atomic"

// hold is what outlives the call that took it. It may be ended from any goroutine and any number of
// times: its permits are released once.
type hold struct {
	held admission
	over atomic.Bool
}

func (h *hold) end() {
	if h.over.CompareAndSwap(false, true) {
		h.held.Release()
	}
}

// closeWriter is a connection that can end one direction, as TCP can.
type closeWriter interface{ CloseWrite() error }
