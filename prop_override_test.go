package quotient

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// An override is SetLimit for one key. The key always fares as in a limiter that has the limit as its own,
// and every other key as in one without the override.
func TestPropertyOverride(t *testing.T) {
	property(t, func(rt *rapid.T) {
		// Not Deny: under it a bucket goes on filling by the rate before it, which is another one for the key
		// that comes back to it.
		drawBase := func() Limit {
			if limit := drawLimit(rt); !limit.Deny {
				return limit
			}
			return Rates(drawRate(rt, "a"))
		}
		limit, start := drawBase(), StartPool(drawNumberedPool(rt))
		phase := func(o *options) error { o.phase = 7; return nil }
		over := mustNew(rt, limit, start, phase)
		mine, others := mustNew(rt, limit, start, phase), mustNew(rt, limit, start, phase)
		base, owned := limit, false
		var permits [][2]Permit
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.IntRange(0, 9).Draw(rt, "what") {
			case 0:
				own := drawLimit(rt)
				must(rt, over.Override("mine", &own))
				must(rt, mine.SetLimit(own))
				owned = true
			case 1:
				must(rt, over.Override("mine", nil))
				if owned {
					must(rt, mine.SetLimit(base))
				}
				owned = false
			case 2:
				base = drawBase()
				must(rt, over.SetLimit(base))
				must(rt, others.SetLimit(base))
				if !owned {
					must(rt, mine.SetLimit(base))
				}
			case 3:
				p := drawNumberedPool(rt)
				for _, l := range []*Limiter{over, mine, others} {
					must(rt, l.SetPool(p, 0))
				}
			case 4, 5:
				time.Sleep(drawPause(rt))
			case 6:
				if len(permits) > 0 {
					permits[0][0].Release()
					permits[0][1].Release()
					permits = permits[1:]
				}
			default:
				key, twin := "mine", mine
				if rapid.Bool().Draw(rt, "another key") {
					key, twin = "another", others
				}
				opt := Weight(rapid.IntRange(1, 4).Draw(rt, "weight"))
				p, a := over.TryAcquire(key, opt)
				q, b := twin.TryAcquire(key, opt)
				if (a.RetryAfter - b.RetryAfter).Abs() < time.Microsecond {
					a.RetryAfter = b.RetryAfter // a change more or less rounds once more or less
				}
				if a != b {
					rt.Fatalf("%s: %+v, but %+v without override", key, a, b)
				}
				permits = append(permits, [2]Permit{p, q})
			}
		}
	})
}

// A dry run counts for callers that do not wait just what the limiter would have refused, and stops none of
// them.
func TestPropertyDryRun(t *testing.T) {
	property(t, func(rt *rapid.T) {
		limit, pool := drawLimit(rt), StartPool(drawNumberedPool(rt))
		phase := func(o *options) error { o.phase = 7; return nil }
		real, dry := mustNew(rt, limit, pool, phase), mustNew(rt, limit, pool, phase)
		dry.SetDryRun(true)
		var permits [][2]Permit
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.IntRange(0, 5).Draw(rt, "what") {
			case 0, 1:
				time.Sleep(drawPause(rt))
			case 2:
				if len(permits) > 0 {
					permits[0][0].Release()
					permits[0][1].Release()
					permits = permits[1:]
				}
			default:
				k, opt := key(rapid.IntRange(0, 2).Draw(rt, "key")),
					Weight(rapid.IntRange(1, 4).Draw(rt, "weight"))
				p, _ := real.TryAcquire(k, opt)
				q, d := dry.TryAcquire(k, opt)
				if !d.OK {
					rt.Fatalf("stopped in a dry run: %+v", d)
				}
				permits = append(permits, [2]Permit{p, q})
			}
		}
		want, got := real.Stats(), dry.Stats()
		for r := range numReasons {
			if want.Refused[r] != got.DryRunAdmitted[r] || got.Refused[r] != 0 {
				rt.Fatalf("%v: %d refused, but %d counted and %d refused in a dry run", r, want.Refused[r],
					got.DryRunAdmitted[r], got.Refused[r])
			}
		}
		if want.InFlight != got.InFlight {
			rt.Fatalf("%d in flight, %d in a dry run", want.InFlight, got.InFlight)
		}
	})
}
