package rig

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestProgram holds what the exit status says, and what is printed.
func TestProgram(t *testing.T) {
	part := func(name string, err error, vs ...Verdict) Part {
		s := Section{Title: name, Table: Table{Header: []string{"a", "bc"}}, Verdicts: vs}
		s.Add("row", Quantile([]int{3, 1, 2}, .5))
		return Part{name, func(context.Context) (Section, error) { return s, err }}
	}
	parts := []Part{
		part("good", nil, AtMost("x", 1, 2, " s"), AtLeast("y", 2, 2, ""), Exactly("z", 3, 3)),
		part("late", nil, AtMost("not measured", 0, 2, "")),
		part("aimless", nil),
		part("broken", errors.New("no luck")),
	}
	for _, c := range []struct {
		args, want string
		status     int
	}{
		{"-only good", "| a   | bc  |\n| --- | --- |\n| row | 2   |\n\n| goal | bound       | seen", 0},
		{"-only good,late", "**MISSED**", 1},
		{"-only aimless", "1 goals missed", 1},
		{"", "broken: no luck", 2},
		{"-only good,speed", `no part is called "speed"`, 2},
		{"more", `unexpected argument "more"`, 2},
		{"-n 4", "it is not between 1 and 3", 2}, {"-wait 1h", "it is not between 1s and 1m0s", 2},
		{"-n 2 -wait 3s -only good", "## good", 0},
		{"-h", "1 to 3", 0},
	} {
		n, wait := 1, time.Second
		flags := flag.NewFlagSet("test", flag.ContinueOnError)
		Ranged(flags, &n, "n", 1, 3, "some number")
		Ranged(flags, &wait, "wait", time.Second, time.Minute, "some time")
		var out bytes.Buffer
		p := Program{Title: "Test", Parts: parts}
		status := p.Main(flags, strings.Fields(c.args), &out, &out)
		if status != c.status || !strings.Contains(out.String(), c.want) {
			t.Errorf("%q: status %d\n%s", c.args, status, out.String())
		}
	}
}
