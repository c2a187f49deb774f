package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func testScreen(color string) (*screen, *bytes.Buffer) {
	out := &bytes.Buffer{}
	return newScreen(out, plan{Limit: 100, Want: 60, Replicas: 2, Join: time.Second, Pool: "static", Color: color}), out
}

func TestLine(t *testing.T) {
	s, out := testScreen("auto")
	s.line(7, []cell{{second{50, 0}, 12, true}, {second{54, 3}, 9, true}}, 100)
	const want = "  7 s    50   12   0    54    9   3      ·            104    3  ██████████▒▒▒▒▒▒▒▒▒▒│▒\n"
	if out.String() != want {
		t.Errorf("line is\n%q\nwant\n%q", out.String(), want)
	}
}

// TestColumnsAlign: every line of the table has its parts where the head says.
func TestColumnsAlign(t *testing.T) {
	s, out := testScreen("never")
	s.head()
	s.line(10, []cell{{second{33, 0}, 17, true}, {}, {second{34, 1}, 16, true}}, 100)
	lines := strings.Split(strings.TrimRight(out.String(), "\n"), "\n")
	head, row := lines[len(lines)-2], lines[len(lines)-1]
	ends := func(line, what string) int {
		return utf8.RuneCountInString(line[:strings.Index(line, what)+len(what)])
	}
	if h, r := ends(head, "sent wait 429"), ends(row, "33   17   0"); h != r {
		t.Errorf("the first column ends at %d in the head, at %d in the row:\n%s\n%s", h, r, head, row)
	}
	if h, r := ends(head, "sent  429"), ends(row, "67    1"); h != r {
		t.Errorf("the fleet's column ends at %d in the head, at %d in the row:\n%s\n%s", h, r, head, row)
	}
	if h, r := ends(head, "100/s"), ends(row, "│"); h != r-1 {
		t.Errorf("the limit is at %d in the head, its mark at %d in the row:\n%s\n%s", h, r, head, row)
	}
}

// TestBar: it stops at twice the limit, and keeps its scale when the limit moves.
func TestBar(t *testing.T) {
	s, _ := testScreen("never")
	half, blank := strings.Repeat("█", 10), strings.Repeat(" ", 10)
	for _, tt := range []struct {
		sent  int
		limit float64
		want  string
	}{
		{0, 100, blank + blank + "│"}, {50, 100, half + blank + "│"}, {100, 100, half + half + "│"},
		{140, 100, half + half + "│" + half[:24]}, {1000, 100, half + half + "│" + half + half},
		{0, 50, blank + "│"}, {25, 50, "█████     │"}, {50, 50, half + "│"}, {75, 50, half + "│█████"},
	} {
		if got := s.styles.Replace(s.bar([]cell{{second: second{Sent: tt.sent}}}, tt.limit)); got != tt.want {
			t.Errorf("%d sent: %q, want %q", tt.sent, got, tt.want)
		}
	}
}

func TestColorOnlyOnDemand(t *testing.T) {
	for _, tt := range []struct {
		color string
		want  bool
	}{{"auto", false}, {"never", false}, {"always", true}} {
		s, out := testScreen(tt.color)
		s.head()
		s.line(1, []cell{{second{50, 1}, 12, true}}, 100)
		s.event(time.Second, "replica 3 joins", "notified", []int{1}, []time.Duration{ms})
		s.outcome([]followUp{{}}, []check{{Held: true}}, message{Failed: 1})
		s.ruling(ruling{Fleet: flat(100, 10), Windows: []check{{}}, Stall: time.Second})
		if got := strings.Contains(out.String(), "\x1b["); got != tt.want {
			t.Errorf("-color %s: colour %v, want %v", tt.color, got, tt.want)
		}
	}
}

func TestRulingNamesTheBrokenWindow(t *testing.T) {
	s, out := testScreen("never")
	bad := window{From: 3 * time.Second, To: 3500 * ms, Sent: 62, Allowed: 60}
	s.ruling(ruling{Windows: []check{{Of: "the fleet", Text: bad.text(time.Second)}}, Requests: 100, Fleet: flat(100, 10)})
	for _, want := range []string{"5,050 windows", "BROKEN  the fleet", "2.000 –   2.500 s",
		"62 sent, 60.0 allowed", "A bound was BROKEN."} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the ruling lacks %q:\n%s", want, out)
		}
	}
}
