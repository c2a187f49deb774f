package quotient

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A reset is as if the key's callers came under a name never seen. Slots apart: none is out here.
func TestPropertyResetIsANewName(t *testing.T) {
	property(t, func(rt *rapid.T) {
		limit, start := drawLimit(rt), StartPool(drawNumberedPool(rt))
		phase := func(o *options) error { o.phase = 7; return nil }
		opts := []Option{start, phase}
		if rapid.Bool().Draw(rt, "joins") {
			opts = append(opts, StartEmpty())
		}
		l, twin := mustNew(rt, limit, opts...), mustNew(rt, limit, opts...)
		name := 0
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.IntRange(0, 9).Draw(rt, "what") {
			case 0, 1:
				l.Reset("k")
				name++
			case 2:
				limit := drawLimit(rt)
				must(rt, l.SetLimit(limit))
				must(rt, twin.SetLimit(limit))
			case 3:
				p := drawNumberedPool(rt)
				must(rt, l.SetPool(p, 0))
				must(rt, twin.SetPool(p, 0))
			case 4, 5:
				time.Sleep(drawPause(rt))
			default:
				opt := Weight(rapid.IntRange(1, 4).Draw(rt, "weight"))
				p, a := l.TryAcquire("k", opt)
				q, b := twin.TryAcquire(key(name), opt)
				if (a.RetryAfter - b.RetryAfter).Abs() < time.Microsecond {
					a.RetryAfter = b.RetryAfter // a change more or less rounds once more or less
				}
				if a != b {
					rt.Fatalf("%+v, but %+v under a new name", a, b)
				}
				p.Release()
				q.Release()
			}
		}
	})
}
