package main

import (
	"bytes"
	"strings"
	"testing"
)

// Families are reported by kin and as a whole, with the lowest cells if asked for, and what each rule is
// worth in them.
func TestFamiliesAreReported(t *testing.T) {
	for _, c := range []struct {
		args  string
		wants []string
	}{
		{"-families 6 -seeds 1 -contender quotient -worst 2",
			[]string{"| lies: retry: a minute ", "| hints, all ", "| drift, all ", "| outage",
				"probes <= 1", "| kin ", "6 of each family, with the seeds 1."}},
		{"-families 6 -seeds 1 -contender quotient -family hints",
			[]string{"| hints: wrong ", "Jain, last two minutes >= 0.95"}},
		{"-families 2 -seeds 1 -family lies -ablate",
			[]string{"| without ", "| nothing ", "| futile ", "+0.0000"}},
	} {
		var out, errs bytes.Buffer
		if code := run(strings.Fields(c.args), &out, &errs); code != 0 {
			t.Fatalf("%s: %d %s", c.args, code, errs.String())
		}
		for _, want := range c.wants {
			if !strings.Contains(strings.ReplaceAll(out.String(), "incidents: outage", "| outage"), want) {
				t.Errorf("%s: no %q in\n%s", c.args, want, out.String())
			}
		}
	}
	var out, errs bytes.Buffer
	if code := run([]string{"-families", "1", "-family", "nonsense"}, &out, &errs); code != 1 ||
		!strings.Contains(errs.String(), "nonsense") {
		t.Errorf("a family that is none: %d %q", code, errs.String())
	}
}
