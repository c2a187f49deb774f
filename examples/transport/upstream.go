package main

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// upstream is a server with a limit of its own, a bucket, that says nothing about it but 429.
type upstream struct {
	mu            sync.Mutex
	left          float64
	last          time.Time
	seen          tally
	working, most int
}

// ServeHTTP answers after ten milliseconds, or at once if it refuses.
func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer u.begin()()
	if !u.admits() {
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	if sleep(r.Context(), 10*time.Millisecond) == nil {
		_, _ = io.WriteString(w, "an answer\n") // a client that has left is no error
	}
}

// begin counts a request as being worked on until the function that it returns is called.
func (u *upstream) begin() (end func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.working++
	u.most = max(u.most, u.working)
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.working--
	}
}

func (u *upstream) admits() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	if u.last.IsZero() {
		u.left, u.last = perSecond/10, now
	}
	u.left = min(perSecond/10, u.left+perSecond*now.Sub(u.last).Seconds())
	u.last = now
	if u.left < 1 {
		u.seen.refused++
		return false
	}
	u.left--
	u.seen.served++
	return true
}

func (u *upstream) counted() tally {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.seen
}

// check returns an error if more requests came at a time than the client may send. A server sees the end of
// its answer a moment later than the client, so that one more a caller is no proof.
func (u *upstream) check() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.most > 2*inFlight-1 {
		return fmt.Errorf("%d requests at a time, want %d", u.most, inFlight)
	}
	return nil
}
