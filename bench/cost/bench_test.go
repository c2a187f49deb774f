package main

import (
	"runtime"
	"sync"
	"testing"
)

// The same bodies as the command's, for `go test -bench . -cpu 1,2` and benchstat. Each benchmark runs as
// many goroutines as GOMAXPROCS. The command's numbers are the ones to quote: it takes turns.

// benchmark runs the contenders as sub-benchmarks and fails unless all operations were admitted.
func benchmark(b *testing.B, cs []contender) {
	for _, who := range cs {
		b.Run(who.name, func(b *testing.B) {
			b.ReportAllocs()
			if got := spread(who, runtime.GOMAXPROCS(0), b.N); got != b.N {
				b.Fatalf("%d of %d operations admitted, want all", got, b.N)
			}
		})
	}
}

// benchWorkers is the most goroutines that -cpu may ask for here.
const benchWorkers = 64

func benchmarkAllow(b *testing.B, ac allowCase) {
	t, err := ac.traffic(ac.keys)
	if err != nil {
		b.Fatal(err)
	}
	held, stop, err := holders(t)
	if err != nil {
		b.Fatal(err)
	}
	defer stop()
	benchmark(b, contenders(held, t, benchWorkers))
}

func BenchmarkAllowHot(b *testing.B)       { benchmarkAllow(b, allowCases[0]) }
func BenchmarkAllow100(b *testing.B)       { benchmarkAllow(b, allowCases[1]) }
func BenchmarkAllow100kZipf(b *testing.B)  { benchmarkAllow(b, allowCases[2]) }
func BenchmarkAllow1000kZipf(b *testing.B) { benchmarkAllow(b, allowCases[3]) }
func BenchmarkMiddleware(b *testing.B)     { benchmarkMade(b, middlewareContenders) }
func BenchmarkTransport(b *testing.B)      { benchmarkMade(b, transportContenders) }
func BenchmarkInFlight(b *testing.B)       { benchmarkMade(b, slotContenders) }

func benchmarkMade(b *testing.B, made func(int) ([]contender, error)) {
	cs, err := made(benchWorkers)
	if err != nil {
		b.Fatal(err)
	}
	benchmark(b, cs)
}

// BenchmarkContended is the fairness figure as a cost: 64 goroutines for 8 slots.
func BenchmarkContended(b *testing.B) {
	for _, s := range slotPeers() {
		b.Run(s.name, func(b *testing.B) {
			hold, err := s.make(fairCapacity)
			if err != nil {
				b.Fatal(err)
			}
			var wg sync.WaitGroup
			for w := range fairWorkers {
				n := b.N / fairWorkers
				if w < b.N%fairWorkers {
					n++
				}
				wg.Go(func() {
					if got := count(n, func() bool { return hold(runtime.Gosched) }); got != n {
						b.Errorf("%d of %d slots taken", got, n)
					}
				})
			}
			wg.Wait()
		})
	}
}

// BenchmarkMemory reports bytes for each live key. One iteration is one key, so let b.N grow large.
func BenchmarkMemory(b *testing.B) {
	for _, m := range keyedPeers() {
		b.Run(m.name, func(b *testing.B) {
			before := heap()
			k, err := m.make(quota{burst: 1, per: generous.per}, max(1024, 2*b.N), 0)
			if err != nil {
				b.Fatal(err)
			}
			if k.close != nil {
				defer k.close()
			}
			if err := drain(k, b.N); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			b.ReportMetric((heap()-before)/float64(b.N), "bytes/key")
			runtime.KeepAlive(k)
		})
	}
}

// BenchmarkWaiters reports what 10,000 waiters on one key cost each.
func BenchmarkWaiters(b *testing.B) {
	for range b.N {
		cost, err := crowdCosts(10_000, 1)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(cost.queue, "ns/queue")
		b.ReportMetric(cost.cancel, "ns/cancel")
		b.ReportMetric(cost.wake, "ns/wake")
		b.ReportMetric(cost.bytes, "bytes/waiter")
	}
}

// BenchmarkStall reports the longest waits of calls for other keys while a crowd is woken.
func BenchmarkStall(b *testing.B) {
	for range b.N {
		s, err := stallRound(stallWaiters)
		if err != nil {
			b.Fatal(err)
		}
		var lock, whole waits
		lock.add(s.lock)
		whole.add(s.whole)
		b.ReportMetric(lock.most[0], "ms-lock-max")
		b.ReportMetric(whole.p999[0], "ms-call-p99.9")
	}
}

// BenchmarkAttack reports admissions beyond the bound under the cycling attack.
func BenchmarkAttack(b *testing.B) {
	for _, m := range keyedPeers() {
		b.Run(m.name, func(b *testing.B) {
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
