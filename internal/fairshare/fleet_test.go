package fairshare_test

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/quotient-go/quotient/internal/carry"
	"github.com/quotient-go/quotient/internal/fairshare"
)

// fleet is a pool of replicas that share a rate, played tick by tick. It calls Share.Next alone of the
// controller. A replica's allowance, its knowledge and the fate of its reports in the network are worked out
// here.
type fleet struct {
	rng      *rand.Rand
	rate     float64 // events a second, over the fleet
	burst    float64
	all      int // weights
	maxAge   time.Duration
	turns    time.Duration
	calm     bool // nothing is lost or late
	longest  int  // phase, in ticks
	replicas []*replica
	blocked  map[[2]int]int // tick until which one receives nothing of another
	tick     int
	admitted []float64 // in each tick
	onsets   []int     // the tick of each
	broken   string
}

const dt = 10 * time.Millisecond

// word is what a replica said at a tick.
type word struct {
	at   int
	said carry.Terms
}

type packet struct {
	to, from, arrives int
	word
}

type replica struct {
	weight      int
	share       fairshare.Share
	said        carry.Terms
	views       []*word // of each other replica
	mail        []packet
	tokens      float64
	backlog     float64
	owes        float64 // a fraction of an event that is still to be asked for
	part        float64
	ends        time.Duration // by its own clock
	offset      time.Duration
	pace        float64 // of its clock
	last        time.Duration
	taken       float64
	held        bool
	phase       phase
	phaseEnds   int
	next        int // tick of its next turn
	pausedUntil int // neither asks nor turns
	starved     int // tick until which it takes no turns
}

// phase is how a replica's callers ask.
type phase struct {
	perTick float64
	queues  bool // they wait where they are held back
}

func newFleet(seed uint64, calm bool) *fleet {
	f := &fleet{rng: rand.New(rand.NewPCG(seed, 10)), calm: calm, blocked: map[[2]int]int{}}
	n := 1 + f.rng.IntN(12)
	f.turns = []time.Duration{100, 200, 500}[f.rng.IntN(3)] * time.Millisecond
	f.maxAge = f.turns * time.Duration(3+f.rng.IntN(6))
	f.longest = []int{100, 1000, 5000}[f.rng.IntN(3)]
	f.rate = []float64{5, 100, 3000, 30000}[f.rng.IntN(4)]
	f.burst = max(1, f.rate*[]float64{.001, .01, .1}[f.rng.IntN(3)])
	for range n {
		w := 1
		if f.rng.IntN(6) == 0 {
			w = 1 + f.rng.IntN(3)
		}
		f.all += w
		f.replicas = append(f.replicas, &replica{weight: w})
	}
	for _, r := range f.replicas {
		f.boot(r)
		r.tokens = f.size(r)
	}
	return f
}

// boot has a replica begin, with nothing known.
func (f *fleet) boot(r *replica) {
	*r = replica{
		weight: r.weight, views: make([]*word, len(f.replicas)), phase: r.phase, phaseEnds: r.phaseEnds,
		offset: time.Duration(f.rng.IntN(1e9)), pace: 1, next: f.tick + f.rng.IntN(20),
	}
	if !f.calm {
		r.pace = .999 + .002*f.rng.Float64()
	}
	r.last = f.clock(r)
}

func (f *fleet) clock(r *replica) time.Duration {
	return r.offset + time.Duration(float64(time.Duration(f.tick)*dt)*r.pace)
}

func (f *fleet) fair(r *replica) float64 { return float64(r.weight) / float64(f.all) }
func (f *fleet) size(r *replica) float64 { return max(1, f.burst*f.fair(r)) }

// inForce is the part of the rate that a replica may use now.
func (f *fleet) inForce(r *replica) float64 {
	if f.clock(r) < r.ends {
		return max(r.part, f.fair(r))
	}
	return f.fair(r)
}

func (f *fleet) play(ticks int, script func(i int, r *replica)) {
	for end := f.tick + ticks; f.tick < end; f.tick++ {
		sum := 0.0
		for i, r := range f.replicas {
			f.receive(r)
			if !f.calm {
				f.mishap(i, r)
			}
			if script(i, r); f.tick < r.pausedUntil {
				r.refill(f)
				r.tokens = min(r.tokens, f.size(r))
				continue
			}
			if f.tick >= r.next && f.tick >= r.starved {
				f.turn(i, r)
			}
			sum += f.ask(r)
		}
		f.admitted = append(f.admitted, sum)
	}
}

// refill adds what comes in a tick. The bucket is full only behind the calls of that tick.
func (r *replica) refill(f *fleet) { r.tokens += f.inForce(r) * f.rate * dt.Seconds() }

// ask has the callers of a replica ask for a tick, and returns what was admitted.
func (f *fleet) ask(r *replica) (admitted float64) {
	r.refill(f)
	r.owes += r.phase.perTick
	asks := math.Floor(r.owes) + r.backlog
	r.owes -= math.Floor(r.owes)
	admitted = min(asks, math.Floor(r.tokens+1e-9))
	r.tokens = min(r.tokens-admitted, f.size(r))
	r.taken += admitted
	if r.backlog = 0; asks > admitted {
		r.held = true
		if r.phase.queues {
			r.backlog = min(asks-admitted, f.rate)
		}
	}
	return admitted
}

// turn is what a replica's limiter does once in each interval.
func (f *fleet) turn(i int, r *replica) {
	r.next = f.tick + int(f.turns/dt)
	now, seen, news := f.clock(r), f.seen(r), f.reports(i, r)
	pool := fairshare.Pool{Replicas: f.all, Weight: r.weight}
	said, part := r.share.Next(now, seen, news, pool, f.maxAge)
	if said[fairshare.Wanting] > 0 && r.said[fairshare.Wanting] == 0 {
		f.onsets = append(f.onsets, f.tick)
	}
	r.said, r.part = said, part
	r.ends = now + max(0, f.maxAge-news.Age)
	if part != 0 && (part <= f.fair(r) || part > 1+1e-9) {
		f.broken = "a part is neither above the share nor at most 1"
	}
	for to := range f.replicas {
		if to != i {
			f.send(i, to, word{f.tick, said})
		}
	}
}

// seen is what a replica has seen since its turn before.
func (f *fleet) seen(r *replica) fairshare.Seen {
	now := f.clock(r)
	span := now - r.last
	interval := 1 / (f.inForce(r) * f.rate)
	seen := fairshare.Seen{Span: span, Spaced: time.Duration(interval * 1e9), Wants: r.backlog > 0}
	if span > 0 {
		seen.Used = r.taken / f.rate / span.Seconds()
		seen.Wants = seen.Wants || r.held && r.taken+2 >= .8*span.Seconds()/interval
	}
	r.last, r.taken, r.held = now, 0, false
	return seen
}

// reports are the sum of what a replica has received, and of what it has said itself.
func (f *fleet) reports(i int, r *replica) fairshare.Reports {
	n := fairshare.Reports{Sum: r.said}
	for j, v := range r.views {
		switch {
		case j == i:
		case v == nil:
			n.Age = math.MaxInt64
		default:
			for k := range n.Sum {
				n.Sum[k] += v.said[k]
			}
			age := time.Duration(f.tick-v.at) * dt
			n.Age = max(n.Age, time.Duration(math.Ceil(float64(age)*r.pace)))
		}
	}
	return n
}

func (f *fleet) send(from, to int, w word) {
	p := packet{to: to, from: from, arrives: f.tick + 1, word: w}
	if !f.calm {
		if f.tick < f.blocked[[2]int{from, to}] || f.rng.IntN(10) == 0 {
			return
		}
		p.arrives += f.rng.IntN(6)
		if f.rng.IntN(20) == 0 {
			p.arrives += f.rng.IntN(200) // late, and replayed
			f.replicas[to].mail = append(f.replicas[to].mail, p)
		}
		if f.rng.IntN(20) == 0 { // doubled
			again := p
			again.arrives += f.rng.IntN(100)
			f.replicas[to].mail = append(f.replicas[to].mail, again)
		}
	}
	f.replicas[to].mail = append(f.replicas[to].mail, p)
}

// receive takes in what has arrived. An older word never replaces a newer one.
func (f *fleet) receive(r *replica) {
	kept := r.mail[:0]
	for _, p := range r.mail {
		if p.arrives > f.tick {
			kept = append(kept, p)
			continue
		}
		if v := r.views[p.from]; v == nil || v.at < p.at {
			r.views[p.from] = &p.word
		}
	}
	r.mail = kept
}

// mishap is what happens to replicas and between them.
func (f *fleet) mishap(i int, r *replica) {
	if f.rng.IntN(4000) != 0 {
		return
	}
	until := f.tick + f.rng.IntN(400)
	switch f.rng.IntN(6) {
	case 0:
		f.boot(r) // under the same name: what the others have of it stays
		f.onsets = append(f.onsets, f.tick)
	case 1:
		r.pausedUntil = until
		f.onsets = append(f.onsets, until)
	case 2:
		r.starved = until
	case 3:
		f.blocked[[2]int{i, f.rng.IntN(len(f.replicas))}] = until
	case 4:
		for j := range f.replicas {
			f.blocked[[2]int{j, i}] = until // it is deaf
		}
	case 5:
		for j := range f.replicas { // a partition
			for k := range j {
				if j%2 != k%2 {
					f.blocked[[2]int{j, k}], f.blocked[[2]int{k, j}] = until, until
				}
			}
		}
	}
}

// demand begins another phase of a replica's callers now and then.
func (f *fleet) demand(_ int, r *replica) {
	if f.tick < r.phaseEnds {
		return
	}
	r.phaseEnds = f.tick + 100 + f.rng.IntN(1+f.longest)
	fair, all := f.fair(r)*f.rate*dt.Seconds(), f.rate*dt.Seconds()
	was := r.phase.perTick
	r.phase = phase{queues: f.rng.IntN(2) == 0}
	switch f.rng.IntN(6) {
	case 0, 1:
		r.backlog = 0 // they have gone
	case 2:
		r.phase.perTick = fair * f.rng.Float64()
	case 3:
		r.phase.perTick = all * f.rng.Float64()
	case 4:
		r.phase.perTick = 2 * all
	case 5:
		r.backlog += f.rng.Float64() * f.rate / 2
		r.phase.perTick = fair * f.rng.Float64()
	}
	if r.phase.perTick > was || r.backlog > 0 {
		f.onsets = append(f.onsets, f.tick)
	}
}

// excess is the most by which any window has more than its rate, where each onset makes room for so long.
// Those that make room at the same time count once.
func (f *fleet) excess(lasts time.Duration) (worst float64) {
	extra := make([]float64, len(f.admitted))
	for _, o := range f.onsets {
		for t := o; t < min(o+int(lasts/dt)+1, len(extra)); t++ {
			extra[t] = max(extra[t], f.rate*dt.Seconds()*(1-1/float64(f.all)))
		}
	}
	sum := 0.0
	for t, n := range f.admitted {
		sum = max(0, sum) + n - f.rate*dt.Seconds() - extra[t]
		worst = max(worst, sum)
	}
	return worst
}
