// Package sim plays replicas of a client against an upstream that enforces a limit, in virtual time.
//
// A run is a list of events in the order of their instants. A request arrives, passes the replica's pacing
// bucket, reaches the upstream and is answered, and the controller of the replica gets the answer. The
// controllers are the real ones; the pacing buckets do what the library's do, and a test of the arena
// compares both.
package sim

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// Contender is a way to share a limit.
type Contender struct {
	Name string
	// Policy paces each replica alone; nil for a shared bucket. It gets all that it may know of the
	// scenario.
	Policy func(s *Scenario) policy.Policy
	// Shared: all replicas draw from one bucket that is filled at the upstream's limit of that instant, and
	// at slotsPace of it where slots are limited. No better way to use this knowledge is known. It knows
	// neither how long a round trip will take nor how much is used up of a window that shrinks.
	Shared bool
	// Coordinate sets the rates of all replicas once a second, from what each wants; nil: each acts alone.
	Coordinate func(limit float64, wants, rates []float64)
	// RatesOnly: against an upstream that limits slots in flight it still governs a rate.
	RatesOnly bool
	// Deaf: it reads neither Retry-After nor RateLimit fields, so a run is the same whatever the upstream tells.
	Deaf bool
	// Gossip passes the words of controllers that speak on; without it each is alone.
	Gossip bool
}

const (
	maxWait  = 5 * time.Second // then a waiter gives up
	maxQueue = 10_000
	// slotsPace is the best of .88 to 1.1, on the tuning seeds: .882. Round trips jitter, so that at more than
	// nine tenths of the slots too many requests arrive while all are taken. A cap on what is in flight, on top
	// of it or in its place, is no better.
	slotsPace = 0.9

	burst = 0.1 // seconds that a pacing bucket holds, at least one event; as in the library
)

type kind uint8

const (
	arrives kind = iota
	wakes
	reaches
	served
	answers
	joins
	leaves
	intrudes
	changes
	coordinates
	learns
	gossips
	whispers
)

type event struct {
	at   time.Duration
	what kind
	who  int32 // replica, or request
}

type request struct {
	who       int32
	sent, rtt time.Duration
	policy.Feedback
	next int32
}

// Run is one scenario, played once.
type Run struct {
	s        *Scenario
	c        *Contender
	up       *Upstream
	rng      *rand.Rand
	now      time.Duration
	events   heap
	replicas []replica
	requests []request
	free     int32
	slots    bool // the controller governs slots
	shared   replica
	turn     int
	m        *meter
	believed float64
	whisper  *whisper // nil: no gossip
	// clock is that of a controller, against now: its origin is a whole minute of a wall clock that is half a
	// second off at most.
	clock time.Duration
}

// Play runs scenario s against an upstream, under contender c. The same seed gives the same run.
func Play(s Scenario, kind Kind, fields Fields, c Contender, seed uint64) Result {
	r := &Run{s: &s, c: &c, rng: rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15)), free: -1}
	r.up = NewUpstream(kind, fields, s.Limit, time.Duration(r.rng.Int64N(int64(minutes))))
	r.clock = r.up.phase + minutes + time.Duration(r.rng.Int64N(int64(time.Second))) - time.Second/2
	r.slots = kind == Concurrency && !c.RatesOnly
	r.replicas = make([]replica, s.Replicas)
	r.m = newMeter(&s)
	if c.Gossip {
		r.whisper = newWhisper(s.Replicas, seed)
		r.whisper.parts = s.partsAt(0)
	}
	for i := range r.replicas {
		life := s.life(i)
		r.push(life.From+time.Duration(r.rng.Int64N(int64(50*time.Millisecond))), joins, i)
		if life.To < s.Length {
			r.push(life.To, leaves, i)
		}
	}
	r.shared = replica{rate: r.ideal(), live: true}
	r.believed = s.Limit
	r.foresee()
	if s.Stranger > 0 {
		r.push(s.Strange.From, intrudes, 0)
	}
	if c.Coordinate != nil {
		r.push(0, coordinates, 0)
	}
	for len(r.events) > 0 && r.events[0].at < s.Length {
		e := r.events.pop()
		r.now = e.at
		r.do(e)
	}
	return r.m.result()
}

func (r *Run) foresee() {
	s := r.s
	for _, list := range [][]Change{s.Limits, s.Hints, {{s.Strange.From, 0}, {s.Strange.To, 0}}} {
		for _, c := range list {
			r.push(c.At, changes, 0)
		}
	}
	if s.Outage.To > 0 {
		r.push(s.Outage.From, changes, 0)
		r.push(s.Outage.To, changes, 0)
	}
}

// ideal is the rate at which the shared bucket is filled now.
func (r *Run) ideal() float64 {
	x := max(r.s.limitAt(r.now), 1e-3)
	if r.up.kind == Concurrency {
		x *= slotsPace
	}
	return x
}

func (r *Run) push(at time.Duration, what kind, who int) {
	r.events.push(event{at, what, int32(who)})
}

func (r *Run) do(e event) {
	switch e.what {
	case joins:
		r.join(int(e.who))
	case leaves:
		r.leave(int(e.who))
	case arrives:
		r.arrive(int(e.who))
	case wakes:
		p := r.pacerOf(int(e.who))
		if p.wakeAt == e.at {
			p.asleep = false
			r.serve(int(e.who))
		}
	case reaches:
		r.reach(e.who)
	case served:
		r.up.Release()
	case answers:
		r.answer(e.who)
	case intrudes:
		r.intrude()
	case changes:
		r.change()
	case coordinates:
		r.coordinate()
	case learns:
		r.learn(int(e.who))
	case gossips:
		r.gossip(int(e.who))
		r.serve(int(e.who))
	case whispers:
		r.receive(e.who)
	}
}

func (r *Run) join(i int) {
	p := &r.replicas[i]
	p.live, p.last = true, r.now
	p.bounds = policy.Bounds{Share: r.s.shareAt(r.now), Ceiling: math.Inf(1)}
	if r.c.Policy != nil {
		if p.ctrl = r.c.Policy(r.s).New(r.rng.Uint64()); p.ctrl != nil {
			if r.s.Start != nil {
				p.ctrl.Next(r.nothing(), policy.Bounds{Share: r.s.Start(i), Ceiling: math.Inf(1)})
			}
			r.obey(p, p.ctrl.Next(r.nothing(), p.bounds))
		} else {
			p.rate = p.bounds.Share
		}
		p.tokens = r.rng.Float64() * p.size()
	}
	if r.c.Coordinate != nil {
		p.rate = p.bounds.Share + .01
	}
	r.push(r.now+r.gap(i), arrives, i)
	r.relist()
}

// nothing is a sample without an answer, now.
func (r *Run) nothing() policy.Sample {
	return policy.Sample{Now: r.now + r.clock, Sent: r.now + r.clock}
}

func (r *Run) leave(i int) {
	p := &r.replicas[i]
	p.live, p.queue, p.head = false, nil, 0
	r.relist()
}

// gap is the time to the next candidate arrival of a Poisson process with replica i's greatest demand.
func (r *Run) gap(i int) time.Duration {
	most := r.s.Most(i)
	if most <= 0 {
		return r.s.Length
	}
	return seconds(min(r.rng.ExpFloat64()/most, 1e6))
}

func (r *Run) arrive(i int) {
	p := &r.replicas[i]
	if !p.live {
		return
	}
	if r.rng.Float64()*r.s.Most(i) < r.s.Demand(i, r.now) {
		p.wanted++
		r.m.arrived(r.now)
		if len(p.queue)-p.head < maxQueue {
			p.queue = append(p.queue, r.now)
			r.serve(i)
		}
	}
	r.push(r.now+r.gap(i), arrives, i)
}

func (r *Run) send(p *replica, i int) {
	waited := r.now - p.queue[p.head]
	p.head++
	p.tokens--
	p.flying++
	r.m.sent(r.now, waited)
	k := r.free
	if k < 0 {
		r.requests = append(r.requests, request{})
		k = int32(len(r.requests) - 1)
	} else {
		r.free = r.requests[k].next
	}
	least, most := 20*time.Millisecond, 80*time.Millisecond
	if r.s.RTT != nil {
		least, most = r.s.RTT(i)
	}
	rtt := least + time.Duration(r.rng.Int64N(int64(most-least)+1))
	r.requests[k] = request{who: int32(i), sent: r.now, rtt: rtt}
	r.push(r.now+rtt/2, reaches, int(k))
}

func (r *Run) reach(k int32) {
	q := &r.requests[k]
	delay := q.rtt / 2
	ok := !r.s.Outage.Has(r.now) && r.up.Admit(r.now)
	if ok && r.up.kind == Concurrency {
		delay += serviceTime
		r.push(r.now+serviceTime, served, 0)
	}
	said := ok && !(r.s.Noise > 0 && r.rng.Float64() < r.s.Noise)
	q.Feedback = r.up.Answer(r.now, said)
	if r.s.Lie != nil {
		r.s.Lie(r.now, &q.Feedback)
	}
	r.m.reached(r.now, int(q.who), q.Outcome)
	r.push(r.now+delay, answers, int(k))
}

func (r *Run) answer(k int32) {
	q := &r.requests[k]
	i := int(q.who)
	p := &r.replicas[i]
	p.flying--
	if p.ctrl != nil && p.live {
		s := policy.Sample{
			Outcome: q.Outcome, RetryAfter: q.RetryAfter, Quota: q.Quotas[0],
			Now: r.now + r.clock, Sent: q.sent + r.clock, Cost: 1, Paced: p.paced,
		}
		if r.slots {
			s.Cost = (r.now - q.sent).Seconds()
			if q.Outcome == policy.Success {
				if p.took == 0 {
					p.took = s.Cost
				}
				p.took += (s.Cost - p.took) / 16
			}
		}
		p.paced = false
		r.obey(p, p.ctrl.Next(s, p.bounds))
	}
	q.next, r.free = r.free, k
	if p.live {
		r.serve(i)
	}
}

func (r *Run) intrude() {
	if r.now >= r.s.Strange.To {
		return
	}
	r.up.Admit(r.now)
	r.push(r.now+seconds((.5+r.rng.Float64())/r.s.Stranger), intrudes, 0)
}

// change puts the limit and the hints of this instant in force.
func (r *Run) change() {
	r.up.SetLimit(r.now, at(r.s.Limit, r.s.Limits, r.now))
	r.shared.settle(r.now)
	r.shared.rate = r.ideal()
	if r.whisper != nil {
		r.whisper.parts = r.s.partsAt(r.now)
	}
	for i := range r.replicas {
		p := &r.replicas[i]
		h := r.s.shareAt(r.now)
		if !p.live || h == p.bounds.Share {
			continue
		}
		p.bounds.Share = h
		if p.ctrl != nil {
			r.obey(p, p.ctrl.Next(r.nothing(), p.bounds))
		} else if r.c.Coordinate == nil {
			p.settle(r.now)
			p.rate = h
		}
		r.serve(i)
	}
}

// coordinate lets the reference divide the limit by what each replica wants.
func (r *Run) coordinate() {
	n := len(r.replicas)
	wants, rates := make([]float64, n), make([]float64, n)
	for i := range r.replicas {
		p := &r.replicas[i]
		if p.live {
			wants[i] = p.wanted + 1e-3 + float64(len(p.queue)-p.head)
		}
		p.wanted = 0
	}
	r.c.Coordinate(r.believed, wants, rates)
	for i := range r.replicas {
		if p := &r.replicas[i]; p.live {
			p.settle(r.now)
			p.rate = max(rates[i], 1e-3)
			r.serve(i)
		}
	}
	r.push(r.now+time.Second, coordinates, 0)
}

// heap is a binary heap of events by time.
type heap []event

func (h *heap) push(e event) {
	*h = append(*h, e)
	l, i := *h, len(*h)-1
	for i > 0 && l[(i-1)/2].at > e.at {
		l[i], i = l[(i-1)/2], (i-1)/2
	}
	l[i] = e
}

func (h *heap) pop() event {
	top, l := (*h)[0], (*h)[:len(*h)-1]
	e := (*h)[len(l)]
	*h = l
	for i := 0; i < len(l); {
		down := 2*i + 1
		if down+1 < len(l) && l[down+1].at < l[down].at {
			down++
		}
		if down >= len(l) || e.at <= l[down].at {
			l[i] = e
			break
		}
		l[i], i = l[down], down
	}
	return top
}
