package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"
)

func testScreen() (*screen, *bytes.Buffer) {
	out := &bytes.Buffer{}
	return newScreen(out, plan{Limit: 100, Want: 60, Replicas: 2}), out
}

// TestColumnsAlign: every line of the table has its parts where the head says.
func TestColumnsAlign(t *testing.T) {
	s, out := testScreen()
	s.head()
	s.line(7, []cell{{second{50, 0}, 12, true}, {second{54, 3}, 9, true}}, 100)
	s.line(10, []cell{{second{33, 0}, 17, true}, {}, {second{34, 1}, 16, true}}, 100)
	const want = `
       █ replica 1    ▒ replica 2    ▓ replica 3         fleet
       sent wait 429  sent wait 429  sent wait 429   sent  429                 100/s
  7 s    50   12   0    54    9   3      ·            104    3  ██████████▒▒▒▒▒▒▒▒▒▒│▒
 10 s    33   17   0      ·            34   16   1     67    1  ███████▓▓▓▓▓▓       │
`
	if !strings.HasSuffix(out.String(), want) {
		t.Errorf("the table is%s\nwant%s", out.String(), want)
	}
}

// TestProgram: a stranger knows before how long both acts take, at most three quarters of a minute with the starts of
// processes, and what they show.
func TestProgram(t *testing.T) {
	p, err := parsePlan(nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	newScreen(&out, p).program(p.acts())
	missing := lacks(out.String(),
		"This takes 40 seconds", "\n  division  several", "\n  adaptive  they", "those that wait")
	if len(missing) > 0 {
		t.Errorf("no %q in\n%s", missing, out.String())
	}
}

// TestBar: it stops at twice the limit, and keeps its scale when the limit moves.
func TestBar(t *testing.T) {
	s, _ := testScreen()
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
		bar := s.bar([]cell{{second: second{Sent: tt.sent}}}, tt.limit)
		if bar != tt.want {
			t.Errorf("%d sent: %q, want %q", tt.sent, bar, tt.want)
		}
	}
}

func TestRulingNamesTheBrokenWindow(t *testing.T) {
	f := &fleet{plan: plan{Limit: 100, Burst: 10}, begin: time.Second, phases: []phase{{}}}
	for i := range 100 {
		f.log = append(f.log, arrival{Replica: 1, Sent: 3*time.Second + time.Duration(i)*ms})
	}
	s, out := testScreen()
	allowed, checks := f.ruling()
	s.summary(&fleet{all: []*process{{state: Report{Failed: 1, Stall: time.Second}}}, phases: []phase{{}}})
	s.verdict(allowed, checks, "good", "bad")
	for _, want := range []string{"1 requests got no answer", "stood still for 1s",
		"100 w + 10 (the burst).", "begins 10ms early", "BROKEN  the fleet",
		"1.990 –   2.099 s:  100 sent, 20.9 allowed", "bad"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the ruling lacks %q:\n%s", want, out)
		}
	}
}

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 999: "999ns", 12_345: "12.3µs", 999_500: "1ms", 59_340 * time.Microsecond: "59.3ms", 75 * time.Second: "1m15s",
	} {
		if got := short(d); got != want {
			t.Errorf("%d ns: %s, want %s", d, got, want)
		}
	}
}
