package dashboard

import (
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/needed"
	"github.com/quotient-go/quotient/lease"
	"github.com/quotient-go/quotient/metrics"
)

// rulesDir has the alert rules and their tests.
const rulesDir = "../../deploy/prometheus"

// alertRules returns the rules of deploy/prometheus/rules.yaml.
func alertRules(t *testing.T) (all []rulefmt.Rule) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	groups, errs := rulefmt.ParseFile(filepath.Join(rulesDir, "rules.yaml"), false, model.UTF8Validation,
		promParser, log)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for _, g := range groups.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// ruleQueries returns the expressions of the rules.
func ruleQueries(t *testing.T) (qs []query) {
	t.Helper()
	for _, r := range alertRules(t) {
		qs = append(qs, query{r.Alert, r.Expr, ""})
	}
	return qs
}

// read returns the text of a file.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestAlertsAreComplete checks that each alert has a severity, a summary, a description, a section of
// docs/alerts.md and a case in rules_test.yaml. It checks that no section or case lacks its alert.
func TestAlertsAreComplete(t *testing.T) {
	var names, sections, cases []string
	for _, r := range alertRules(t) {
		names = append(names, r.Alert)
		if s := r.Labels["severity"]; !slices.Contains([]string{"critical", "warning", "info"}, s) {
			t.Errorf("%s: the severity is %q", r.Alert, s)
		}
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s: the annotations are %q", r.Alert, r.Annotations)
		}
		if want := "docs/alerts.md#" + strings.ToLower(r.Alert); r.Annotations["runbook_url"] != want {
			t.Errorf("%s: the runbook is %q, want %q", r.Alert, r.Annotations["runbook_url"], want)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^### (\w+)$`).
		FindAllStringSubmatch(read(t, "../../docs/alerts.md"), -1) {
		sections = append(sections, m[1])
	}
	tests := read(t, filepath.Join(rulesDir, "rules_test.yaml"))
	for _, m := range regexp.MustCompile(firing).FindAllStringSubmatch(tests, -1) {
		cases = append(cases, m[1])
	}
	slices.Sort(names)
	slices.Sort(sections)
	slices.Sort(cases)
	if !slices.Equal(slices.Compact(slices.Clone(names)), names) || !slices.Equal(sections, names) {
		t.Errorf("the alerts are\n%q, the page has\n%q", names, sections)
	}
	if cases = slices.Compact(cases); !slices.Equal(cases, names) {
		t.Errorf("the alerts are\n%q, cases fire\n%q", names, cases)
	}
}

// firing matches a case of rules_test.yaml that expects one alert to fire.
const firing = `(?m)alertstate="firing".*\n +eval_time: \w+\n +exp_samples:\n +- \{labels: '\{alertname="(\w+)"\}', value: 1\}$`

// promtool runs promtool and returns what it prints.
func promtool(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	exe, err := exec.LookPath("promtool")
	if err != nil {
		needed.Without(t, "promtool",
			"promtool is not installed: the alert rules are not tested (apt-get install prometheus)")
	}
	cmd := exec.CommandContext(t.Context(), exe, args...)
	cmd.Dir, cmd.Stdin = rulesDir, strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestRules runs the tests of the rules: each alert fires in its case, and none in a calm fleet.
func TestRules(t *testing.T) {
	for _, args := range [][]string{{"check", "rules", "rules.yaml"}, {"test", "rules", "rules_test.yaml"}} {
		if out, err := promtool(t, "", args...); err != nil {
			t.Errorf("promtool %q: %v\n%s", args, err, out)
		}
	}
}

// TestPromtoolFindsNothingInAScrape checks that names, types and help texts follow the conventions of
// Prometheus. The metrics named throttle_ have the names of another service.
func TestPromtoolFindsNothingInAScrape(t *testing.T) {
	prom, work := live(t)
	work()
	out, _ := promtool(t, scraped(t, prom), "check", "metrics")
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "throttle_") {
			t.Errorf("promtool: %s", line)
		}
	}
	if out, err := promtool(t, "# HELP a_seconds_total x\n# TYPE a_seconds_total gauge\na_seconds_total 1\n",
		"check", "metrics"); err == nil {
		t.Errorf("promtool accepts a gauge named as a counter: %s", out)
	}
}

// members are the collectors of three replicas, each of which believes in so many. One of them leads leases.
func members(t *testing.T, believed int) (all []prometheus.Gatherer) {
	t.Helper()
	start := time.Now()
	table, err := lease.NewTable(lease.Config{Semaphores: map[string]lease.Semaphore{"A": {Max: 1}}},
		lease.ClockTokens(start), start)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		var limiters quotient.Registry
		c := metrics.New(&limiters)
		limit := quotient.Limit{InFlight: 8, Rates: []quotient.Rate{quotient.PerSecond(1e6)}}
		l, err := limiters.Limiter("api", limit, c.Observe())
		if err != nil {
			t.Fatal(err)
		}
		if err := l.SetPool(quotient.Pool{Replicas: believed}, 0); err != nil {
			t.Fatal(err)
		}
		l.Allow("key")
		leases := metrics.NewLeases(func() lease.Stats {
			return lease.Stats{Leads: i == 0, Semaphores: table.Stats(start)}
		})
		reg := prometheus.NewRegistry()
		reg.MustRegister(c, metrics.File(func() (s metrics.FileState) { return s }), leases)
		all = append(all, reg)
	}
	return all
}

// scraped is the text of one scrape.
func scraped(t *testing.T, g prometheus.Gatherer) string {
	t.Helper()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(g, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// TestAlertsOfALiveFleet evaluates every alert on scrapes of three replicas. None has an answer if all
// believe in three, and one if they believe in two or four.
func TestAlertsOfALiveFleet(t *testing.T) {
	for believed, want := range map[int]string{
		2: "[QuotientReplicasUncounted]", 3: "[]", 4: "[QuotientReplicasOvercounted]",
	} {
		s := &scrapes{map[string]*series{}, time.Now().Truncate(time.Second)}
		for i, g := range members(t, believed) {
			server := httptest.NewServer(promhttp.HandlerFor(g, promhttp.HandlerOpts{}))
			for n := range rounds {
				s.last = time.Now().Truncate(time.Second).Add(time.Duration(n) * step)
				s.scrape(t, server.URL, fmt.Sprint("replica-", i))
			}
			server.Close()
		}
		raised := []string{}
		for _, q := range ruleQueries(t) {
			if len(s.eval(t, q.expr)) > 0 {
				raised = append(raised, q.where)
			}
		}
		if got := fmt.Sprint(raised); got != want {
			t.Errorf("three replicas that believe in %d raise %s, want %s", believed, got, want)
		}
	}
}
