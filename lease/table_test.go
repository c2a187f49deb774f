package lease

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestExpiry(t *testing.T) {
	scripts(t, []row{
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
	must(t, err)
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
		_, err := table.Acquire(id, "A", 1, now)
		must(t, err)
	}
	ask(1, now)
	ask(2, now.Add(time.Second))
	if got := table.Stats(now.Add(4 * time.Second))[0].LongestPending; got != 3*time.Second {
		t.Errorf("the first of the queue has waited %v, want 3s", got)
	}
	must(t, table.Release(1, "A", now.Add(5*time.Second)))
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

func TestRestore(t *testing.T) {
	scripts(t, []row{
		{"an unknown peer", "A=3 B=1/1", `
			9 restores 10s A=2 B=1 ->
			A held     -> 9:2
			B held     -> 9:1
			9 token A  -> 100
			9 token B  -> 101
			next       -> 10s
			wait 10s
			A held     ->
			A totals   -> granted 0 released 0 expired 1 broken 0 restored 1 beyond 0`},
		{"beyond the maximum", "A=3", `
			1 asks A 2         -> held
			2 asks A 2         -> waits
			9 restores 10s A=3 -> A
			A left             -> -2
			A held             -> 1:2 9:3
			1 releases A       ->
			A held             -> 9:3
			wait 10s
			A held             -> 2:2
			A totals           -> granted 2 released 1 expired 1 broken 0 restored 1 beyond 1`},
		{"an existing peer must be identical", "A=3 B=1/1", `
			1 asks B 1               -> held
			1 asks A 2               -> held
			next                     -> 1m0s
			1 restores 2m A=2 B=1    ->
			next                     -> 2m0s
			wait 1m
			A held                   -> 1:2
			1 restores 2m A=2        -> Restore is not allowed to change existing peers.
			1 restores 2m A=1 B=1    -> Restore is not allowed to change existing peers.
			1 restores 2m            -> Restore is not allowed to change existing peers.
			1 restores 2m A=2 B=1@101 -> Restore is not allowed to change existing peers.
			1 restores 2m A=2 A=2    -> Restore is not allowed to change existing peers.
			1 restores 2m A=2@101 B=1@100 ->`},
		{"a pending lock is none", "A=1 B=1/1", `
			1 asks A 1         -> held
			2 asks B 1         -> held
			2 asks A 1         -> waits
			2 restores 1m B=1  ->
			2 restores 1m A=1 B=1 -> Restore is not allowed to change existing peers.`},
		{"nonsense changes nothing", "A=1", `
			9 restores 1m B=1     -> Unknown semaphore
			9 restores 1m A=0     -> Lock count must be a positive number. Found: 0.
			9 restores 1m A=-3    -> Lock count must be a positive number. Found: -3.
			9 restores 1m A=1099511627777 -> Lock count must be at most 1099511627776. Found: 1099511627777.
			9 restores 1m A=1 A=1 -> Restore is not allowed to change existing peers.
			peers                 -> [1 2 3 4 5]`},
	})
}

func TestFencing(t *testing.T) {
	scripts(t, []row{
		{"rises with each grant", "A=9 B=1", `
			1 asks A 1   -> held
			2 asks B 1   -> held
			3 asks B 1   -> waits
			1 releases A ->
			1 asks A 1   -> held
			2 releases B ->
			2 asks A 1   -> held
			1 token A    -> 102
			3 token B    -> 103
			2 token A    -> 104`},
		{"rises above what is restored", "A=9", `
			9 restores 1m A=1@5000 ->
			1 asks A 1      -> held
			1 token A       -> 5001
			9 token A       -> 5000
			8 restores 1m A=1@7 -> # older ones are what they were
			8 token A       -> 7
			2 asks A 1      -> held
			2 token A       -> 5002`},
		{"a new one is not one that is restored beside it", "A=1 B=1", `
			9 restores 1m A=1 B=1@100 ->
			9 token A       -> 101
			9 token B       -> 100`},
		{"that was never given", "A=1", `
			9 restores 1m A=1@9223372036854775807 -> Token 9223372036854775807 was never given.
			peers           -> [1 2 3 4 5]
			tokens 200-300
			9 restores 1m A=1@200 -> Token 200 was never given.
			9 restores 1m A=1@199 ->`},
		{"used up: what is asked for waits", "A=9", `
			tokens 200-202
			1 asks A 1      -> held
			2 asks A 1      -> held
			3 asks A 1      -> waits
			4 asks A 1      -> waits
			9 restores 1m A=1 -> No fencing tokens are left.
			9 restores 1m A=1@150 ->
			tokens 100-400  # older ones change nothing
			tokens 300-300  # and neither do none
			A queue         -> 3:1 4:1
			tokens 300-301
			A queue         -> 4:1
			3 token A       -> 300
			tokens 400-500
			4 token A       -> 400
			changed         -> [3 4]`},
		{"too few for a restore", "A=1 B=1", `
			tokens 200-201
			9 restores 1m A=1 B=1 -> No fencing tokens are left.
			peers           -> [1 2 3 4 5]
			9 restores 1m A=1 B=1@150 ->`},
	})
	for _, k := range []Tokens{{}, {5, 5}, {9, 5}, {1 << 63, EndOfTokens}, {1<<63 + 5, 1<<63 + 9}} {
		table, err := NewTable(Config{}, k, time.Now())
		if err != nil || table.TokensLeft() != 0 {
			t.Errorf("%v: %d tokens, error %v, want none", k, table.TokensLeft(), err)
		}
	}
	if k := (Tokens{0, 9}).within(); k.left() != 8 {
		t.Errorf("of 0 to 8 there are %d, want 8: 0 is none", k.left())
	}
}

func TestChangedConfiguration(t *testing.T) {
	scripts(t, []row{
		{"a lower maximum drains", "A=4", `
			1 asks A 2   -> held
			2 asks A 2   -> held
			3 asks A 1   -> waits
			config A=2   ->
			A held       -> 1:2 2:2
			A left       -> -2
			1 releases A ->
			A queue      -> 3:1
			2 releases A ->
			A held       -> 3:1`},
		{"a higher one serves at once", "A=1", `
			1 asks A 1   -> held
			2 asks A 1   -> waits
			3 asks A 1   -> waits
			config A=2   ->
			A held       -> 1:1 2:1
			changed      -> [2]`},
		{"what can never be granted is dropped, and the next goes", "A=3", `
			1 asks A 1   -> held
			2 asks A 3   -> waits
			3 asks A 1   -> waits
			config A=2   ->
			A held       -> 1:1 3:1
			A queue      ->
			changed      -> [2 3]
			2 acquired   -> Lock can never be acquired. Lock asks for count 3 yet full count is only 2.
			config A=3   ->
			2 acquired   -> No such lock is held.
			2 asks A 1   -> held
			2 acquired   -> true`},
		{"a dropped lock may be released", "A=3", `
			1 asks A 3   -> held
			2 asks A 3   -> waits
			config A=2   ->
			2 releases A ->
			2 acquired   -> true`},
		{"a semaphore that is gone is its holder's until released", "A=2 B=1", `
			1 asks A 2   -> held
			2 asks A 1   -> waits
			config B=1   ->
			changed      -> [2]
			2 acquired   -> Unknown semaphore
			2 state A 1  -> Unknown semaphore
			A left       -> Unknown semaphore
			3 asks A 1   -> Unknown semaphore
			3 releases A -> Unknown semaphore
			9 restores 1m A=1 -> Unknown semaphore
			1 asks A 2   -> held
			1 asks A 1   -> held
			1 restores 1m A=1 ->
			1 asks B 1   -> Lock hierachy violation. This may deadlock. The current lock level is 0 the requested lock level was 0.
			A held       -> 1:1
			1 releases A ->
			A totals     -> gone`},
		{"and may come back", "A=2", `
			1 asks A 1   -> held
			config B=1   ->
			config A=1   ->
			A left       -> 0
			2 asks A 1   -> waits`},
		{"levels count from now on", "A=1 B=1/1", `
			1 asks A 1   -> held
			config A=1/2 B=1/1 ->
			1 asks B 1   -> held`},
		{"nonsense changes nothing", "A=3", `
			config A=0   -> lease: Config.Semaphores["A"].Max is 0, want 1 to 1099511627776
			A left       -> 3`},
		{"how long idle peers are kept", "A=1 keep=5m", `
			wait 2m
			config A=1 keep=30s ->
			peers        -> []`},
	})
}

func TestGrace(t *testing.T) {
	scripts(t, []row{
		{"only restores at first", "A=2 grace=10s", `
			1 asks A 1        -> waits
			2 asks A 1        -> waits
			next              -> 10s
			9 restores 1m A=1 ->
			wait 9s
			A held            -> 9:1
			wait 1s
			A held            -> 9:1 1:1
			changed           -> [1]`},
		{"none of it after a configuration", "A=1", `
			config A=1 grace=10s ->
			1 asks A 1        -> held`},
		{"a peer that leaves meanwhile gets nothing", "A=1 grace=10s", `
			1 asks A 1        -> waits
			1 releases A      ->
			2 beats 5s        ->
			2 asks A 1        -> waits
			3 asks A 1        -> waits
			config A=2        ->
			A held            ->
			wait 10s
			A held            -> 3:1`},
	})
}

func TestBreak(t *testing.T) {
	script(t, "A=1 B=1/1", `
		1 asks A 1        -> held
		2 asks A 1        -> waits
		2 broken A 0      -> No such lock is held.
		1 broken A 99     -> No such lock is held.
		1 broken B 100    -> No such lock is held.
		1 broken A 100    ->
		A held            -> 2:1
		1 broken A 101    -> No such lock is held.
		1 beats 1m        -> A
		1 beats 1m        -> A # until it asks again: an answer may be lost
		1 restores 1m A=1 -> Restore is not allowed to change existing peers.
		1 asks A 1        -> waits
		1 beats 1m        ->
		A totals          -> granted 2 released 0 expired 0 broken 1 restored 0 beyond 0`)
}

// play runs a script against a Table. Each line of it is a step and what comes of it, as in
//
//	1 asks A 2 -> held
//
// Blanks and ends of lines count as one blank.
// Peers 1 to 5 are there from the start and expire after a minute. A comment starts with #.
type play struct {
	t     *testing.T
	table *Table
	now   time.Time
}

// script runs one script with a configuration as settings reads it.
func script(t *testing.T, config, lines string) {
	t.Helper()
	table, now := tableOf(t, config, 5)
	p := &play{t, table, now}
	for line := range strings.Lines(lines) {
		line, _, _ = strings.Cut(line, "#")
		do, want, _ := strings.Cut(line, "->")
		if words := strings.Fields(do); len(words) > 0 {
			if got := strings.Join(strings.Fields(p.step(words)), " "); got != strings.TrimSpace(want) {
				t.Errorf("%s: got %q, want %q", strings.TrimSpace(do), got, strings.TrimSpace(want))
			}
		}
	}
}

// scripts runs rows of scripts by name, each with its configuration.
func scripts(t *testing.T, rows []row) {
	t.Helper()
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) { script(t, r.config, r.lines) })
	}
}

type row struct{ name, config, lines string }

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

// step does one line and returns what comes of it. Errors are their texts.
func (p *play) step(words []string) string {
	switch words[0] {
	case "wait":
		p.now = p.now.Add(seconds(p.t, words[1]))
		p.table.Advance(p.now)
		return ""
	case "config":
		return text("", p.table.Configure(settings(p.t, strings.Join(words[1:], " ")), p.now))
	case "tokens":
		next, end, _ := strings.Cut(words[1], "-")
		p.table.AddTokens(Tokens{uint64(number(p.t, next)), uint64(number(p.t, end))}, p.now)
		return ""
	case "sweep":
		return fmt.Sprint(p.table.RemoveExpired(p.now))
	case "peers":
		return fmt.Sprint(slices.Sorted(slices.Values(p.table.Peers(p.now))))
	case "changed":
		return fmt.Sprint(slices.Compact(slices.Sorted(slices.Values(p.table.Changed()))))
	case "next":
		return p.next()
	}
	if words[0][0] >= 'A' {
		return p.look(words[0], words[1])
	}
	return p.act(uint64(number(p.t, words[0])), words[1], words[2:])
}

// text is the error's, or s.
func text(s any, err error) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(s)
}

// next is how long it is until something is due.
func (p *play) next() string {
	if at := p.table.Next(); !at.IsZero() {
		return at.Sub(p.now).String()
	}
	return "never"
}

// look returns something about a semaphore.
func (p *play) look(name, what string) string {
	held, pending, _ := p.table.Locks(name, 100, p.now)
	switch what {
	case "left":
		return text(p.table.Remainder(name, p.now))
	case "held":
		return show(held)
	case "queue":
		return show(pending)
	}
	for _, s := range p.table.Stats(p.now) {
		if s.Name == name {
			return fmt.Sprintf("granted %d released %d expired %d broken %d restored %d beyond %d",
				s.Totals.Granted, s.Totals.Released, s.Totals.Expired, s.Totals.Broken, s.Totals.Restored,
				s.Totals.Beyond)
		}
	}
	return "gone"
}

// show is the locks as peer:count.
func show(locks []Lock) string {
	var all []string
	for _, l := range locks {
		all = append(all, fmt.Sprintf("%d:%d", l.Peer, l.Count))
	}
	return strings.Join(all, " ")
}

// act does what a peer does.
func (p *play) act(id uint64, verb string, args []string) string {
	switch verb {
	case "comes":
		return text("", p.table.AddPeer(id, seconds(p.t, args[0]), p.now))
	case "asks":
		return grant(p.table.Acquire(id, args[0], number(p.t, args[1]), p.now))
	case "state":
		return grant(p.table.State(id, args[0], number(p.t, args[1]), p.now))
	case "token":
		token, err := p.table.State(id, args[0], 1, p.now)
		return text(token, err)
	case "releases":
		return text("", p.table.Release(id, args[0], p.now))
	case "beats":
		broken, err := p.table.Heartbeat(id, seconds(p.t, args[0]), p.now)
		return text(strings.Join(broken, " "), err)
	case "leaves":
		return fmt.Sprint(p.table.RemovePeer(id, p.now))
	case "acquired":
		return text(p.table.Acquired(id, p.now))
	case "broken":
		_, err := p.table.Break(id, args[0], uint64(number(p.t, args[1])), p.now)
		return text("", err)
	case "restores":
		return p.restore(id, args)
	}
	p.t.Fatalf("unknown verb %q", verb)
	return ""
}

// restore is "1 restores 10s A=3 B=1@77", where 77 is the token.
func (p *play) restore(id uint64, args []string) string {
	var locks []Restored
	for _, arg := range args[1:] {
		name, value, _ := strings.Cut(arg, "=")
		count, token, _ := strings.Cut(value, "@")
		locks = append(locks, Restored{name, number(p.t, count), uint64(number(p.t, "0"+token))})
	}
	beyond, err := p.table.Restore(id, seconds(p.t, args[0]), locks, p.now)
	return text(strings.Join(beyond, " "), err)
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
	if got := len(table.peers); got != n+1 {
		t.Fatalf("there are %d peers, want %d", got, n+1)
	}
	each := int64(after-before) / n
	t.Logf("%d bytes a peer", each)
	if each < 100 || each > 2048 {
		t.Errorf("%d bytes a peer, want 100 to 2,048", each)
	}
}
