package main

import (
	"errors"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// An arrival is one line of the upstream's log. Times count from the upstream's start.
type arrival struct {
	Sent     time.Duration // when the request left its replica
	Late     time.Duration // how much earlier it might have left: it took so long to wake it up
	Arrived  time.Duration
	Replica  int
	Accepted bool // or else answered with 429
}

// A bucket is the upstream's own limit, written down a second time on purpose: the judge does not
// borrow the code of those it judges. It is not safe for concurrent use.
type bucket struct {
	rate, burst float64 // tokens a second, most tokens
	tokens      float64
	last        time.Duration
}

// newBucket returns a full bucket.
func newBucket(rate float64, burst int) *bucket {
	return &bucket{rate: rate, burst: float64(burst), tokens: float64(burst)}
}

// take takes a token at now, or tells how long it is until there is one.
func (b *bucket) take(now time.Duration) (ok bool, wait time.Duration) {
	if now > b.last {
		b.tokens = min(b.burst, b.tokens+(now-b.last).Seconds()*b.rate)
		b.last = now
	}
	if b.tokens >= 1 {
		b.tokens--
		return true, 0
	}
	return false, time.Duration((1 - b.tokens) / b.rate * float64(time.Second))
}

// An upstream is an API with a limit, and the log of all that reached it.
type upstream struct {
	clock clock
	start int64 // by clock

	mu     sync.Mutex
	bucket *bucket
	log    []arrival
}

func newUpstream(c clock, p plan) *upstream {
	return &upstream{clock: c, start: c.now(), bucket: newBucket(p.Limit, p.Burst+p.Room)}
}

// since turns a reading of a clock into time since the upstream's start.
func (u *upstream) since(clock int64) time.Duration { return time.Duration(clock - u.start) }

// now is the time since the upstream's start.
func (u *upstream) now() time.Duration { return u.since(u.clock.now()) }

// ServeHTTP answers 204, or 429 beyond the limit.
func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	replica, err1 := strconv.Atoi(r.Header.Get(headerReplica))
	sent, err2 := strconv.ParseInt(r.Header.Get(headerSent), 10, 64)
	late, err3 := strconv.ParseInt(r.Header.Get(headerLate), 10, 64)
	if err := errors.Join(err1, err2, err3); err != nil {
		http.Error(w, "a request must say who sent it and when: "+err.Error(), http.StatusBadRequest)
		return
	}
	ok, wait := u.arrive(arrival{Replica: replica, Sent: u.since(sent), Late: time.Duration(late)})
	if !ok {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// arrive takes a token and writes the log in one step, so that the log is in order of arrival.
func (u *upstream) arrive(a arrival) (ok bool, wait time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	a.Arrived = u.now()
	a.Accepted, wait = u.bucket.take(a.Arrived)
	u.log = append(u.log, a)
	return a.Accepted, wait
}

// arrivals is the log so far. Its lines never change.
func (u *upstream) arrivals() []arrival {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.log[:len(u.log):len(u.log)]
}
