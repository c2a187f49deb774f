package fairshare_test

import (
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/quotient-go/quotient/internal/carry"
	"github.com/quotient-go/quotient/internal/fairshare"
)

const (
	turn   = 200 * time.Millisecond
	maxAge = 2 * time.Second
)

var four = fairshare.Pool{Replicas: 4, Weight: 1}

// others is a report in which all four replicas know of the key, and the other three say so much of it.
func others(own carry.Terms, wanting int64, claim float64) fairshare.Reports {
	sum := own
	sum[fairshare.Known] = 4
	sum[fairshare.Wanting] += wanting
	sum[fairshare.Claim] += int64(claim * fairshare.Millionths)
	return fairshare.Reports{Sum: sum, Age: turn}
}

func TestWhatOneMayBorrow(t *testing.T) {
	wants := fairshare.Seen{Used: .25, Wants: true, Span: turn}
	for _, c := range []struct {
		name    string
		wanting int64
		claim   float64
		alter   func(*fairshare.Reports)
		want    float64
	}{
		{name: "all of it", want: 1},
		{name: "what others leave", claim: .25, want: .75},
		{name: "half", wanting: 1, want: .5},
		{name: "half of what others leave", wanting: 1, claim: .25, want: .375},
		{name: "no more than the share", wanting: 3},
		{name: "all is in use", claim: .75},
		{name: "more than all is in use", claim: 3},
		{name: "news is old", alter: func(n *fairshare.Reports) { n.Age = maxAge + 1 }},
		{name: "a part is missing", alter: func(n *fairshare.Reports) { n.Age = math.MaxInt64 }},
		{name: "one does not know the key", alter: func(n *fairshare.Reports) { n.Sum[fairshare.Known] = 3 }},
		{name: "sums below 0", alter: func(n *fairshare.Reports) {
			n.Sum[fairshare.Claim], n.Sum[fairshare.Wanting] = math.MinInt64/2, math.MinInt64/2
		}, want: 1},
	} {
		var s fairshare.Share
		own, part := carry.Terms{}, 0.0
		for now := turn; now < 5*time.Second; now += turn {
			news := others(own, c.wanting, c.claim)
			if c.alter != nil {
				c.alter(&news)
			}
			own, part = s.Next(now, wants, news, four, maxAge)
		}
		if part < c.want*(1-1./64) || part > c.want {
			t.Errorf("%s: %v, want %v", c.name, part, c.want)
		}
		if own[fairshare.Wanting] != 1 || own[fairshare.Claim] != 0 || own[fairshare.Known] != 1 {
			t.Errorf("%s: it says %v", c.name, own)
		}
	}
}

// A replica that was just held back raises nothing before the others can know of it.
func TestANewcomerWaitsForItsReports(t *testing.T) {
	var s fairshare.Share
	wants := fairshare.Seen{Used: .25, Wants: true, Span: turn}
	for i, want := range []float64{0, 0, 1} {
		news := others(s.Said(), 0, 0)
		news.Age = 2 * turn
		if _, part := s.Next(time.Duration(i+1)*turn, wants, news, four, maxAge); part != want {
			t.Errorf("turn %d: %v, want %v", i, part, want)
		}
	}
}

// A replica that borrows falls at once when others want more, also while it has just begun to want more
// again. It wants more for a second after it was last held back.
func TestABorrowerGivesWay(t *testing.T) {
	var s fairshare.Share
	now, wanting := time.Duration(0), int64(0)
	next := func(seen fairshare.Seen, wantsMore bool, want float64) {
		t.Helper()
		now += turn
		own, part := s.Next(now, seen, others(s.Said(), wanting, 0), four, maxAge)
		if math.Abs(part-want) > want/64 || (own[fairshare.Wanting] == 1) != wantsMore {
			t.Errorf("at %v: part %v, want %v; it says %v", now, part, want, own)
		}
	}
	held, content := fairshare.Seen{Used: .9, Wants: true, Span: turn}, fairshare.Seen{Used: .9, Span: turn}
	next(held, true, 0)
	next(held, true, 1)
	for range 4 {
		next(content, true, 1)
	}
	next(content, false, .99)
	next(held, true, .99)
	for range 5 {
		next(content, now < 2400*time.Millisecond, 1)
	}
	next(content, false, .99)
	wanting = 1
	next(held, true, .5)
}

func TestClaims(t *testing.T) {
	var s fairshare.Share
	now := time.Duration(0)
	claim := func(seen fairshare.Seen) float64 {
		now += turn
		own, part := s.Next(now, seen, others(s.Said(), 0, 0), four, maxAge)
		if part != 0 {
			t.Errorf("%v is lent to one that wants nothing", part)
		}
		return float64(own[fairshare.Claim]) / fairshare.Millionths
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 2/fairshare.Millionths {
			t.Errorf("%s: a claim of %v, want %v", what, got, want)
		}
	}
	near("nothing was measured", claim(fairshare.Seen{}), .25)
	near("idle", claim(fairshare.Seen{Span: turn}), 0)
	near("it begins", claim(fairshare.Seen{Span: turn, Used: .1}), .11)
	near("never above the share", claim(fairshare.Seen{Span: turn, Used: .5}), .25)
	if c := claim(fairshare.Seen{Span: turn}); c < .1 || c > .25 {
		t.Errorf("use has ended, and the claim is %v at once", c)
	}
	near("slots are held", claim(fairshare.Seen{Span: turn, Held: .4}), .4)
}

// Rare events are measured over the time of some before anything is lent of the share. An unused share is
// not claimed for ever: a claim of a millionth would cost the others a whole slot.
func TestAClaimEnds(t *testing.T) {
	var s fairshare.Share
	own := carry.Terms{}
	for now := turn; now < 20*time.Second; now += turn {
		seen := fairshare.Seen{Span: turn}
		if now <= 5*time.Second {
			seen.Used = .2
		}
		own, _ = s.Next(now, seen, others(own, 0, 0), four, maxAge)
		claim := own[fairshare.Claim]
		if now < 10*time.Second && claim == 0 || now > 12*time.Second && claim != 0 {
			t.Fatalf("claims %d at %v, and nothing was used since 5s", claim, now)
		}
	}
}

func TestRareEvents(t *testing.T) {
	var s fairshare.Share
	for now := turn; now <= 3*time.Second; now += turn {
		own, _ := s.Next(now, fairshare.Seen{Span: turn, Spaced: time.Second}, others(s.Said(), 0, 0),
			four, maxAge)
		if want := now < 3*time.Second; (own[fairshare.Claim] > 0) != want {
			t.Errorf("after %v it claims %v", now, own[fairshare.Claim])
		}
	}
}

// Slots for others are there once they are free: a replica that has more than its part reports it.
func TestSlotsThatMustDrain(t *testing.T) {
	for _, c := range []struct {
		held    float64
		wanting int64
		rest    float64 // for all others that want more
	}{
		{held: 1, wanting: 1, rest: 0}, {held: .75, wanting: 1, rest: .25}, {held: .5, wanting: 1, rest: .5},
		{held: 1, wanting: 3, rest: 0}, {held: .4, wanting: 3, rest: .6}, {held: .1, wanting: 1, rest: .5},
		{held: 1, wanting: 0, rest: 0}, {held: 7, wanting: 2, rest: 0},
	} {
		var s fairshare.Share
		var own carry.Terms
		for now := turn; now < 2*time.Second; now += turn {
			seen := fairshare.Seen{Used: c.held, Held: c.held, Wants: true, Span: turn}
			if c.wanting == 0 {
				seen.Wants = false
			}
			own, _ = s.Next(now, seen, others(own, c.wanting, 0), four, maxAge)
		}
		w := float64(max(1, c.wanting))
		level := (1 - float64(own[fairshare.Claim])/fairshare.Millionths) /
			(w + float64(own[fairshare.Wanting]))
		if rest := level * w; math.Abs(rest-c.rest) > 1e-5 {
			t.Errorf("%v held, %d others want more: they may have %v, want %v", c.held, c.wanting,
				rest, c.rest)
		}
	}
}

// The reports of others may be anything. None has less than its share, nor more than the limit, nor reports
// an invalid number of its own.
func TestForgedReports(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 10))
	wild := func() int64 {
		some := rng.Int64N(4e6)
		return []int64{0, 1, -1, some, -some, math.MaxInt64, math.MinInt64, rng.Int64()}[rng.IntN(8)]
	}
	for range 20_000 {
		var s fairshare.Share
		pool := fairshare.Pool{Replicas: 1 + rng.IntN(12), Weight: 1}
		for now := turn; now < 10*turn; now += turn {
			news := fairshare.Reports{Age: time.Duration(wild())}
			for i := range news.Sum {
				news.Sum[i] = wild()
			}
			seen := fairshare.Seen{Used: 2 * rng.Float64(), Held: rng.Float64(), Wants: rng.IntN(2) == 0,
				Span: turn}
			own, part := s.Next(now, seen, news, pool, maxAge)
			fair := 1 / float64(pool.Replicas)
			if part != 0 && !(part > fair && part <= 1) {
				t.Fatalf("%+v, %+v: part %v", news, pool, part)
			}
			if own[fairshare.Known] != 1 || own[fairshare.Wanting]&^1 != 0 ||
				own[fairshare.Claim] < 0 || own[fairshare.Claim] > fairshare.Millionths {
				t.Fatalf("%+v: it says %v", news, own)
			}
		}
	}
}

// histories is how many the properties play: HISTORIES, or a few.
func histories(few int) int {
	if n, err := strconv.Atoi(os.Getenv("HISTORIES")); err == nil {
		return n
	}
	return few
}

// Bound 10. Words are lost, late, doubled and replayed. Replicas are cut off, starved, paused and begin from
// the start. Each onset brings at most what the shares of all others are, for as long as reports are
// believed and a turn. Onsets that overlap count once.
func TestPropertyBound10(t *testing.T) {
	for seed := range uint64(histories(300)) {
		f := newFleet(seed, seed%4 == 0)
		f.play(3000, f.demand)
		if f.broken != "" {
			t.Fatalf("history %d: %s", seed, f.broken)
		}
		lasts := f.maxAge + f.turns
		if f.calm {
			lasts = min(lasts, 3*f.turns)
		}
		most := max(f.burst, float64(f.all)) + 2*f.rate*dt.Seconds()
		if f.rate/float64(f.all)*f.turns.Seconds() < 3 {
			most += 3 // events: fewer do not show what is used
		}
		if x := f.excess(lasts); x > most+1e-6 {
			t.Errorf("history %d: %v of %v above the rate", seed, x, f.rate)
		}
	}
}

// One busy replica has nearly all within two seconds, and what others use of theirs is left to them.
func TestOneBusyReplica(t *testing.T) {
	for seed := range uint64(200) {
		f := newFleet(seed, true)
		f.turns, f.maxAge, f.rate = turn, maxAge, 3000
		low := 0.0
		if seed%2 == 1 {
			low = .3
		}
		f.play(400, func(i int, r *replica) {
			r.phase = phase{perTick: low * f.fair(r) * f.rate * dt.Seconds(), queues: seed%3 == 0}
			if i == 0 && f.tick >= 200 {
				r.phase.perTick = 2 * f.rate * dt.Seconds()
			}
		})
		last := 0.0
		f.admitted = f.admitted[:0]
		f.play(100, func(int, *replica) {}) // the third second
		for _, n := range f.admitted {
			last += n
		}
		if least := .97 * (1 - .1*low); last < least*f.rate || last > f.rate+float64(f.all)+1 {
			t.Errorf("%d replicas: %v of %v in a second", f.all, last, f.rate)
		}
	}
}
