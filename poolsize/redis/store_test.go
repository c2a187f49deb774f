package redis

import (
	"context"
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// Failure mode 20: a store that was restarted without its data makes no processor believe in a small pool.
func TestRestartWithDataLoss(t *testing.T) {
	t.Parallel()
	srv := start(t)
	a := watch(t, source(clientOf(t, srv, nil), "a"))
	b := watch(t, source(clientOf(t, srv, nil), "b"))
	a.wants(t, 2, 1)
	b.wants(t, 2, 2)
	for range 3 {
		before, _ := a.counts()
		must(t, srv.Restart(true))
		a.goesOn(t)
		if n := a.least(before); n < 2 {
			t.Errorf("it believed in %d", n)
		}
		a.wants(t, 2, 1)
	}
}

// Failure mode 20: the store is away for many expiries. Only errors are reported, and then all is as before.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	srv := start(t)
	a := watch(t, source(clientOf(t, srv, nil), "a"))
	b := watch(t, source(clientOf(t, srv, nil), "b"))
	a.wants(t, 2, 1)
	b.wants(t, 2, 2)
	must(t, srv.Kill())
	a.fails(t)
	before, _ := a.counts()
	for end := time.Now().Add(2 * expiry); time.Now().Before(end); {
		a.fails(t)
	}
	if n, _ := a.counts(); n != before {
		t.Errorf("a store that is away was believed: %+v", a.last())
	}
	must(t, srv.Restart(false))
	a.until(t, "it is back", func() bool { n, _ := a.counts(); return n > before })
	a.wants(t, 2, 1)
	b.wants(t, 2, 2)
	if n := a.least(before); n < 2 {
		t.Errorf("it believed in %d", n)
	}
}

// Failure mode 20: a store that is down at the start stops nothing.
func TestStoreDownAtTheStart(t *testing.T) {
	t.Parallel()
	srv := start(t)
	must(t, srv.Stop())
	a := watch(t, source(clientOf(t, srv, nil), "a"))
	a.fails(t)
	if !strings.Contains(a.lastError().Error(), "{quotient:f}:deadlines") {
		t.Errorf("the error does not name the fleet: %v", a.lastError())
	}
	must(t, srv.Restart(false))
	a.wants(t, 1, 1)
}

// Failure mode 20: a store that hangs holds Watch for a second at most, and only an error comes of it.
func TestStoreHangs(t *testing.T) {
	t.Parallel()
	needReal(t)
	srv := start(t)
	a := watch(t, source(clientOf(t, srv, nil), "a"))
	a.wants(t, 1, 1)
	must(t, srv.Pause())
	a.fails(t)
	must(t, srv.Resume())
	a.wants(t, 1, 1)
	must(t, srv.Pause())
	a.fails(t)
	began := time.Now()
	a.leave(t)
	if d := time.Since(began); d > patience/2 {
		t.Errorf("it took %v to end", d)
	}
	must(t, srv.Resume())
}

// A data type that is not ours, an eviction of one key, a rogue's numbers: errors or caution, then it heals.
func TestSpoiltData(t *testing.T) {
	t.Parallel()
	srv := start(t)
	c := clientOf(t, srv, nil)
	a, b := watch(t, source(c, "a")), watch(t, source(c, "b"))
	a.wants(t, 2, 1)
	ctx := t.Context()
	must(t, c.Del(ctx, "{quotient:f}:sizes").Err())
	a.goesOn(t)
	a.wants(t, 2, 1)
	before, _ := a.counts()
	must(t, c.Del(ctx, "{quotient:f}:deadlines").Err())
	a.goesOn(t)
	a.wants(t, 2, 1)
	b.wants(t, 2, 2)
	if n := min(a.least(before), b.least(0)); n < 2 {
		t.Errorf("it believed in %d", n)
	}
	must(t, c.ZAdd(ctx, "{quotient:f}:sizes", redis.Z{Score: math.Inf(1), Member: "nobody"}).Err())
	a.goesOn(t)
	a.wants(t, 2, 1)
	must(t, c.ZAdd(ctx, "{quotient:f}:deadlines", redis.Z{Score: 9e15, Member: "rogue"}).Err())
	a.goesOn(t)
	a.wants(t, 2, 1)
	must(t, c.Set(ctx, "{quotient:f}:deadlines", "x", 0).Err())
	a.fails(t)
	must(t, c.Del(ctx, "{quotient:f}:deadlines").Err())
	a.wants(t, 2, 1)
}

// A fleet of the most processors takes in no more, and thousands that died at once are dropped in portions.
func TestFullFleet(t *testing.T) {
	t.Parallel()
	srv := start(t)
	c := clientOf(t, srv, nil)
	now := time.Now()
	if srv.Real() {
		var err error
		now, err = c.Time(t.Context()).Result()
		must(t, err)
	}
	fill := func(until time.Time, n int) {
		zs := make([]redis.Z, n)
		for i := range zs {
			zs[i] = redis.Z{Score: float64(until.UnixMilli()), Member: fmt.Sprint(i)}
		}
		for part := range slices.Chunk(zs, 10_000) {
			must(t, c.ZAdd(t.Context(), "{quotient:f}:deadlines", part...).Err())
		}
	}
	fill(now.Add(time.Minute), mostProcessors)
	s, err := source(c, "a").complete()
	must(t, err)
	st := s.store("a")
	st.patience = time.Minute // the imitation of redis-server is slow on a busy machine
	if _, err := st.sync(t.Context(), 1, ""); err == nil || !strings.Contains(err.Error(), "FULL 100000") {
		t.Errorf("a full fleet: %v", err)
	}
	must(t, c.Del(t.Context(), st.deadlines).Err())
	fill(now.Add(time.Minute), mostProcessors-10)
	for weight, want := range map[int]string{11: "FULL 100000", 10: ""} {
		heavy := s.store("heavy")
		heavy.weight, heavy.patience = weight, st.patience
		if _, err := heavy.sync(t.Context(), 1, ""); (err == nil) != (want == "") ||
			err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("a weight of %d where there is room for ten: %v", weight, err)
		}
		heavy.leave(t.Context(), "")
	}
	must(t, c.Del(t.Context(), st.deadlines, st.sizes).Err())
	fill(now.Add(-time.Second), 2500)
	for _, want := range []int{1501, 501, 1, 1} {
		if got, err := st.sync(t.Context(), 1, ""); err != nil || got.living != want ||
			got.agreed != (want == 1) {
			t.Errorf("got %+v, %v, want %d living", got, err, want)
		}
	}
}

// An answer that is not ours is an error.
func TestStrangeAnswer(t *testing.T) {
	for _, answer := range []any{nil, "x", int64(1), []any{}, []any{int64(1), int64(1)},
		[]any{"a", "b", "c", "d", "e"}} {
		c := redis.NewClient(&redis.Options{})
		defer c.Close() //nolint:errcheck // it has not been used
		c.AddHook(hook(func(redis.ProcessHook) redis.ProcessHook {
			return func(_ context.Context, cmd redis.Cmder) error {
				cmd.(*redis.Cmd).SetVal(answer)
				return nil
			}
		}))
		s, err := source(c, "a").complete()
		must(t, err)
		if got, err := s.store("a").sync(t.Context(), 1, ""); err == nil ||
			!strings.Contains(err.Error(), "{quotient:f}:deadlines") {
			t.Errorf("%v: got %+v, %v", answer, got, err)
		}
	}
}

// proxy is a network between clients and a server. It can hold what clients send, and deliver it later, as a
// network does that has lost packets and sends them again, whether or not a client still waits.
type proxy struct {
	listener net.Listener
	server   string
	done     sync.WaitGroup // its goroutines

	mu      sync.Mutex // guards what follows
	holding bool
	conns   []*held
	answers int // bytes
}

// held is one connection, and what its client has sent in vain.
type held struct {
	server net.Conn
	bytes  []byte
}

func newProxy(t *testing.T, server string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	p := &proxy{listener: l, server: server}
	p.done.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.serve(c)
		}
	})
	t.Cleanup(func() {
		l.Close() //nolint:errcheck // nothing is lost
		p.mu.Lock()
		for _, h := range p.conns {
			h.server.Close() //nolint:errcheck // nothing is lost
		}
		p.mu.Unlock()
		p.done.Wait()
	})
	return p
}

func (p *proxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		client.Close() //nolint:errcheck // nothing is lost
		return
	}
	h := &held{server: server}
	p.mu.Lock()
	p.conns = append(p.conns, h)
	p.mu.Unlock()
	p.done.Go(func() { // until the client is gone; what it has sent is not
		for buf := make([]byte, 4096); ; {
			n, err := client.Read(buf)
			if err != nil {
				return
			}
			p.mu.Lock()
			if h.bytes = append(h.bytes, buf[:n]...); !p.holding {
				p.deliver(h)
			}
			p.mu.Unlock()
		}
	})
	p.done.Go(func() { // until the test ends
		defer client.Close() //nolint:errcheck // nothing is lost
		for buf := make([]byte, 4096); ; {
			n, err := server.Read(buf)
			if err != nil {
				return
			}
			p.mu.Lock()
			p.answers += n
			p.mu.Unlock()
			client.Write(buf[:n]) //nolint:errcheck // it may be gone
		}
	})
}

// deliver gives the server what a client has sent. Called with mu held.
func (p *proxy) deliver(h *held) {
	h.server.Write(h.bytes) //nolint:errcheck // the test would notice
	h.bytes = nil
}

func (p *proxy) hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holding = true
}

// heal delivers what was held, that of the last connection first, and waits for an answer to each.
func (p *proxy) heal(t *testing.T) (delivered int) {
	t.Helper()
	p.mu.Lock()
	p.holding = false
	late := slices.DeleteFunc(slices.Clone(p.conns), func(h *held) bool { return len(h.bytes) == 0 })
	p.mu.Unlock()
	for _, h := range slices.Backward(late) {
		p.mu.Lock()
		before := p.answers
		p.deliver(h)
		p.mu.Unlock()
		wait(t, "the server answers", func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.answers > before
		})
	}
	return len(late)
}

// openConns has a client open so many connections, which then wait in its pool.
func openConns(t *testing.T, c *redis.Client, n int) {
	t.Helper()
	var all []*redis.Conn
	for range n {
		conn := c.Conn()
		must(t, conn.Ping(t.Context()).Err())
		all = append(all, conn)
	}
	for _, conn := range all {
		must(t, conn.Close())
	}
}

// Failure mode 20: what arrives after the processor has given it up, or claims to come from the future,
// changes nothing.
func TestLateIsRefused(t *testing.T) {
	mini := newMini(t)
	client := pipeClient(t, mini)
	s, err := (&Source{Client: client, Fleet: "f", ID: "a"}).complete()
	must(t, err)
	st := s.store("a")
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	state := func() string { return mini.Dump() }
	for _, row := range []struct {
		late    time.Duration
		refused bool
	}{
		{0, false}, {900 * time.Millisecond, false}, {3 * time.Second, true}, {time.Hour, true},
		{-3 * time.Second, true},
	} {
		for _, size := range []int{3, leaving} {
			mini.FlushAll()
			mini.SetTime(now)
			_, err := s.store("b").sync(t.Context(), 2, "")
			must(t, err)
			_, err = st.sync(t.Context(), 2, "")
			must(t, err)
			st.now, st.at = now.UnixMilli(), time.Now() // as long ago as the test takes, which is no second
			before := state()
			mini.SetTime(now.Add(row.late))
			v, err := st.run(t.Context(), size, ".5")
			must(t, err)
			if refused := len(v) == 1; refused != row.refused ||
				v[len(v)-1] != now.Add(row.late).UnixMilli() {
				t.Errorf("size %d, late by %v: got %v", size, row.late, v)
			}
			if same := state() == before; same != row.refused {
				t.Errorf("size %d, late by %v: before it was\n%s\nnow\n%s", size, row.late, before, state())
			}
		}
	}
}

// Failure mode 20: a network swallows all packets, and a processor leaves meanwhile. When the network heals
// its last sync reaches the store after all, with its deregistration before it or without one. It is not
// counted again.
func TestLateSync(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		conns int // of the client, so that the leaver has one for each word that gets no answer
	}{{"without a deregistration", 1}, {"after the deregistration", 8}} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			srv := start(t)
			p := newProxy(t, srv.Addr())
			admin := clientOf(t, srv, nil)
			through := clientOf(t, nil, &redis.Options{Addr: p.listener.Addr().String(), MaxRetries: -1})
			openConns(t, through, row.conns)
			leaver, stays := source(through, "b"), source(admin, "a")
			gone, b := watch(t, leaver), watch(t, stays)
			gone.wants(t, 2, 2)
			b.wants(t, 2, 1)
			p.hold()
			gone.fails(t)
			gone.leave(t)
			b.wants(t, 1, 1) // the leaver has expired
			before, _ := b.counts()
			if n := p.heal(t); n < min(row.conns, 2) {
				t.Errorf("%d connections had something to deliver", n)
			}
			b.goesOn(t)
			for _, got := range b.since(before) {
				if got.Replicas != 1 {
					t.Errorf("%+v counts, with a processor that left long ago", got)
					break
				}
			}
			all, err := admin.ZRange(t.Context(), "{quotient:f}:deadlines", 0, -1).Result()
			must(t, err)
			if len(all) != 1 {
				t.Errorf("in the fleet are %q", all)
			}
		})
	}
}

// Failure mode 20: the store's clock alone decides. A processor sends the same whatever its clock shows, but
// for the store's own time. A store 200 s ahead or behind of the processors, or processors that are so of
// each other, change nothing.
func TestClockOfAClient(t *testing.T) {
	for _, skew := range []time.Duration{-200 * time.Second, 0, 200 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			mini := newMini(t)
			client := pipeClient(t, mini)
			seen := &sent{}
			client.AddHook(hook(seen.hook))
			c, err := (&Source{Client: client, Fleet: "f", ID: "a"}).complete()
			must(t, err)
			a, b := c.store("a"), c.store("b")
			start := time.Now()
			for i := range 20 {
				mini.SetTime(time.Now().Add(skew))
				for rank, st := range []*store{a, b} {
					got, err := st.sync(t.Context(), 2, "")
					must(t, err)
					if i > 0 && got != (answer{true, true, 2, 2, rank}) {
						t.Errorf("skew %v, sync %d: got %+v", skew, i, got)
					}
				}
				time.Sleep(time.Second)
			}
			if len(seen.args) != 2*20+2 {
				t.Errorf("%d syncs were seen, want two of each second and one more of each processor",
					len(seen.args))
			}
			for i, got := range seen.args {
				if want := seen.args[i/2%2*2]; i < 4 && got != want || i >= 4 && got != seen.args[i%2*2] {
					t.Errorf("sync %d sent %s, an earlier one %s", i, got, want)
				}
			}
			for i, got := range seen.times {
				want := start.Add(skew + time.Duration(max(0, i-2)/2)*time.Second).UnixMilli()
				if i < 4 && i%2 == 0 { // neither has an answer of the store yet
					want = 0
				}
				if got != want {
					t.Errorf("sync %d was sent at %d by the store's clock, want %d", i, got, want)
				}
			}
		})
	}
}

// When the store's clock jumps, the dead count for ten minutes longer at most, and the living are never too
// few.
func TestClockOfTheStore(t *testing.T) {
	for _, row := range []struct {
		jump      time.Duration
		forgotten bool // the processor, with all others
		longer    time.Duration
	}{
		{0, false, modelExpiry},
		{-5 * time.Minute, false, 5*time.Minute + modelExpiry},
		{-longestExpiry - modelExpiry, true, 0},
		{-365 * 24 * time.Hour, true, 0},
		// for which it takes the jump for a time without it
		{30 * time.Second, true, 2*time.Second + modelExpiry - 1},
		{time.Hour, true, 0},
		{365 * 24 * time.Hour, true, 0},
	} {
		mini := newMini(t)
		s, err := (&Source{Client: pipeClient(t, mini), Fleet: "f", ID: "a"}).complete()
		must(t, err)
		a, dies := s.store("a"), s.store("b")
		now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		mini.SetTime(now)
		m := newMember(s.Expiry, s.Weight)
		for range 3 {
			_, err := dies.sync(t.Context(), 2, "")
			must(t, err)
			got, err := a.sync(t.Context(), m.report, "")
			must(t, err)
			m.learn(got, now)
		}
		for after := 2 * time.Second; after < longestExpiry+time.Minute; after += 2 * time.Second {
			mini.SetTime(now.Add(row.jump + after))
			got, err := a.sync(t.Context(), m.report, "")
			must(t, err)
			if after == 2*time.Second && got.known == row.forgotten {
				t.Errorf("jump %v: got %+v", row.jump, got)
			}
			p, _ := m.learn(got, now.Add(after))
			if want := after <= row.longer; (got.living == 2) != want {
				t.Fatalf("jump %v: after %v %d live", row.jump, after, got.living)
			}
			if after < modelExpiry && p.Replicas != 2 {
				t.Errorf("jump %v: after %v %d count", row.jump, after, p.Replicas)
			}
			if after > row.longer+2*modelExpiry && p.Replicas != 1 {
				t.Fatalf("jump %v: after %v %d count still", row.jump, after, p.Replicas)
			}
		}
	}
}

// BenchmarkSync measures one sync, round trip included, in fleets of several sizes.
func BenchmarkSync(b *testing.B) {
	srv := start(b)
	c := clientOf(b, srv, nil)
	for _, n := range []int{1, 100, 1000, mostProcessors} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			must(b, c.FlushAll(b.Context()).Err())
			zs := make([]redis.Z, n)
			for i := range zs {
				zs[i] = redis.Z{Score: float64(time.Now().Add(longestExpiry - time.Minute).UnixMilli()),
					Member: fmt.Sprint(i)}
			}
			for part := range slices.Chunk(zs, 10_000) {
				must(b, c.ZAdd(b.Context(), "{quotient:f}:deadlines", part...).Err())
				must(b, c.ZAdd(b.Context(), "{quotient:f}:sizes", part...).Err())
			}
			s, err := source(c, "a").complete()
			must(b, err)
			st := s.store("0")
			for b.Loop() {
				if _, err := st.sync(b.Context(), n, ""); err != nil {
					b.Fatal(err)
				}
			}
			if n == mostProcessors {
				return
			}
			b.Run("weights", func(b *testing.B) { // of two, three and four
				total := 0
				for i := range zs {
					zs[i] = redis.Z{Member: fmt.Sprintf("%04d%d", 2+i%3, i)}
					total += 2 + i%3
				}
				must(b, c.ZAdd(b.Context(), st.weights, zs...).Err())
				for i := range zs {
					zs[i] = redis.Z{Score: float64(total), Member: fmt.Sprint(i)}
				}
				must(b, c.ZAdd(b.Context(), st.sizes, zs...).Err())
				last := s.store("999"[:len(fmt.Sprint(n-1))])
				last.weight = 2 + (n-1)%3
				for b.Loop() {
					a, err := last.sync(b.Context(), total, "")
					if err != nil || n > 1 && !a.agreed {
						b.Fatal(a, err)
					}
				}
			})
		})
	}
}
