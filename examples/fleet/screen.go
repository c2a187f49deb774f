package main

import (
	"fmt"
	"io"
	"math"
	"os"
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

// styles are what text is printed with: <0> is the colour of the first replica, {0} its glyph, </> the end of any
// style. Where there are colours all glyphs are the same.
var (
	styles = map[string]string{
		"<b>": "1", "<dim>": "2", "<red>": "1;31", "<ok>": "32", "<held>": "1;32", "<busy>": "33", "</>": "0",
		"<0>": "36", "<1>": "33", "<2>": "35", "<3>": "32", "<4>": "34", "<5>": "31", "<6>": "37",
	}
	glyphs = []string{"█", "▒", "▓", "░", "▚", "▤", "▥"}
)

// A screen prints a run. It is for one goroutine.
type screen struct {
	w       io.Writer
	plan    plan
	columns int // replicas that there will ever be
	styles  *strings.Replacer
}

func newScreen(w io.Writer, p plan) *screen {
	s := &screen{w: w, plan: p, columns: p.Replicas}
	if p.Join > 0 {
		s.columns++
	}
	color := p.Color == "always"
	if file, ok := w.(*os.File); ok && p.Color == "auto" && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" {
		info, err := file.Stat()
		color = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	var marks []string
	for i, glyph := range glyphs {
		if color {
			glyph = glyphs[0]
		}
		marks = append(marks, fmt.Sprintf("{%d}", i), glyph)
	}
	for name, code := range styles {
		if code = "\x1b[" + code + "m"; !color {
			code = ""
		}
		marks = append(marks, name, code)
	}
	s.styles = strings.NewReplacer(marks...)
	return s
}

// print writes text. A closed output does not end the run: its verdict is the exit status.
func (s *screen) print(format string, args ...any) {
	_, _ = s.styles.WriteString(s.w, fmt.Sprintf(format, args...))
}

// head prints what is about to be seen, and what the columns are.
func (s *screen) head() {
	p := s.plan
	lead, first := "<b>One limit, no store.</> ", fmt.Sprintf("from an upstream that takes %g in all", p.Limit)
	how := "\nThey never talk to each other: each decides alone, by limit / replicas."
	if c, counts := countings[p.Pool]; counts {
		lead = "<b>One limit, and replicas that count themselves.</> "
		how = fmt.Sprintf("\nEach decides alone, by limit / replicas, and counts those %s every %v.", c.where, c.period)
	}
	if p.ctrl != "" {
		lead = "<b>A limit that moves.</> The upstream changes its limit and announces nothing (its answers carry: " +
			p.Tell + ").\n"
		first, how = "and learn it from their own answers (policy "+p.ctrl+")", ""
	}
	s.print("\n%s%d processes want %g requests a second each %s.%s\n\n     ", lead, p.Replicas, p.Want, first, how)
	for i := range s.columns {
		s.print("  <%d>{%[1]d} replica %-3d</>", i, i+1)
	}
	s.print("   <b>    fleet</>\n     %s", strings.Repeat("  <dim>sent wait 429</>", s.columns))
	s.print("   <dim>sent  429</>  <dim>%*s</>\n", barCells, fmt.Sprintf("%g/s", p.Limit))
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
			s.print("  <dim>    ·        </>")
			continue
		}
		c := cells[i]
		s.print("  <%d>%4d</><dim>%5d</>%s%4d</>", i, c.Sent, c.Waiting, alarm(c.Rejected), c.Rejected)
		total.Sent += c.Sent
		total.Rejected += c.Rejected
	}
	s.print("   <b>%4d</>%s%5d</>  %s\n", total.Sent, alarm(total.Rejected), total.Rejected, s.bar(cells, limit))
}

// alarm is the style of a number of 429s, which only matters when it is not 0.
func alarm(rejected int) string {
	if rejected == 0 {
		return "<dim>"
	}
	return "<red>"
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
			drawn = append(drawn, fmt.Sprintf("<%d>{%[1]d}</>", i))
		}
	}
	for len(drawn) < mark {
		drawn = append(drawn, " ")
	}
	return strings.Join(slices.Insert(drawn, mark, "│"), "")
}

// event prints what happened to the pool and how long it took each replica to know.
func (s *screen) event(at time.Duration, what, how string, ids []int, delays []time.Duration) {
	var after []string
	for i, id := range ids {
		after = append(after, fmt.Sprintf("%d in %s", id, short(delays[i])))
	}
	s.happening(at, what, "; "+how+": "+strings.Join(after, ", "))
}

func (s *screen) happening(at time.Duration, what, more string) {
	s.print("<b>── %.1f s  %s</>%s\n", at.Seconds(), what, more)
}

// summary prints how good the run was, not whether it kept its promises.
func (s *screen) summary(f *fleet) {
	s.print("\n  replicas        time            goodput    429s   fairness\n")
	log := f.up.logged()
	for _, ph := range f.phases {
		r := measure(log, ph)
		s.print("     %2d       %4.1f – %4.1f s        %5.1f %%   %4.1f %%      %.3f\n", len(ph.Alive),
			(ph.From - f.begin).Seconds(), (ph.To - f.begin).Seconds(), 100*r.Goodput, 100*r.Rejected, r.Fairness)
	}
	var network, overheads []time.Duration // from leaving a replica to reaching the upstream
	for _, a := range log {
		network, overheads = append(network, a.Arrived-a.Sent), append(overheads, a.Overhead)
	}
	s.print("<dim>  goodput: accepted, of the limit.  fairness: Jain's index over the replicas of that time.</>\n\n")
	s.print("  overhead of the limiter   p50 %-8s p99 %-8s over %d admitted requests, timers included\n",
		short(quantile(overheads, 0.50)), short(quantile(overheads, 0.99)), len(overheads))
	s.print("  way to the upstream       p50 %-8s p99 %-8s max %s\n",
		short(quantile(network, 0.50)), short(quantile(network, 0.99)), short(quantile(network, 1)))
	s.failures(f.total())
}

func (s *screen) failures(total message) {
	if total.Failed > 0 {
		s.print("  <red>%d requests got no answer, the last one: %s</>\n", total.Failed, total.LastError)
	}
}

// stall warns of a machine that does not let its processes run.
func (s *screen) stall(longest time.Duration, suffers string) {
	if longest > badStall {
		s.print("<busy>  This machine is busy: a replica stood still for %s. %s</>\n", short(longest), suffers)
	}
}

// ruling prints the verdicts, and what they allow for.
func (s *screen) ruling(r ruling) {
	s.print("\n<b>Verdict</> from the upstream's log of %d requests, over all %s windows between two of them\n",
		r.Requests, thousands(r.Requests*(r.Requests+1)/2))
	s.print("  Allowed in w seconds: %g w + %g (the burst)", s.plan.Limit, r.Fleet.steps[0].burst)
	if g := r.Fleet.growth; g.extra > 0 {
		s.print(" + %.2f (once: the new replica was unknown for %s)", g.extra, short(g.to-g.from))
	}
	s.print(".\n  w counts from when the first request might have left: up to %s before it was woken up.\n",
		short(r.Late))
	s.stall(r.Stall, "Goodput and 429s suffer, the bounds must not.")
	s.verdict(11, r.Checks, "Every bound held.", "A bound was BROKEN.")
}

// outcome prints how fast the fleet followed, and whether that was fast enough.
func (s *screen) outcome(all []followUp, checks []check, total message) {
	s.print("\n  %-40s limit   followed in  overshoot     429s   goodput   fairness\n", "scene")
	for _, u := range all {
		fair := fmt.Sprintf("%.3f", u.Fairness)
		if u.Busy {
			fair = "-"
		}
		s.print("  %-40s %3.0f/s   %11s   %5.2f x   %5.1f %%   %5.1f %%   %8s\n",
			u.Title, u.phase.Limit, u.Took, u.Overshoot, 100*u.Rejected, 100*u.Goodput, fair)
	}
	s.print("<dim>  followed: what was sent came within 10 %% of the limit and stayed there.\n" +
		"  overshoot: the most in any second, against the limit, from one second on.</>\n")
	s.print("\n<b>Verdict</> from the upstream's log\n")
	s.stall(total.Stall, "All figures suffer.")
	s.verdict(18, checks, "The fleet followed.", "The fleet did NOT follow as it should.")
	s.failures(total)
}

// verdict prints what became of each promise, and of all.
func (s *screen) verdict(width int, all []check, good, bad string) {
	for _, c := range all {
		state := "<ok>held  "
		if c.info {
			state = "<dim>info  "
		} else if !c.Held {
			state = "<red>BROKEN"
		}
		s.print("  %s</>  %-*s %s\n", state, width, c.Of, c.Text)
	}
	end := "<held>" + good
	if !held(all) {
		end = "<red>" + bad
	}
	s.print("%s</>\n\n", end)
}

func short(d time.Duration) string {
	switch {
	case d >= time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d >= time.Millisecond:
		return fmt.Sprintf("%.3g ms", d.Seconds()*1e3)
	default:
		return fmt.Sprintf("%.3g µs", d.Seconds()*1e6)
	}
}

func thousands(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
