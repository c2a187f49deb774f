package redis

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/quotient-go/quotient"
	"github.com/redis/go-redis/v9"
)

// hangs is a hook under which, once armed, the next script of a client is held until its time is over, and
// does not reach the store.
type hangs struct{ armed atomic.Bool }

func (h *hangs) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h *hangs) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (h *hangs) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" && h.armed.CompareAndSwap(true, false) {
			<-ctx.Done()
			return ctx.Err()
		}
		return next(ctx, cmd)
	}
}

// fleetIn starts processors at different times, and returns them when they have agreed.
func fleetIn(t *testing.T, mini *miniredis.Miniredis, n int, period, expiry time.Duration) (all []*watched,
	hooks []*hangs) {
	t.Helper()
	for i := range n {
		client, h := pipeClient(t, mini), &hangs{}
		client.AddHook(h)
		all = append(all,
			watch(t, &Source{Client: client, Fleet: "f", ID: fmt.Sprint("old", i), Period: period,
				Expiry: expiry}))
		hooks = append(hooks, h)
		time.Sleep(period * 137 / 1000)
	}
	time.Sleep(10 * period)
	for i, w := range all {
		w.wants(t, n, i+1)
	}
	return all, hooks
}

// Failure mode 20: a processor that starts just after the store has lost its data does not take those that
// are back already for all. That holds also if the others' next commands hang, for Follow could not know that
// they are more.
func TestNewReplicaAfterLoss(t *testing.T) {
	const olds = 4
	for _, row := range []struct {
		hang           bool
		period, expiry time.Duration
	}{
		{false, time.Second, 10 * time.Second},
		{true, time.Second, 10 * time.Second},
		{true, 50 * time.Millisecond, 2 * time.Second},
		{false, time.Second, 2 * time.Second},
	} {
		for phase := range 10 {
			synctest.Test(t, func(t *testing.T) {
				mini := miniredis.NewMiniRedis()
				defer mini.Close()
				_, hooks := fleetIn(t, mini, olds, row.period, row.expiry)
				time.Sleep(time.Duration(phase) * row.period / 10)
				mini.FlushAll()
				for _, h := range hooks {
					h.armed.Store(row.hang)
				}
				w := watch(t, &Source{Client: pipeClient(t, mini), Fleet: "f", ID: "new", Period: row.period,
					Expiry: row.expiry})
				w.until(t, "a report", func() bool { n, _ := w.counts(); return n > 0 })
				if n := w.least(0); n != olds+1 {
					t.Errorf("%+v, phase %d: the joiner counts %d of %d", row, phase, n, olds+1)
				}
			})
		}
	}
}

// A start takes as long as the page of Watch says, and never so long that the processor expires meanwhile.
func TestStartTakes(t *testing.T) {
	for _, row := range []struct {
		others         int
		period, expiry time.Duration
		want           time.Duration
	}{
		{0, time.Second, 10 * time.Second, 3250 * time.Millisecond},
		{0, 50 * time.Millisecond, 400 * time.Millisecond, 312500 * time.Microsecond},
		{0, time.Second, 2 * time.Second, 1500 * time.Millisecond},
		{0, time.Second, 3 * time.Second, 2500 * time.Millisecond},
		{2, time.Second, 10 * time.Second, 1250 * time.Millisecond},
		{2, time.Second, 2 * time.Second, 1250 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			mini := miniredis.NewMiniRedis()
			defer mini.Close()
			fleetIn(t, mini, row.others, row.period, row.expiry)
			began := time.Now()
			w := watch(t, &Source{Client: pipeClient(t, mini), Fleet: "f", ID: "new", Period: row.period,
				Expiry: row.expiry})
			w.until(t, "a report", func() bool { n, _ := w.counts(); return n > 0 })
			if got := time.Since(began); got != row.want || w.last().Replicas != row.others+1 {
				t.Errorf("%+v: after %v %+v", row, got, w.last())
			}
		})
	}
}

// All agree within two periods of a join, give or take the jitter, and the new one uses nothing before all
// have learned of it.
func TestJoinTakesTwoPeriods(t *testing.T) {
	const n = 8
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			mini := miniredis.NewMiniRedis()
			defer mini.Close()
			all, _ := fleetIn(t, mini, n-1, time.Second, 10*time.Second)
			began := time.Now()
			joins := watch(t, &Source{Client: pipeClient(t, mini), Fleet: "f", ID: "zz"})
			joins.until(t, "a report", func() bool { n, _ := joins.counts(); return n > 0 })
			for i, w := range all {
				if got := w.last().Replicas; got != n {
					t.Errorf("the new one uses its share, and processor %d counts %d", i, got)
				}
			}
			for i, w := range append(all, joins) {
				w.wants(t, n, i+1)
			}
			if d := time.Since(began); d > time.Duration((1+jitter)*float64(2*time.Second)) {
				t.Errorf("all agree after %v", d)
			}
		})
	}
}

// A Source that is watched twice is one processor until its last Watch ends.
func TestOneWatchOfTwoEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := miniredis.NewMiniRedis()
		defer mini.Close()
		s := &Source{Client: pipeClient(t, mini), Fleet: "f", ID: "a"}
		inFleet := func(want bool) {
			t.Helper()
			if got := mini.Exists("{quotient:f}:deadlines"); got != want {
				t.Errorf("the processor is in the fleet: %v", got)
			}
		}
		first, second := watch(t, s), watch(t, s)
		first.wants(t, 1, 1)
		second.wants(t, 1, 1)
		first.leave(t)
		inFleet(true)
		second.goesOn(t)
		third := watch(t, s)
		third.wants(t, 1, 1)
		second.leave(t)
		inFleet(true)
		third.leave(t)
		inFleet(false)
		again := watch(t, s)
		again.wants(t, 1, 1)
		again.leave(t)
		inFleet(false)
	})
}

// Failure mode 20: a store loses its data, and the answer that would have said so is lost too.
func TestLossAndLostAnswer(t *testing.T) {
	mini := miniredis.NewMiniRedis()
	defer mini.Close()
	s, err := (&Source{Client: pipeClient(t, mini), Fleet: "f", ID: "a"}).complete()
	must(t, err)
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	join := func(id string) *processor {
		return &processor{store: s.store(id), member: newMember(s.Expiry, s.Weight)}
	}
	sync := func(p *processor) (answer, quotient.Pool) {
		a, err := p.sync(t.Context(), p.report, "")
		must(t, err)
		pool, _ := p.learn(a, now)
		return a, pool
	}
	a, b := join("a"), join("b")
	for range 5 {
		now = now.Add(time.Second)
		mini.SetTime(now)
		sync(a)
		sync(b)
	}
	mini.FlushAll()
	_, err = a.sync(t.Context(), a.report, "") // of which a gets nothing but an error
	must(t, err)
	a.missed(now)
	for lost := now; now.Sub(lost) < s.Expiry; now = now.Add(time.Second) {
		mini.SetTime(now)
		if got, p := sync(a); p.Replicas != 2 || !got.known || got.living != 1 {
			t.Errorf("%v after the loss: %+v is taken for %+v", now.Sub(lost), got, p)
		}
	}
	mini.SetTime(now)
	if _, p := sync(a); p != (quotient.Pool{Replicas: 1, Ordinal: 1}) {
		t.Errorf("an expiry later %+v counts", p)
	}
}
