package meter

import (
	"math"
	"slices"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"pgregory.net/rapid"
)

// dawn is an instant from which tests count seconds.
var dawn = sec(0)

// sec is so many seconds after dawn.
func sec(s float64) Instant {
	wall := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano()
	return Instant{time.Hour, wall}.later(time.Duration(s * float64(time.Second)))
}

// fills is the rule of a bucket of so many events that fills at perSecond.
func fills(perSecond, burst float64) *Rule {
	return &Rule{Fill: Fill{Interval: float64(time.Second) / perSecond, Size: burst}}
}

// fullBucket returns a bucket that is full at dawn.
func fullBucket(r *Rule) *Bucket { return &Bucket{Tokens: r.Size, Last: dawn.At} }

// takes takes n as a gate does, and reports whether they pass, at once or at the instant of until.
func (b *Bucket) takes(t *testing.T, now Instant, r *Rule, n float64) bool {
	t.Helper()
	wait := b.Until(now, r, 0, 0, n)
	if b.TakeNow(now.At, &r.Fill, n) {
		is(t, []any{"until for", n, "events that are taken now"}, wait, 0)
		return true
	}
	if wait > 0 {
		return false
	}
	if n <= r.Size {
		t.Errorf("%v events of %v are not taken now, and until says that they are there", n, r.Size)
	}
	b.Take(now, r, n)
	return true
}

// Behind others the wait is that for theirs too, and never shorter than from.
func TestBucketUntilBehindOthers(t *testing.T) {
	r := fills(10, 4)
	for _, c := range []struct {
		from     time.Duration
		ahead, n float64
		want     time.Duration
	}{
		{0, 0, 1, 0}, {0, 3, 1, 0}, {0, 4, 1, 100 * time.Millisecond}, {0, 40, 1, 3700 * time.Millisecond},
		{0, 4, 9, 400 * time.Millisecond}, // more than the size waits for a full bucket
		{time.Second, 0, 1, time.Second}, {time.Second, 40, 1, 3700 * time.Millisecond},
		{time.Second, 4, 1, time.Second},
	} {
		if d := fullBucket(r).Until(dawn, r, c.from, c.ahead, c.n); d < c.want-1 || d > c.want {
			t.Errorf("%+v: %v", c, d)
		}
	}
}

func TestBucketUntilNever(t *testing.T) {
	for name, r := range map[string]*Rule{
		"it does not fill": fills(0, 2), "longer than any Duration": fills(1e-12, 2),
	} {
		b := fullBucket(r)
		b.Take(dawn, r, 2)
		is(t, name, b.Until(dawn, r, 0, 0, 1), Never)
		is(t, []any{name, "for nothing"}, b.Until(dawn, r, 0, 0, 0), 0)
	}
	is(t, "the zero value, which is empty", new(Bucket).Until(Instant{}, fills(1, 5), 0, 0, 3), 3*time.Second)
}

func TestBucketUpTo(t *testing.T) {
	for _, c := range []struct {
		perSecond, burst, owed float64
		n, want                int
	}{
		{1, 3, 0, 9, 3}, {1, 3, 0, 2, 2}, {1, 3.999, 0, 9, 3}, {1, 3, 0.001, 9, 2},
		{1, 3, 2.5, 9, 0}, {1, 3, 9, 9, 0},
		{1e6, 3, 0.0009, 9, 3}, {1e6, 3, 0.0011, 9, 2}, // a deficit shorter than a nanosecond counts as none
	} {
		r := fills(c.perSecond, c.burst)
		b := fullBucket(r)
		b.Take(dawn, r, c.owed)
		got := b.UpTo(dawn, r, c.n)
		is(t, c, got, c.want)
		for i := range c.want {
			if !b.takes(t, dawn, r, 1) {
				t.Errorf("%+v: refused the event %d of %d that upTo has found", c, i+1, got)
			}
		}
		if c.n > c.want && b.takes(t, dawn, r, 1) {
			t.Errorf("%+v: one more than the %d that upTo has found", c, got)
		}
	}
}

// The time until all is there, and for how long what was just taken had been there.
func TestBucketTimes(t *testing.T) {
	for _, c := range []struct {
		perSecond, burst, taken float64
		full, age               time.Duration
	}{
		{1, 5, 0, 0, 5 * time.Second}, {1, 5, 2, 2 * time.Second, 3 * time.Second},
		{1, 5, 9, 9 * time.Second, 0},
		{1e-13, 5, 5, 1 << 62, 0}, {1e-13, 5, 0, 0, 1 << 62}, // longer than any Duration
		{0, 5, 5, 1 << 62, 0}, {0, 5, 0, 0, 1 << 62}, // it does not fill
	} {
		r := fills(c.perSecond, c.burst)
		b := fullBucket(r)
		b.Take(dawn, r, c.taken)
		_, _, full := b.Left(dawn, r)
		is(t, []any{c, "full in"}, full, c.full)
		is(t, []any{c, "there for"}, b.Age(dawn, r), c.age)
	}
}

func TestBucketCloneIsEqualAndApart(t *testing.T) {
	r := fills(3, 7)
	r.Turn = NewTurn(float64(time.Second), Part{3, 2, 1})
	for name, b := range map[string]Stored{
		"bucket": fullBucket(r), "cost": &CostBucket{Bucket: *fullBucket(r)},
		"turn": &TurnBucket{CostBucket: CostBucket{Bucket: *fullBucket(r)}},
	} {
		b.Take(sec(0.123), r, 4)
		c := b.Clone()
		for _, at := range []float64{0.2, 0.5, 9} {
			is(t, []any{name, at}, c.State(sec(at), r), b.State(sec(at), r))
		}
		c.Take(sec(0.2), r, 1)
		was, _, _ := b.Left(sec(0.2), r)
		is, _, _ := c.Left(sec(0.2), r)
		if math.Abs(was-is-1) > 1e-9 {
			t.Errorf("%s: the copy is not apart: %v and %v", name, was, is)
		}
	}
}

// drawLog draws a number between two others, as often from each of their orders of magnitude.
func drawLog(t *rapid.T, label string, from, to float64) float64 {
	return math.Exp(rapid.Float64Range(math.Log(from), math.Log(to)).Draw(t, label))
}

// drawGap draws how long nothing happens: no time at all, or a nanosecond to a day, or to the very nanosecond
// at which a wait ends.
func drawGap(t *rapid.T, wait time.Duration) time.Duration {
	switch rapid.IntRange(0, 3).Draw(t, "gap") {
	case 0:
		return 0
	case 1:
		if wait < 1000*time.Hour {
			return max(0, wait+time.Duration(rapid.IntRange(-1, 1).Draw(t, "off by")))
		}
	}
	return time.Duration(drawLog(t, "pause", 1, 8.64e13))
}

// peer is a rate.Limiter that counts thousandths of events, beside a bucket that counts events.
type peer struct {
	b     *Bucket
	r     *Rule
	lim   *rate.Limiter
	now   Instant
	scale float64 // the largest number of events that either has held or owed
	ops   int
}

func (p *peer) time() time.Time { return time.Unix(0, p.now.Wall) }

// shifts is the largest number of events by which rounding may have moved the two apart.
func (p *peer) shifts() float64 { return 1e-15 * p.scale * float64(p.ops+4) }

// owe takes n thousandths from the peer, there or not: no reservation may exceed its size.
func (p *peer) owe(n int) {
	burst := p.lim.Burst()
	p.lim.SetBurstAt(p.time(), max(burst, n))
	p.lim.ReserveN(p.time(), n)
	p.lim.SetBurstAt(p.time(), burst)
}

// wait is how long the peer has a reservation of n thousandths wait. It leaves nothing of it.
func (p *peer) wait(n int) time.Duration {
	d := p.lim.ReserveN(p.time(), n).DelayFrom(p.time())
	p.lim.ReserveN(p.time(), -n)
	return d
}

// follow puts both under another rate and another size, in thousandths.
func (p *peer) follow(perSecond float64, size int) {
	next := fills(perSecond, float64(size)/Milli)
	p.b.Follow(p.now, p.r, next)
	p.r = next
	p.lim.SetLimitAt(p.time(), rate.Limit(perSecond*Milli))
	p.lim.SetBurstAt(p.time(), size)
}

// take asks both for n thousandths. They answer alike, with one exception. The deficit of the one may be
// shorter than a nanosecond, which counts as none, and that of the other longer by no more than rounding.
func (p *peer) take(rt *rapid.T, n int) {
	events, size := float64(n)/Milli, p.lim.Burst()
	has := p.lim.TokensAt(p.time()) / Milli
	waits := p.b.Until(p.now, p.r, 0, 0, events)
	want := p.wait(min(n, size)) // more than the size waits for a full bucket
	if far := math.Abs(float64(waits - want)); far > 1+p.shifts()*p.r.Interval+1e-15*float64(want) {
		rt.Fatalf("%v events of %v: a wait of %v, its peer's is %v", events, has, waits, want)
	}
	admitted := p.b.TakeNow(p.now.At, &p.r.Fill, events)
	if n <= size && admitted != (waits == 0) {
		rt.Fatalf("%v events of %v: taken %v, and until says %v", events, has, admitted, waits)
	}
	if !admitted && waits == 0 {
		p.b.Take(p.now, p.r, events)
		admitted = true
	}
	before := p.lim.AllowN(p.time(), n)
	if !before && n > size && want == 0 {
		p.owe(n)
		before = true
	}
	if before == admitted {
		return
	}
	nano := 1 / p.r.Interval
	if deficit := min(events, p.r.Size) - has; math.Abs(deficit-nano) > p.shifts() {
		rt.Fatalf("%v events of %v: taken %v, by its peer %v; it lacks %v, and a nanosecond brings %v",
			events, has, admitted, before, deficit, nano)
	}
	if p.owe(n); before { // the peer does what the bucket did
		p.lim.ReserveN(p.time(), -2*n)
	}
}

// check holds what both have against each other.
func (p *peer) check(rt *rapid.T) {
	got, _, _ := p.b.Left(p.now, p.r)
	want := p.lim.TokensAt(p.time()) / Milli
	p.scale = max(p.scale, p.r.Size, math.Abs(got))
	if p.ops++; math.Abs(got-want) > p.shifts() {
		rt.Fatalf("after %d steps: %v events, the peer has %v", p.ops, got, want)
	}
}

// A bucket is that of golang.org/x/time/rate, take by take, whatever is taken, owed, given back and changed.
func TestPropertyBucketIsThatOfRate(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		drawSize := func() int { return int(drawLog(rt, "size", Milli, 1e9)) }
		drawRate := func() float64 { return drawLog(rt, "rate", 1e-6, 1e10) }
		size := drawSize()
		perSecond := drawRate()
		p := &peer{now: dawn, r: fills(perSecond, float64(size)/Milli)}
		p.b, p.lim = fullBucket(p.r), rate.NewLimiter(rate.Limit(perSecond*Milli), size)
		drawAmount := func(most int) int {
			n := rapid.IntRange(1, max(1, most/Milli)).Draw(rt, "events") * Milli
			return n + rapid.SampledFrom([]int{0, 0, 1, 333, -999}).Draw(rt, "thousandths")
		}
		wait := time.Duration(0)
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			p.now = p.now.later(drawGap(rt, wait))
			switch size := p.lim.Burst(); rapid.IntRange(0, 9).Draw(rt, "what") {
			case 0:
				p.follow(drawRate(), size)
			case 1:
				p.follow(float64(p.lim.Limit())/Milli, drawSize())
			case 2:
				n := drawAmount(size)
				p.b.Refund(p.now, p.now.At, p.r, float64(n)/Milli)
				p.lim.ReserveN(p.time(), -n)
				p.lim.SetBurstAt(p.time(), size) // cuts what is above the size
			case 3:
				n := drawAmount(3 * size)
				p.b.Take(p.now, p.r, float64(n)/Milli)
				p.owe(n)
			case 4:
				p.take(rt, size+drawAmount(4*size)) // once there is a full bucket
			case 5:
				p.take(rt, size)
			default:
				p.take(rt, min(size, drawAmount(size)))
			}
			p.check(rt)
			wait = p.b.Until(p.now, p.r, 0, 0, float64(min(p.lim.Burst(), drawAmount(p.lim.Burst())))/Milli)
		}
	})
}

// spending is what was taken from a cost bucket and not given back.
type spending struct {
	at    time.Duration
	n     float64
	order int
}

// naive is a bucket that keeps the headroom before each take, for ever.
type naive struct {
	r         *Rule
	tokens    float64
	last      time.Duration
	rooms     []float64
	spendings []spending
}

func (m *naive) advance(at time.Duration) {
	m.tokens, m.last = min(m.r.Size, m.tokens+float64(at-m.last)/m.r.Interval), at
}

func (m *naive) take(at time.Duration, n float64) {
	m.rooms = append(m.rooms, m.r.Size-m.tokens)
	m.spendings = append(m.spendings, spending{at, n, len(m.rooms)})
	m.tokens -= n
}

// refund gives back the least of n and of all headrooms since: that before no take is lower than its own.
func (m *naive) refund(s *spending, n float64) {
	since := m.rooms[s.order:]
	back := min(n, m.r.Size-m.tokens)
	if len(since) > 0 {
		back = min(back, slices.Min(since))
	}
	for i := range since {
		since[i] -= back
	}
	m.tokens += back
	s.n -= n
}

// A cost bucket gets back the lesser of what is given back and of the headroom at any time since it was
// taken. The bucket keeps the minima of the headroom alone. It is exact as long as there are not too many of
// them, and else it gives back less, never more.
func TestPropertyMinimaAreThoseOfAllHeadrooms(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		drawRule := func() *Rule {
			return fills(drawLog(rt, "rate", 1e-2, 1e6), drawLog(rt, "size", 1, 1000))
		}
		r, now := drawRule(), dawn
		m := &naive{r: r, tokens: r.Size, last: now.At}
		b := &CostBucket{Bucket: *fullBucket(r)}
		most := rapid.SampledFrom([]int{maxMinima, maxMinima, 200}).Draw(rt, "takes")
		pauses, refunds := 1.0, 60
		if rapid.Bool().Draw(rt, "the headroom climbs") { // so that its minima are many
			pauses, refunds = .005, 12
		}
		exact := true
		for range rapid.IntRange(1, 3*most).Draw(rt, "steps") {
			if rapid.Bool().Draw(rt, "pause") {
				part := drawLog(rt, "part of a full bucket", 1e-3, 3) * pauses
				now = now.later(time.Duration(part * m.r.Size * m.r.Interval))
			}
			m.advance(now.At)
			switch what := rapid.IntRange(0, 60+refunds).Draw(rt, "what"); {
			case what == 0:
				next := drawRule()
				b.Follow(now, m.r, next)
				// what was taken under another rule never comes back
				m.r, m.rooms, m.spendings = next, nil, nil
				m.tokens, _, _ = b.Left(now, next)
				exact = true
				if len(b.minima) > 0 {
					rt.Fatalf("%d minima of another rule are kept", len(b.minima))
				}
			case what <= 60:
				if len(m.rooms) == most {
					break
				}
				n := drawLog(rt, "part of the size", 1e-2, 2) * m.r.Size // a debt at times
				b.Take(now, m.r, n)
				m.take(now.At, n)
			case len(m.spendings) > 0:
				s := &m.spendings[rapid.IntRange(0, len(m.spendings)-1).Draw(rt, "which")]
				n := s.n * rapid.SampledFrom([]float64{1, 1, .5, .1}).Draw(rt, "back")
				b.Refund(now, s.at, m.r, n)
				m.refund(s, n)
			}
			got, _, _ := b.Left(now, m.r)
			slack := 1e-9 * m.r.Size
			exact = exact && len(m.rooms) <= maxMinima
			if got > m.tokens+slack || exact && got < m.tokens-slack {
				rt.Fatalf("%v events, with all headrooms of %d takes %v", got, len(m.rooms), m.tokens)
			}
			if len(b.minima) > maxMinima {
				rt.Fatalf("%d minima are kept", len(b.minima))
			}
		}
	})
}

// A bucket gets back what cannot have come back by itself, at the rate at which it may have been filled.
func TestBucketRefund(t *testing.T) {
	for _, row := range []struct {
		fastest     float64 // ns from one event to the next, if others lend
		after, back float64 // seconds, events
		want        float64
	}{
		{0, 0, 3, 7}, {0, .2, 3, 7}, {0, .2, 1, 6}, {0, .4, 3, 8}, {0, 9, 3, 10}, {5e7, .1, 3, 6}, {5e7, .2, 3, 6},
	} {
		r := fills(10, 10)
		r.Fastest = row.fastest
		b, now := fullBucket(r), sec(row.after)
		b.Take(dawn, r, 6)
		b.Refund(now, dawn.At, r, row.back)
		if has, _, _ := b.Left(now, r); math.Abs(has-row.want) > 1e-6 {
			t.Errorf("%+v: %v", row, has)
		}
	}
}

// What is noted of the headroom is of a rule, and stays where only the part that is lent is another.
func TestCostBucketFollows(t *testing.T) {
	lent := func(size, fastest float64) *Rule {
		r := fills(1, size)
		r.Fastest = fastest
		return r
	}
	for name, row := range map[string]struct {
		old, new *Rule
		want     int
	}{
		"another part is lent": {lent(10, 1e8), lent(10, 1e8), 1}, "lent no more": {lent(10, 1e8), lent(10, 0), 0},
		"lent from now on": {lent(10, 0), lent(10, 1e8), 0}, "another size": {lent(10, 1e8), lent(12, 1e8), 0},
	} {
		b := &CostBucket{Bucket: *fullBucket(row.old)}
		b.Take(dawn, row.old, 4)
		b.Follow(dawn, row.old, row.new)
		is(t, name, len(b.minima), row.want)
	}
}
