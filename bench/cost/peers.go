package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/didip/tollbooth/v8"
	tollboothlimiter "github.com/didip/tollbooth/v8/limiter"
	"github.com/go-chi/httprate"
	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ululelimiter "github.com/ulule/limiter/v3"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/quotient-go/quotient"
)

// Names of the contenders that goals refer to.
const (
	nameQuotient  = "quotient"
	nameFloor     = "floor: time.Now + mutex"
	nameMapFloor  = "floor: time.Now + mutex + map"
	nameRate      = "x/time/rate, no keys"
	nameRateInLRU = "x/time/rate in one golang-lru"
	nameGoLimiter = "go-limiter memorystore"
	nameThrottled = "throttled, LRU store"
	nameThrotMap  = "throttled, unbounded store"
	nameUlule     = "ulule memory store"
	nameTollbooth = "tollbooth"
	nameCounter   = "httprate's counter"
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

// maker builds a keyed contender. maxKeys bounds those that can be bounded. forget is how long an unused
// key is kept by those that forget by time; 0 is as long as the benchmark lasts.
type maker struct {
	name string
	make func(q quota, maxKeys int, forget time.Duration) (keyed, error)
}

// keyedPeers are all contenders that limit by key, and quotient.
func keyedPeers() []maker {
	return []maker{
		{nameQuotient, makeQuotient},
		{nameRateInLRU, makeRateInLRU},
		{nameGoLimiter, makeGoLimiter},
		{nameThrottled, makeThrottledLRU},
		{nameThrotMap, makeThrottledMap},
		{nameUlule, makeUlule},
		{nameTollbooth, makeTollbooth},
		{nameCounter, makeCounter},
	}
}

func makeQuotient(q quota, maxKeys int, _ time.Duration) (keyed, error) {
	limit := quotient.Rates(quotient.Rate{Events: 1, Per: q.per, Burst: q.burst})
	l, err := quotient.New(limit, quotient.MaxKeys(maxKeys))
	if err != nil {
		return keyed{}, err
	}
	return keyed{allow: l.Allow, live: func() int { return l.Stats().Keys }}, nil
}

func makeRateInLRU(q quota, maxKeys int, _ time.Duration) (keyed, error) {
	c, err := lru.New[string, *rate.Limiter](maxKeys)
	if err != nil {
		return keyed{}, err
	}
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
	return keyed{allow: allow, live: c.Len}, nil
}

func makeGoLimiter(q quota, _ int, forget time.Duration) (keyed, error) {
	conf := &memorystore.Config{Tokens: uint64(q.burst), Interval: q.per}
	if forget > 0 {
		conf.SweepInterval, conf.SweepMinTTL = forget/2, forget
	}
	s, err := memorystore.New(conf)
	if err != nil {
		return keyed{}, err
	}
	ctx := context.Background()
	allow := func(key string) bool {
		_, _, _, ok, err := s.Take(ctx, key)
		return ok && err == nil
	}
	return keyed{allow: allow, close: func() { _ = s.Close(ctx) }}, nil
}

func makeThrottledLRU(q quota, maxKeys int, _ time.Duration) (keyed, error) {
	return makeThrottled(q, maxKeys)
}

func makeThrottledMap(q quota, _ int, _ time.Duration) (keyed, error) {
	return makeThrottled(q, 0)
}

func makeThrottled(q quota, maxKeys int) (keyed, error) {
	l, err := newThrottled(q, maxKeys)
	if err != nil {
		return keyed{}, err
	}
	ctx := context.Background()
	allow := func(key string) bool {
		limited, _, err := l.RateLimitCtx(ctx, key, 1)
		return !limited && err == nil
	}
	return keyed{allow: allow}, nil
}

// newThrottled bounds the period: throttled keeps burst times period as nanoseconds in an int64.
func newThrottled(q quota, maxKeys int) (*throttled.GCRARateLimiterCtx, error) {
	store, err := memstore.NewCtx(maxKeys)
	if err != nil {
		return nil, err
	}
	period := min(q.per, time.Duration((1<<61)/q.burst))
	l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
		MaxRate:  throttled.PerDuration(1, period),
		MaxBurst: q.burst - 1,
	})
	if err != nil {
		return nil, err
	}
	l.SetMaxCASAttemptsLimit(1 << 20) // its default of 10 gives up under contention
	return l, nil
}

func makeUlule(q quota, _ int, forget time.Duration) (keyed, error) {
	if forget == 0 {
		forget = time.Hour
	}
	store := ululememory.NewStoreWithOptions(ululelimiter.StoreOptions{CleanUpInterval: forget / 2})
	l := ululelimiter.New(store, ululelimiter.Rate{Period: q.per, Limit: int64(q.burst)})
	ctx := context.Background()
	allow := func(key string) bool {
		c, err := l.Get(ctx, key)
		return err == nil && !c.Reached
	}
	return keyed{allow: allow}, nil
}

func makeTollbooth(q quota, _ int, forget time.Duration) (keyed, error) {
	l := newTollbooth(q, forget)
	allow := func(key string) bool { return tollbooth.LimitByKeys(l, []string{key}) == nil }
	return keyed{allow: allow}, nil
}

func newTollbooth(q quota, forget time.Duration) *tollboothlimiter.Limiter {
	opts := &tollboothlimiter.ExpirableOptions{DefaultExpirationTTL: forget}
	return tollbooth.NewLimiter(1/q.per.Seconds(), opts).SetBurst(q.burst)
}

// makeCounter is what httprate does for each request: two windows' counts are read, and one is raised. It
// forgets all keys of a window at once.
func makeCounter(q quota, _ int, _ time.Duration) (keyed, error) {
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
	return keyed{allow: allow}, nil
}

// makeRate has one bucket for all keys, and a burst that is enough for all: what the token maths and its
// lock cost alone.
func makeRate(q quota, _ int, _ time.Duration) (keyed, error) {
	l := rate.NewLimiter(rate.Every(q.per), 1<<40)
	return keyed{allow: func(string) bool { return l.Allow() }}, nil
}

// makeFloor reads the clock and takes a lock, which no limiter can do without.
func makeFloor(quota, int, time.Duration) (keyed, error) {
	var mu sync.Mutex
	var last time.Time
	return keyed{allow: func(string) bool {
		now := time.Now()
		mu.Lock()
		last = now
		admitted := !last.IsZero()
		mu.Unlock()
		return admitted
	}}, nil
}

// makeMapFloor also finds the key in a map and counts.
func makeMapFloor(_ quota, maxKeys int, _ time.Duration) (keyed, error) {
	var mu sync.Mutex
	m := make(map[string]*time.Time, maxKeys)
	allow := func(key string) bool {
		now := time.Now()
		mu.Lock()
		last, ok := m[key]
		if !ok {
			last = new(time.Time)
			m[key] = last
		}
		*last = now
		mu.Unlock()
		return true
	}
	return keyed{allow: allow, live: func() int { mu.Lock(); defer mu.Unlock(); return len(m) }}, nil
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
	if k.live == nil {
		return nil
	}
	if got := k.live(); got != n {
		return fmt.Errorf("%d keys held, want %d", got, n)
	}
	return nil
}
