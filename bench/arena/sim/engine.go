// Package sim plays replicas of a client against an upstream that enforces a limit, in virtual time.
//
// A run is a list of events in the order of their instants. A request arrives, passes the replica's pacing bucket,
// reaches the upstream and is answered, and the controller of the replica gets the answer. The controllers are the
// real ones; the pacing buckets do what the library's do, and a test of the arena compares both.
package sim

import (
	"cmp"
	"math"
	"math/rand/v2"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// Contender is a way to share a limit.
type Contender struct {
	Name string
	// Policy paces each replica alone; nil: another way is set. It gets all that it may know of the scenario.
	Policy func(s *Scenario) policy.Policy
	// Shared: all replicas draw from one bucket that is filled at the upstream's limit of that instant, and
	// at slotsPace of it where slots are limited. No better way to use this knowledge is known. It knows
	// neither how long a round trip will take nor how much is used up of a window that shrinks.
	Shared bool
	// Deaf: it reads neither Retry-After nor RateLimit fields, so a run is the same whatever the upstream tells.
	Deaf bool
	// Gossip passes the words of controllers that speak on; without it each is alone.
	Gossip bool
}

const (
	maxWait   = 5 * time.Second // then a waiter gives up
	maxQueue  = 10_000
	slotsPace = 0.9 // the best: round trips jitter, so that at more too many requests arrive while all are taken
)

// event is what happens at an instant, to a replica or a request.
type event struct {
	at   time.Duration
	what func(r *Run, who int)
	who  int
}

type request struct {
	who                int
	sent, rtt, reached time.Duration
	policy.Feedback
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
	free     []int   // of requests
	slots    bool    // the controller governs slots
	shared   replica // has the bucket of all
	turn     int     // whose the shared bucket is next
	m        *meter
	whisper  *whisper // nil: no gossip
	// clock is that of a controller, against now: its origin is a whole minute of a wall clock that is half a
	// second off at most.
	clock time.Duration
}

// Play runs scenario s against an upstream, under contender c. The same seed gives the same run.
func Play(s Scenario, kind Kind, fields Fields, c Contender, seed uint64) Result {
	r := &Run{s: &s, c: &c, rng: rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15)), m: newMeter(&s)}
	r.up = NewUpstream(kind, fields, s.Limit, time.Duration(r.rng.Int64N(int64(minutes))))
	r.clock = r.up.phase + minutes + time.Duration(r.rng.Int64N(int64(time.Second))) - time.Second/2
	r.slots = kind == Concurrency
	r.replicas = make([]replica, s.Replicas)
	if c.Gossip {
		r.whisper = &whisper{rng: rand.New(rand.NewPCG(seed, 0xbb67ae8584caa73b)), nodes: make([]node, s.Replicas)}
	}
	for i := range r.replicas {
		life := s.life(i)
		r.push(life.From+time.Duration(r.rng.Int64N(int64(50*time.Millisecond))), (*Run).join, i)
		if life.To < s.Length {
			r.push(life.To, (*Run).leave, i)
		}
	}
	once := []Change{{At: s.Strange.From}, {At: s.Strange.To}, {At: s.Outage.From}, {At: s.Outage.To}}
	for _, list := range [][]Change{s.Limits, s.Hints, once} {
		for _, c := range list {
			r.push(c.At, (*Run).change, 0)
		}
	}
	if s.Stranger > 0 {
		r.push(s.Strange.From, (*Run).intrude, 0)
	}
	for len(r.events) > 0 && r.events[0].at < s.Length {
		e := r.events.pop()
		r.now = e.at
		e.what(r, e.who)
	}
	return r.m.result()
}

func (r *Run) push(at time.Duration, what func(*Run, int), who int) {
	r.events.push(event{at, what, who})
}

func (r *Run) join(i int) {
	p := &r.replicas[i]
	p.live, p.last = true, r.now
	p.bounds = policy.Bounds{Share: r.s.shareAt(r.now), Ceiling: math.Inf(1)}
	if r.s.Ceiling > 0 {
		p.bounds.Ceiling = r.s.Ceiling
	}
	if r.c.Policy != nil {
		p.ctrl = r.c.Policy(r.s).New(r.rng.Uint64())
		if r.s.Start != nil {
			p.ctrl.Next(r.nothing(), policy.Bounds{Share: r.s.Start(i), Ceiling: math.Inf(1)})
		}
		r.obey(p, p.ctrl.Next(r.nothing(), p.bounds))
		p.tokens = r.rng.Float64() * p.size()
	}
	r.await(i)
	r.relist()
}

// nothing is a sample without an answer, now.
func (r *Run) nothing() policy.Sample {
	return policy.Sample{Now: r.now + r.clock, Sent: r.now + r.clock}
}

func (r *Run) leave(i int) {
	r.replicas[i].live, r.replicas[i].queue = false, nil
	r.relist()
}

// await plans the next candidate arrival of a Poisson process with replica i's greatest demand.
func (r *Run) await(i int) {
	r.push(r.now+seconds(min(r.rng.ExpFloat64()/r.s.Most(i), 1e6)), (*Run).arrive, i)
}

func (r *Run) arrive(i int) {
	p := &r.replicas[i]
	if !p.live {
		return
	}
	if r.rng.Float64()*r.s.Most(i) < r.s.demand(i, r.now) {
		r.m.arrived[r.now/time.Second]++
		if len(p.queue) < maxQueue {
			p.queue = append(p.queue, r.now)
			r.serve(i)
		}
	}
	r.await(i)
}

// send sends the request that has waited longest.
func (r *Run) send(i int) {
	p := &r.replicas[i]
	r.m.sent(r.now, r.now-p.queue[0])
	if p.pause.runs(r.now) {
		r.m.Of[Pressed]++
	}
	p.queue = p.queue[1:]
	p.flying++
	way := Span{20 * time.Millisecond, 80 * time.Millisecond}
	if r.s.RTT != nil {
		way = r.s.RTT(i)
	}
	q := request{who: i, sent: r.now, rtt: within(r.rng, way)}
	if len(r.free) == 0 {
		r.free, r.requests = append(r.free, len(r.requests)), append(r.requests, q)
	}
	k := r.free[len(r.free)-1]
	r.free, r.requests[k] = r.free[:len(r.free)-1], q
	r.push(r.now+q.rtt/2, (*Run).reach, k)
}

// within is a random time.
func within(rng *rand.Rand, s Span) time.Duration {
	return s.From + time.Duration(rng.Int64N(int64(s.To-s.From)+1))
}

func (r *Run) reach(k int) {
	q := &r.requests[k]
	delay := q.rtt / 2
	ok := !r.s.Outage.Has(r.now) && r.up.Admit(r.now)
	if ok && r.up.kind == Concurrency {
		delay += serviceTime
		r.push(r.now+serviceTime, func(r *Run, _ int) { r.up.Release() }, 0)
	}
	noise := at(0, r.s.Noise, r.now)
	said := ok && !(noise > 0 && r.rng.Float64() < noise)
	q.reached, q.Feedback = r.now, r.up.Answer(r.now, said)
	if r.s.Lie != nil {
		r.s.Lie(r.now, &q.Feedback)
	}
	r.m.reached(r.now, q.who, q.Outcome)
	r.push(r.now+delay, (*Run).answer, k)
}

func (r *Run) answer(k int) {
	q := r.requests[k]
	r.free = append(r.free, k)
	p := &r.replicas[q.who]
	p.flying--
	if !p.live {
		return
	}
	p.pause.note(&q, r.now)
	if p.ctrl != nil {
		s := policy.Sample{
			Outcome: q.Outcome, RetryAfter: q.RetryAfter, Quota: q.Quotas[0],
			Now: r.now + r.clock, Sent: q.sent + r.clock, Cost: 1, Paced: p.paced,
		}
		if r.slots {
			s.Cost = (r.now - q.sent).Seconds()
			if q.Outcome == policy.Success {
				p.took = cmp.Or(p.took, s.Cost)
				p.took += (s.Cost - p.took) / 16
			}
		}
		p.paced = false
		r.obey(p, p.ctrl.Next(s, p.bounds))
	}
	r.serve(q.who)
}

func (r *Run) intrude(int) {
	if r.s.Strange.Has(r.now) {
		r.up.Admit(r.now)
		r.push(r.now+seconds((.5+r.rng.Float64())/r.s.Stranger), (*Run).intrude, 0)
	}
}

// change puts the limit and the hints of this instant in force.
func (r *Run) change(int) {
	r.up.SetLimit(r.now, at(r.s.Limit, r.s.Limits, r.now))
	r.shared.settle(r.now)
	if r.shared.rate = max(r.s.limitAt(r.now), 1e-3); r.up.kind == Concurrency {
		r.shared.rate *= slotsPace
	}
	h := r.s.shareAt(r.now)
	if r.whisper != nil {
		r.whisper.rehint(h, r.s, r.now)
	}
	for i := range r.replicas {
		p := &r.replicas[i]
		if !p.live || h == p.bounds.Share {
			continue
		}
		p.bounds.Share = h
		if p.ctrl != nil {
			r.obey(p, p.ctrl.Next(r.nothing(), p.bounds))
		}
		r.serve(i)
	}
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
