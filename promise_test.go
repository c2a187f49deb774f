package quotient

import (
	"cmp"
	"slices"
	"testing"
	"time"
)

// herd is clients of one key that come at one instant, and come again when they are told to, until each has had
// its answer.
type herd struct {
	l        *Limiter
	opts     []CallOption
	requests int
	most     int           // requests at one instant but the first
	waited   time.Duration // by the client that has waited longest
}

// come lets so many clients come, each at its own time. Each asks, and is told to come again, or has its answer.
func (h *herd) come(t *testing.T, n int, ask func() Decision) {
	t.Helper()
	start, answers, together := time.Now(), 0, 0
	for due := make([]time.Time, n); len(due) > 0; {
		slices.SortStableFunc(due, time.Time.Compare)
		if wait := time.Until(due[0]); wait > 0 {
			time.Sleep(wait)
			together = 0
		}
		if together++; time.Since(start) > 0 {
			h.most = max(h.most, together)
		}
		earliest := h.earliest(t)
		d := ask()
		if h.requests++; d.OK {
			h.waited, due, answers = time.Since(start), due[1:], answers+1
			continue
		}
		if d.RetryAfter < earliest || h.requests > 100*n {
			t.Fatalf("told %v, and there is room after %v at the earliest", d.RetryAfter, earliest)
		}
		due[0] = time.Now().Add(d.RetryAfter)
	}
	t.Logf("%d requests for %d answers, at most %d at one instant but the first, the last after %v",
		h.requests, answers, h.most, h.waited)
}

// earliest is when a call would have its turn if no other came.
func (h *herd) earliest(t *testing.T) time.Duration {
	now := h.l.now()
	s, hash := h.l.lock("k")
	defer s.mu.Unlock()
	now = s.tick(now)
	d, err := newDemand(h.opts, s.setting.units, *s.plans)
	must(t, err)
	return s.peek(hash, "k", now).probe(now, &d).wait
}

// try is a request that does not wait.
func (h *herd) try() Decision {
	p, d := h.l.TryAcquire("k", h.opts...)
	p.Release()
	return d
}

func TestHerdIsSpread(t *testing.T) {
	minute := Rate{Events: 10, Per: time.Minute}
	aligned := Rate{Events: 10, Per: time.Minute, Aligned: true}
	with := func(r Rate, change func(*Rate)) Rate { change(&r); return r }
	tokens := func(r *Rate) { r.Name, r.Unit, r.Events = "tokens", "tokens", 5*r.Events }
	fifth := []CallOption{Cost("tokens", 5)}
	for name, c := range map[string]struct {
		limit Limit
		pool  Pool
		opts  []CallOption
		most  time.Duration // that one waits; 0: as long as 19 whole minutes and one
		setup Option
	}{
		"bucket":  {limit: Rates(minute)},
		"paced":   {limit: Rates(with(minute, func(r *Rate) { r.Burst = 1 }))},
		"aligned": {limit: Rates(aligned)},
		"an hour": {limit: Rates(with(aligned, func(r *Rate) { r.Per = time.Hour })), most: 20 * time.Hour},
		"fast":    {limit: Rates(with(minute, func(r *Rate) { r.Per = 100 * ms })), most: 2 * time.Second},
		"counted": {limit: Rates(with(aligned, func(r *Rate) { r.Counted = true }))},
		"a part of a window": {limit: Rates(with(aligned, func(r *Rate) { r.Events = 35 })),
			pool: Pool{Replicas: 4, Ordinal: 2}, most: 24 * time.Minute},
		"sparse windows": {limit: Rates(aligned), pool: Pool{Replicas: 25, Ordinal: 2}, most: 501 * time.Minute},
		"turns": {limit: Rates(with(minute, func(r *Rate) { r.Burst = 1 })),
			pool: Pool{Replicas: 4, Ordinal: 2}, most: 81 * time.Minute},
		"two rates": {limit: Rates(aligned, Rate{Name: "fast", Events: 1, Per: 2 * time.Second, Burst: 1})},
		"a long and a short window": {limit: Rates(with(aligned, func(r *Rate) { r.Events = 40 }),
			Rate{Name: "fast", Events: 1, Per: 5 * time.Second, Aligned: true})},
		"costs":            {limit: Rates(with(minute, tokens)), opts: fifth},
		"costs of windows": {limit: Rates(with(aligned, tokens)), opts: fifth},
		"a weight":         {limit: Rates(with(aligned, func(r *Rate) { r.Events = 20 })), opts: []CallOption{Weight(2)}},
		"more than fits": {limit: Rates(with(minute, func(r *Rate) { r.Burst = 20 })), pool: Pool{Replicas: 10},
			opts: []CallOption{Weight(4)}, most: 801 * time.Minute},
		"a policy": {limit: Rates(minute), setup: Policy(&spyController{start: 1. / 6, next: 1. / 6})},
	} {
		row(t, name, func(t *testing.T) {
			if c.setup == nil {
				c.setup = together()
			}
			if c.pool == (Pool{}) {
				c.pool.Replicas = 1
			}
			h := &herd{l: mustNew(t, c.limit, c.setup, StartPool(c.pool)), opts: c.opts}
			h.come(t, 200, h.try)
			if most := cmp.Or(c.most, 20*time.Minute); h.requests > 600 || h.most > 20 || h.waited > most {
				t.Errorf("one waited %v, want at most %v", h.waited, most)
			}
		})
	}
}

// One client that asks a thousand times a second, and obeys nothing, keeps an obedient one away for at most a
// hundred turns. An hour after it has gone nothing is left of that.
func TestHammerPromisesLittle(t *testing.T) {
	for name, c := range map[string]struct {
		rate Rate
		most time.Duration // the first turn, and a hundred behind it
	}{
		"window": {Rate{Events: 10, Per: time.Minute, Aligned: true}, 11 * time.Minute},
		"bucket": {Rate{Events: 10, Per: time.Minute}, 10*time.Minute + 6*time.Second},
		"fast":   {Rate{Events: 100, Per: time.Second}, 1010 * ms},
	} {
		row(t, name, func(t *testing.T) {
			l, longest := mustNew(t, Rates(c.rate)), time.Duration(0)
			for range 300_000 {
				l.TryAcquire("k")
				longest = max(longest, l.Check("k").RetryAfter)
				time.Sleep(ms)
			}
			if longest > c.most {
				t.Errorf("an obedient client is told %v, want at most %v", longest, c.most)
			}
			time.Sleep(time.Hour)
			wants(t, l, "k", int(c.rate.Events))
			if d := refusedFor(t, l, ReasonRate, "k"); d.RetryAfter > time.Minute {
				t.Errorf("an hour later: %v", d)
			}
		})
	}
}

// Who is not told when to come is promised nothing: a look, Allow, a batch. A key's promises are for those who
// take the same unit of it, and go when it is forgiven or dropped.
func TestPromises(t *testing.T) {
	minute := Rate{Events: 1, Per: time.Minute, Burst: 1}
	tries := func(l *Limiter, opts ...CallOption) { l.TryAcquire("k", opts...) }
	for name, c := range map[string]struct {
		then func(l *Limiter)
		want time.Duration
	}{
		"nothing":             {func(*Limiter) {}, time.Minute},
		"a refusal":           {func(l *Limiter) { tries(l) }, 2 * time.Minute},
		"two refusals":        {func(l *Limiter) { tries(l); tries(l) }, 3 * time.Minute},
		"of a claim":          {func(l *Limiter) { TryAcquireAll(nil, Claim{Limiter: l, Key: "k"}) }, 2 * time.Minute},
		"looks":               {func(l *Limiter) { l.Check("k"); l.Explain("k") }, time.Minute},
		"Allow":               {func(l *Limiter) { l.Allow("k") }, time.Minute},
		"a batch":             {func(l *Limiter) { l.TryAcquireUpTo("k", 5) }, time.Minute},
		"a dry run":           {func(l *Limiter) { l.SetDryRun(true); tries(l); l.SetDryRun(false) }, time.Minute},
		"another key":         {func(l *Limiter) { l.TryAcquire("a"); l.TryAcquire("a") }, time.Minute},
		"another unit":        {func(l *Limiter) { tries(l, Cost("tokens", 10)) }, time.Minute},
		"too early by little": {func(l *Limiter) { tries(l); time.Sleep(time.Minute - 1) }, 1},
		"half a minute later": {func(l *Limiter) { tries(l); time.Sleep(30 * time.Second) }, 90 * time.Second},
		"a reset":             {func(l *Limiter) { tries(l); l.Reset("k"); l.Allow("k") }, time.Minute},
		"a dropped key": {func(l *Limiter) {
			tries(l)
			time.Sleep(2 * time.Hour)
			l.Allow("a") // there is room for one key
			time.Sleep(2 * time.Hour)
			l.Allow("k")
		}, time.Minute},
	} {
		row(t, name, func(t *testing.T) {
			l := mustNew(t, Rates(minute, tokensPerMinute(.1, 10)), MaxKeys(1))
			took(t, l, "k", Cost("tokens", 10)).Release()
			c.then(l)
			is(t, "the next is told", l.Check("k").RetryAfter, c.want)
			for g := range l.shards[0].promises {
				if gateOf(l, g.name) != g && !l.shards[0].overflow.is(g) {
					t.Errorf("the gate of %q was dropped, and is kept for a promise", g.name)
				}
			}
		})
	}
}
