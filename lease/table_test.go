package lease

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestAdmission(t *testing.T) {
	scripts(t, []row{
		{"at once while it fits", "A=3", `
			1 asks A 2 -> held
			2 asks A 1 -> held
			3 asks A 1 -> waits
			A left     -> 0`},
		{"none overtakes a large one", "A=5", `
			1 asks A 1 -> held
			2 asks A 5 -> waits
			3 asks A 1 -> waits # it would fit, and starve 2
			A left     -> 4
			1 releases A
			A held     -> 2:5
			A queue    -> 3:1
			2 releases A
			A held     -> 3:1`},
		{"first in, first out, up to the first that does not fit", "A=4", `
			1 asks A 4 -> held
			2 asks A 1 -> waits
			3 asks A 3 -> waits
			4 asks A 4 -> waits
			5 asks A 1 -> waits
			1 releases A
			A held     -> 2:1 3:3
			A queue    -> 4:4 5:1
			changed    -> [2 3]
			3 releases A
			A queue    -> 4:4 5:1
			2 releases A
			A held     -> 4:4`},
		{"a head that gives up wakes the next", "A=2", `
			1 asks A 1 -> held
			2 asks A 2 -> waits
			3 asks A 1 -> waits
			2 releases A
			A held     -> 1:1 3:1
			changed    -> [2 3]`},
		{"a head that leaves wakes the next", "A=2", `
			1 asks A 1 -> held
			2 asks A 2 -> waits
			3 asks A 1 -> waits
			2 leaves   -> true
			A held     -> 1:1 3:1
			2 leaves   -> false`},
		{"a peer that leaves gives all back", "A=1/1 B=1", `
			1 asks A 1 -> held
			1 asks B 1 -> held
			2 asks A 1 -> waits
			3 asks B 1 -> waits
			1 leaves   -> true
			A held     -> 2:1
			B held     -> 3:1
			A totals   -> granted 2 released 1 expired 0 broken 0 restored 0 beyond 0`},
	})
}

func TestRefusals(t *testing.T) {
	scripts(t, []row{
		{"unknown", "A=1", `
			1 asks B 1    -> Unknown semaphore
			1 asks B 0    -> Unknown semaphore
			9 asks A 1    -> Unknown peer
			9 releases A  -> Unknown peer
			1 releases B  -> Unknown semaphore
			9 acquired    -> Unknown peer
			9 beats 1s    -> Unknown peer
			9 state A 1   -> Unknown peer
			9 broken A 1  -> Unknown peer
			B left        -> Unknown semaphore`},
		{"counts", "A=1", `
			1 asks A 0  -> Lock count must be a positive number. Found: 0.
			1 asks A -1 -> Lock count must be a positive number. Found: -1.
			1 asks A 2  -> Lock can never be acquired. Lock asks for count 2 yet full count is only 1.
			A queue     ->`},
		{"a second release changes nothing", "A=2", `
			1 asks A 2   -> held
			2 asks A 1   -> waits
			1 releases A ->
			1 releases A ->
			A left       -> 1
			A held       -> 2:1
			A totals     -> granted 2 released 1 expired 0 broken 0 restored 0 beyond 0`},
		{"releasing what is not held drops nothing else", "A=1 B=1", `
			1 asks A 1   -> held
			2 asks A 1   -> waits
			2 releases B ->
			A queue      -> 2:1`},
		{"one pending lock a peer", "A=1 B=1/1 C=1/2", `
			1 asks B 1 -> held
			2 asks B 1 -> waits
			2 asks A 1 -> Already pending. Only one pendig lock per peer is allowed.
			2 asks C 1 -> Already pending. Only one pendig lock per peer is allowed.`},
		{"an id that is taken", "A=1", `
			1 comes 1s -> Restore is not allowed to change existing peers.`},
		{"too many peers", "A=1 peers=6", `
			6 comes 1s    ->
			7 comes 1s    -> Too many peers.
			7 restores 1s A=1 -> Too many peers.
			6 leaves      -> true
			7 comes 1s    ->`},
	})
}

func TestLevels(t *testing.T) {
	violated := "Lock hierachy violation. This may deadlock. The current lock level is %H the\n" +
		"        requested lock level was %A."
	says := func(held, asked string) string {
		return strings.NewReplacer("%H", held, "%A", asked).Replace(violated)
	}
	for _, row := range []struct{ holds, asks, want string }{
		{"C", "B", "held"}, {"C", "A", "held"}, {"B", "A", "held"},
		{"A", "B", says("0", "1")}, {"A", "A2", says("0", "0")}, {"B", "C", says("1", "2")},
		{"B", "B2", says("1", "1")},
	} {
		t.Run(row.holds+row.asks, func(t *testing.T) {
			table, now := tableOf(t, "A=1 A2=1 B=1/1 B2=1/1 C=1/2", 1)
			p := &play{t, table, now}
			p.step([]string{"1", "asks", row.holds, "1"})
			if got := p.step([]string{"1", "asks", row.asks, "1"}); got != row.want {
				t.Errorf("holds %s, asks %s: got %q, want %q", row.holds, row.asks, got, row.want)
			}
		})
	}
	script(t, "A=1 B=1/1 C=1/2", `
		1 asks C 1   -> held
		1 asks A 1   -> held
		1 releases A ->
		1 asks B 1   -> held # the lowest level it holds counts
		1 asks A 1   -> held`)
}

func TestRepeating(t *testing.T) {
	scripts(t, []row{
		{"keeps a lock and its token", "A=2", `
			1 asks A 1  -> held
			1 token A   -> 100
			1 asks A 1  -> held
			1 token A   -> 100
			A left      -> 1`},
		{"keeps the place", "A=1", `
			1 asks A 1  -> held
			2 asks A 1  -> waits
			3 asks A 1  -> waits
			2 asks A 1  -> waits
			A queue     -> 2:1 3:1`},
		{"does not grow", "A=3", `
			1 asks A 1  -> held
			1 asks A 2  -> Lock count can only shrink. The lock has count 1, asked for is 2.
			1 asks A 4  -> Lock can never be acquired. Lock asks for count 4 yet full count is only 3.
			A held      -> 1:1
			2 asks A 3  -> waits
			3 asks A 1  -> waits
			3 asks A 2  -> Lock count can only shrink. The lock has count 1, asked for is 2.
			3 asks A 0  -> Lock count must be a positive number. Found: 0.`},
		{"shrinks a lock, and what waits goes", "A=3", `
			1 asks A 3  -> held
			2 asks A 2  -> waits
			1 asks A 1  -> held
			1 token A   -> 100
			A held      -> 1:1 2:2
			changed     -> [2]`},
		{"shrinks a pending lock, which may fit then", "A=3", `
			1 asks A 2  -> held
			2 asks A 3  -> waits
			3 asks A 1  -> waits
			2 asks A 2  -> waits
			2 asks A 1  -> held
			A queue     -> 3:1`},
		{"of a lock whose maximum fell", "A=3", `
			1 asks A 3  -> held
			config A=1  ->
			1 asks A 3  -> held
			1 asks A 2  -> held`},
		{"what became of a lock", "A=3", `
			1 asks A 2   -> held
			2 asks A 3   -> waits
			2 state A 3  -> waits
			2 asks A 2   -> waits
			2 state A 3  -> Lock count can only shrink. The lock has count 2, asked for is 3.
			2 releases A ->
			2 state A 3  -> No such lock is held.
			2 state A 4  -> Lock can never be acquired. Lock asks for count 4 yet full count is only 3.
			2 state B 4  -> Unknown semaphore`},
	})
}

func TestExpiry(t *testing.T) {
	scripts(t, []row{
		{"all locks at the instant, and those that wait get them", "A=1/1 B=1", `
			1 beats 10s  ->
			1 asks A 1   -> held
			1 asks B 1   -> held
			2 asks A 1   -> waits
			next         -> 10s
			wait 9999999999ns
			A held       -> 1:1
			changed      -> []
			wait 1ns
			A held       -> 2:1
			B held       ->
			changed      -> [1 2]
			1 beats 1s   -> Unknown peer
			B totals     -> granted 1 released 0 expired 1 broken 0 restored 0 beyond 0`},
		{"of a peer that waits", "A=2", `
			1 asks A 1   -> held
			2 beats 10s  ->
			2 asks A 2   -> waits
			3 asks A 1   -> waits
			wait 10s
			A held       -> 1:1 3:1
			2 acquired   -> Unknown peer`},
		{"a heartbeat moves it, either way", "A=1", `
			1 asks A 1   -> held
			wait 59s
			1 beats 60s  ->
			wait 59s
			A held       -> 1:1
			1 beats 500ms ->
			next         -> 500ms
			wait 500ms
			A held       ->`},
		{"an idle peer is kept for a while", "A=1 keep=5m", `
			wait 1m
			1 asks A 1   -> held # at the instant itself, and no longer than that
			2 acquired   -> true
			wait 1ns
			A left       -> 1
			2 asks A 1   -> Unknown peer
			3 beats 1h   ->
			3 asks A 1   -> held
			next         -> 4m59.999999999s
			wait 4m59.999999998s
			peers        -> [2 3 4 5]
			wait 1ns
			peers        -> [3]
			changed      -> [1 2 4 5]`},
		{"what has expired may be swept", "A=1", `
			1 beats 10m ->
			sweep       -> 0
			wait 1m
			sweep       -> 4
			peers       -> [1]`},
		{"nothing is legal", "A=1", `
			1 beats 0ms  ->
			1 asks A 1   -> held
			wait 0s
			A held       ->`},
		{"both hold and wait end in one instant", "A=1", `
			1 asks A 1   -> held
			2 asks A 1   -> waits
			3 beats 2m   ->
			3 asks A 1   -> waits
			wait 1m
			A held       -> 3:1`},
		{"negative and huge are bounded", "A=1", `
			1 beats -5s      ->
			2 beats 2562047h ->
			2 asks A 1       -> held
			wait 1h
			peers            -> [2]
			next             -> 876599h0m0s`},
	})
}

func TestManyLocksOfOnePeer(t *testing.T) {
	c := Config{Semaphores: map[string]Semaphore{}}
	var all []Restored
	for i := range int64(maxLocks + 1) {
		name := string(rune('a' + i))
		c.Semaphores[name] = Semaphore{Max: 1, Level: i}
		all = append(all, Restored{Semaphore: name, Count: 1})
	}
	now := time.Now()
	table, err := NewTable(c, ClockTokens(now), now)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := table.Restore(1, time.Minute, all, now); !errors.Is(err, ErrTooManyLocks) {
		t.Errorf("%d restored: error %v, want %v", len(all), err, ErrTooManyLocks)
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
		if _, err := NewTable(row.config, Tokens{}, time.Now()); (err == nil) != (row.says == "") {
			t.Errorf("%.80v: NewTable: error %v", row.config, err)
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
	if err != nil {
		t.Fatal(err)
	}
	return table, now
}

func TestLocksAreBounded(t *testing.T) {
	table, now := tableOf(t, "A=5 peers=20000", maxListed+20)
	for id := range uint64(maxListed + 20) {
		if _, err := table.Acquire(id+1, "A", 1, now); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct{ most, held, pending int }{
		{-1, 0, 0}, {0, 0, 0}, {1, 1, 1}, {7, 5, 7}, {1 << 40, 5, maxListed},
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

func TestTimesAreCounted(t *testing.T) {
	table, now := tableOf(t, "A=1", 2)
	ask := func(id uint64, now time.Time) {
		if _, err := table.Acquire(id, "A", 1, now); err != nil {
			t.Fatal(err)
		}
	}
	ask(1, now)
	ask(2, now.Add(time.Second))
	if got := table.Stats(now.Add(4 * time.Second))[0].LongestPending; got != 3*time.Second {
		t.Errorf("the first of the queue has waited %v, want 3s", got)
	}
	if err := table.Release(1, "A", now.Add(5*time.Second)); err != nil {
		t.Fatal(err)
	}
	totals := table.Stats(now.Add(6 * time.Second))[0].Totals
	if w := totals.Wait; w.Count != 2 || w.Sum != 4 || w.Buckets[0] != 1 || w.Buckets[4] != 1 {
		t.Errorf("waits are %+v, want one of 0 and one of 4 s", w)
	}
	if h := totals.Hold; h.Count != 1 || h.Sum != 5 || h.Buckets[4] != 1 {
		t.Errorf("holds are %+v, want one of 5 s", h)
	}
	var h Histogram
	h.observe(2 * time.Hour)
	if h.Count != 1 || slices.Max(h.Buckets[:]) != 0 {
		t.Errorf("two hours are in a bucket: %+v", h)
	}
}
