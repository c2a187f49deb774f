package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// barCells is how many characters of a bar stand for the whole limit. A bar may be twice as long, for a fleet that
// exceeds it.
const barCells = 20

// badStall is how long a process may stand still before the figures reflect the machine more than the
// limiter. In that time the fleet saves up as much as the default burst.
const badStall = 100 * time.Millisecond

// glyphs are what the bars are drawn with, by replica.
var glyphs = []string{"█", "▒", "▓", "░", "▚", "▤", "▥"}

// A screen prints a run. It is for one goroutine.
type screen struct {
	w       io.Writer
	plan    plan
	columns int // replicas that there will ever be
}

func newScreen(w io.Writer, p plan) *screen {
	s := &screen{w: w, plan: p, columns: p.Replicas}
	if !p.adapts() {
		s.columns++
	}
	return s
}

// print writes text. A closed output does not end the run: its verdict is the exit status.
func (s *screen) print(format string, args ...any) {
	_, _ = fmt.Fprintf(s.w, format, args...)
}

// program prints what the acts are going to show, and how long that takes.
func (s *screen) program(acts []string) {
	shows := map[string]string{
		"division": "several processes hold one limit together, and none asks another or a store. " +
			"One more joins, one is killed.",
		"adaptive": "they learn a limit that they are not told, from an upstream's 429s. " +
			"It halves, comes back, and one needs it all.",
	}
	var length time.Duration
	for _, act := range acts {
		length += s.plan.length(act)
	}
	s.print("This takes %g seconds, and needs nothing but this machine. It shows\n", length.Seconds())
	for _, act := range acts {
		s.print("  %-8s  %s\n", act, shows[act])
	}
	s.print("A line is a second. Of each replica it has the requests sent, those that wait at its end, and the 429s.\n")
}

// head prints what is about to be seen, and what the columns are.
func (s *screen) head() {
	p := s.plan
	text := "\nDivision: one limit, and no request waits for a store. %d processes want %g requests a second each, " +
		"of %g in all.\nEach is told how many they are, and decides alone by limit / replicas.\n\n     "
	args := []any{p.Replicas, p.Want, p.Limit}
	if p.adapts() {
		text = "\nAdaptive: a limit that moves. %d processes want %g requests a second each, of %g in all. The " +
			"upstream changes its\nlimit and announces nothing. They learn it from its answers, by 429s and " +
			"RateLimit fields (policy %s).\n\n     "
		args = append(args, p.Policy)
	}
	s.print(text, args...)
	for i := range s.columns {
		s.print("  %s replica %-3d", glyphs[i], i+1)
	}
	s.print("       fleet\n     %s", strings.Repeat("  sent wait 429", s.columns))
	s.print("   sent  429  %*s\n", barCells, fmt.Sprintf("%g/s", p.Limit))
}

type cell struct {
	second
	Waiting int
	Alive   bool
}

func (s *screen) line(n int, cells []cell, limit float64) {
	s.print("%3d s", n)
	var total second
	for i := range s.columns {
		if i >= len(cells) || !cells[i].Alive && cells[i].Sent == 0 {
			s.print("      ·        ")
			continue
		}
		c := cells[i]
		s.print("  %4d%5d%4d", c.Sent, c.Waiting, c.Rejected)
		total.Sent += c.Sent
		total.Rejected += c.Rejected
	}
	s.print("   %4d%5d  %s\n", total.Sent, total.Rejected, s.bar(cells, limit))
}

// bar draws what each replica sent, one after the other, with a mark where the limit is.
func (s *screen) bar(cells []cell, limit float64) string {
	mark := int(math.Round(limit / s.plan.Limit * barCells))
	var drawn []string
	sent := 0
	for i, c := range cells {
		sent += c.Sent
		to := min(int(math.Round(float64(sent)/s.plan.Limit*barCells)), 2*barCells)
		for len(drawn) < to {
			drawn = append(drawn, glyphs[i])
		}
	}
	for len(drawn) < mark {
		drawn = append(drawn, " ")
	}
	return strings.Join(slices.Insert(drawn, mark, "│"), "")
}

func (s *screen) happening(at time.Duration, what string) {
	s.print("── %.1f s  %s\n", at.Seconds(), what)
}

// summary prints how good the run was, not whether it kept its promises.
func (s *screen) summary(f *fleet) {
	s.print("\n  %-36s time            limit   goodput    429s   fairness   overshoot\n", "")
	for _, ph := range f.phases {
		r, fair := measure(f.log, ph), "-"
		if !ph.Busy {
			fair = fmt.Sprintf("%.3f", r.Fairness)
		}
		s.print("  %-36s %4.1f – %4.1f s  %5.0f/s   %5.1f %%   %4.1f %%   %8s    %5.2f x\n", ph.Title,
			(ph.From - f.begin).Seconds(), (ph.To - f.begin).Seconds(), ph.Limit,
			100*r.Goodput, 100*r.Rejected, fair, overshoot(f.log, ph))
	}
	s.print("  goodput: accepted, of the limit.  fairness: Jain's index over the replicas of that time.\n" +
		"  overshoot: the most in any second, against the limit, from one second on.\n\n")
	all := f.total()
	if all.Failed > 0 {
		s.print("  %d requests got no answer, the last one: %s\n", all.Failed, all.LastError)
	}
	if all.Stall > badStall {
		s.print("  This machine is busy: a replica stood still for %s. "+
			"The figures suffer, the bounds of the division must not.\n", short(all.Stall))
	}
	s.print("\nVerdict from the upstream's log of %d requests\n", len(f.log))
}

// verdict prints what is allowed, what became of each promise, and of all, which it returns too.
func (s *screen) verdict(allowed string, all []check, good, bad string) (end string) {
	s.print("%s", allowed)
	for _, c := range all {
		state := "held  "
		if !c.Held {
			state = "BROKEN"
		}
		s.print("  %s  %-18s %s\n", state, c.Of, c.Text)
	}
	end = good
	if !held(all) {
		end = bad
	}
	s.print("%s\n\n", end)
	return end
}

// short has three digits.
func short(d time.Duration) string {
	unit := time.Nanosecond
	for ; d >= 1000*unit; unit *= 10 {
	}
	return d.Round(unit).String()
}
