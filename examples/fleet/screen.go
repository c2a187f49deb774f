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

// colored reports whether w is a terminal that is to have colours.
func colored(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func newScreen(w io.Writer, p plan, color bool) *screen {
	s := &screen{w: w, plan: p, columns: p.Replicas}
	if !p.adapts() {
		s.columns++
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
	text := "\n<b>One limit, and no request waits for a store.</> %d processes want %g requests a second each, " +
		"of %g in all.\nEach decides alone, by limit / replicas; how many they are it is told.\n\n     "
	args := []any{p.Replicas, p.Want, p.Limit}
	if p.adapts() {
		text = "\n<b>A limit that moves.</> %d processes want %g requests a second each, of %g in all. The upstream " +
			"changes its\nlimit and announces nothing. They learn it from its answers, which carry 429s and RateLimit fields (policy %s).\n\n     "
		args = append(args, p.Policy)
	}
	s.print(text, args...)
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

func (s *screen) happening(at time.Duration, what string) {
	s.print("<b>── %.1f s  %s</>\n", at.Seconds(), what)
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
	s.print("<dim>  goodput: accepted, of the limit.  fairness: Jain's index over the replicas of that time.\n" +
		"  overshoot: the most in any second, against the limit, from one second on.</>\n\n")
	all := f.total()
	if all.Failed > 0 {
		s.print("  <red>%d requests got no answer, the last one: %s</>\n", all.Failed, all.LastError)
	}
	if all.Stall > badStall {
		s.print("<busy>  This machine is busy: a replica stood still for %s. "+
			"The figures suffer, the bounds of the division must not.</>\n", short(all.Stall))
	}
	s.print("\n<b>Verdict</> from the upstream's log of %d requests\n", len(f.log))
}

// verdict prints what is allowed, what became of each promise, and of all.
func (s *screen) verdict(allowed string, all []check, good, bad string) {
	s.print("%s", allowed)
	for _, c := range all {
		state := "<ok>held  "
		if !c.Held {
			state = "<red>BROKEN"
		}
		s.print("  %s</>  %-18s %s\n", state, c.Of, c.Text)
	}
	end := "<held>" + good
	if !held(all) {
		end = "<red>" + bad
	}
	s.print("%s</>\n\n", end)
}

// short has three digits.
func short(d time.Duration) string {
	unit := time.Nanosecond
	for ; d >= 1000*unit; unit *= 10 {
	}
	return d.Round(unit).String()
}
