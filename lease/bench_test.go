package lease

import (
	"fmt"
	"runtime"
	"testing"
	"time"
)

// crowd returns a Table of n peers, each with a lock of A, and one place left.
func crowd(tb testing.TB, n uint64) (*Table, time.Time) {
	tb.Helper()
	now := time.Now()
	c := Config{Semaphores: map[string]Semaphore{"A": {Max: int64(n) + 1}, "B": {Max: 1}}, MaxPeers: maxPeers}
	table, err := NewTable(c, ClockTokens(now), now)
	for id := uint64(1); id <= n && err == nil; id++ {
		if err = table.AddPeer(id, time.Hour+time.Duration(id%1000)*time.Millisecond, now); err == nil {
			_, err = table.Acquire(id, "A", 1, now)
		}
	}
	if err == nil {
		err = table.AddPeer(n+1, time.Hour, now)
	}
	if err != nil {
		tb.Fatal(err)
	}
	table.Changed()
	return table, now
}

// BenchmarkTable takes a lock and gives it back, beside so many peers that hold one.
func BenchmarkTable(b *testing.B) {
	for _, n := range []uint64{100, 10_000, 1_000_000} {
		b.Run(fmt.Sprint("peers=", n), func(b *testing.B) {
			table, now := crowd(b, n)
			if got := len(table.peers); got != int(n)+1 {
				b.Fatalf("there are %d peers, want %d", got, n+1)
			}
			b.ReportAllocs()
			for b.Loop() {
				token, err := table.Acquire(n+1, "A", 1, now)
				if err != nil || token == 0 {
					b.Fatal(token, err)
				}
				if err := table.Release(n+1, "A", now); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkHeartbeat moves the expiry of one peer after another.
func BenchmarkHeartbeat(b *testing.B) {
	for _, n := range []uint64{100, 10_000, 1_000_000} {
		b.Run(fmt.Sprint("peers=", n), func(b *testing.B) {
			table, now := crowd(b, n)
			b.ReportAllocs()
			for id := uint64(1); b.Loop(); id = id%n + 1 {
				now = now.Add(time.Microsecond)
				if _, err := table.Heartbeat(id, time.Hour, now); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestAllocations checks that nothing but the lock is allocated.
func TestAllocations(t *testing.T) {
	table, now := crowd(t, 100)
	for _, row := range []struct {
		name string
		most float64
		step func() error
	}{
		{"acquire and release", 1, func() error {
			if _, err := table.Acquire(101, "A", 1, now); err != nil {
				return err
			}
			return table.Release(101, "A", now)
		}},
		{"repeat", 0, func() error { _, err := table.Acquire(7, "A", 1, now); return err }},
		{"heartbeat", 0, func() error { _, err := table.Heartbeat(7, time.Hour, now); return err }},
		{"state", 0, func() error { _, err := table.State(7, "A", 1, now); return err }},
	} {
		var err error
		if got := testing.AllocsPerRun(100, func() { err = row.step() }); got > row.most || err != nil {
			t.Errorf("%s: %v allocations, error %v, want at most %v", row.name, got, err, row.most)
		}
	}
}

// TestMemoryOfPeers holds the published figure: at most 2 KiB for a peer with a lock.
func TestMemoryOfPeers(t *testing.T) {
	const n = 10_000
	inUse := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := inUse()
	table, _ := crowd(t, n)
	after := inUse()
	if got := len(table.peers); got != n+1 {
		t.Fatalf("there are %d peers, want %d", got, n+1)
	}
	each := int64(after-before) / n
	t.Logf("%d bytes a peer", each)
	if each < 100 || each > 2048 {
		t.Errorf("%d bytes a peer, want 100 to 2,048", each)
	}
}
