package redis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/tested"
	"github.com/quotient-go/quotient/poolsize/internal/watched"
	"github.com/quotient-go/quotient/poolsize/pooltest"
	"github.com/redis/go-redis/v9"
)

// The original's defect: a processor that stands still, or crashes, is dropped after its
// expiry. When it goes on it counts at once, and believes in no smaller pool than it had.
func TestCrash(t *testing.T) {
	t.Parallel()
	srv := start(t)
	a := watch(t, source(clientOf(t, srv, nil), "a"))
	p := watched.StartChild(t, childArg, srv.Addr())
	a.Wants(2, 1)
	must(t, p.Process.Signal(syscall.SIGSTOP))
	a.Wants(1, 1)
	must(t, p.Process.Signal(syscall.SIGCONT))
	a.Wants(2, 1)
	for range 10 {
		p.Says.Scan()
		tested.Not(t, strings.HasPrefix(p.Says.Text(), "1 "), "the child says %q", p.Says.Text())
	}
	began := time.Now()
	must(t, p.Process.Kill())
	a.Wants(1, 1)
	if d := time.Since(began); d < expiry-2*period {
		t.Errorf("dropped after %v, before its expiry of %v", d, expiry)
	}
}

func TestFleetsAreApart(t *testing.T) {
	t.Parallel()
	srv := start(t)
	c := clientOf(t, srv, nil)
	a, other, prefixed := source(c, "a"), source(c, "a"), source(c, "a")
	other.Fleet, prefixed.Prefix = "g", "p"
	ws := []*watched.Log{watch(t, a), watch(t, other), watch(t, prefixed)}
	for _, w := range ws {
		w.Wants(1, 1)
		w.GoesOn(20)
		tested.Want(t, "replicas", w.Last().Replicas, 1)
	}
}

// The pause after a failure grows from 100 ms to the period, and the first report comes with the second sync.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := newMini(t)
		mini.SetError("LOADING the data")
		start := time.Now()
		var at []time.Duration
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := &Source{Client: noRetries(t, mini), Fleet: "f", ID: "a"}
		err := s.Watch(ctx, func(p quotient.Pool, err error) {
			at = append(at, time.Since(start))
			switch {
			case len(at) <= 6 != (err != nil), err != nil && !strings.Contains(err.Error(), "{quotient:f}:deadlines"):
				t.Errorf("report %d: %+v, %v", len(at), p, err)
			case len(at) == 6:
				mini.SetError("")
			case len(at) == 8:
				cancel()
			}
		})
		tested.Want(t, "what Watch returned", err, context.Canceled)
		// 100, 200, 400, 800 ms, then the period; at 3.5 s a sync that is not for use, and the start of a
		// lone processor
		want := []float64{0, .1, .3, .7, 1.5, 2.5, 6.75, 7.75}
		for i, d := range at {
			if s := d.Seconds(); math.Abs(s-want[i]) > .1*want[i] {
				t.Errorf("report %d after %v, want %v s", i+1, d, want[i])
			}
		}
		tested.Want(t, "reports", len(at), len(want))
		if keys := mini.Keys(); len(keys) > 0 {
			t.Errorf("it left %q", keys)
		}
	})
}

func noRetries(t *testing.T, mini *miniredis.Miniredis) *redis.Client {
	o := *pipeClient(t, mini).Options()
	o.MaxRetries = -1
	c := redis.NewClient(&o)
	t.Cleanup(func() { must(t, c.Close()) })
	return c
}

func TestResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := newMini(t)
		mini.ClockTTL(true)
		part := 0.
		s := &Source{Client: pipeClient(t, mini), Fleet: "f", ID: "a",
			Ceiling: func() float64 { return part }, ResumeFor: time.Minute}
		left := func(want float64) {
			t.Helper()
			if got, err := s.Left(t.Context()); err != nil || got != want {
				t.Errorf("got %v, %v, want %v", got, err, want)
			}
		}
		left(0)
		for _, part = range []float64{.25, 1, 0, 1. / 3} {
			syncsTwice(t, s)
			left(part)
		}
		for _, part = range []float64{math.NaN(), math.Inf(1), -.1, 1.1} {
			syncsTwice(t, s)
			left(1. / 3)
		}
		time.Sleep(time.Minute)
		left(0)
		must(t, mini.Set("{quotient:f}:left:a", "NaN"))
		if _, err := s.Left(t.Context()); err == nil || !strings.Contains(err.Error(), "NaN") {
			t.Errorf("a spoilt value: %v", err)
		}
		mini.SetError("out of order")
		if _, err := s.Left(t.Context()); err == nil || !strings.Contains(err.Error(), "out of order") {
			t.Errorf("a store that fails: %v", err)
		}
		if _, err := (&Source{}).Left(t.Context()); err == nil {
			t.Error("a source without a client is no error")
		}
	})
}

// syncsTwice watches until a pool is reported.
func syncsTwice(t *testing.T, s *Source) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tested.Want(t, "what Watch returned", s.Watch(ctx, func(quotient.Pool, error) { cancel() }), context.Canceled)
}

// A crashed fleet leaves no key behind.
func TestKeysExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := newMini(t)
		mini.ClockTTL(true)
		s, err := (&Source{Client: pipeClient(t, mini), Fleet: "f", ID: "a"}).complete()
		must(t, err)
		_, err = s.store("a").sync(t.Context(), 1, ".5")
		must(t, err)
		if keys := mini.Keys(); len(keys) != 4 ||
			slices.ContainsFunc(keys, func(k string) bool { return !strings.HasPrefix(k, "{quotient:f}:") }) {
			t.Errorf("keys %q", keys)
		}
		time.Sleep(11 * time.Minute) // as the package's page says
		if keys := mini.Keys(); len(keys) > 0 {
			t.Errorf("left are %q", keys)
		}
	})
}

func TestDefaults(t *testing.T) {
	c := redis.NewClient(&redis.Options{})
	defer c.Close() //nolint:errcheck // it has not been used
	good := &Source{Client: c, Fleet: "f"}
	got, err := good.complete()
	must(t, err)
	if got.ID == "" || got.Prefix != "quotient" || got.Period != time.Second ||
		got.Expiry != 10*time.Second || got.ResumeFor != 3*time.Minute {
		t.Errorf("got %+v", got)
	}
	tested.Not(t, !reflect.DeepEqual(good, &Source{Client: c, Fleet: "f"}), "the source was changed")
}

// A store that takes everything in and never answers holds a command for a second.
func TestCommandIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := redis.NewClient(&redis.Options{Addr: pipeAddr, ContextTimeoutEnabled: true,
			Dialer: func(context.Context, string, string) (net.Conn, error) {
				here, there := net.Pipe()
				go io.Copy(io.Discard, there) //nolint:errcheck // until the client closes its end
				return here, nil
			}})
		defer c.Close() //nolint:errcheck // nothing is lost
		s := &Source{Client: c, Fleet: "f", ID: "a"}
		full, err := s.complete()
		must(t, err)
		st := full.store("a")
		for name, command := range map[string]func(){
			"sync": func() {
				if _, err := st.sync(t.Context(), 1, ""); err == nil {
					t.Error("sync: no error")
				}
			},
			"leave": func() { st.leave(t.Context(), "") },
			"Left": func() {
				if _, err := s.Left(t.Context()); err == nil {
					t.Error("Left: no error")
				}
			},
		} {
			began := time.Now()
			command()
			tested.Not(t, time.Since(began) > time.Second, "%s takes %v", name, time.Since(began))
		}
	})
}

// way is a client's way to the store. While away is set, nothing gets through. Once hang is set, the next
// script is held until its time is over.
type way struct{ away, hang atomic.Bool }

func (w *way) hook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if w.away.Load() {
			return errors.New("no route to host")
		}
		if cmd.Name() == "evalsha" && w.hang.CompareAndSwap(true, false) {
			<-ctx.Done()
			return ctx.Err()
		}
		return next(ctx, cmd)
	}
}

// fleetIn starts processors at different times, and returns them and their ways when they have agreed.
func fleetIn(t *testing.T, mini *miniredis.Miniredis, n int, period, expiry time.Duration) (all []*watched.Log,
	ways []*way) {
	t.Helper()
	for i := range n {
		client, w := pipeClient(t, mini), &way{}
		client.AddHook(hook(w.hook))
		all = append(all, watch(t, &Source{Client: client, Fleet: "f", ID: fmt.Sprint("old", i),
			Period: period, Expiry: expiry}))
		ways = append(ways, w)
		time.Sleep(period * 137 / 1000)
	}
	time.Sleep(10 * period)
	for i, w := range all {
		w.Wants(n, i+1)
	}
	return all, ways
}

// A processor that starts just after the store has lost its data does not take those that
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
				mini := newMini(t)
				_, ways := fleetIn(t, mini, olds, row.period, row.expiry)
				time.Sleep(time.Duration(phase) * row.period / 10)
				mini.FlushAll()
				for _, w := range ways {
					w.hang.Store(row.hang)
				}
				w := watch(t, &Source{Client: pipeClient(t, mini), Fleet: "f", ID: "new", Period: row.period,
					Expiry: row.expiry})
				w.Until("a report", func() bool { return w.Count() > 0 })
				tested.Want(t, fmt.Sprintf("%+v, phase %d: the joiner counts", row, phase), w.Least(0), olds+1)
			})
		}
	}
}

// A start takes as long as the page of Watch says, and never so long that the processor expires meanwhile.
func TestStartTakes(t *testing.T) {
	for _, row := range []struct {
		others, weight int
		period, expiry time.Duration
		want           time.Duration
	}{
		{0, 1, time.Second, 10 * time.Second, 3250 * time.Millisecond},
		{0, 1, 50 * time.Millisecond, 400 * time.Millisecond, 312500 * time.Microsecond},
		{0, 1, time.Second, 2 * time.Second, 1500 * time.Millisecond},
		{0, 1, time.Second, 3 * time.Second, 2500 * time.Millisecond},
		{2, 1, time.Second, 10 * time.Second, 1250 * time.Millisecond},
		{2, 1, time.Second, 2 * time.Second, 1250 * time.Millisecond},
		{0, 5, time.Second, 10 * time.Second, 3250 * time.Millisecond}, // alone, whatever it weighs
		{2, 5, time.Second, 10 * time.Second, 1250 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			mini := newMini(t)
			fleetIn(t, mini, row.others, row.period, row.expiry)
			began := time.Now()
			w := watch(t, &Source{Client: pipeClient(t, mini), Fleet: "f", ID: "new", Period: row.period,
				Expiry: row.expiry, Weight: row.weight})
			w.Until("a report", func() bool { return w.Count() > 0 })
			if got := time.Since(began); got != row.want || w.Last().Replicas != row.others+row.weight {
				t.Errorf("%+v: after %v %+v", row, got, w.Last())
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
			mini := newMini(t)
			all, _ := fleetIn(t, mini, n-1, time.Second, 10*time.Second)
			began := time.Now()
			joins := watch(t, &Source{Client: pipeClient(t, mini), Fleet: "f", ID: "zz"})
			joins.Until("a report", func() bool { return joins.Count() > 0 })
			for i, w := range all {
				tested.Want(t, fmt.Sprintf("the new one uses its share: processor %d", i), w.Last().Replicas, n)
			}
			for i, w := range append(all, joins) {
				w.Wants(n, i+1)
			}
			if d := time.Since(began); d > 2200*time.Millisecond {
				t.Errorf("all agree after %v", d)
			}
		})
	}
}

// A Source that is watched twice is one processor until its last Watch ends. Another one of its ID counts too.
func TestOneWatchOfTwoEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := newMini(t)
		s := &Source{Client: pipeClient(t, mini), Fleet: "f", ID: "a"}
		inFleet := func(want bool) {
			t.Helper()
			tested.Want(t, "the processor in the fleet", mini.Exists("{quotient:f}:deadlines"), want)
		}
		first, second := watch(t, s), watch(t, s)
		first.Wants(1, 1)
		second.Wants(1, 1)
		namesake := watch(t, &Source{Client: s.Client, Fleet: "f", ID: "a"})
		namesake.Until("both count", func() bool {
			return namesake.Last().Replicas == 2 && namesake.Last().Ordinal+second.Last().Ordinal == 3
		})
		namesake.Leave()
		second.Wants(1, 1)
		first.Leave()
		inFleet(true)
		second.GoesOn(6)
		third := watch(t, s)
		third.Wants(1, 1)
		second.Leave()
		inFleet(true)
		third.Leave()
		inFleet(false)
		again := watch(t, s)
		again.Wants(1, 1)
		again.Leave()
		inFleet(false)
	})
}

// crowd is the rest of a fleet: processors that one goroutine keeps alive for as long as the test.
type crowd struct {
	mu  sync.Mutex
	all []*processor
	in  int // how many of them are in the fleet
}

// newCrowd returns n processors that are not in the fleet.
func newCrowd(t *testing.T, client redis.UniversalClient, n int) *crowd {
	c := &crowd{}
	for i := range n {
		s, err := source(client, fmt.Sprint("other", i)).complete()
		must(t, err)
		c.all = append(c.all, &processor{store: s.store(s.ID), member: newMember(s.Expiry, s.Weight)})
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for tick := time.Tick(period); ; {
			select {
			case <-end:
				return
			case <-tick:
				c.sync(t)
			}
		}
	}()
	t.Cleanup(func() { close(end); <-ended })
	return c
}

func (c *crowd) sync(t *testing.T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.all[:c.in] {
		if a, err := p.sync(t.Context(), p.report, ""); err == nil {
			p.learn(a, time.Now())
		}
	}
}

// set lets n processors in, and the others out.
func (c *crowd) set(t testing.TB, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ; c.in > n; c.in-- {
		c.all[c.in-1].leave(t.Context(), "")
	}
	c.in = n
}

// The source does what every source must do, also where it counts as two. Its checks look at all goroutines:
// no other test may run beside it.
func TestPooltest(t *testing.T) {
	const weight = 2
	srv := start(t)
	client := clientOf(t, srv, nil)
	others := newCrowd(t, client, 6)
	with := func(change func(*Source)) *Source { s := &Source{Client: client, Fleet: "f"}; change(s); return s }
	pooltest.Run(t, pooltest.World{
		Source: func(testing.TB) quotient.Source {
			s := heavy(client, "this", weight)
			s.Expiry = time.Second
			return s
		},
		Weight: weight,
		Set:    func(t testing.TB, n int) { others.set(t, n-weight) },
		Break:  func(t testing.TB) { must(t, srv.Stop()) },
		Garbage: func(t testing.TB) {
			must(t, client.Set(t.Context(), "{quotient:f}:sizes", "garbage", 0).Err())
		},
		Heal: func(t testing.TB) {
			must(t, srv.Restart(false))
			wait(t, "the garbage is gone", func() bool {
				return client.Del(t.Context(), "{quotient:f}:sizes").Err() == nil
			})
		},
		Wrong: map[string]quotient.Source{
			"Source.Client: nil":                         &Source{Fleet: "f"},
			`Source.Fleet: "" has 0 bytes, not 1 to 200`: &Source{Client: client},
			`Source.Fleet: "a}b" has one of {}:`:         with(func(s *Source) { s.Fleet = "a}b" }),
			// With the prefix a it would be c with the prefix a:b.
			`Source.Fleet: "b:c" has one of {}:`:                   with(func(s *Source) { s.Fleet = "b:c" }),
			"has 201 bytes, not 1 to 200":                          with(func(s *Source) { s.Fleet = strings.Repeat("x", 201) }),
			`Source.Prefix: "{a}" has one of {}`:                   with(func(s *Source) { s.Prefix = "{a}" }),
			"Source.ID: ":                                          with(func(s *Source) { s.ID = strings.Repeat("x", 201) }),
			"Source.Weight: -1 is not":                             with(func(s *Source) { s.Weight = -1 }),
			"Source.Weight: 1001 is not between 1 and 1000":        with(func(s *Source) { s.Weight = 1001 }),
			"Source.Period: -1ns":                                  with(func(s *Source) { s.Period = -1 }),
			"Source.Period: 1µs is not between 1ms and 5m0s":       with(func(s *Source) { s.Period = time.Microsecond }),
			"Source.Period: 6m0s":                                  with(func(s *Source) { s.Period = 6 * time.Minute }),
			"Source.Expiry: 10s is not between 12s and 10m0s":      with(func(s *Source) { s.Period = 6 * time.Second }),
			"Source.Expiry: 1s is not between 2s":                  with(func(s *Source) { s.Expiry = time.Second }),
			"Source.Expiry: 1h0m0s":                                with(func(s *Source) { s.Expiry = time.Hour }),
			"Source.ResumeFor: -1ns":                               with(func(s *Source) { s.ResumeFor = -1 }),
			"Source.ResumeFor: 25h0m0s is not between 1ms and 24h": with(func(s *Source) { s.ResumeFor = 25 * time.Hour }),
		},
	})
}
