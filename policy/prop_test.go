package policy_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
	"pgregory.net/rapid"
)

// everyController runs a property for the controllers of all policies.
func everyController(t *testing.T, property func(t *rapid.T, c contract)) {
	for _, c := range contracts {
		t.Run(c.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { property(t, c) })
		})
	}
}

// holds fails when the controller has broken a promise.
func (w *witness) holds(t interface{ Fatalf(string, ...any) }) {
	if w.broken != "" {
		t.Fatalf("%s: %s, at %+v", w.name, w.broken, w.at)
	}
}

// saneBounds are those of a limiter: a share or none, and a ceiling above it or none.
func saneBounds(t *rapid.T) policy.Bounds {
	b := policy.Bounds{Ceiling: math.Inf(1)}
	if rapid.Bool().Draw(t, "hint") {
		b.Share = math.Exp(rapid.Float64Range(-7, 20).Draw(t, "ln share"))
	}
	if rapid.Bool().Draw(t, "limit") {
		b.Ceiling = max(b.Share, 0.001) * math.Exp(rapid.Float64Range(0, 7).Draw(t, "room"))
	}
	return b
}

// saneQuota is what an honest upstream says, or nothing.
func saneQuota(t *rapid.T) policy.Quota {
	if rapid.IntRange(0, 2).Draw(t, "quota") == 0 {
		return policy.Quota{}
	}
	limit := rapid.Float64Range(1, 1e6).Draw(t, "quota's limit")
	return policy.Quota{
		Limit: limit, Remaining: limit * rapid.Float64Range(0, 1).Draw(t, "left"),
		Reset: time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "reset")),
	}
}

// later is a sample that follows one at now, of a request that was sent at any time before it. All requests
// cost the same.
func later(t *rapid.T, now time.Duration, cost float64) policy.Sample {
	now += time.Duration(math.Exp(rapid.Float64Range(7, 26).Draw(t, "ln ns later"))) // 1 µs to 3 minutes
	return policy.Sample{
		Outcome:    policy.Outcome(rapid.IntRange(0, 4).Draw(t, "outcome")),
		RetryAfter: time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "retry")),
		Quota:      saneQuota(t), Now: now,
		Sent:  time.Duration(rapid.Int64Range(0, int64(now)).Draw(t, "sent")),
		Cost:  cost * float64(rapid.IntRange(0, 1).Draw(t, "cost known")),
		Paced: rapid.IntRange(0, 3).Draw(t, "paced") > 0,
	}
}

// After a 429 the rate does not rise until an answer comes to a request that was sent after it, whatever else
// is answered. It stays in bounds, and follows from the seed and the samples.
func TestPropertySaneSamples(t *testing.T) {
	everyController(t, func(t *rapid.T, c contract) {
		w, b := c.witness(rapid.Uint64().Draw(t, "seed")), saneBounds(t)
		s, cost := policy.Sample{}, float64(rapid.IntRange(1, 100).Draw(t, "cost"))
		w.tell(s, b)
		for range rapid.IntRange(1, 60).Draw(t, "samples") {
			if rapid.IntRange(0, 19).Draw(t, "rebound") == 0 {
				b = saneBounds(t)
			}
			s = later(t, s.Now, cost)
			w.tell(s, b)
		}
		w.holds(t)
	})
}

// garbage is a sample without any sense: NaN, infinite and negative numbers, absurd times, a clock that
// jumps.
func garbage(t *rapid.T) policy.Sample {
	span := func(name string) time.Duration {
		return time.Duration(rapid.OneOf(rapid.Int64(),
			rapid.SampledFrom([]int64{0, -1, math.MaxInt64, math.MinInt64}),
			rapid.Int64Range(0, int64(time.Minute))).Draw(t, name))
	}
	return policy.Sample{
		Outcome: policy.Outcome(rapid.Uint8Range(0, 6).Draw(t, "outcome")), RetryAfter: span("retry"),
		Quota: policy.Quota{Limit: number("limit")(t), Remaining: number("left")(t), Reset: span("reset")},
		Now:   span("now"), Sent: span("sent"), Cost: anyCost(t), Paced: rapid.Bool().Draw(t, "paced"),
	}
}

// anyCost is nonsense, or the cost of some request. The limiter itself says what a request costs, and
// none costs less than one event.
func anyCost(t *rapid.T) float64 {
	return rapid.OneOf(rapid.SampledFrom(odd), rapid.Float64Range(1, 1e6)).Draw(t, "cost")
}

func garbageBounds(t *rapid.T) policy.Bounds {
	return policy.Bounds{Share: number("share")(t), Ceiling: number("ceiling")(t), Fleet: garbageFleet(t)}
}

// garbageFleet is any report, or nil.
func garbageFleet(t *rapid.T) *policy.Fleet {
	if rapid.Bool().Draw(t, "no news") {
		return nil
	}
	return &policy.Fleet{
		Weight: number("weight")(t), Limit: number("fleet's limit")(t), Wanting: number("wanting")(t),
		Rate: number("fleet's rate")(t), Used: number("used")(t), Refused: number("refused")(t),
	}
}

// Whatever samples a controller gets, it answers with a finite rate, within bounds where there are any. When
// the nonsense is over it finds back to the limit of its upstream, on a clock that starts again.
func TestPropertyGarbageIsSurvived(t *testing.T) {
	everyController(t, func(t *rapid.T, c contract) {
		w := c.witness(rapid.Uint64().Draw(t, "seed"))
		if rapid.Bool().Draw(t, "good start") {
			w.tell(policy.Sample{}, policy.Bounds{Ceiling: math.Inf(1)})
		}
		b := garbageBounds(t)
		for range rapid.IntRange(1, 40).Draw(t, "samples") {
			if rapid.IntRange(0, 4).Draw(t, "rebound") == 0 {
				b = garbageBounds(t)
			}
			w.tell(garbage(t), b)
		}
		w.holds(t)
		recovers(t, w, rapid.Uint64().Draw(t, "upstream"))
	})
}

// A client has always one more request for an upstream that is a token bucket of one second, and is answered after 20
// to 80 ms. Like a limiter it paces by a bucket of a tenth of a second, keeps a gate closed for an hour at most, and forgets
// all ten minutes after it or the last answer. It cannot send more than 20 times what its upstream serves.
type client struct {
	*witness
	rng          *rand.Rand
	bounds       policy.Bounds
	pace         policy.Pace
	due          time.Duration // when all is forgotten
	tokens       float64
	flights      []policy.Sample
	sent, served int
}

func (c *client) learn(s policy.Sample) {
	c.pace = c.tell(s, c.bounds)
	if c.pace.NotBefore = min(c.pace.NotBefore, s.Now+time.Hour); c.pace.Probe() > 0 {
		c.pace.Rate = 1 / c.pace.Probe().Seconds()
	}
	c.due = max(s.Now, c.pace.NotBefore) + 10*time.Minute
}

// run lets the client ask an upstream of so many a second from one instant to another.
func (c *client) run(t *rapid.T, limit float64, from, to time.Duration) {
	const step = 5 * time.Millisecond
	left := limit
	for now := from; now < to; now += step {
		left = min(limit, left+limit*step.Seconds())
		for len(c.flights) > 0 && c.flights[0].Now <= now {
			c.learn(c.flights[0])
			c.flights = c.flights[1:]
		}
		if now >= c.due {
			c.holds(t)
			c.witness = c.contract.witness(c.rng.Uint64())
			c.learn(policy.Sample{Now: now, Sent: now})
		}
		if now < c.pace.NotBefore {
			c.tokens = 1 - c.pace.Rate*step.Seconds()
			continue
		}
		c.tokens = min(max(1, c.pace.Rate/10), c.tokens+c.pace.Rate*step.Seconds())
		for most := 1 + int(20*limit*step.Seconds()); c.tokens >= 1 && most > 0; most-- {
			back := now + time.Duration(20+c.rng.IntN(60))*time.Millisecond
			s := policy.Sample{Outcome: policy.Throttled, Now: back, Sent: now, Cost: 1, Paced: true}
			if c.tokens, c.sent = c.tokens-1, c.sent+1; left >= 1 {
				left, c.served, s.Outcome = left-1, c.served+1, policy.Success
			}
			c.flights = append(c.flights, s)
			slices.SortStableFunc(c.flights, func(a, b policy.Sample) int { return cmp.Compare(a.Now, b.Now) })
		}
	}
}

// recovers fails unless the controller comes back to the use of an upstream that tells the truth. It has 20
// minutes beyond the hour for which a limiter keeps a gate closed at most.
func recovers(t *rapid.T, w *witness, seed uint64) {
	const limit = 20
	c := &client{witness: w, rng: rand.New(rand.NewPCG(seed, 0)), bounds: policy.Bounds{Ceiling: math.Inf(1)}}
	if rapid.Bool().Draw(t, "share known") {
		c.bounds = policy.Bounds{Share: limit, Ceiling: limit}
	}
	c.learn(policy.Sample{})
	begin := max(0, c.pace.NotBefore-time.Second) // nothing happens behind a gate
	c.run(t, limit, begin, begin+20*time.Minute)
	served, sent := c.served, c.sent
	c.run(t, limit, begin+20*time.Minute, begin+21*time.Minute)
	c.holds(t)
	served, sent = c.served-served, c.sent-sent
	if refused := 1 - float64(served)/float64(sent); served < limit/2*60 || refused > 0.25 {
		t.Fatalf("%s: 20 minutes after the last nonsense it uses %d of %d in a minute at a rate of %.3g, and %.0f %% are refused",
			w.name, served, limit*60, c.pace.Rate, 100*refused)
	}
}

// longestGate is the longest that any controller may close a key for at once.
const longestGate = 31 * 24 * time.Hour

// contract is a policy and what it promises beyond what all controllers do.
type contract struct {
	name   string
	policy policy.Policy
	floor  func(policy.Bounds) float64 // the least rate under sane bounds, if the ceiling allows it
}

// contracts are the policies that learn. The properties of this package hold for all of them.
var contracts = []contract{
	{"AIMD", policy.AIMD{}, func(b policy.Bounds) float64 {
		if b.Share > 0 {
			return min(.1, b.Share/50)
		}
		return 0.1
	}},
	{"Tracking", policy.Tracking{}, func(policy.Bounds) float64 { return 0.02 }},
}

// witness gives a controller and its twin the same samples, and notes the first broken promise.
type witness struct {
	contract
	ctrl, twin policy.Controller
	bounds     policy.Bounds // of the last sample
	rate       float64       // after it
	now        time.Duration // of the last sample
	round      time.Duration // when the round of feedback began
	open       bool          // no answer to a request sent since then has come
	stopped    time.Duration // since when it probes
	probing    bool
	cost       float64 // of a request; 0: not yet known
	varies     bool    // the cost does
	broken     string  // what was broken
	at         policy.Sample
}

func (c contract) witness(seed uint64) *witness {
	w := &witness{contract: c, ctrl: c.policy.New(seed), twin: c.policy.New(seed)}
	w.round, w.stopped = math.MinInt64, math.MinInt64
	return w
}

// tell is one sample, the first of them the one that starts the controller.
func (w *witness) tell(s policy.Sample, b policy.Bounds) policy.Pace {
	pace := w.ctrl.Next(s, b)
	if w.broken == "" {
		w.at = s
		w.broken = w.judge(s, b, pace, w.twin.Next(s, b))
	}
	w.turn(s)
	if !w.probing && pace.Probe() > 0 {
		w.stopped = max(s.Now, pace.NotBefore) // nothing is sent between the two
	}
	w.probing = pace.Probe() > 0
	w.learn(s.Cost)
	w.bounds, w.rate = b, w.allowed(pace)
	return pace
}

// judge returns the promise that a pace breaks; empty when none.
func (w *witness) judge(s policy.Sample, b policy.Bounds, p, twin policy.Pace) string {
	gated := p.NotBefore > max(s.Now, 0) // the clock begins at 0
	switch {
	case p != twin:
		return "the same seed and samples give another pace"
	case !(p.Rate > 0) || math.IsInf(p.Rate, 1):
		return "the rate is not finite and positive"
	case b.Ceiling > 0 && p.Rate > b.Ceiling:
		return "the rate is above the ceiling"
	case sane(b) && w.sound(s) && p.Rate < min(w.floor(b), b.Ceiling)*(1-1e-9):
		return "the rate is below the floor"
	case gated && p.NotBefore.Seconds()-s.Now.Seconds() > longestGate.Seconds()+1:
		return "the gate is shut for longer than 31 days"
	case w.steady(s) && b == w.bounds && b.Fleet == nil && w.allowed(p) > w.rate*(1+1e-6) && w.mustNotRise(s):
		return "the rate rises before the round of feedback is over"
	}
	return ""
}

// allowed is the rate that a pace allows now: that of its probes, if it has any. Those a day apart are none.
func (w *witness) allowed(p policy.Pace) float64 {
	if p.Probe() > 24*time.Hour {
		return 0
	}
	if p.Probe() > 0 {
		return w.cost / p.Probe().Seconds()
	}
	return p.Rate
}

// sane reports whether the bounds are what a limiter gives: a share below the ceiling, and both in range.
func sane(b policy.Bounds) bool {
	return (b.Share == 0 || b.Share >= 1e-6) && b.Share <= b.Ceiling && b.Ceiling >= 1e-6 && b.Share <= 1e12
}

// learn notes what a request costs. A controller may count in requests, and its rate then follows the cost.
func (w *witness) learn(cost float64) {
	if cost > 0 && cost <= 1e12 {
		w.varies = w.varies || w.cost > 0 && cost != w.cost
		w.cost = cost
	}
}

// sound reports whether no request has cost less than one event.
func (w *witness) sound(s policy.Sample) bool {
	return (w.cost == 0 || w.cost >= 1 && !w.varies) && (!(s.Cost > 0) || s.Cost >= 1)
}

// steady reports whether the cost is known and stays.
func (w *witness) steady(s policy.Sample) bool {
	return w.cost > 0 && !w.varies && (!(s.Cost > 0) || s.Cost == w.cost)
}

// mustNotRise reports whether a sample is a refusal, or comes before any answer to a request that was sent
// after one.
func (w *witness) mustNotRise(s policy.Sample) bool {
	return s.Outcome == policy.Throttled || w.open && s.Now >= w.now && !w.ends(s)
}

// ends reports whether a sample is the answer to a request that was sent since the round began.
func (w *witness) ends(s policy.Sample) bool {
	return s.Sent >= w.round && (s.Outcome == policy.Success || s.Outcome == policy.Unavailable)
}

// lifetime is the longest that a clock runs. Controllers need not distinguish instants beyond it.
const lifetime = 70 * 365 * 24 * time.Hour

// turn begins a round at a refusal, and ends it. A refusal of a request that was sent before the last round
// began, or before the controller stopped to probe, says nothing new. Where time goes back, it cannot be
// known what was sent before what.
func (w *witness) turn(s policy.Sample) {
	absurd := s.Now < -lifetime || s.Now > lifetime
	if s.Now < w.now || absurd {
		w.round, w.stopped, w.open = math.MinInt64, math.MinInt64, false
	}
	w.now = s.Now
	switch {
	case absurd:
	case s.Outcome == policy.Throttled && s.Sent >= max(w.round, w.stopped):
		w.round, w.open = s.Now, true
	case w.ends(s):
		w.open = false
	}
}

// tape is a sequence of bytes that samples are read from. At its end it goes on with zeros.
type tape []byte

func (p *tape) next() byte {
	if len(*p) == 0 {
		return 0
	}
	b := (*p)[0]
	*p = (*p)[1:]
	return b
}

// odd are the numbers that controllers are most likely to stumble over.
var odd = []float64{0, math.NaN(), math.Inf(1), math.Inf(-1), -1, math.MaxFloat64, -math.MaxFloat64,
	math.SmallestNonzeroFloat64}

// number takes one byte for an odd number, and two for others: from 1e-9 to 1e15, in even steps of the
// logarithm.
func (p *tape) number() float64 {
	b := p.next()
	if int(b) < len(odd) {
		return odd[b]
	}
	return math.Pow(10, float64(b)/10-9) * (1 + float64(p.next())/256)
}

// span is a number of milliseconds, or an absurd time.
func (p *tape) span() time.Duration {
	switch b := p.next(); b {
	case 255:
		return math.MaxInt64
	case 254:
		return math.MinInt64
	case 253:
		return -time.Duration(p.next()) * time.Second
	default:
		return time.Duration(b) * time.Duration(p.next()) * time.Millisecond
	}
}

// sample reads one sample; its first byte says what it has besides an instant and an outcome.
func (p *tape) sample(now time.Duration) policy.Sample {
	flags := p.next()
	s := policy.Sample{Outcome: policy.Outcome(flags & 7), Paced: flags&8 != 0, Now: now + p.span(), Cost: 1}
	s.Sent = s.Now - p.span()
	if flags&16 != 0 {
		s.RetryAfter = p.span()
	}
	if flags&32 != 0 {
		s.Quota = policy.Quota{Limit: p.number(), Remaining: p.number(), Reset: p.span()}
	}
	if flags&64 != 0 {
		s.Cost = p.number()
	}
	return s
}

// tapes are the beginnings of the corpus: a plain life, a blackout, fields, and a clock that jumps.
var tapes = []string{
	"\x00\x64\x00\x64\x00\x08\x0a\x0a\x0a\x0a\x02\x0a\x0a\x0a\x0a\x09\x0a\x0a\x0a\x0a",
	"\x00\x64\x64\x02\x64\x64\x02\x64\x64\x02\x64\x64\x12\x64\x64\x0a\x64\x01\x64\x64\x09\x64\x64\x01\x01",
	"\x00\x29\x0a\x0a\x01\x01\x78\x00\x6e\x00\x0a\x64\x29\x0a\x0a\x01\x01\x78\x00\x00\x0a\x64",
	"\x00\x02\xff\x00\x09\xfe\x00\x09\x0a\x0a\xff\x5a\xfd\x05\xff\x01\x02\x03",
}

// FuzzController holds for all policies what every controller promises (see witness.judge), for any samples and
// bounds, also with reports of others in these, true or not.
func FuzzController(f *testing.F) {
	for _, t := range tapes {
		f.Add(uint64(1), false, []byte(t))
		f.Add(uint64(1), true, []byte("\x01"+t))
	}
	for _, life := range []struct {
		seed  uint64
		bytes string
	}{
		{123, "0X0X0|00000000000000c000000000000S00 00000B7\x950\xb2001A\xa1Xx0"},
		{194, "00000\xe7\xfe00000000\x04a0X02\xff00000000002" +
			"\xd0X000000000010\xfe0000000000\x8dX\xcf002Zx\xcc\xc50000000090001"},
		{53, "\x01\x00" + strings.Repeat("q", 150) + "\x00d" + strings.Repeat("q", 45)},
		{5, "\xf5\xe9\x86H" + strings.Repeat("y", 900)},
		{156, strings.Repeat("\xfc\xcd"+strings.Repeat("\xa9", 200), 3)},
	} {
		f.Add(life.seed, false, []byte(life.bytes))
	}
	f.Add(uint64(62), true, []byte("\x0100\a00\x02000000007000000000000000000000000")) // a pull that once overflowed
	for seed := range uint64(20) {                                                     // and long lives
		life, random := make([]byte, 1000), rand.New(rand.NewPCG(seed, 0))
		for i := range life {
			life[i] = byte(random.Uint32())
		}
		f.Add(seed, false, life)
	}
	f.Fuzz(func(t *testing.T, seed uint64, news bool, data []byte) {
		for _, c := range contracts {
			p, w := tape(data), c.witness(seed)
			varied := p.next()&1 == 1 // else all requests cost the same, and rates can be compared
			bounds := func() policy.Bounds {
				b := policy.Bounds{Share: p.number(), Ceiling: p.number()}
				if news {
					b.Fleet = &policy.Fleet{Weight: 1 + p.number(), Limit: p.number(), Wanting: p.number(),
						Rate: p.number(), Used: p.number(), Refused: p.number()}
				}
				return b
			}
			s, b := policy.Sample{}, bounds()
			w.tell(s, b)
			for len(p) > 0 {
				if s = p.sample(s.Now); s.Outcome == 7 { // no outcome at all: new bounds
					s.Outcome, b = policy.Unknown, bounds()
				}
				if !varied {
					s.Cost = 1
				}
				w.tell(s, b)
			}
			w.holds(t)
		}
	})
}

// life is one controller that is given its samples by hand. Times are in seconds, and a request has always
// been under way for rtt.
type life struct {
	policy.Pace
	ctrl   policy.Controller
	bounds policy.Bounds
	now    float64
}

const rtt = 0.05

func seconds(s float64) time.Duration { return time.Duration(math.Round(s * float64(time.Second))) }

// born starts a controller at a share or, if that is 0, without one.
func born(share float64) *life { return lives(policy.Tracking{}, share) }

// grown is a controller without a share whose slow start a refusal has ended.
func grown(p policy.Tracking) *life {
	l := lives(p, 0)
	l.serve(0.1)
	l.refuse(0.1)
	return l
}

func lives(p policy.Tracking, share float64) *life {
	l := &life{ctrl: p.New(1),
		bounds: policy.Bounds{Share: share, Ceiling: math.Inf(1)}}
	l.Pace = l.ctrl.Next(policy.Sample{}, l.bounds)
	return l
}

// tell is any sample at all, with nothing added.
func (l *life) tell(s policy.Sample) float64 {
	l.now = s.Now.Seconds()
	l.Pace = l.ctrl.Next(s, l.bounds)
	return l.Rate
}

// answer is the answer to a request of cost 1 that was under way for rtt, while the pace held others back.
func (l *life) answer(after float64, o policy.Outcome) float64 {
	at := seconds(l.now + after)
	return l.tell(policy.Sample{Outcome: o, Now: at, Sent: at - seconds(rtt), Cost: 1, Paced: true})
}

func (l *life) serve(after float64) float64  { return l.answer(after, policy.Success) }
func (l *life) refuse(after float64) float64 { return l.answer(after, policy.Throttled) }

// serveFor is success for some time, every so often.
func (l *life) serveFor(length, every float64) float64 {
	for range int(math.Round(length / every)) {
		l.serve(every)
	}
	return l.Rate
}

// quoted is a success with a quota, every so often for some time.
func (l *life) quoted(length, every float64, quota func(now float64) policy.Quota) float64 {
	for range int(math.Round(length / every)) {
		at := seconds(l.now + every)
		l.tell(policy.Sample{Outcome: policy.Success, Now: at, Sent: at - seconds(rtt), Cost: 1, Paced: true,
			Quota: quota(at.Seconds())})
	}
	return l.Rate
}

// hint changes the share after some time.
func (l *life) hint(after, share float64) float64 {
	l.bounds.Share = share
	return l.tell(policy.Sample{Now: seconds(l.now + after)})
}

// darken refuses until the controller waits for a single probe, at most so often.
func (l *life) darken(t *testing.T, every float64) *life {
	t.Helper()
	for range 1000 {
		if l.refuse(every); l.NotBefore > seconds(l.now) {
			return l
		}
	}
	t.Fatal("a thousand refusals in a row are no blackout")
	return nil
}

// probe answers the request that is sent when the gate opens.
func (l *life) probe(o policy.Outcome) float64 {
	return l.answer(max(l.NotBefore.Seconds()-l.now, 0)+rtt, o)
}

// gate is how long the controller waits from now on, in seconds.
func (l *life) gate() float64 { return l.NotBefore.Seconds() - l.now }

// wrong fails, and says so, if something is not as it should be. What it says is worked out in any case.
func wrong(t *testing.T, is bool, format string, args ...any) {
	t.Helper()
	if is {
		t.Errorf(format, args...)
	}
}

// near fails unless two rates are equal but for rounding.
func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-6*math.Abs(want) {
		t.Errorf("%s: got %.7g, want %.7g", what, got, want)
	}
}

// within fails unless a figure lies between two others.
func within(t *testing.T, what string, got, least, most float64) {
	t.Helper()
	if !(got >= least && got <= most) {
		t.Errorf("%s: got %.5g, want %.5g to %.5g", what, got, least, most)
	}
}

// askFor counts the requests of a single client in an hour of which the first five minutes do not count. Each
// of them is refused with a Retry-After, and sent as soon as the pace allows.
func askFor(share float64, retryAfter time.Duration) (asked int) {
	l := born(share)
	for l.now < 3600 {
		next := l.now + 1/l.Rate
		if l.NotBefore > 0 {
			next = max(l.now, l.NotBefore.Seconds())
		}
		l.tell(policy.Sample{
			Outcome: policy.Throttled, Now: seconds(next + rtt), Sent: seconds(next), Cost: 1, Paced: true,
			RetryAfter: retryAfter,
		})
		if l.now > 300 {
			asked++
		}
	}
	return asked
}

// A client asks an upstream that refuses everything no more often than every ten seconds, nor more often than
// when it serves, even if it says "in a millisecond".
func TestAnIncidentIsNotHammered(t *testing.T) {
	for _, share := range []float64{0.02, 0.05, 1, 10, 1000} {
		for _, retryAfter := range []time.Duration{0, time.Millisecond, time.Second} {
			got := float64(askFor(share, retryAfter)) / 3300
			within(t, fmt.Sprintf("requests a second at a share of %v and a Retry-After of %v", share,
				retryAfter), got, 0.01, min(0.105, share*1.1))
		}
	}
}

// Whatever has been refused, failed or announced: half an hour in which an upstream refuses nothing brings the
// rate to the ceiling. At less than a request a second it takes longer.
func TestPropertySuccessBringsTheCeiling(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		share := rapid.OneOf(rapid.Just(0.), rapid.Float64Range(1, 1000))
		room := rapid.Float64Range(1, 100).Draw(t, "room")
		l := &life{ctrl: policy.Tracking{}.New(rapid.Uint64().Draw(t, "seed"))}
		l.bounds = policy.Bounds{Share: share.Draw(t, "share"), Ceiling: 1000}
		l.Pace = l.ctrl.Next(policy.Sample{}, l.bounds)
		for range rapid.IntRange(0, 6).Draw(t, "phases") {
			if rapid.IntRange(0, 3).Draw(t, "rebound") == 0 {
				l.bounds.Share = share.Draw(t, "share")
			}
			if l.bounds.Share > 0 {
				l.bounds.Ceiling = room * l.bounds.Share
			}
			bad := policy.Outcome(rapid.IntRange(2, 4).Draw(t, "bad"))
			every, pause := rapid.IntRange(1, 20).Draw(t, "one in"), rapid.IntRange(0, 90).Draw(t, "pause")
			l.phase(rapid.Float64Range(0, 200).Draw(t, "seconds"), func(i int) policy.Sample {
				if i%every == 0 {
					return policy.Sample{Outcome: bad, RetryAfter: time.Duration(pause) * time.Second}
				}
				return policy.Sample{Outcome: policy.Success}
			})
		}
		l.phase(1800, func(int) policy.Sample { return policy.Sample{Outcome: policy.Success} })
		if l.Rate < .99*l.bounds.Ceiling {
			t.Fatalf("under %+v a rate of %v after half an hour of success", l.bounds, l.Rate)
		}
	})
}

// phase answers requests as fast as the pace lets them pass, up to twenty a second.
func (l *life) phase(length float64, answer func(i int) policy.Sample) {
	for i, end := 0, l.now+length; l.now < end; i++ {
		sent := max(l.now+max(.05, min(1/l.Rate, 100)), l.NotBefore.Seconds())
		if p := l.Probe().Seconds(); p > 0 {
			sent = max(l.now+.05, l.NotBefore.Seconds())
		}
		s := answer(i)
		s.Now, s.Sent, s.Cost, s.Paced = seconds(sent+rtt), seconds(sent), 1, true
		l.tell(s)
	}
}
