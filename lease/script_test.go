package lease

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

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
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	table, err := NewTable(settings(t, config), Tokens{Next: 100, End: EndOfTokens}, now)
	if err != nil {
		t.Fatal(err)
	}
	p := &play{t, table, now}
	for id := range uint64(5) {
		if err := table.AddPeer(id+1, time.Minute, now); err != nil {
			t.Fatal(err)
		}
	}
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
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func number(t testing.TB, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
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
