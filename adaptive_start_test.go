package quotient

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// judge is an upstream's token bucket of 100 a second. At the start it owes what others have taken.
type judge struct {
	mu              sync.Mutex
	tokens          float64
	last            time.Time
	served, refused int
}

func (u *judge) answer() policy.Feedback {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	u.tokens, u.last = min(100, u.tokens+100*now.Sub(u.last).Seconds()), now
	if u.tokens < 1 {
		u.refused++
		return throttled
	}
	u.tokens--
	u.served++
	return success
}

// starts sends 200 requests a second to an upstream from the start, and returns what has become of them.
func starts(t *testing.T, limit Limit, owes float64, seconds int) *judge {
	t.Helper()
	l := limiterOf(t, limit, Policy(policy.Tracking{}), BeyondShare(), few)
	u := &judge{tokens: -owes, last: time.Now()}
	random := rand.New(rand.NewPCG(1, 1))
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(seconds)*time.Second)
	defer cancel()
	for range 200 * seconds {
		time.Sleep(5 * time.Millisecond)
		half := time.Duration(10+random.IntN(30)) * time.Millisecond
		go func() {
			p, err := l.Acquire(ctx, "k")
			if err != nil {
				return
			}
			time.Sleep(half)
			f := u.answer()
			time.Sleep(half)
			p.Done(f)
		}()
	}
	cancel()
	time.Sleep(time.Second)
	synctest.Wait()
	return u
}

// A limit that others have used up when a key starts says nothing about the rate at which it may go on. With
// slots and without, a refusal before anything was served costs no more than the time until then.
func TestStartAgainstAnEmptyBucket(t *testing.T) {
	both := func(slots int) Limit { return Limit{Rates: []Rate{perSecond(100, 100)}, InFlight: slots} }
	for _, c := range []struct {
		owes             float64 // for 10 ms each
		seconds, atLeast int
	}{{0, 3, 40}, {5, 3, 35}, {50, 3, 20}, {5, 10, 500}, {100, 10, 400}, {200, 10, 225}} {
		for name, limit := range map[string]Limit{
			"rate":      both(0),
			"slots":     {InFlight: 20},
			"both":      both(20),
			"few slots": both(6),
		} {
			row(t, fmt.Sprint(name, c), func(t *testing.T) {
				u := starts(t, limit, c.owes, c.seconds)
				if u.served < c.atLeast || u.refused > u.served/10+8 {
					t.Errorf("served %d, refused %d, want at least %d served", u.served, u.refused, c.atLeast)
				}
			})
		}
	}
}
