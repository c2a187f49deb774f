package meter

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The turn behind others is counted from the begin of a turn, and that of a caller alone ends when it ends.
func TestTurnBucketUntil(t *testing.T) {
	const s = time.Second
	const every = float64(time.Second) // ten seconds from one turn to the next, of which 100 ms are open
	r := fills(.1, 1)
	r.Turn = NewTurn(every, Part{10, 3, 1})
	begin := Instant{At: time.Hour, Wall: 1000*int64(time.Second) + r.Turn.Start}
	for _, c := range []struct {
		now    time.Duration // since the begin of a turn
		owed   float64       // of the one event
		from   time.Duration
		ahead  float64
		want   time.Duration
		within time.Duration // of rounding
	}{
		{now: 0, want: 0}, {now: 40 * ms, want: 0}, {now: 100 * ms, want: 0},
		{now: 101 * ms, want: 9899 * ms}, {now: 9 * s, want: s},
		{now: 0, ahead: 1, want: 10 * s}, {now: 40 * ms, ahead: 2, want: 20*s - 40*ms},
		{now: 5 * s, ahead: 2, want: 25 * s},
		{now: 0, owed: 1, want: 10 * s}, // .99 of an event are there in 9.9 s
		{now: 99 * ms, owed: 1, want: 9901 * ms},
		{now: 0, owed: 1.005, want: 10 * s}, // it is there within the next turn
		{now: 0, owed: 1.001, want: 10 * s},
		{now: 5 * s, owed: .5, ahead: 1, want: 15 * s},
		{now: 5 * s, owed: .515, want: 5050 * ms, within: 1}, // while a turn is open
		{now: 5 * s, owed: .515, ahead: 1, want: 15 * s},
		{now: 5 * s, owed: .52, want: 5100 * ms, within: 1},
		{now: 5 * s, owed: .5201, want: 15 * s},
		{now: 0, from: 50 * ms, want: 50 * ms}, {now: 0, from: 150 * ms, want: 10 * s},
		{now: 0, owed: 2e8, want: Never}, {now: 0, ahead: 1e12, want: Never},
	} {
		b := &TurnBucket{CostBucket: CostBucket{Bucket: Bucket{Tokens: 1 - c.owed, Last: begin.At + c.now}}}
		now := begin.later(c.now)
		if d := b.Until(now, r, c.from, c.ahead, 1); d < c.want-c.within || d > c.want+c.within {
			t.Errorf("%+v: %v", c, d)
		}
		if n := b.UpTo(now, r, 5); c.from == 0 && c.ahead == 0 && (n == 1) != (c.want == 0) {
			t.Errorf("%+v: up to %d of five", c, n)
		}
	}
}

// A turn is taken once, and is there again when it is given back; an earlier one is not.
func TestTurnIsGivenBack(t *testing.T) {
	r := fills(.5, 1)
	r.Turn = NewTurn(float64(time.Second), Part{2, 1, 1})
	first := Instant{At: time.Hour, Wall: 0}
	b := &TurnBucket{CostBucket: CostBucket{Bucket: Bucket{Tokens: 1, Last: first.At}}}
	then := first.later(2 * time.Second)
	for i, now := range []Instant{first, then} {
		b.Take(now, r, 1)
		is(t, []any{i, "taken"}, b.UpTo(now, r, 1), 0)
	}
	b.Refund(then, first.At, r, 1)
	is(t, "an earlier one is given back", b.UpTo(then, r, 1), 0)
	b.Refund(then, then.At, r, 1)
	is(t, "the last one is given back", b.UpTo(then, r, 1), 1)
}

// There is a turn only of a replica that has an ordinal, and others beside it, at an interval that clocks can keep.
func TestNewTurn(t *testing.T) {
	second := float64(time.Second)
	for _, row := range []struct {
		interval float64
		part     Part
		want     bool
	}{
		{second, Part{2, 1, 1}, true}, {second, Part{2, 2, 1}, true}, {second, Part{2, 0, 1}, false},
		{second, Part{1, 1, 1}, false}, {second, Part{4, 1, 4}, false}, {second, Part{4, 1, 3}, true},
		{float64(minTurn), Part{2, 1, 1}, true}, {float64(minTurn) - 1, Part{2, 1, 1}, false},
		{float64(LongWait) / 4, Part{2, 1, 1}, true}, {float64(LongWait)/4 + 64, Part{2, 1, 1}, false},
	} {
		is(t, row, NewTurn(row.interval, row.part) != nil, row.want)
	}
	is(t, "what three turns in a row need", NewTurn(second, Part{4, 1, 3}).Size, 1.5)
}

// A replica's turns are those of its ordinals, one interval apart, and begin with the first of a cycle at the epoch. Who
// waits behind others has the turn that follows so many.
func TestPropertyTurnsOfAPart(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		interval := int64(rapid.IntRange(50, 2000).Draw(rt, "interval")) * int64(ms)
		part := rapid.SampledFrom(drawParts(rt)).Draw(rt, "part")
		if part.Weight == part.Replicas {
			return
		}
		r := &Rule{Fill: Fill{Interval: float64(interval), Size: 2}, Turn: NewTurn(float64(interval), part)}
		lasts := int64(float64(interval) * TurnPart)
		into := rapid.SampledFrom([]int64{0, lasts / 2, lasts, lasts + 1, interval - 1}).Draw(rt, "into an interval")
		nth := rapid.Int64Range(-300, 300).Draw(rt, "interval since the epoch")
		if rapid.Bool().Draw(rt, "its own") {
			nth = nth*int64(part.Replicas) + int64(part.Ordinal-1)
		}
		now := Instant{At: time.Hour, Wall: nth*interval + into}
		from := time.Duration(rapid.SampledFrom([]int64{0, 1, 3 * int64(part.Replicas)}).Draw(rt, "from") * interval / 2)
		ahead := rapid.IntRange(0, part.Weight).Draw(rt, "ahead")
		var begins []int64
		cycle := interval * int64(part.Replicas)
		for at := floorDiv(now.Wall, cycle)*cycle - cycle; at < now.Wall+9*cycle; at += cycle {
			for i := range part.Weight {
				begins = append(begins, at+interval*int64(part.Ordinal-1+i))
			}
		}
		firstAt := func(d time.Duration) int {
			return slices.IndexFunc(begins, func(begin int64) bool { return begin+lasts >= now.Wall+int64(d) })
		}
		want := max(from, time.Duration(begins[firstAt(from)]-now.Wall))
		if ahead > 0 {
			turn := time.Duration(begins[firstAt(0)+ahead] - now.Wall)
			want = max(from, turn, time.Duration(begins[firstAt(max(from, turn))]-now.Wall))
		}
		b := &TurnBucket{CostBucket: CostBucket{Bucket: Bucket{Tokens: 2, Last: now.At}}}
		if got := b.Until(now, r, from, float64(ahead), 1); got != want {
			rt.Fatalf("%v from %v on, want %v", got, from, want)
		}
		if want > 0 {
			return
		}
		b.Take(now, r, 1)
		next := time.Duration(begins[firstAt(0)+1] - now.Wall)
		if got := b.Until(now, r, 0, 0, 1); got != next {
			rt.Fatalf("%v after a turn was taken, want %v", got, next)
		}
	})
}
