package cost

import (
	"context"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
)

// Each benchmark fails unless every operation was admitted: a refusal means that something else was measured.
// Run them with make bench, which lets all contenders take turns and has benchstat compare them.

// patterns are which keys are asked for, and how often.
var patterns = []struct {
	name string
	keys int
	made func(int) traffic
}{
	{"keys=1", 1, uniform}, {"keys=100", 100, uniform}, {"keys=100k-zipf", 100_000, zipf}, {"keys=1M-zipf", 1_000_000, zipf},
}

// BenchmarkAllow times one decision for one key. All keys are held, and none is idle.
func BenchmarkAllow(b *testing.B) {
	for _, p := range patterns {
		t := p.made(p.keys)
		b.Run(p.name, func(b *testing.B) {
			for _, m := range append(keyedPeers(), keylessPeers()...) {
				k := m.make(generousTo(p.keys), max(65536, 2*p.keys))
				if err := k.fill(t.keys); err != nil {
					b.Fatalf("%s: %v", m.name, err)
				}
				b.Run("who="+m.name, func(b *testing.B) {
					parallel(b, func(next func() bool) (refused int) { return t.visit(next, k.allow) })
					if err := k.holds(p.keys); err != nil {
						b.Fatal(err)
					}
				})
				if k.close != nil {
					k.close()
				}
			}
		})
	}
}

// BenchmarkFollowing times the same while the limiter follows a source that reports every 5 ms, twenty times as
// often as the quickest real one, and without.
func BenchmarkFollowing(b *testing.B) {
	t := uniform(1000)
	l := quotient.Must(quotient.New(generousLimit()))
	for _, key := range t.keys {
		l.Allow(key)
	}
	run := func(b *testing.B) {
		parallel(b, func(next func() bool) int { return t.visit(next, l.Allow) })
	}
	b.Run("source=none", run)
	b.Run("source=live", func(b *testing.B) {
		ctx, stop := context.WithCancel(b.Context())
		var following sync.WaitGroup
		reported := make(chan struct{}, 1)
		following.Go(func() { _ = l.Follow(ctx, everyTick{reported}) })
		<-reported
		run(b)
		stop()
		following.Wait()
	})
}

// everyTick is a source that always reports one replica. It tells when the first report is in force.
type everyTick struct{ reported chan<- struct{} }

func (s everyTick) Watch(ctx context.Context, report func(quotient.Pool, error)) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	report(quotient.Pool{Replicas: 1}, nil)
	s.reported <- struct{}{}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			report(quotient.Pool{Replicas: 1}, nil)
		}
	}
}

// parallel runs a body in as many goroutines as there are processors.
func parallel(b *testing.B, body func(next func() bool) (refused int)) {
	b.Helper()
	b.ReportAllocs()
	b.ResetTimer()
	var refused atomic.Int64
	b.RunParallel(func(pb *testing.PB) { refused.Add(int64(body(pb.Next))) })
	if n := refused.Load(); n > 0 {
		b.Fatalf("%d of %d operations were refused", n, b.N)
	}
}

// BenchmarkMemory reports the heap bytes of a live key with its name. One iteration is one key: use
// -benchtime=1000000x.
func BenchmarkMemory(b *testing.B) {
	for _, m := range keyedPeers() {
		b.Run("who="+m.name, func(b *testing.B) {
			before := heap()
			k := m.make(quota{burst: 1, per: generous.per}, max(1024, 2*b.N))
			for i := range b.N {
				if !k.allow(makeKey("tenant-", i)) {
					b.Fatalf("key %d was refused at its first visit", i)
				}
			}
			b.StopTimer()
			b.ReportMetric((heap()-before)/float64(b.N), "bytes/key")
			b.ReportMetric(collection().Seconds()*1000, "ms/collection")
			if k.allow(makeKey("tenant-", b.N-1)) {
				b.Fatal("a drained key was admitted again: it was not live")
			}
			if k.close != nil {
				k.close()
			}
		})
	}
}

// BenchmarkAttack reports how many requests for a drained key are admitted beyond its burst. The client sends
// requests for as many other keys as the limiter may hold between its visits.
func BenchmarkAttack(b *testing.B) {
	for _, m := range keyedPeers() {
		b.Run("who="+m.name, func(b *testing.B) {
			for range b.N {
				beyond, err := attack(m, attackKeys)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(beyond), "beyond")
			}
		})
	}
}

// TestAttack shows that the attack works on a plain LRU, and does not on quotient.
func TestAttack(t *testing.T) {
	for name, want := range map[string]int{"time-rate-in-golang-lru": 490, "quotient": 0} {
		i := slices.IndexFunc(keyedPeers(), func(m maker) bool { return m.name == name })
		for _, hostile := range []int{attackKeys, 4 * attackKeys} {
			if got, err := attack(keyedPeers()[i], hostile); err != nil || got != want {
				t.Errorf("%s, %d keys: %d beyond the burst (%v), want %d", name, hostile, got, err, want)
			}
		}
	}
}

// BenchmarkMiddleware times middlewares on a writer that does nothing. Every request reaches the handler.
func BenchmarkMiddleware(b *testing.B) {
	for _, p := range middlewarePeers() {
		h := p.it(http.HandlerFunc(serve))
		b.Run("who="+p.name, func(b *testing.B) {
			all := requests()
			parallel(b, func(next func() bool) (refused int) {
				w, n := nopWriter{header: http.Header{}}, 0
				for ; next(); n++ {
					h.ServeHTTP(&w, all[n%httpKeys])
					clear(w.header) // as a server would
				}
				return n - w.served
			})
		})
	}
}

// BenchmarkTransport times a RoundTripper that does nothing, with and without a limit. Bodies are closed.
func BenchmarkTransport(b *testing.B) {
	for _, p := range transportPeers() {
		b.Run("who="+p.name, func(b *testing.B) {
			all := requests()
			parallel(b, func(next func() bool) (refused int) {
				for n := 0; next(); n++ {
					resp, err := p.it.RoundTrip(all[n%httpKeys])
					if err != nil || resp.Body.Close() != nil || resp.StatusCode != http.StatusOK {
						refused++
					}
				}
				return refused
			})
		})
	}
}

// BenchmarkInFlight times taking a slot and giving it back: free=yes where no caller waits, free=no where 64
// callers use 8 slots, and a holder yields the processor while it holds its slot.
func BenchmarkInFlight(b *testing.B) {
	for _, c := range []struct {
		name              string
		capacity, callers int // callers for each processor
		hold              func()
	}{{"free=yes", 1024, 1, func() {}}, {"free=no", 8, 64, runtime.Gosched}} {
		b.Run(c.name, func(b *testing.B) {
			for _, p := range slotPeers(b.Context()) {
				b.Run("who="+p.name, func(b *testing.B) {
					s := p.it(c.capacity)
					b.SetParallelism(c.callers)
					parallel(b, func(next func() bool) (refused int) {
						for next() {
							if !s.take() {
								refused++
							}
							c.hold()
							s.give()
						}
						return refused
					})
				})
			}
			l, ctx := quotient.Must(quotient.New(quotient.Limit{InFlight: c.capacity})), b.Context()
			b.Run("who=quotient-limiter", func(b *testing.B) {
				b.SetParallelism(c.callers)
				parallel(b, func(next func() bool) (refused int) {
					for next() {
						permit, err := l.Acquire(ctx, "tenant")
						if err != nil {
							refused++
						}
						c.hold()
						permit.Release()
					}
					return refused
				})
			})
		})
	}
}

// BenchmarkWaiters reports what each of 10,000 callers that wait for one key costs to queue and to wake. Beside
// it, the same callers block on a bare channel.
func BenchmarkWaiters(b *testing.B) {
	const n = 10_000
	b.Run("who=quotient", func(b *testing.B) {
		for range b.N {
			l := quotient.Must(quotient.New(quotient.Limit{InFlight: 1}, quotient.MaxWaiting(n, n)))
			first, _ := l.TryAcquire("tenant")
			wait := func() { _, _ = l.Acquire(b.Context(), "tenant") }
			crowd(b, n, wait, func() int { return l.Stats().Waiting },
				func() { _ = l.SetLimit(quotient.Limit{InFlight: n + 1}) })
			if s := l.Stats(); s.InFlight != n+1 || s.Cancelled != 0 {
				b.Fatalf("%d in flight, %d cancelled", s.InFlight, s.Cancelled)
			}
			first.Release()
		}
	})
	b.Run("who=channel", func(b *testing.B) {
		for range b.N {
			gate := make(chan struct{})
			var waiting atomic.Int64
			crowd(b, n, func() { waiting.Add(1); <-gate }, func() int { return int(waiting.Load()) }, func() { close(gate) })
		}
	})
}

// crowd starts n callers, lets them go when all wait, and reports what each cost.
func crowd(b *testing.B, n int, wait func(), waiting func() int, free func()) {
	var callers sync.WaitGroup
	start := time.Now()
	for range n {
		callers.Go(wait)
	}
	for waiting() < n {
		time.Sleep(time.Duration(10 * n)) // seldom, so that looking costs little
	}
	b.ReportMetric(float64(time.Since(start))/float64(n), "ns/queue")
	start = time.Now()
	free()
	callers.Wait()
	b.ReportMetric(float64(time.Since(start))/float64(n), "ns/wake")
}

// BenchmarkStall reports how long calls for other keys take while 100,000 waiters are woken. All keys share one
// lock, since MaxKeys is so low. A call that arrives at a random moment takes longer than p99.9 once in a thousand.
func BenchmarkStall(b *testing.B) {
	const n = 100_000
	for range b.N {
		l := quotient.Must(quotient.New(quotient.Limit{InFlight: 1}, quotient.MaxKeys(1000), quotient.MaxWaiting(n, n)))
		first, _ := l.TryAcquire("tenant")
		var took []time.Duration
		crowd(b, n, func() { _, _ = l.Acquire(b.Context(), "tenant") }, func() int { return l.Stats().Waiting }, func() {
			var raised atomic.Bool
			var raise sync.WaitGroup
			raise.Go(func() { _ = l.SetLimit(quotient.Limit{InFlight: n + 1}); raised.Store(true) })
			for !raised.Load() || l.Stats().Waiting > 0 {
				start := time.Now()
				permit, _ := l.TryAcquire("other")
				permit.Release()
				took = append(took, time.Since(start))
			}
			raise.Wait()
		})
		first.Release()
		slices.Sort(took)
		b.ReportMetric(timeQuantile(took, .001).Seconds()*1000, "ms-p99.9")
		b.ReportMetric(took[len(took)-1].Seconds()*1000, "ms-max")
	}
}

// TestTimeQuantile: of two seconds, one is spent in one long wait, one in a thousand short ones.
func TestTimeQuantile(t *testing.T) {
	waits := append(slices.Repeat([]time.Duration{time.Millisecond}, 1000), time.Second)
	for beyond, want := range map[float64]time.Duration{
		.25:   500 * time.Millisecond, // half a second of arrivals waits longer than half a second
		.05:   900 * time.Millisecond,
		.0005: 999 * time.Millisecond,
	} {
		if got := timeQuantile(waits, beyond); got != want {
			t.Errorf("timeQuantile(%v) = %v, want %v", beyond, got, want)
		}
	}
}

// TestTraffic: the keys of each pattern are distinct and of one length, and nearly all are visited.
func TestTraffic(t *testing.T) {
	for _, p := range patterns[:3] {
		tr, distinct, seen, n := p.made(p.keys), map[string]bool{}, map[string]bool{}, drawn
		for _, key := range tr.keys {
			if distinct[key] = true; len(key) != keyLen {
				t.Fatalf("%q has %d bytes", key, len(key))
			}
		}
		tr.visit(func() bool { n--; return n >= 0 }, func(key string) bool { seen[key] = true; return true })
		if len(distinct) != p.keys || len(seen) > p.keys || len(seen) < p.keys*9/10 {
			t.Errorf("%s: %d keys, %d visited", p.name, len(distinct), len(seen))
		}
	}
}
