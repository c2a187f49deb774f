package main

import (
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"
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

// An upstream is an API with a limit that may change while it runs, and the log of all that reached it. Its bucket
// shares no code with those that it judges.
type upstream struct {
	start  time.Time
	bucket *rate.Limiter

	mu  sync.Mutex
	log []arrival
}

func newUpstream(limit float64, burst int) *upstream {
	return &upstream{start: time.Now(), bucket: rate.NewLimiter(rate.Limit(limit), burst)}
}

// set changes the limit now, without notice. Tokens that are there stay, up to the new burst.
func (u *upstream) set(limit float64, burst int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.bucket.SetLimit(rate.Limit(limit))
	u.bucket.SetBurst(burst)
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
	now := time.Now()
	a.Arrived = now.Sub(u.start)
	a.Accepted = u.bucket.AllowN(now, 1)
	u.log = append(u.log, a)
	tokens, limit, burst := u.bucket.TokensAt(now), float64(u.bucket.Limit()), float64(u.bucket.Burst())
	h, status := w.Header(), http.StatusNoContent
	if !a.Accepted {
		status = http.StatusTooManyRequests
		h.Set("Retry-After", fmt.Sprint(max(1, math.Ceil((1-tokens)/limit))))
	}
	h.Set("RateLimit-Policy", fmt.Sprintf(`"all";q=%.0f;w=%.0f`, burst, math.Ceil(burst/limit)))
	h.Set("RateLimit", fmt.Sprintf(`"all";r=%.0f;t=%.0f`, math.Floor(tokens), math.Ceil((burst-tokens)/limit)))
	w.WriteHeader(status)
}

// logged is what reached the upstream so far, in order of arrival. Its lines never change.
func (u *upstream) logged() []arrival {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.log[:len(u.log):len(u.log)]
}
