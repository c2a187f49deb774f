package metrics_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/needed"
	"github.com/quotient-go/quotient/lease"
	"github.com/quotient-go/quotient/metrics"
)

const (
	rulesFile     = "../deploy/prometheus/rules.yaml"
	rulesTests    = "../deploy/prometheus/rules_test.yaml"
	dashboardFile = "../deploy/grafana/quotient.json"
	metricsPage   = "../docs/metrics.md"
)

// text is a file as text.
func text(name string) string { return string(must(os.ReadFile(name))) }

// query is an expression of the dashboard as Grafana sends it, and what its legend shows.
type query struct{ where, expr, legend string }

func queries(t *testing.T) (all []query) {
	t.Helper()
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	if err := json.Unmarshal([]byte(text(dashboardFile)), &board); err != nil {
		t.Fatal(err)
	}
	variables := strings.NewReplacer("$job", ".*", "$limiter", ".*", "$__rate_interval", "1m")
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			all = append(all, query{p.Title, variables.Replace(target.Expr), target.LegendFormat})
		}
	}
	return all
}

// questions are the queries of docs/metrics.md, by what they answer.
func questions(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	row := regexp.MustCompile("(?m)^\\| ([^|]+\\?) \\| `([^`|]+)` \\|$")
	for _, m := range row.FindAllStringSubmatch(text(metricsPage), -1) {
		all[m[1]] = m[2]
	}
	if len(all) != 10 {
		t.Fatalf("%s answers %d questions, want ten", metricsPage, len(all))
	}
	return all
}

// alerts are the parts of the file of rules, by the names of their alerts.
func alerts() map[string]string {
	all := map[string]string{}
	for _, part := range strings.Split(text(rulesFile), "- alert: ")[1:] {
		name, rule, _ := strings.Cut(part, "\n")
		all[name] = rule
	}
	return all
}

// sample matches a line of a scrape.
var sample = regexp.MustCompile(`^(\w+)(?:\{(.*)\})? (\S+)$`)

// history is the value of each series, which stays the same for an hour.
type history map[string]string

// scrape adds a scrape of one replica.
func (h history) scrape(t *testing.T, instance string, cs ...prometheus.Collector) {
	t.Helper()
	for _, line := range scrape(t, cs...) {
		m := sample.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("no sample: %s", line)
		}
		h[fmt.Sprintf(`%s{instance=%q,job="quotient",%s}`, m[1], instance, m[2])] = m[3] + "x240"
	}
}

var (
	selector = regexp.MustCompile(`\b((?:quotient|throttle)_\w+)(?:\{([^}]*)\})?`)
	matcher  = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)\s*"`)
	grouping = regexp.MustCompile(`\b(?:by|on) \(([^)]*)\)`)
)

// unknown are the names and labels of an expression that no scrape has. known are the labels of each metric.
func unknown(expr string, known map[string][]string) (wrong []string) {
	of := []string{"namespace"}
	for _, m := range selector.FindAllStringSubmatch(expr, -1) {
		if known[m[1]] == nil {
			wrong = append(wrong, m[1])
		}
		of = append(of, known[m[1]]...)
		for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(known[m[1]], l[1]) {
				wrong = append(wrong, m[0])
			}
		}
	}
	for _, m := range grouping.FindAllStringSubmatch(expr, -1) {
		for l := range strings.SplitSeq(m[1], ", ") {
			if !slices.Contains(of, l) {
				wrong = append(wrong, m[0])
			}
		}
	}
	return wrong
}

// TestQueriesNameWhatExists: each name and label in the dashboard, the rules and docs/metrics.md is that of a live
// scrape, and the dashboard shows every metric.
func TestQueriesNameWhatExists(t *testing.T) {
	h, known, shown := history{}, map[string][]string{}, ""
	h.scrape(t, "a", everything(t)...)
	for series := range h {
		name, labels, _ := strings.Cut(series, "{")
		for _, m := range matcher.FindAllStringSubmatch(labels, -1) {
			known[name] = append(known[name], m[1])
		}
	}
	exprs := alerts()
	maps.Copy(exprs, questions(t))
	for _, q := range queries(t) {
		exprs[q.where+": "+q.expr] = q.expr
		shown += q.expr + "\n"
	}
	if len(exprs) < 60 {
		t.Fatalf("%d expressions", len(exprs))
	}
	for name, expr := range exprs {
		if wrong := unknown(expr, known); len(wrong) > 0 {
			t.Errorf("%s: no scrape has %q", name, wrong)
		}
	}
	for name := range known {
		if !regexp.MustCompile(name + `\b`).MatchString(shown) {
			t.Errorf("no panel shows %s", name)
		}
	}
}

// promtool runs promtool in the folder of the rules.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	exe, err := exec.LookPath("promtool")
	if err != nil {
		needed.Without(t, "promtool",
			"promtool is not installed: the alert rules are not tested (apt-get install prometheus)")
	}
	cmd := exec.CommandContext(t.Context(), exe, args...)
	cmd.Dir = filepath.Dir(rulesFile)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %q: %v\n%s", args, err, out)
	}
}

// answers are samples by labels.
type answers map[string]float64

// answer has promtool evaluate expressions after an hour: want is what each gives.
func (h history) answer(t *testing.T, want map[string]answers) {
	t.Helper()
	type object = map[string]any
	var series, exprs []object
	for name, values := range h {
		series = append(series, object{"series": name, "values": values})
	}
	for expr, samples := range want {
		expected := []object{}
		for labels, v := range samples {
			expected = append(expected, object{"labels": labels, "value": v})
		}
		exprs = append(exprs, object{"expr": expr, "eval_time": "1h", "exp_samples": expected})
	}
	tests := must(json.Marshal(object{
		"rule_files": []string{must(filepath.Abs(rulesFile))}, "evaluation_interval": "15s",
		"tests": []object{{"interval": "15s", "input_series": series, "promql_expr_test": exprs}},
	}))
	file := filepath.Join(t.TempDir(), "test.yaml")
	if err := os.WriteFile(file, tests, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "test", "rules", file)
}

// TestQueriesAnswer evaluates each query of the dashboard and of docs/metrics.md on a live scrape: it has an answer, a
// panel's with the labels of its legend, and one for each plan where it is about limits.
func TestQueriesAnswer(t *testing.T) {
	h := history{}
	h.scrape(t, "a", everything(t)...)
	global, share := `max(quotient_limit_events_per_second{scope="global"})`,
		`max(quotient_limit_events_per_second{scope="share"})`
	want := map[string]answers{
		"sum(quotient_requests_total)": {"{}": 1}, "sum(quotient_limiters)": {"{}": 1},
		share + "/" + global: {"{}": .5},
	}
	for _, expr := range questions(t) {
		want["count("+expr+") > bool 0"] = answers{"{}": 1}
	}
	for _, q := range queries(t) {
		want["count("+q.expr+") > bool 0"] = answers{"{}": 1}
		for _, m := range regexp.MustCompile(`{{(\w+)}}`).FindAllStringSubmatch(q.legend, -1) {
			want[fmt.Sprintf(`count(label_replace(%s, "has", "1", %q, ".+") and on (has) `+
				`label_replace(vector(1), "has", "1", "", "")) > bool 0`, q.expr, m[1])] = answers{"{}": 1}
		}
		if strings.Contains(q.expr, "quotient_limit_") || strings.Contains(q.expr, "quotient_denies{") {
			want["count(count by (plan) ("+q.expr+"))"] = answers{"{}": 2}
		}
	}
	h.answer(t, want)
}

// TestAlertsOfALiveFleet: three replicas raise no alert if all believe in three, and one if they believe in two
// or four.
func TestAlertsOfALiveFleet(t *testing.T) {
	for believed, alerts := range map[int]answers{
		2: {`{alertname="QuotientReplicasUncounted"}`: 1}, 3: {}, 4: {`{alertname="QuotientReplicasOvercounted"}`: 1},
	} {
		h := history{}
		for i := range 3 {
			l := must(quotient.New(perSecond("x", 1e6), quotient.Replicas(believed)))
			l.Allow("key")
			leads := leasesOf(lease.Stats{Leads: i == 0})
			h.scrape(t, fmt.Sprint(i), must(metrics.Of("api", l)), fileOf(configState{}), leads)
		}
		h.answer(t, map[string]answers{`count by (alertname) (ALERTS{alertstate="firing"})`: alerts})
	}
}

// TestRules runs the tests of the rules: each alert fires in its case, and none in a calm fleet.
func TestRules(t *testing.T) {
	promtool(t, "check", "rules", filepath.Base(rulesFile))
	promtool(t, "test", "rules", filepath.Base(rulesTests))
}

// firing matches a case of rules_test.yaml that expects one alert to fire.
const firing = `(?m)alertstate="firing".*\n +eval_time: \w+\n +exp_samples:\n` +
	` +- \{labels: '\{alertname="(\w+)"\}', value: 1\}$`

// TestAlertsAreComplete checks that each alert has a section of docs/alerts.md, to which it links, and a case in
// rules_test.yaml, and that no section or case lacks its alert.
func TestAlertsAreComplete(t *testing.T) {
	var names []string
	for name, rule := range alerts() {
		names = append(names, name)
		if link := "runbook_url: docs/alerts.md#" + strings.ToLower(name) + "\n"; !strings.Contains(rule, link) {
			t.Errorf("%s: no %s", name, link)
		}
	}
	slices.Sort(names)
	for file, pattern := range map[string]string{"../docs/alerts.md": `(?m)^### (\w+)$`, rulesTests: firing} {
		var found []string
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text(file), -1) {
			found = append(found, m[1])
		}
		slices.Sort(found)
		if found = slices.Compact(found); !slices.Equal(found, names) {
			t.Errorf("the alerts are\n%q, %s has\n%q", names, file, found)
		}
	}
}

// TestPage holds README.md and the names in docs/metrics.md to a scrape in both directions, and the names to the
// conventions of Prometheus, but for those that are not ours to choose.
func TestPage(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(everything(t)...)
	for _, p := range must(testutil.GatherAndLint(reg)) {
		if !strings.HasPrefix(p.Metric, "throttle_") {
			t.Errorf("%+v", p)
		}
	}
	live := map[string]string{}
	for _, f := range must(reg.Gather()) {
		var labels []string
		for _, p := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, p.GetName())
		}
		slices.Sort(labels)
		live[f.GetName()] = fmt.Sprintf("%s {%s} %s", strings.ToLower(f.GetType().String()),
			strings.Join(labels, ","), f.GetHelp())
	}
	page := map[string]string{}
	row := regexp.MustCompile("(?m)^\\| `((?:quotient|throttle)_[a-z0-9_]+)` \\| (\\w+) \\| " +
		"([a-z_, ]+) \\| [^|]+ \\| ([^|]+) \\|$")
	for _, m := range row.FindAllStringSubmatch(text("README.md"), -1) {
		labels := strings.Split(strings.TrimPrefix(m[3], "none"), ", ")
		slices.Sort(labels)
		page[m[1]] = fmt.Sprintf("%s {%s} %s", m[2], strings.Join(labels, ","), m[4])
	}
	for name, s := range live {
		if page[name] != s {
			t.Errorf("%s\nis   %s\npage %s", name, s, page[name])
		}
	}
	for name := range page {
		if live[name] == "" {
			t.Errorf("the page lists %s, which no scrape has", name)
		}
	}
	if all, named := slices.Sorted(maps.Keys(live)), named(); !slices.Equal(named, all) {
		t.Errorf("a scrape has\n%q, %s names\n%q", all, metricsPage, named)
	}
}

// named are the metrics that docs/metrics.md names in its table.
func named() (all []string) {
	_, table, _ := strings.Cut(text(metricsPage), "\n## Names\n")
	table, _, _ = strings.Cut(table, "\n## ")
	for _, m := range regexp.MustCompile("`((?:quotient|throttle)_\\w+)`").FindAllStringSubmatch(table, -1) {
		all = append(all, m[1])
	}
	slices.Sort(all)
	return all
}
