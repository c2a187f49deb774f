package failures

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var update = flag.Bool("update", false, "write results.md")

const (
	resultsFile = "results.md"
	pageFile    = "../../docs/what-can-go-wrong.md"
)

// An outcome is what a failure costs.
type outcome struct {
	over, most float64       // above the limit: measured, and what the promise allows
	unit       string        // of both, if it is not requests
	promise    string        // the number of the bound, or what follows where there is none
	lost       float64       // the part of the limit that was not used …
	during     time.Duration // … in this time
}

func (o outcome) overText() string {
	return number(o.over, o.unit)
}

func (o outcome) mostText() string { return number(o.most, o.unit) + " (" + o.promise + ")" }

// number is a rounded figure with its thousands apart, and what it counts.
func number(x float64, unit string) string {
	text := fmt.Sprintf("%.0f", x)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return strings.TrimSpace(text + " " + unit)
}

func (o outcome) lostText() string {
	if o.lost < 0.0005 {
		return "none"
	}
	return fmt.Sprintf("%.1f %% of %.0f s", 100*o.lost, o.during.Seconds())
}

// TestFailures measures every row, holds it to its promise, and the committed pages to what is measured.
func TestFailures(t *testing.T) {
	var out bytes.Buffer
	out.WriteString(preamble)
	page, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range failures {
		var o outcome
		t.Run(f.id, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { o = f.measure(t) })
			if o.over > o.most {
				t.Errorf("%s: %.1f above the limit, %.1f allowed (%s)", f.what, o.over, o.most, o.promise)
			}
			onPage(t, page, f.id, o)
		})
		fmt.Fprintf(&out, "| %s | %s | %s | %s | %s |\n", f.id, f.what, o.overText(), o.mostText(),
			o.lostText())
	}
	compare(t, out.Bytes())
}

// onPage holds the row of the page to what was measured.
func onPage(t *testing.T, page []byte, id string, o outcome) {
	t.Helper()
	row := regexp.MustCompile(`(?m)^\| ` + id + ` \|.*$`).Find(page)
	want := fmt.Sprintf("| %s | %s | %s |", o.overText(), o.mostText(), o.lostText())
	if !strings.Contains(string(row), want) {
		t.Errorf("%s has no row %s with %q but %q", pageFile, id, want, row)
	}
}

// compare holds results.md to what was measured, or writes it.
func compare(t *testing.T, measured []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(resultsFile, measured, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	committed, err := os.ReadFile(resultsFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(committed, measured) {
		t.Errorf("%s is not what is measured; go test ./bench/failures -update writes it:\n%s",
			resultsFile, measured)
	}
}

// TestJudgeSeesOverAdmission is the proof that a row can fail: five replicas that believe in four are seen.
func TestJudgeSeesOverAdmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 5, replicas(4))
		sent := f.run(10*time.Second, f.members...)
		if over := f.over(5); over < 2500 || over > 2530 {
			t.Errorf("%.1f above the limit, want 2,500 and a part of the burst", over)
		}
		if lost(sent, 10*time.Second) > -.25 {
			t.Errorf("%d requests of 10,000, want a quarter more", sent)
		}
	})
}

const preamble = `# What failures cost

<!-- Written by go test ./bench/failures -update. The test fails when this is not what it measures. -->

Real limiters in fake time: the same figures in every run. Unless a row differs, four replicas share 1000/s
with a burst of 100, and each always wants more than it gets. *Above the limit* is what the worst window admitted
beyond rate x window and the larger of burst and replicas. *Promised* is the most that the bound of this number
in docs/bounds.md allows, or what follows where there is none. *Lost* is the unused part of the limit.

| | failure | above the limit | promised (bound) | lost |
| --- | --- | --- | --- | --- |
`
