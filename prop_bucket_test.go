package quotient

import (
	"math"
	"slices"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"pgregory.net/rapid"
)

// drawLog draws a number between two others, as often from each of their orders of magnitude.
func drawLog(t *rapid.T, label string, from, to float64) float64 {
	return math.Exp(rapid.Float64Range(math.Log(from), math.Log(to)).Draw(t, label))
}

// A rate is that of golang.org/x/time/rate, take by take, whatever is taken and whatever the rate becomes.
func TestPropertyBucketIsThatOfRate(t *testing.T) {
	property(t, func(rt *rapid.T) {
		draw := func() Rate {
			return Rate{Name: "r", Events: drawLog(rt, "rate", 1e-3, 1e9), Per: time.Second,
				Burst: int(drawLog(rt, "burst", 1, 1e6))}
		}
		r := draw()
		l, peer := mustNew(rt, Rates(r), few), rate.NewLimiter(rate.Limit(r.Events), r.Burst)
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			if time.Sleep(time.Duration(drawLog(rt, "pause", 1, 8.64e13))); rapid.Bool().Draw(rt, "at once") {
				if r = draw(); rapid.IntRange(0, 3).Draw(rt, "another rate") == 0 {
					must(rt, l.SetLimit(Rates(r)))
					peer.SetLimit(rate.Limit(r.Events))
					peer.SetBurst(r.Burst)
				}
			}
			has, n := peer.Tokens(), rapid.IntRange(1, peer.Burst()).Draw(rt, "events")
			if rapid.Bool().Draw(rt, "all there is") {
				n = max(1, int(has))
			}
			// A deficit of less than a nanosecond counts as none, and rounding moves the two apart.
			if near := 2/1e9*float64(peer.Limit()) + 1e-9*float64(peer.Burst()); math.Abs(has-float64(n)) < near {
				continue
			}
			if _, d := l.TryAcquire("k", Weight(n)); d.OK != peer.AllowN(time.Now(), n) {
				rt.Fatalf("%d of %v: %v, by its peer %v", n, has, d.OK, !d.OK)
			}
			if got, want := l.AppendState(nil, "k")[0].Left, peer.Tokens(); math.Abs(got-want) > .002+1e-9*want {
				rt.Fatalf("%v events, the peer has %v", got, want)
			}
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
	r         *rule
	tokens    float64
	last      time.Duration
	rooms     []float64
	spendings []spending
}

func (m *naive) advance(at time.Duration) {
	m.tokens, m.last = min(m.r.size, m.tokens+float64(at-m.last)/m.r.interval), at
}

func (m *naive) take(at time.Duration, n float64) {
	m.rooms = append(m.rooms, m.r.size-m.tokens)
	m.spendings = append(m.spendings, spending{at, n, len(m.rooms)})
	m.tokens -= n
}

// refund gives back the least of n and of all headrooms since: that before no take is lower than its own.
func (m *naive) refund(s *spending, n float64) {
	since := m.rooms[s.order:]
	back := min(n, m.r.size-m.tokens)
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
		drawRule := func() *rule {
			return fills(drawLog(rt, "rate", 1e-2, 1e6), drawLog(rt, "size", 1, 1000))
		}
		r, now := drawRule(), dawn
		m := &naive{r: r, tokens: r.size, last: now.at}
		b := &costBucket{bucket: *fullBucket(r)}
		most := rapid.SampledFrom([]int{maxMinima, maxMinima, 200}).Draw(rt, "takes")
		pauses, refunds := 1.0, 60
		if rapid.Bool().Draw(rt, "the headroom climbs") { // so that its minima are many
			pauses, refunds = .005, 12
		}
		exact := true
		for range rapid.IntRange(1, 3*most).Draw(rt, "steps") {
			if rapid.Bool().Draw(rt, "pause") {
				part := drawLog(rt, "part of a full bucket", 1e-3, 3) * pauses
				now = now.later(time.Duration(part * m.r.size * m.r.interval))
			}
			m.advance(now.at)
			switch what := rapid.IntRange(0, 60+refunds).Draw(rt, "what"); {
			case what == 0:
				next := drawRule()
				b.follow(now, m.r, next)
				// what was taken under another rule never comes back
				m.r, m.rooms, m.spendings = next, nil, nil
				m.tokens, _, _ = b.left(now, next)
				exact = true
				if len(b.minima) > 0 {
					rt.Fatalf("%d minima of another rule are kept", len(b.minima))
				}
			case what <= 60:
				if len(m.rooms) == most {
					break
				}
				n := drawLog(rt, "part of the size", 1e-2, 2) * m.r.size // a debt at times
				b.take(now, m.r, n)
				m.take(now.at, n)
			case len(m.spendings) > 0:
				s := &m.spendings[rapid.IntRange(0, len(m.spendings)-1).Draw(rt, "which")]
				n := s.n * rapid.SampledFrom([]float64{1, 1, .5, .1}).Draw(rt, "back")
				b.refund(now, s.at, m.r, n)
				m.refund(s, n)
			}
			got, _, _ := b.left(now, m.r)
			slack := 1e-9 * m.r.size
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
