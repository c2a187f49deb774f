package quotient

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// evict drops every idle key of l.
func evictAll(l *Limiter) {
	s := &l.shards[0]
	s.mu.Lock()
	now := s.tick(l.now())
	n := 0
	for range s.order.Len() {
		if s.evictOne(1, func(g *gate) bool { return s.spare(g, now) }) {
			n++
		}
	}
	s.evicted(n)
	s.left = math.MaxUint32
	s.mu.Unlock()
}

func runDiff(t *testing.T, seed uint64, steps int, opts ...Option) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(seed, 2))
		limits := mixedLimits(mix{speed: 1, window: 7.5, later: 3})
		first := limits[r.IntN(len(limits))]
		opts = append([]Option{MaxKeys(100)}, opts...)
		a, b := limiterOf(t, first, opts...), limiterOf(t, first, opts...)
		b.phase = a.phase
		b.shards[0].mu.Lock()
		a.shards[0].left, b.shards[0].left = math.MaxUint32, math.MaxUint32
		b.shards[0].mu.Unlock()
		_ = a.SetLimit(first)
		_ = b.SetLimit(first)
		type pair struct{ a, b Permit }
		var ps []pair
		hist := ""
		for step := range steps {
			key := string(rune('a' + r.IntN(4)))
			var opts []CallOption
			if r.IntN(3) == 0 {
				opts = append(opts, Weight(1+r.IntN(3)))
			}
			op := ""
			switch n := r.IntN(100); {
			case n < 40:
				ca := a.Check(key, opts...)
				pa, da := a.TryAcquire(key, opts...)
				pb, db := b.TryAcquire(key, opts...)
				op = fmt.Sprint("try ", key, len(opts), " ", da.OK)
				if fmt.Sprint(da) != fmt.Sprint(db) {
					t.Errorf("seed %d step %d: %+v %+v", seed, step, da, db)
				}
				if fmt.Sprint(ca) != fmt.Sprint(da) {
					t.Errorf("seed %d step %d: check %+v %+v", seed, step, ca, da)
				}
				if da.OK && db.OK {
					ps = append(ps, pair{pa, pb})
				}
			case n < 48:
				n := 1 + r.IntN(6)
				pa, na := a.TryAcquireUpTo(key, n)
				pb, nb := b.TryAcquireUpTo(key, n)
				op = fmt.Sprint("upto ", key, n, " ", na, nb)
				if na != nb {
					t.Errorf("seed %d step %d: upto %d %d", seed, step, na, nb)
				}
				if na > 0 {
					ps = append(ps, pair{pa, pb})
				}
			case n < 70 && len(ps) > 0:
				i := r.IntN(len(ps))
				if r.IntN(2) == 0 {
					f := policy.Feedback{Outcome: policy.Outcome(r.IntN(5))}
					ps[i].a.Report(f)
					ps[i].b.Report(f)
					op = "report"
				} else {
					ps[i].a.Release()
					ps[i].b.Release()
					ps[i] = ps[len(ps)-1]
					ps = ps[:len(ps)-1]
					op = "release"
				}
			case n < 75:
				i := r.IntN(len(limits))
				_ = a.SetLimit(limits[i])
				_ = b.SetLimit(limits[i])
				op = fmt.Sprint("limit ", i)
			case n < 79:
				n := 1 + r.IntN(3)
				p := Pool{Replicas: n, Ordinal: r.IntN(n + 1), Fixed: true}
				_ = a.SetPool(p, 0)
				_ = b.SetPool(p, 0)
				op = fmt.Sprint("pool ", p)
			default:
				d := time.Duration(math.Exp(r.Float64()*20)) * time.Microsecond
				time.Sleep(d)
				op = fmt.Sprint("sleep ", d)
			}
			evictAll(b)
			hist += fmt.Sprintln(step, op)
			if t.Failed() {
				if len(hist) > 1500 {
					hist = hist[len(hist)-1500:]
				}
				t.Log(hist)
				return
			}
		}
	})
}

// Dropping every idle key after every step changes no answer, and Check says what TryAcquire does.
func TestDroppingAllIdleKeysIsInvisible(t *testing.T) {
	for _, c := range []struct {
		name string
		opts []Option
	}{{"plain", nil}, {"join", []Option{Replicas(2), StartEmpty()}},
		{"aimd", []Option{Policy(policy.AIMD{})}},
		{"aimdlimit", []Option{Policy(policy.AIMD{}), BeyondShare(), Replicas(3), StartEmpty()}},
		{"hold", []Option{MaxHold(time.Second)}}} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(30) {
				runDiff(t, seed, 300, c.opts...)
				if t.Failed() {
					return
				}
			}
		})
	}
}
