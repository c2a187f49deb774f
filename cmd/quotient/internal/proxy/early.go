package proxy

import (
	"net/http"
	"sync"
	"time"

	"github.com/quotient-go/quotient/cmd/quotient/internal/grpcanswer"
)

// maxEarly is how many lines a second the access log has of requests that were refused early. No limiter stands before
// them, so that any client can have as many refused as it can send.
const maxEarly = 10

// earlyLines holds that bound.
type earlyLines struct {
	mu       sync.Mutex
	until    time.Time // of the second that counts
	lines    int       // in it
	unlogged uint64    // requests since the last line
}

// enter reports whether there may be a line now, and how many requests before it have none.
func (e *earlyLines) enter(now time.Time) (unlogged uint64, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !now.Before(e.until) {
		e.until, e.lines = now.Add(time.Second), 0
	}
	if e.lines == maxEarly {
		e.unlogged++
		return 0, false
	}
	e.lines++
	unlogged, e.unlogged = e.unlogged, 0
	return unlogged, true
}

// lose notes requests whose line was dropped, so that the next one speaks for them.
func (e *earlyLines) lose(requests uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unlogged += requests
}

// Refused is for a server that refuses a request before p has it: the answer gets fields for browsers, and the request
// has its line in the access log. The request has no method if its head was not read. Reason is one of few.
func (p *Proxy) Refused(h http.Header, r *http.Request, status int, reason string) {
	t := p.now.Load()
	if t != nil && t.cors != nil {
		t.cors.set(h, r)
	}
	if t == nil || t.access == nil {
		return
	}
	now := time.Now()
	unlogged, ok := p.early.enter(now)
	if !ok {
		return
	}
	if grpcanswer.Asked(r) { // what is said to it is not said by the status of HTTP
		status = http.StatusOK
	}
	e := &entry{arrived: now, decision: unasked, early: true, unlogged: unlogged, reason: reason, status: status}
	if !p.send(t.access, e, r) {
		p.early.lose(unlogged + 1)
	}
}
