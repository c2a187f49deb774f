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
	last    time.Duration // of tokens
	took    float64       // seconds that a request holds a slot; 0: not known
	hold    time.Duration // nothing before it
	probe   float64       // seconds in each of which one request goes; 0: the rate is in force
	paced   bool
	live    bool
	queue   []time.Duration
	head    int
	asleep  bool
	wakeAt  time.Duration
	flying  int
	wanted  float64 // since the last coordination
}

func (r *Run) pacerOf(i int) *replica {
	if r.c.Shared {
		return &r.shared
	}
	return &r.replicas[i]
}

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
	if now > p.last {
		from := max(p.last, p.hold)
		if now > from {
			p.tokens = min(p.size(), p.tokens+p.fill()*(now-from).Seconds())
		}
		p.last = now
	}
}

func (r *Run) serve(i int) {
	if r.c.Shared {
		r.serveShared()
		return
	}
	p := &r.replicas[i]
	for p.waiting(r) {
		if d := r.until(p); d > 0 {
			p.paced = true
			if d < math.MaxInt64 {
				r.sleep(p, i, d)
			}
			return
		}
		r.send(p, i)
	}
}

// waiting reports whether a request waits, after those that waited too long have gone.
func (p *replica) waiting(r *Run) bool {
	for p.head < len(p.queue) && p.queue[p.head] < r.now-maxWait {
		p.head++
	}
	if p.head == len(p.queue) {
		p.queue, p.head = p.queue[:0], 0
		return false
	}
	if p.head > 4096 {
		p.queue = append(p.queue[:0], p.queue[p.head:]...)
		p.head = 0
	}
	return true
}

// until is how long until one more may go; MaxInt64: not by time alone.
func (r *Run) until(p *replica) time.Duration {
	if r.now < p.hold {
		return p.hold - r.now
	}
	if r.slots && p.flying >= int(p.allowed)+1 {
		return math.MaxInt64
	}
	return p.filled(r.now)
}

// filled is how long until the bucket holds one.
func (p *replica) filled(now time.Duration) time.Duration {
	p.settle(now)
	if p.tokens >= 1-1e-9 {
		return 0
	}
	return max(1, seconds(min((1-p.tokens)/p.fill(), 1e6)))
}

func (r *Run) sleep(p *replica, i int, d time.Duration) {
	if p.asleep && p.wakeAt == r.now+d {
		return
	}
	p.asleep, p.wakeAt = true, r.now+d
	r.push(p.wakeAt, wakes, i)
}

// serveShared lets the replicas take turns at the one bucket.
func (r *Run) serveShared() {
	p := &r.shared
	for {
		i := r.next()
		if i < 0 {
			return
		}
		if d := p.filled(r.now); d > 0 {
			r.sleep(p, i, d)
			return
		}
		r.turn = i + 1
		p.tokens--
		q := &r.replicas[i]
		q.tokens = 1
		r.send(q, i)
	}
}

func (r *Run) next() int {
	for k := range r.replicas {
		i := (r.turn + k) % len(r.replicas)
		if p := &r.replicas[i]; p.live && p.waiting(r) {
			return i
		}
	}
	return -1
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
