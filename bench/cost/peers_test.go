package cost

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-chi/httprate"
	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/sethvargo/go-limiter/memorystore"
	"golang.org/x/time/rate"

	"github.com/quotient-go/quotient"
)

// quota is what all keyed contenders are asked to enforce: burst events at once, then one event every per.
type quota struct {
	burst int
	per   time.Duration
}

// generous admits all that a benchmark requests of one key. Yet no used key is full again before five
// minutes have passed, so no contender may forget it. An empty bucket fills in 20 years: with centuries,
// quotient guards against the overflow of x/time/rate and is slower than with any sane limit.
var generous = quota{burst: 1 << 21, per: 5 * time.Minute}

// generousTo is generous for so many keys: a few of them are used more often.
func generousTo(keys int) quota {
	return quota{burst: max(generous.burst, 1<<30/keys), per: generous.per}
}

// keyed is a contender that decides for each key.
type keyed struct {
	allow func(key string) bool
	live  func() int // keys held now; nil when the contender does not tell
	close func()     // stops what the contender started; nil when there is nothing
}

// maker builds a keyed contender. maxKeys bounds those that can be bounded.
type maker struct {
	name string
	make func(q quota, maxKeys int) keyed
}

// must is v: what is compared can be made.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// keyedPeers are the contenders that limit by key. The first one is what benchstat compares the others with. Other
// libraries, which wrap one of these or are slower, are compared as middleware.
func keyedPeers() []maker {
	return []maker{
		{"quotient", makeQuotient},
		{"time-rate-in-golang-lru", makeRateInLRU},
		{"go-limiter", makeGoLimiter},
		{"httprate", makeCounter},
	}
}

func makeQuotient(q quota, maxKeys int) keyed {
	limit := quotient.Rates(quotient.Rate{Events: 1, Per: q.per, Burst: q.burst})
	l := must(quotient.New(limit, quotient.MaxKeys(maxKeys)))
	return keyed{allow: l.Allow, live: func() int { return l.Stats().Keys }}
}

func makeRateInLRU(q quota, maxKeys int) keyed {
	c := must(lru.New[string, *rate.Limiter](maxKeys))
	allow := func(key string) bool {
		l, ok := c.Get(key)
		if !ok {
			l = rate.NewLimiter(rate.Every(q.per), q.burst)
			if before, found, _ := c.PeekOrAdd(key, l); found {
				l = before
			}
		}
		return l.Allow()
	}
	return keyed{allow: allow, live: c.Len}
}

func makeGoLimiter(q quota, _ int) keyed {
	s := must(memorystore.New(&memorystore.Config{Tokens: uint64(q.burst), Interval: q.per}))
	ctx := context.Background()
	return keyed{close: func() { _ = s.Close(ctx) }, allow: func(key string) bool {
		_, _, _, ok, err := s.Take(ctx, key)
		return ok && err == nil
	}}
}

// makeCounter is what httprate does for each request: two windows' counts are read, and one is raised. It
// forgets all keys of a window at once.
func makeCounter(q quota, _ int) keyed {
	const window = time.Hour
	c := httprate.NewLocalLimitCounter(window)
	var mu sync.Mutex // as that of a RateLimiter, so that no two requests take the last event
	allow := func(key string) bool {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now().UTC()
		current := now.Truncate(window)
		n, before, err := c.Get(key, current, current.Add(-window))
		part := float64(window-now.Sub(current)) / float64(window)
		if err != nil || float64(before)*part+float64(n) >= float64(q.burst) {
			return false
		}
		return c.Increment(key, current) == nil
	}
	return keyed{allow: allow}
}

// keylessPeers are what a decision costs at the least: a clock and a lock, and the arithmetic of one bucket,
// whose burst is enough for all keys.
func keylessPeers() []maker {
	return []maker{{"clock-and-lock", makeFloor}, {"time-rate-without-keys", func(q quota, _ int) keyed {
		l := rate.NewLimiter(rate.Every(q.per), 1<<40)
		return keyed{allow: func(string) bool { return l.Allow() }}
	}}}
}

// makeFloor reads the clock and takes a lock, which no limiter can do without.
func makeFloor(quota, int) keyed {
	var mu sync.Mutex
	var last time.Time
	return keyed{allow: func(string) bool {
		now := time.Now()
		mu.Lock()
		last = now
		admitted := !last.IsZero()
		mu.Unlock()
		return admitted
	}}
}

// fill asks once for each key, so that the contender holds them all, and checks that it does.
func (k keyed) fill(keys []string) error {
	for _, key := range keys {
		if !k.allow(key) {
			return fmt.Errorf("key %q was refused at its first visit", key)
		}
	}
	return k.holds(len(keys))
}

// holds fails unless the contender, where it tells, holds exactly n keys.
func (k keyed) holds(n int) error {
	if k.live != nil && k.live() != n {
		return fmt.Errorf("%d keys held, want %d", k.live(), n)
	}
	return nil
}
