package damper_test

import (
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-go/quotient/internal/damper"
)

var began = time.Unix(1_000_000, 0)

// play follows a script: "N", or "N/W" for a weight, "#O" for an ordinal and "!" for one that is fixed, is a report,
// "recall N" a pool of before, "+D" lets time pass, and "=P" is what counts then, or "none", or "old".
func play(t *testing.T, d damper.Damper, script string) {
	t.Helper()
	now := began
	d.Began = now
	for step := range strings.FieldsSeq(script) {
		switch text := step[1:]; step[0] {
		case '+':
			by, err := time.ParseDuration(text)
			if err != nil {
				t.Fatal(err)
			}
			now = now.Add(by)
		case '=':
			p, known := d.Pool(now)
			got := written(p)
			if !known {
				got = "none"
			}
			if d.Old(now) {
				got = "old"
			}
			if got != text {
				t.Errorf("%s: after %v of %q: got %s", step, now.Sub(began), script, got)
			}
		case 'r':
			d.Recall(read(text), now)
		default:
			d.Report(read(step), now)
		}
	}
}

// read is the pool of a word.
func read(word string) (p damper.Pool) {
	word, p.Fixed = strings.CutSuffix(word, "!")
	word = strings.NewReplacer("/", " w", "#", " o").Replace(word)
	for _, field := range strings.Fields(word) {
		switch field[0] {
		case 'w':
			fmt.Sscan(field[1:], &p.Weight)
		case 'o':
			fmt.Sscan(field[1:], &p.Ordinal)
		default:
			fmt.Sscan(field, &p.Replicas)
		}
	}
	return p
}

// written is the word of a pool.
func written(p damper.Pool) string {
	s := fmt.Sprint(p.Replicas)
	if p.Weight > 0 {
		s += fmt.Sprintf("/%d", p.Weight)
	}
	if p.Ordinal > 0 {
		s += fmt.Sprintf("#%d", p.Ordinal)
	}
	if p.Fixed {
		s += "!"
	}
	return s
}

func TestDamper(t *testing.T) {
	t.Parallel()
	half := damper.Damper{HoldDown: 30 * time.Second}
	aged := damper.Damper{HoldDown: 30 * time.Second, MaxAge: time.Minute}
	once := aged
	once.Once = true
	for name, c := range map[string]struct {
		d      damper.Damper
		script string
	}{
		"nothing was reported":            {half, "=none +1h =none"},
		"a larger pool counts at once":    {half, "4 =4 +1s 8 =8"},
		"a smaller one after a hold-down": {half, "8 +1s 4 =8 +29.999999999s =8 +1ns =4"},
		"of several that ended the largest, while it holds down": {half,
			"9 +1s 7 +1s 8 +1s 4 =9 +28s =8 +2s =4"},
		"a larger one outlasts those before": {half, "8 +1s 4 +20s 9 +1s 4 =9 +29s =9 +1s =4"},
		"without a hold-down all counts":     {damper.Damper{}, "8 +1s 4#2 =4#2!"},
		"the share decides, not the size":    {half, "10/5 +1s 6/1 =6/1 +1s 10/5 =30/5 +30s =10/5"},
		"a share that no pool of the weight has": {half,
			"900000/3 +1s 10/9#2! =900000/3 +30s =10/9#2!"},
		"a share that is just possible": {half, "100000 +1s 10/9#2! =900000/9#2! +30s =10/9#2!"},

		"an ordinal is fixed when it was repeated for a hold-down": {half,
			"4#2 =4#2 +29s 4#2 =4#2 +1s 4#2 =4#2! +29s =4#2! +1s =4"},
		"not after a silence":        {half, "4#2 +30s 4#2 =4#2 +20s 4#2 +10s 4#2 =4#2!"},
		"not with another pool":      {half, "4#2 +20s 4#3 +10s 4#3 =4#3 +20s 4#3 =4#3!"},
		"one that the source fixes":  {half, "4#2! =4#2! +1h =4#2! 3#2! =4#2!"},
		"others do not in a smaller": {half, "4#2 +1s 3#2 =4 +30s =3"},

		"reports grow old":              {aged, "4 +59.999999999s =4 +1ns =old 5 =5"},
		"so does the wait for a first":  {aged, "+59s =none +1s =old 4 =4"},
		"one that is all grows not old": {once, "4 +24h =4"},
		"the wait for it does":          {once, "+1m =old 4 =4"},

		"a pool of before holds down": {aged, "r8 =none 4 =8 +30s =4"},
		"it is no report":             {aged, "+59s r8 +1s =old"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, c.d, c.script)
		})
	}
}

// A source that changes its mind without end is remembered on the safe side, in bounded memory: all that would be kept
// were reported within ten seconds; the first, and largest, is the first to be over.
func TestManyPoolsAreForgottenOnTheSafeSide(t *testing.T) {
	t.Parallel()
	d, now := damper.Damper{HoldDown: time.Minute}, began
	const step = 10 * time.Millisecond
	for n := 1000; n > 0; n-- {
		d.Report(damper.Pool{Replicas: n}, now)
		now = now.Add(step)
	}
	changes := 0
	for last, end := now, d.Next(now); !end.IsZero(); last, end = end, d.Next(end) {
		over := max(0, end.Sub(began)-time.Minute) / step
		if p, _ := d.Pool(last); p.Replicas < 1000-int(over) {
			t.Errorf("until %v: %d replicas count after %d are over", end.Sub(began), p.Replicas, over)
		}
		changes++
	}
	if p, _ := d.Pool(now.Add(time.Minute)); p.Replicas != 1 || changes != 64 {
		t.Errorf("%d replicas in the end, after %d changes", p.Replicas, changes)
	}
}

// reported is a report, or what counted before all of them.
type reported struct {
	p      damper.Pool
	at     time.Time
	before bool
}

// parts is how many shares of the replica's size there are.
func (r reported) parts() *big.Rat { return big.NewRat(int64(r.p.Replicas), int64(max(1, r.p.Weight))) }

// wanted is what a damper must come to, worked out from all reports.
func wanted(d *damper.Damper, all []reported, now time.Time) (p damper.Pool, known, old bool) {
	heard := d.Began
	for _, r := range all {
		if !r.before {
			known, heard = true, r.at
		}
	}
	if old = d.MaxAge > 0 && now.Sub(heard) >= d.MaxAge && !(d.Once && known); !known || old {
		return p, false, old
	}
	last := all[len(all)-1]
	most := last.parts()
	for i, r := range all[:len(all)-1] {
		if next := all[i+1]; next.p != r.p && now.Sub(next.at) < d.HoldDown && r.parts().Cmp(most) > 0 {
			most = r.parts()
		}
	}
	p = last.p
	if most.Cmp(last.parts()) > 0 {
		n := new(big.Rat).Mul(most, big.NewRat(int64(max(1, p.Weight)), 1))
		up := new(big.Int).Add(n.Num(), new(big.Int).Sub(n.Denom(), big.NewInt(1)))
		if p.Replicas = int(up.Div(up, n.Denom()).Int64()); !p.Fixed {
			p.Ordinal = 0
		}
		return p, true, false
	}
	if p.Fixed {
		return p, true, false
	}
	since := last.at
	for i := len(all) - 2; i >= 0 && all[i].p == p && all[i+1].at.Sub(all[i].at) < d.HoldDown; i-- {
		since = all[i].at
	}
	p.Fixed = p.Ordinal > 0 && last.at.Sub(since) >= d.HoldDown
	if d.HoldDown > 0 && now.Sub(last.at) >= d.HoldDown {
		p.Ordinal, p.Fixed = 0, false
	}
	return p, true, false
}

// Whatever a source says, the share in force is the smallest of those that counted within the
// last hold-down, whatever pool and weight it came of; an ordinal counts when it is nobody else's; and nothing changes
// before the damper has said that it may.
func TestPropertyDamping(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		duration := func(most int, label string) time.Duration {
			return time.Duration(rapid.IntRange(0, most).Draw(t, label)) * time.Millisecond
		}
		now := began
		d := damper.Damper{Began: now, HoldDown: duration(3000, "hold-down"), MaxAge: duration(5000, "max age"),
			Once: rapid.Bool().Draw(t, "once")}
		var all []reported
		check := func(at time.Time) {
			p, known := d.Pool(at)
			if want, is, old := wanted(&d, all, at); p != want || known != is || d.Old(at) != old {
				t.Fatalf("at %v: got %s %v, old %v, want %s %v, %v of %v", at.Sub(began), written(p), known, d.Old(at),
					written(want), is, old, all)
			}
		}
		heaviest := rapid.SampledFrom([]int{0, 4}).Draw(t, "heaviest")
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			rest := rapid.SampledFrom([]time.Duration{d.HoldDown, d.MaxAge, duration(2000, "pause")}).Draw(t, "rest")
			if next := d.Next(now); next.IsZero() || next.After(now.Add(rest)) {
				p, known := d.Pool(now)
				if q, still := d.Pool(now.Add(rest)); q != p || still != known {
					t.Fatalf("%s became %s before %v", written(p), written(q), next.Sub(began))
				}
			}
			now = now.Add(rest)
			check(now)
			p := damper.Pool{Replicas: rapid.SampledFrom([]int{1, 2, 3, 4, 5, 8, 12}).Draw(t, "replicas")}
			p.Weight = rapid.IntRange(0, min(heaviest, p.Replicas)).Draw(t, "weight")
			p.Ordinal = rapid.IntRange(0, p.Replicas-max(1, p.Weight)+1).Draw(t, "ordinal")
			p.Fixed = p.Ordinal > 0 && rapid.Bool().Draw(t, "fixed")
			if len(all) > 0 && rapid.Bool().Draw(t, "again") {
				p = all[len(all)-1].p
			}
			before := len(all) == 0 && rapid.Bool().Draw(t, "before")
			if all = append(all, reported{p, now, before}); before {
				d.Recall(p, now)
			} else {
				d.Report(p, now)
			}
			check(now)
		}
	})
}
