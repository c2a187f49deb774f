// Package upstream is an API with a limit, for clients to learn from. It is a token bucket behind HTTP whose
// limit can change while it runs, and a log of everything that reached it.
package upstream

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Tells is how much an upstream says about its limit. It is read and written as text: nothing,
// retry-after, fields.
type Tells uint8

// An upstream's answers carry these fields.
const (
	Nothing    Tells = iota // a bare 429
	RetryAfter              // 429 with Retry-After, in whole seconds
	Fields                  // that, and the fields RateLimit and RateLimit-Policy in every answer
)

var tells = []string{"nothing", "retry-after", "fields"}

// MarshalText returns the text; an error for a value that is none of the above.
func (t Tells) MarshalText() ([]byte, error) {
	if int(t) >= len(tells) {
		return nil, fmt.Errorf("upstream: Tells: %d is above %d", t, Fields)
	}
	return []byte(tells[t]), nil
}

// UnmarshalText reads the text. A body that it cannot read leaves t as it was.
func (t *Tells) UnmarshalText(text []byte) error {
	i := slices.Index(tells, string(text))
	if i < 0 {
		return fmt.Errorf("%q is not nothing, retry-after or fields", text)
	}
	*t = Tells(i)
	return nil
}

// Header fields of a request to an upstream, all of them decimal numbers. Sign sets them.
const (
	HeaderReplica = "Fleet-Replica" // number of the sender
	HeaderSent    = "Fleet-Sent"    // its Clock when the request left
	HeaderLate    = "Fleet-Late"    // how much earlier its limiter would have let it go, nanoseconds
)

// Sign writes on a request who sent it, when by the sender's Clock, and how many nanoseconds earlier it might
// have left.
func Sign(h http.Header, replica int, sent, late int64) {
	h.Set(HeaderReplica, strconv.Itoa(replica))
	h.Set(HeaderSent, strconv.FormatInt(sent, 10))
	h.Set(HeaderLate, strconv.FormatInt(late, 10))
}

// An Arrival is one line of the log. Times count from the upstream's start.
type Arrival struct {
	Sent     time.Duration // when the request left its replica
	Late     time.Duration // how much earlier it might have left: it took so long to wake it up
	Arrived  time.Duration
	Replica  int
	Accepted bool // or else answered with 429
}

// An Upstream is an API with a limit, and the log of all that reached it, which grows for as long as it is used.
// It is safe for use by many goroutines; make one with New.
type Upstream struct {
	clock Clock
	start int64 // by clock
	tells Tells

	mu     sync.Mutex
	bucket *bucket
	log    []Arrival
}

// New returns an upstream that takes limit requests a second, and burst at once. Both are above 0.
func New(c Clock, limit float64, burst int, t Tells) *Upstream {
	return &Upstream{clock: c, start: c.Now(), tells: t, bucket: newBucket(limit, burst)}
}

// SetLimit changes the limit now, without notice. Both are above 0.
func (u *Upstream) SetLimit(limit float64, burst int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.bucket.set(u.Now(), limit, burst)
}

// Since turns a reading of a Clock into time since the upstream's start.
func (u *Upstream) Since(clock int64) time.Duration { return time.Duration(clock - u.start) }

// Now is the time since the upstream's start.
func (u *Upstream) Now() time.Duration { return u.Since(u.clock.Now()) }

// ServeHTTP answers 204, 429 beyond the limit, and 400 when the request is not signed.
func (u *Upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	replica, err1 := strconv.Atoi(r.Header.Get(HeaderReplica))
	sent, err2 := strconv.ParseInt(r.Header.Get(HeaderSent), 10, 64)
	late, err3 := strconv.ParseInt(r.Header.Get(HeaderLate), 10, 64)
	if err := errors.Join(err1, err2, err3); err != nil {
		http.Error(w, "a request must say who sent it and when: "+err.Error(), http.StatusBadRequest)
		return
	}
	if !u.arrive(w.Header(), Arrival{Replica: replica, Sent: u.Since(sent), Late: time.Duration(late)}) {
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// arrive takes a token, and writes the log and the answer in one step, so that the log is in order of
// arrival.
func (u *Upstream) arrive(h http.Header, a Arrival) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	a.Arrived = u.Now()
	a.Accepted = u.bucket.take(a.Arrived)
	u.log = append(u.log, a)
	u.tell(h, a.Accepted)
	return a.Accepted
}

// tell writes what the upstream says about its limit.
func (u *Upstream) tell(h http.Header, accepted bool) {
	b := u.bucket
	if u.tells >= RetryAfter && !accepted {
		h.Set("Retry-After", strconv.Itoa(max(1, ceil(b.wait(1)))))
	}
	if u.tells >= Fields {
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
