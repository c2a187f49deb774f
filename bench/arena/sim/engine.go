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
	// Gossip passes the words of controllers that speak on; nil: each is alone.
	Gossip *Gossip
	// Burst is how many seconds' events its pacing buckets hold; 0: a tenth, as in the library.
	Burst float64
}

// Answer is what comes back for one request.
type Answer struct {
	Outcome    policy.Outcome
	RetryAfter time.Duration
	Quota      policy.Quota
}

const (
	maxWait  = 5 * time.Second // then a waiter gives up
	maxQueue = 10_000
	// slotsPace is the best of .88 to 1.1, on the tuning seeds: .882. Round trips jitter, so that at more than nine tenths of the
	// slots too many requests arrive while all are taken. A cap on what is in flight, on top of it or in its place, is no better.
	slotsPace = 0.9

	burst = 0.1 // seconds that a pacing bucket holds if Contender.Burst does not say, at least one event; as in the library
)

// what an event is about.
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
	who  int32
	sent time.Duration
	rtt  time.Duration
	Answer
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
	lie      func(t time.Duration, a *Answer)
	spared   time.Duration // when a fault last let a request pass
	whisper  *whisper      // nil: no gossip
	clock    time.Duration // of a controller, against now: its origin is a whole minute of a wall clock that is half a second off at most
}

// Play runs scenario s against an upstream, under contender c. The same seed gives the same run. The result has
// a Trace point for every trace of virtual time, which changes nothing else; 0 for none.
func Play(s Scenario, kind Kind, fields Fields, c Contender, seed uint64, trace time.Duration) Result {
	r := &Run{s: &s, c: &c, rng: rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15)), free: -1}
	r.up = NewUpstream(kind, fields, s.Limit, time.Duration(r.rng.Int64N(int64(minutes))))
	r.clock = r.up.phase + minutes + time.Duration(r.rng.Int64N(int64(time.Second))) - time.Second/2
	r.slots = kind == Concurrency && !c.RatesOnly
	r.replicas = make([]replica, s.Replicas)
	r.m = newMeter(&s, trace)
	if c.Gossip != nil {
		r.whisper = newWhisper(c.Gossip, s.Replicas, seed)
		r.whisper.parts = s.partsAt(0)
	}
	for i := range r.replicas {
		from, to := s.life(i)
		r.push(from+time.Duration(r.rng.Int64N(int64(50*time.Millisecond))), joins, i)
		if to < s.Length {
			r.push(to, leaves, i)
		}
	}
	r.shared = replica{rate: r.ideal(), burst: burst, live: true}
	r.believed = s.Limit
	r.foresee()
	if s.Lie != nil {
		r.lie = s.Lie()
	}
	if s.Stranger > 0 {
		r.push(s.StrangerFrom, intrudes, 0)
	}
	if c.Coordinate != nil {
		r.push(0, coordinates, 0)
	}
	for len(r.events) > 0 && r.events[0].at < s.Length {
		e := r.events.pop()
		r.m.watch(r, e.at)
		r.now = e.at
		r.do(e)
	}
	return r.m.result()
}

// foresee pushes the changes of the scenario.
func (r *Run) foresee() {
	s := r.s
	for _, list := range [][]Change{s.Limits, s.Hints, {{s.StrangerFrom, 0}, {s.To, 0}}} {
		for _, c := range list {
			r.push(c.At, changes, 0)
		}
	}
	for _, f := range s.Faults {
		r.push(f.From, changes, 0)
		r.push(f.To, changes, 0)
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
	p.live, p.last, p.burst = true, r.now, burst
	if r.c.Burst > 0 {
		p.burst = r.c.Burst
	}
	p.bounds = policy.Bounds{Share: r.s.shareAt(r.now), Ceiling: math.Inf(1)}
	if r.c.Policy != nil {
		if p.ctrl = r.c.Policy(r.s).New(r.rng.Uint64()); p.ctrl != nil {
			if r.s.Start != nil {
				p.ctrl.Next(policy.Sample{Now: r.now + r.clock, Sent: r.now + r.clock}, policy.Bounds{Share: r.s.Start(i), Ceiling: math.Inf(1)})
			}
			r.obey(p, p.ctrl.Next(policy.Sample{Now: r.now + r.clock, Sent: r.now + r.clock}, p.bounds))
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
	r.shared.flying++
	r.m.sent(r.now, i, waited)
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
	fault := r.fault()
	ok := fault == nil && r.up.Admit(r.now)
	if ok && r.up.kind == Concurrency {
		delay += serviceTime
		r.push(r.now+serviceTime, served, 0)
	}
	said := ok && !(r.s.Noise > 0 && r.rng.Float64() < r.s.Noise)
	f := r.up.Answer(r.now, said)
	if fault != nil {
		delay += fault.After
		if fault.Outcome != policy.Throttled {
			f = policy.Feedback{Outcome: fault.Outcome}
		}
	}
	q.Answer = Answer{f.Outcome, f.RetryAfter, f.Quotas[0]}
	if r.lie != nil {
		r.lie(r.now, &q.Answer)
	}
	r.m.reached(r.now, int(q.who), q.Outcome)
	r.push(r.now+delay, answers, int(k))
}

// fault is what makes the request fail that is here now, nil for nothing.
func (r *Run) fault() *Fault {
	f := r.s.faultAt(r.now)
	switch {
	case f == nil || f.Part < 1 && r.rng.Float64() >= f.Part:
		return nil
	case f.Except > 0 && r.now-max(r.spared, f.From) >= f.Except:
		r.spared = r.now
		return nil
	}
	return f
}

func (r *Run) answer(k int32) {
	q := &r.requests[k]
	i := int(q.who)
	p := &r.replicas[i]
	p.flying--
	r.shared.flying--
	if p.ctrl != nil && p.live {
		s := policy.Sample{
			Outcome: q.Outcome, RetryAfter: q.RetryAfter, Quota: q.Quota,
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

// intrude is the stranger's request.
func (r *Run) intrude() {
	if r.now >= r.s.To {
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
			r.obey(p, p.ctrl.Next(policy.Sample{Now: r.now + r.clock, Sent: r.now + r.clock}, p.bounds))
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
