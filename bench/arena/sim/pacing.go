package sim

import (
	"math"
	"time"

	"github.com/quotient-go/quotient/policy"
)

type replica struct {
	ctrl    policy.Controller
	bounds  policy.Bounds
	rate    float64
	allowed float64 // slots
	tokens  float64
	last    time.Duration   // of tokens
	took    float64         // seconds that a request holds a slot; 0: not known
	hold    time.Duration   // nothing before it
	probe   float64         // seconds in each of which one request goes; 0: the rate is in force
	paced   bool            // a request had to wait since the last answer
	live    bool            // it runs
	queue   []time.Duration // when those that wait have come
	wakeAt  time.Duration   // later ones are void
	flying  int
	pause   pause
}

// pause is what refusals have announced to a replica. An upstream may mean nothing by a pause of a second, up to
// which a millisecond is rounded; and no more than ten minutes are asked of a client.
type pause struct {
	made, end time.Duration // when it was announced, by the upstream's clock, and until when
	refuted   bool          // a request was served in one: then none has to be waited out any more
}

// note takes in an answer, which arrives now.
func (p *pause) note(q *request, now time.Duration) {
	switch {
	case q.Outcome == policy.Success:
		p.refuted = p.refuted || p.made < q.reached && q.reached < p.end-time.Second
	case q.RetryAfter > time.Second:
		if now >= p.end {
			p.made = q.reached
		}
		p.end = max(p.end, now+min(q.RetryAfter, 10*time.Minute))
	}
}

// runs reports whether nothing may be sent.
func (p *pause) runs(now time.Duration) bool { return now < p.end && !p.refuted }

const burst = 0.1 // seconds that a pacing bucket holds, at least one event; as in the library

func (p *replica) size() float64 {
	if p.probe > 0 {
		return 1
	}
	return max(1, p.rate*burst)
}

func (p *replica) fill() float64 {
	if p.probe > 0 {
		return 1 / p.probe
	}
	return p.rate
}

func (p *replica) settle(now time.Duration) {
	if from := max(p.last, p.hold); now > from {
		p.tokens = min(p.size(), p.tokens+p.fill()*(now-from).Seconds())
	}
	p.last = max(p.last, now)
}

// pacer is whose bucket replica i draws from.
func (r *Run) pacer(i int) *replica {
	if r.c.Shared {
		return &r.shared
	}
	return &r.replicas[i]
}

// serve sends what may go from the bucket of replica i.
func (r *Run) serve(i int) {
	p := r.pacer(i)
	for i = r.next(i); i >= 0; i = r.next(i) {
		if d := r.until(p); d > 0 {
			p.paced = true
			if d < math.MaxInt64 && p.wakeAt != r.now+d {
				p.wakeAt = r.now + d
				r.push(p.wakeAt, (*Run).wake, i)
			}
			return
		}
		p.tokens--
		r.turn = i + 1
		r.send(i)
	}
}

func (r *Run) wake(i int) {
	if p := r.pacer(i); p.wakeAt == r.now {
		p.wakeAt = 0
		r.serve(i)
	}
}

// next is which replica may send next: i, or in turn where they share a bucket; -1: no request waits.
func (r *Run) next(i int) int {
	if !r.c.Shared {
		if r.waits(i) {
			return i
		}
		return -1
	}
	for k := range r.replicas {
		if i := (r.turn + k) % len(r.replicas); r.waits(i) {
			return i
		}
	}
	return -1
}

// waits reports whether a request waits, after those that waited too long have gone.
func (r *Run) waits(i int) bool {
	p := &r.replicas[i]
	for len(p.queue) > 0 && p.queue[0] < r.now-maxWait {
		p.queue = p.queue[1:]
	}
	return len(p.queue) > 0
}

// until is how long until one more may go; MaxInt64: not by time alone.
func (r *Run) until(p *replica) time.Duration {
	if r.now < p.hold {
		return p.hold - r.now
	}
	if r.slots && p.flying >= int(p.allowed)+1 {
		return math.MaxInt64
	}
	p.settle(r.now)
	if p.tokens >= 1-1e-9 {
		return 0
	}
	return max(1, seconds(min((1-p.tokens)/p.fill(), 1e6)))
}

func (r *Run) obey(p *replica, x policy.Pace) {
	p.settle(r.now)
	p.rate, p.probe = x.Rate, x.Probe().Seconds()
	if r.slots { // so many slots are so many requests a second
		p.rate, p.allowed = x.Rate/max(p.took, 1e-3), x.Rate
	}
	p.tokens = min(p.tokens, p.size())
	held := p.hold > r.now
	switch p.hold = x.NotBefore - r.clock; {
	case p.hold > r.now: // one at that instant, whatever there was before
		p.tokens, p.last = 1, p.hold
	case held: // and at once if it ends early
		p.tokens, p.last = 1, r.now
	}
}
