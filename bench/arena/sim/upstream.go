package sim

import (
	"math"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// Fields is what an upstream tells in its answers.
type Fields uint8

// An upstream's answers carry these fields.
const (
	NoFields   Fields = iota // a bare 429
	RetryAfter               // 429 with Retry-After in whole seconds
	AllFields                // that, and limit, remaining and reset in every answer
)

// String returns a short name.
func (f Fields) String() string { return [...]string{"none", "retry", "fields"}[f] }

// Kind is how an upstream counts.
type Kind uint8

// The kinds of upstream. All allow Scenario.Limit events a second in the long run.
const (
	TokenBucket Kind = iota // burst: one second's events
	GCRA                    // burst: a tenth of a second's events, at least 2
	Window1                 // fixed windows of one second
	Window60                // fixed windows of one minute
	SlidingLog              // the last ten seconds, to the event
	Concurrency             // slots: a fifth of a second's events, each held for 200 ms
)

// String returns a short name.
func (k Kind) String() string {
	return [...]string{"bucket", "gcra", "window 1s", "window 60s", "log 10s", "slots"}[k]
}

const (
	logWindow   = 10 * time.Second
	serviceTime = 200 * time.Millisecond
	slotsShare  = 0.2 // of a second's events
	gcraBurst   = 0.1 // seconds
)

// Upstream counts requests and answers them. Instants count from its start and must not go back. It has no lock: a
// run has one goroutine.
type Upstream struct {
	kind   Kind
	fields Fields
	limit  float64 // events per second
	phase  time.Duration

	tokens   float64 // of a bucket
	last     time.Duration
	window   int64
	used     float64
	log      []time.Duration // of admissions
	inFlight float64
}

// NewUpstream returns an upstream that allows limit events a second. At its start so much of a window has
// passed as phase is beyond a multiple of the window.
func NewUpstream(kind Kind, fields Fields, limit float64, phase time.Duration) *Upstream {
	u := &Upstream{kind: kind, fields: fields, limit: limit, phase: phase}
	u.tokens = u.burst()
	u.window = int64(phase / u.per())
	return u
}

func (u *Upstream) burst() float64 {
	if u.kind == GCRA {
		return max(2, u.limit*gcraBurst)
	}
	return max(1, u.limit)
}

func (u *Upstream) per() time.Duration {
	if u.kind == Window60 {
		return time.Minute
	}
	return time.Second
}

func (u *Upstream) settle(now time.Duration) {
	u.tokens = min(u.burst(), u.tokens+u.limit*(now-u.last).Seconds())
	if w := int64((now + u.phase) / u.per()); w != u.window {
		u.window, u.used = w, 0
	}
	for len(u.log) > 0 && u.log[0] <= now-logWindow {
		u.log = u.log[1:]
	}
	u.last = now
}

// SetLimit changes the limit now.
func (u *Upstream) SetLimit(now time.Duration, limit float64) {
	u.settle(now)
	u.limit = limit
	u.tokens = min(u.tokens, u.burst())
}

// quota is the whole quota that is reported, and what is left of it.
func (u *Upstream) quota() (limit, left float64) {
	switch u.kind {
	case Window1, Window60:
		limit = math.Floor(u.limit * u.per().Seconds())
		return limit, limit - u.used
	case SlidingLog:
		limit = math.Floor(u.limit * logWindow.Seconds())
		return limit, limit - float64(len(u.log))
	case Concurrency:
		limit = math.Floor(u.limit * slotsShare)
		return limit, limit - u.inFlight
	}
	return u.burst(), u.tokens
}

// Admit takes one request if the quota allows it.
func (u *Upstream) Admit(now time.Duration) bool {
	u.settle(now)
	if _, left := u.quota(); left < 1 {
		return false
	}
	// Counted in all ways; quota tells the one that is in force.
	u.tokens--
	u.used++
	u.inFlight++
	u.log = append(u.log, now)
	return true
}

// Release frees the slot of a request that was admitted; only Concurrency has slots.
func (u *Upstream) Release() { u.inFlight-- }

// renewal is how long it takes until there is more (next) and until all is renewed (reset).
func (u *Upstream) renewal(now time.Duration) (next, reset time.Duration) {
	switch u.kind {
	case Window1, Window60:
		reset = u.per() - (now+u.phase)%u.per()
		return reset, reset
	case SlidingLog:
		if len(u.log) == 0 {
			return 0, logWindow
		}
		reset = u.log[0] + logWindow - now
		return reset, reset
	case Concurrency:
		return time.Second, 0
	}
	return seconds(max(0, 1-u.tokens) / u.limit), seconds((u.burst() - u.tokens) / u.limit)
}

// Answer is what the upstream says about a request that it has admitted or refused.
func (u *Upstream) Answer(now time.Duration, admitted bool) policy.Feedback {
	f := policy.Feedback{Outcome: policy.Success}
	if !admitted {
		f.Outcome = policy.Throttled
	}
	if u.fields == NoFields {
		return f
	}
	next, reset := u.renewal(now)
	if !admitted {
		f.RetryAfter = max(wholeSeconds(next), time.Second)
	}
	if u.fields == AllFields {
		limit, left := u.quota()
		f.Quotas[0] = policy.Quota{Limit: limit, Remaining: max(0, math.Floor(left)), Reset: wholeSeconds(reset)}
	}
	return f
}

// wholeSeconds rounds up, as the fields of HTTP do.
func wholeSeconds(d time.Duration) time.Duration {
	return (d + time.Second - 1) / time.Second * time.Second
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
