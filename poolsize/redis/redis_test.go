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
	"github.com/quotient-go/quotient/poolsize/pooltest"
	"github.com/redis/go-redis/v9"
)

func TestJoinAndLeave(t *testing.T) {
	t.Parallel()
	srv := start(t)
	a := watch(t, source(clientOf(t, srv, nil), "a"))
	a.wants(t, 1, 1)
	c := watch(t, source(clientOf(t, srv, nil), "c"))
	b := watch(t, source(clientOf(t, srv, nil), "b"))
	a.wants(t, 3, 1)
	b.wants(t, 3, 2)
	c.wants(t, 3, 3)
	a.leave(t)
	began := time.Now()
	b.wants(t, 2, 1)
	c.wants(t, 2, 2)
	if d := time.Since(began); d > expiry {
		t.Logf("it took %v, an expiry, to notice a leaver", d)
	}
	b.leave(t)
	c.wants(t, 1, 1) // what the original never did
	if _, errs := c.counts(); errs > 0 {
		t.Errorf("errors: %v", c.lastError())
	}
}

// Failure mode 15 and the original's defect: a processor that crashes is dropped after its expiry.
func TestCrash(t *testing.T) {
	t.Parallel()
	srv := start(t)
	b := watch(t, source(clientOf(t, srv, nil), "b"))
	p, _ := startChild(t, srv.Addr())
	q, _ := startChild(t, srv.Addr())
	b.wants(t, 3, 1)
	began := time.Now()
	must(t, p.Process.Kill())
	must(t, q.Process.Kill())
	b.wants(t, 1, 1)
	if d := time.Since(began); d < expiry-2*period {
		t.Errorf("dropped after %v, before its expiry of %v", d, expiry)
	}
}

// A processor that is stopped past its expiry is dropped. When it goes on it counts at once, and believes in
// no smaller pool than it had.
func TestStoppedProcess(t *testing.T) {
	t.Parallel()
	srv := start(t)
	a := watch(t, source(clientOf(t, srv, nil), "a"))
	p, says := startChild(t, srv.Addr())
	a.wants(t, 2, 1)
	must(t, p.Process.Signal(syscall.SIGSTOP))
	a.wants(t, 1, 1)
	must(t, p.Process.Signal(syscall.SIGCONT))
	a.wants(t, 2, 1)
	for range 10 {
		if says.Scan(); strings.HasPrefix(says.Text(), "1 ") {
			t.Errorf("the child says %q", says.Text())
		}
	}
}

func TestFleetsAreApart(t *testing.T) {
	t.Parallel()
	srv := start(t)
	c := clientOf(t, srv, nil)
	a, other, prefixed := source(c, "a"), source(c, "a"), source(c, "a")
	other.Fleet, prefixed.Prefix = "g", "p"
	ws := []*watched{watch(t, a), watch(t, other), watch(t, prefixed)}
	for _, w := range ws {
		w.wants(t, 1, 1)
		w.until(t, "twenty syncs", func() bool { n, _ := w.counts(); return n >= 20 })
		if w.last().Replicas != 1 {
			t.Errorf("got %+v", w.last())
		}
	}
}

// Two processors that were given one ID count as two, and one that watches twice as one.
func TestOneIDTwice(t *testing.T) {
	t.Parallel()
	srv := start(t)
	c := clientOf(t, srv, nil)
	s := source(c, "a")
	ws := []*watched{watch(t, s), watch(t, s), watch(t, source(c, "a"))}
	ws[0].until(t, "two count", func() bool {
		a, b, other := ws[0].last(), ws[1].last(), ws[2].last()
		return a == b && a.Replicas == 2 && other.Replicas == 2 && a.Ordinal > 0 &&
			a.Ordinal+other.Ordinal == 3
	})
	want := ws[2].last()
	before, _ := ws[2].counts()
	ws[1].leave(t)
	ws[2].goesOn(t)
	for _, p := range ws[2].since(before) {
		if p != want {
			t.Errorf("one of two Watches has ended, and the other processor counts %+v, not %+v", p, want)
		}
	}
	ws[0].leave(t)
	ws[2].wants(t, 1, 1)
}

// Fifty processors agree, and the number of syncs that it takes is no more than four each.
func TestFiftyConverge(t *testing.T) {
	t.Parallel()
	srv := start(t)
	c := clientOf(t, srv, nil)
	const n = 50
	members, stores := make([]member, n), make([]*store, n)
	for i := range n {
		s, err := source(c, fmt.Sprintf("p%02d", i)).complete()
		must(t, err)
		s.Expiry = time.Minute
		members[i], stores[i] = newMember(s.Expiry, s.Weight), s.store(s.ID)
	}
	rounds := 0
	for agreed := 0; agreed < n && rounds < 100; rounds++ {
		agreed = 0
		for i, m := range members {
			a, err := stores[i].sync(t.Context(), m.report, "")
			must(t, err)
			p, _ := members[i].learn(a, time.Now())
			if rounds > 0 && p.Replicas != n {
				t.Errorf("round %d: processor %d counts %d", rounds+1, i, p.Replicas)
			}
			if p.Ordinal == i+1 && p.Replicas == n {
				agreed++
			}
		}
	}
	t.Logf("%d processors agree after %d syncs each; all count %d from the second", n, rounds, n)
	if rounds > 4 {
		t.Errorf("it took %d rounds", rounds)
	}
}

// The same, each at its own pace.
func TestFiftyWatch(t *testing.T) {
	t.Parallel()
	srv := start(t)
	c := clientOf(t, srv, nil)
	var ws []*watched
	for i := range 50 {
		s := source(c, fmt.Sprintf("p%02d", i))
		s.Period = 4 * period
		ws = append(ws, watch(t, s))
	}
	for i, w := range ws {
		w.wants(t, 50, i+1)
	}
}

// sent records the arguments of all scripts.
type sent struct {
	args  []string // one for each sync, without
	times []int64  // when it was sent by the store's clock
}

func (s *sent) hook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" {
			args := slices.Clone(cmd.Args()[2:])
			s.times = append(s.times, args[len(args)-3].(int64))
			s.args = append(s.args, fmt.Sprint(slices.Delete(args, len(args)-3, len(args)-2)...))
		}
		return next(ctx, cmd)
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
			case len(at) <= 6 != (err != nil):
				t.Errorf("report %d: %+v, %v", len(at), p, err)
			case len(at) == 6:
				mini.SetError("")
			case len(at) == 8:
				cancel()
			}
		})
		if err != context.Canceled {
			t.Errorf("Watch returned %v", err)
		}
		// 100, 200, 400, 800 ms, then the period; at 3.5 s a sync that is not for use, and the start of a
		// lone processor
		want := []float64{0, .1, .3, .7, 1.5, 2.5, 6.75, 7.75}
		for i, d := range at {
			if s := d.Seconds(); math.Abs(s-want[i]) > .1*want[i] {
				t.Errorf("report %d after %v, want %v s", i+1, d, want[i])
			}
		}
		if len(at) != len(want) {
			t.Errorf("%d reports", len(at))
		}
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
	if err := s.Watch(ctx, func(quotient.Pool, error) { cancel() }); err != context.Canceled {
		t.Errorf("Watch returned %v", err)
	}
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

func TestSourceIsChecked(t *testing.T) {
	c := redis.NewClient(&redis.Options{})
	defer c.Close() //nolint:errcheck // it has not been used
	for _, row := range []struct {
		change func(*Source)
		words  []string
	}{
		{func(s *Source) { s.Client = nil }, []string{"Client", "nil"}},
		{func(s *Source) { s.Fleet = "" }, []string{"Fleet", `""`}},
		{func(s *Source) { s.Fleet = "a}b" }, []string{"Fleet", "a}b", "{}:"}},
		// with the prefix a it would be c with the prefix a:b
		{func(s *Source) { s.Fleet = "b:c" }, []string{"Fleet", "b:c", "{}:"}},
		{func(s *Source) { s.Fleet = strings.Repeat("x", 201) }, []string{"Fleet", "201"}},
		{func(s *Source) { s.Prefix = "{p" }, []string{"Prefix", "{p", "{}"}},
		{func(s *Source) { s.ID = strings.Repeat("x", 201) }, []string{"ID", "201"}},
		{func(s *Source) { s.Weight = -1 }, []string{"Weight", "-1"}},
		{func(s *Source) { s.Weight = 1001 }, []string{"Weight", "1001", "1000"}},
		{func(s *Source) { s.Period = -1 }, []string{"Period", "-1ns"}},
		{func(s *Source) { s.Period = 6 * time.Minute }, []string{"Period", "6m"}},
		{func(s *Source) { s.Period = 8 * time.Second }, []string{"Expiry", "10s", "16s"}},
		{func(s *Source) { s.Expiry = time.Second }, []string{"Expiry", "1s", "2s"}},
		{func(s *Source) { s.Expiry = time.Hour }, []string{"Expiry", "1h", "10m"}},
		{func(s *Source) { s.ResumeFor = -1 }, []string{"ResumeFor", "-1ns"}},
		{func(s *Source) { s.ResumeFor = 48 * time.Hour }, []string{"ResumeFor", "48h"}},
	} {
		s := &Source{Client: c, Fleet: "f"}
		row.change(s)
		err := s.Watch(t.Context(), func(quotient.Pool, error) { t.Error("a report") })
		for _, w := range row.words {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("got %v, want %q", err, row.words)
			}
		}
	}
	good := &Source{Client: c, Fleet: "f"}
	got, err := good.complete()
	must(t, err)
	if got.ID == "" || got.Prefix != "quotient" || got.Period != time.Second ||
		got.Expiry != 10*time.Second || got.ResumeFor != 3*time.Minute {
		t.Errorf("got %+v", got)
	}
	if !reflect.DeepEqual(good, &Source{Client: c, Fleet: "f"}) {
		t.Error("the source was changed")
	}
}

func TestJittered(t *testing.T) {
	least, most := time.Hour, time.Duration(0)
	for range 10_000 {
		d := jittered(time.Second)
		least, most = min(least, d), max(most, d)
	}
	if least < 900*time.Millisecond || most > 1100*time.Millisecond || most-least < 150*time.Millisecond {
		t.Errorf("from %v to %v", least, most)
	}
}

// A context that is done ends a command at once.
func TestDoneContext(t *testing.T) {
	t.Parallel()
	c := clientOf(t, start(t), nil)
	if _, err := source(c, "a").Left(canceled()); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// Failure mode 20: a store that takes everything in and never answers holds a command for a second.
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
			if command(); time.Since(began) > time.Second {
				t.Errorf("%s takes %v", name, time.Since(began))
			}
		}
	})
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// hangs is a hook under which, once armed, the next script of a client is held until its time is over, and
// does not reach the store.
type hangs struct{ armed atomic.Bool }

func (h *hangs) hook(next redis.ProcessHook) redis.ProcessHook {
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
		client.AddHook(hook(h.hook))
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
				mini := newMini(t)
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
			w.until(t, "a report", func() bool { n, _ := w.counts(); return n > 0 })
			if got := time.Since(began); got != row.want || w.last().Replicas != row.others+row.weight {
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
			mini := newMini(t)
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
		mini := newMini(t)
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
	mini := newMini(t)
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

// The source does what every source must do, also where it counts as two.
func TestPooltest(t *testing.T)          { conforms(t, 1) }
func TestPooltestOfAWeight(t *testing.T) { conforms(t, 2) }

func conforms(t *testing.T, weight int) {
	srv := start(t)
	client := clientOf(t, srv, nil)
	others := newCrowd(t, client, 6)
	pooltest.Run(t, pooltest.World{
		Source: func(testing.TB) quotient.Source {
			s := source(client, "this")
			s.Weight = weight
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
	})
}
