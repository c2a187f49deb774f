package lease

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-go/quotient/internal/tested"
)

func TestExpiryIsBounded(t *testing.T) {
	table, now := tableOf(t, "A=1 keep=1s", 0)
	must(t, table.AddPeer(1, -time.Hour, now))
	must(t, table.AddPeer(2, math.MaxInt64, now))
	for _, want := range []time.Duration{time.Second, maxDuration + time.Second} {
		tested.Want(t, "the next peer goes after", table.Next().Sub(now), want)
		table.Advance(now.Add(time.Second))
	}
}

func TestManyLocksOfOnePeer(t *testing.T) {
	c := Config{Semaphores: map[string]Semaphore{}}
	var all []Restored
	body := `{"expires_in":"5m","peer_id":1,"acquired":{`
	for i := range int64(maxLocks + 1) {
		name := string(rune('Ā' + i))
		c.Semaphores[name] = Semaphore{Max: 1, Level: i}
		all = append(all, Restored{Semaphore: name, Count: 1})
		body += fmt.Sprintf("%q:1,", name)
	}
	now := time.Now()
	table, err := NewTable(c, ClockTokens(now), now)
	must(t, err)
	if _, err := table.Restore(1, time.Minute, all, now); !errors.Is(err, ErrTooManyLocks) {
		t.Errorf("%d restored: error %v, want %v", len(all), err, ErrTooManyLocks)
	}
	if _, err := readRestoration([]byte(body[:len(body)-1] + "}}")); !errors.Is(err, ErrTooManyLocks) {
		t.Errorf("a body of them: error %v, want %v", err, ErrTooManyLocks)
	}
	if _, err := table.Restore(1, time.Minute, all[1:], now); err != nil {
		t.Errorf("%d restored: error %v", maxLocks, err)
	}
	if _, err := table.Acquire(1, all[0].Semaphore, 1, now); !errors.Is(err, ErrTooManyLocks) {
		t.Errorf("one more: error %v, want %v", err, ErrTooManyLocks)
	}
}

func TestValidate(t *testing.T) {
	of := func(name string, s Semaphore) Config { return Config{Semaphores: map[string]Semaphore{name: s}} }
	many := Config{Semaphores: map[string]Semaphore{}}
	for i := range rune(maxSemaphores + 1) {
		many.Semaphores[string(i)+"x"] = Semaphore{Max: 1}
	}
	table, now := tableOf(t, "", 0)
	for _, row := range []struct {
		config Config
		says   string
	}{
		{Config{}, ""},
		{of("A", Semaphore{MaxCount, maxLevel}), ""},
		{of(strings.Repeat("x", 1024), Semaphore{1, 0}), ""},
		{Config{KeepIdle: maxDuration, Grace: maxDuration, MaxPeers: maxPeers}, ""},
		{of("A", Semaphore{0, 0}), `["A"].Max is 0`},
		{of("A", Semaphore{MaxCount + 1, 0}), `["A"].Max is 1099511627777`},
		{of("A", Semaphore{1, -1}), `["A"].Level is -1`},
		{of("A", Semaphore{1, maxLevel + 1}), `["A"].Level is 2147483649`},
		{of("", Semaphore{1, 0}), `name "" of 0 bytes`},
		{of(strings.Repeat("x", 1025), Semaphore{1, 0}), "of 1025 bytes"},
		{Config{KeepIdle: -1}, "KeepIdle is -1ns"},
		{Config{KeepIdle: maxDuration + 1}, "KeepIdle is"},
		{Config{Grace: -time.Second}, "Grace is -1s"},
		{Config{Grace: maxDuration + 1}, "Grace is"},
		{Config{MaxPeers: -1}, "MaxPeers is -1"},
		{Config{MaxPeers: maxPeers + 1}, "MaxPeers is 1048577"},
		{many, "has 10001 names"},
	} {
		err := row.config.Validate()
		if (err == nil) != (row.says == "") || err != nil && !strings.Contains(err.Error(), row.says) {
			t.Errorf("%.80v: error %v, want one that says %q", row.config, err, row.says)
		}
		_, newTable := NewTable(row.config, Tokens{}, time.Now())
		_, newServer := NewServer(row.config, ServerOptions{StandBy: true})
		for _, err := range []error{newTable, newServer, table.Configure(row.config, now)} {
			if (err == nil) != (row.says == "") {
				t.Errorf("%.80v: NewTable, NewServer or Configure: error %v", row.config, err)
			}
		}
	}
}

// tableOf returns a Table of a configuration with peers 1 to n, which expire after a minute, and its start.
func tableOf(t testing.TB, config string, n uint64) (*Table, time.Time) {
	t.Helper()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	table, err := NewTable(settings(t, config), Tokens{Next: 100, End: EndOfTokens}, now)
	for id := uint64(1); id <= n && err == nil; id++ {
		err = table.AddPeer(id, time.Minute, now)
	}
	must(t, err)
	return table, now
}

func TestLocksAreBounded(t *testing.T) {
	table, now := tableOf(t, "A=5 peers=20000", maxListed+20)
	for id := range uint64(maxListed + 20) {
		_, err := table.Acquire(id+1, "A", 1, now)
		must(t, err)
	}
	for _, row := range []struct{ most, held, pending int }{
		{-1, 0, 0}, {0, 0, 0}, {1, 1, 1}, {7, 5, 7}, {math.MaxInt, 5, maxListed},
	} {
		held, pending, ok := table.Locks("A", row.most, now)
		if !ok || len(held) != row.held || len(pending) != row.pending {
			t.Errorf("most %d: %d held, %d pending, want %d and %d", row.most, len(held), len(pending),
				row.held, row.pending)
		}
	}
	if _, _, ok := table.Locks("B", 1, now); ok {
		t.Error("there is no B")
	}
}

func TestTokensAreBounded(t *testing.T) {
	for _, k := range []Tokens{{}, {5, 5}, {9, 5}, {1 << 63, EndOfTokens}, {1<<63 + 5, 1<<63 + 9}} {
		table, err := NewTable(Config{}, k, time.Now())
		if err != nil || table.TokensLeft() != 0 {
			t.Errorf("%v: %d tokens, error %v, want none", k, table.TokensLeft(), err)
		}
	}
	tested.Want(t, "how many of 0 to 8 there are: 0 is none", (Tokens{0, 9}).within().left(), 8)
}

// TestTokensAboveAllRestored restores tokens that are ahead of the clock, the newest first.
func TestTokensAboveAllRestored(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	table, err := NewTable(settings(t, "A=9 B=9 C=9"), ClockTokens(now), now)
	must(t, err)
	must(t, table.AddPeer(1, time.Hour, now))
	newest := clockToken(now.Add(ahead))
	_, err = table.Restore(2, time.Hour, []Restored{{"A", 1, newest}, {"B", 1, newest - 7}, {"C", 1, 0}}, now)
	must(t, err)
	for _, row := range []struct {
		after time.Duration
		want  uint64
	}{{ahead, 0}, {ahead + 1, newest + 1}} {
		if token, err := table.Acquire(1, "A", 1, now.Add(row.after)); err != nil || token != row.want {
			t.Errorf("after %v: token %d, %v, want %d", row.after, token, err, row.want)
		}
	}
}

// TestTokensNeverGoBack restarts a lone server while its clock goes on, and restores tokens that no server has given,
// and locks without a token, which get one.
func TestTokensNeverGoBack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		now, newest := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), uint64(0)
		var table *Table
		for id := uint64(1); id < 40; id++ {
			now = now.Add(time.Duration(rapid.IntRange(1, 30).Draw(rt, "seconds")) * time.Second)
			if table == nil || rapid.IntRange(0, 3).Draw(rt, "restart") == 0 {
				table, _ = NewTable(settings(t, "A=100 B=100"), ClockTokens(now), now)
			}
			token := uint64(0)
			if rapid.Bool().Draw(rt, "restore") {
				near := uint64(now.UnixNano()) + uint64(rapid.IntRange(0, 70).Draw(rt, "ahead"))*1e9
				all := []uint64{0, 0, 1, near, near, near, 1<<62 - 1, 1<<63 - 1, 1<<64 - 1}
				restored := rapid.SampledFrom(all).Draw(rt, "token")
				_, err := table.Restore(id, time.Hour, []Restored{{"A", 1, restored}}, now)
				if never := errors.As(err, new(*TokenError)); !never {
					must(t, err)
				}
				if restored != 0 {
					continue
				}
				token = table.peers[id].lock("A").token
			} else {
				must(t, table.AddPeer(id, time.Hour, now))
				var err error
				token, err = table.Acquire(id, "B", 1, now)
				must(t, err)
			}
			if token != 0 && token <= newest {
				rt.Fatalf("token %d after %d", token, newest)
			}
			newest = max(newest, token)
		}
	})
}

// settings reads a configuration such as "A=3 B=2/1 grace=5s", where 2/1 is a maximum and a level.
func settings(t testing.TB, text string) Config {
	t.Helper()
	c := Config{Semaphores: map[string]Semaphore{}}
	for _, word := range strings.Fields(text) {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "grace":
			c.Grace = seconds(t, value)
		case "keep":
			c.KeepIdle = seconds(t, value)
		case "peers":
			c.MaxPeers = int(number(t, value))
		default:
			most, level, _ := strings.Cut(value, "/")
			c.Semaphores[name] = Semaphore{Max: number(t, most), Level: number(t, "0"+level)}
		}
	}
	return c
}

func seconds(t testing.TB, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	must(t, err)
	return d
}

func number(t testing.TB, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	must(t, err)
	return n
}

// grant is "held" or "waits".
func grant(token uint64, err error) string {
	switch {
	case err != nil:
		return err.Error()
	case token == 0:
		return "waits"
	}
	return "held"
}

// crowd returns a Table of n peers, each with a lock of A, and one place left.
func crowd(tb testing.TB, n uint64) (*Table, time.Time) {
	tb.Helper()
	now := time.Now()
	c := Config{Semaphores: map[string]Semaphore{"A": {Max: int64(n) + 1}, "B": {Max: 1}}, MaxPeers: maxPeers}
	table, err := NewTable(c, ClockTokens(now), now)
	must(tb, err)
	for id := uint64(1); id <= n; id++ {
		must(tb, table.AddPeer(id, time.Hour+time.Duration(id%1000)*time.Millisecond, now))
		_, err := table.Acquire(id, "A", 1, now)
		must(tb, err)
	}
	must(tb, table.AddPeer(n+1, time.Hour, now))
	table.Changed()
	return table, now
}

// BenchmarkTable takes a lock and gives it back, beside so many peers that hold one, and moves the expiry of one
// peer after another.
func BenchmarkTable(b *testing.B) {
	for _, n := range []uint64{100, 10_000, 1_000_000} {
		table, now := crowd(b, n)
		b.Run(fmt.Sprint("lock/peers=", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				token, err := table.Acquire(n+1, "A", 1, now)
				if err != nil || token == 0 {
					b.Fatal(token, err)
				}
				must(b, table.Release(n+1, "A", now))
			}
		})
		b.Run(fmt.Sprint("heartbeat/peers=", n), func(b *testing.B) {
			b.ReportAllocs()
			for id := uint64(1); b.Loop(); id = id%n + 1 {
				now = now.Add(time.Microsecond)
				_, err := table.Heartbeat(id, time.Hour, now)
				must(b, err)
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
	tested.Want(t, "peers", len(table.peers), n+1)
	each := int64(after-before) / n
	t.Logf("%d bytes a peer", each)
	if each < 100 || each > 2048 {
		t.Errorf("%d bytes a peer, want 100 to 2,048", each)
	}
}
