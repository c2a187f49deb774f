// Package upstream is an API with a limit, for clients to learn from. It is a token bucket behind HTTP whose
// limit can change while it runs, and a log of everything that reached it.
package upstream

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// What an upstream says about its limit.
const (
	Nothing    = "nothing"     // a bare 429
	RetryAfter = "retry-after" // 429 with Retry-After, in whole seconds
	Fields     = "fields"      // that, and the fields RateLimit and RateLimit-Policy in every answer
)

// A Clock returns the wall time that all processes on one machine share, and never jumps. It reads the wall
// clock once and counts on from there with the monotonic clock. It is safe for use by many goroutines; make
// one with NewClock.
type Clock struct{ base time.Time }

// NewClock returns a clock that agrees with the wall clock now.
func NewClock() Clock { return Clock{base: time.Now()} }

// Now is in nanoseconds since 1970.
func (c Clock) Now() int64 { return c.base.UnixNano() + int64(time.Since(c.base)) }

// Header is the field of a request that says in JSON who sent it and when: the first three of an Arrival.
const Header = "Fleet-Departure"

// An Arrival is one line of the log. Times count from the upstream's start.
type Arrival struct {
	Replica  int
	Sent     time.Duration // when the request left its replica
	Late     time.Duration // how much earlier it might have left: it took so long to wake it up
	Arrived  time.Duration `json:"-"`
	Accepted bool          `json:"-"` // or else answered with 429
}

// An Upstream is an API with a limit, and the log of all that reached it, which grows for as long as it is used.
// It is safe for use by many goroutines; make one with New.
type Upstream struct {
	Start int64 // by a Clock
	clock Clock
	tell  string

	mu     sync.Mutex
	bucket bucket
	log    []Arrival
}

// New returns an upstream that takes limit requests a second, and burst at once. Both are above 0.
func New(limit float64, burst int, tell string) *Upstream {
	c := NewClock()
	return &Upstream{Start: c.Now(), clock: c, tell: tell, bucket: bucket{limit, float64(burst), float64(burst), 0}}
}

// SetLimit changes the limit now, without notice. Both are above 0. Tokens that are there stay, up to the new burst.
func (u *Upstream) SetLimit(limit float64, burst int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.bucket.fill(u.Now())
	u.bucket.rate, u.bucket.burst = limit, float64(burst)
	u.bucket.tokens = min(u.bucket.tokens, u.bucket.burst)
}

// Now is the time since the upstream's start.
func (u *Upstream) Now() time.Duration { return time.Duration(u.clock.Now() - u.Start) }

// ServeHTTP answers 204, 429 beyond the limit, and 400 when the request does not say who sent it. The token, the log
// and the answer are one step, so that the log is in order of arrival.
func (u *Upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var a Arrival
	if err := json.Unmarshal([]byte(r.Header.Get(Header)), &a); err != nil || a.Replica < 1 {
		http.Error(w, fmt.Sprint("a request must say who sent it and when: ", err), http.StatusBadRequest)
		return
	}
	u.mu.Lock()
	a.Arrived = u.Now()
	a.Accepted = u.bucket.take(a.Arrived)
	u.log = append(u.log, a)
	u.say(w.Header(), a.Accepted)
	u.mu.Unlock()
	if a.Accepted {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.WriteHeader(http.StatusTooManyRequests)
}

// say writes what the upstream says about its limit.
func (u *Upstream) say(h http.Header, accepted bool) {
	b := u.bucket
	if u.tell != Nothing && !accepted {
		h.Set("Retry-After", strconv.Itoa(max(1, ceil(b.wait(1)))))
	}
	if u.tell == Fields {
		h.Set("RateLimit-Policy", fmt.Sprintf(`"all";q=%.0f;w=%.0f`, b.burst, math.Ceil(b.burst/b.rate)))
		h.Set("RateLimit", fmt.Sprintf(`"all";r=%.0f;t=%d`, math.Floor(b.tokens), ceil(b.wait(b.burst))))
	}
}

// ceil is a time in whole seconds, as the fields of HTTP have it.
func ceil(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// Log is what reached the upstream so far, in order of arrival. Its lines never change.
func (u *Upstream) Log() []Arrival {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.log[:len(u.log):len(u.log)]
}

// A bucket is the upstream's own limit, written down a second time on purpose: the judge does not borrow the code of
// those it judges.
type bucket struct {
	rate, burst, tokens float64 // tokens a second, the most, what is there
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
