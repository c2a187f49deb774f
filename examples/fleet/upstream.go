package main

import (
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"
)

// header is the field of a request that says which replica sent it, and when in nanoseconds.
const header = "Fleet-Departure"

// An arrival is one line of the log. Times count from the upstream's start.
type arrival struct {
	Replica  int
	Sent     time.Duration // when the request left its replica
	Arrived  time.Duration
	Accepted bool // or else answered with 429
}

// An upstream is an API with a limit that may change while it runs, and the log of all that reached it.
type upstream struct {
	start time.Time

	mu     sync.Mutex
	bucket bucket
	log    []arrival
}

func newUpstream(limit float64, burst int) *upstream {
	return &upstream{start: time.Now(), bucket: bucket{limit, float64(burst), float64(burst), 0}}
}

// set changes the limit now, without notice. Tokens that are there stay, up to the new burst.
func (u *upstream) set(limit float64, burst int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.bucket.fill(u.now())
	u.bucket.rate, u.bucket.burst = limit, float64(burst)
	u.bucket.tokens = min(u.bucket.tokens, u.bucket.burst)
}

func (u *upstream) now() time.Duration { return time.Since(u.start) }

// ServeHTTP answers 204, 429 beyond the limit, and 400 when the request does not say who sent it. The token, the
// log and the answer are one step, so that the log is in order of arrival.
func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var a arrival
	if _, err := fmt.Sscan(r.Header.Get(header), &a.Replica, &a.Sent); err != nil || a.Replica < 1 {
		http.Error(w, fmt.Sprint("a request must say who sent it and when: ", err), http.StatusBadRequest)
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	a.Arrived = u.now()
	a.Accepted = u.bucket.take(a.Arrived)
	u.log = append(u.log, a)
	h, b, status := w.Header(), u.bucket, http.StatusNoContent
	if !a.Accepted {
		status = http.StatusTooManyRequests
		h.Set("Retry-After", fmt.Sprint(max(1, math.Ceil(b.wait(1).Seconds()))))
	}
	h.Set("RateLimit-Policy", fmt.Sprintf(`"all";q=%.0f;w=%.0f`, b.burst, math.Ceil(b.burst/b.rate)))
	h.Set("RateLimit", fmt.Sprintf(`"all";r=%.0f;t=%.0f`, math.Floor(b.tokens), math.Ceil(b.wait(b.burst).Seconds())))
	w.WriteHeader(status)
}

// logged is what reached the upstream so far, in order of arrival. Its lines never change.
func (u *upstream) logged() []arrival {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.log[:len(u.log):len(u.log)]
}

// A bucket is the upstream's own limit, written down a second time on purpose: the judge does not borrow the code
// of those it judges. Rate is tokens a second, burst the most, tokens what is there.
type bucket struct {
	rate, burst, tokens float64
	last                time.Duration
}

// fill fills the bucket up to now. Time does not go back.
func (b *bucket) fill(now time.Duration) {
	if now > b.last {
		b.tokens, b.last = min(b.burst, b.tokens+(now-b.last).Seconds()*b.rate), now
	}
}

// take takes a token at now if there is one.
func (b *bucket) take(now time.Duration) bool {
	b.fill(now)
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// wait is how long it is until there are n tokens, if none is taken; 0 if there are.
func (b *bucket) wait(n float64) time.Duration {
	return time.Duration(max(0, n-b.tokens) / b.rate * float64(time.Second))
}
