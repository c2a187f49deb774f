package httplimit

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/policy"
)

// hold is a permit that outlives the call that took it. It may be ended from
// any goroutine and as often as anybody likes: the permit is released once.
type hold struct {
	permit quotient.Permit
	over   atomic.Bool
}

func (h *hold) end() {
	if h.over.CompareAndSwap(false, true) {
		h.permit.Release()
	}
}

// feedbackOf is what an answer with this status and these fields tells a policy.
func feedbackOf(status int, h http.Header) policy.Feedback {
	f := policy.Feedback{Outcome: policy.Success}
	switch status {
	case http.StatusTooManyRequests:
		f.Outcome = policy.Throttled
	case http.StatusServiceUnavailable:
		f.Outcome = policy.Unavailable
	default:
		return f
	}
	f.RetryAfter, _ = RetryAfter(h, time.Now())
	return f
}

// closeWriter is a connection that can end one direction, as TCP can.
type closeWriter interface{ CloseWrite() error }
