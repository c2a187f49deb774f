package dashboard

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// query is one expression with where it stands and what its legend shows.
type query struct{ where, expr, legend string }

// board is what the test reads of a dashboard.
type board struct {
	Panels []struct {
		Title, Type, Description string
		GridPos                  struct{ H, W, X, Y int }
		Datasource               struct{ UID string }
		Targets                  []struct {
			Expr, LegendFormat string
			Datasource         struct{ UID string }
		}
	}
	Templating struct {
		List []struct {
			Name, Type, Definition string
		}
	}
}

func readBoard(t *testing.T) board {
	t.Helper()
	text, err := os.ReadFile("../../deploy/grafana/quotient.json")
	if err != nil {
		t.Fatal(err)
	}
	var b board
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b board) queries() (qs []query) {
	for _, p := range b.Panels {
		for _, target := range p.Targets {
			qs = append(qs, query{p.Title, target.Expr, target.LegendFormat})
		}
	}
	return qs
}

// pageQueries are the examples of docs/metrics.md: the last column of its big table, and the alerts.
func pageQueries(t *testing.T) (qs []query) {
	t.Helper()
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		m := regexp.MustCompile("^\\| `?([^|`]+)`? \\|.*`([^`]+)`(?: for .*)? \\|(?: [^|`]+ \\|)?$").FindStringSubmatch(strings.TrimSpace(line))
		if m != nil && (isMetric(m[1]) || !strings.Contains(line, "quotient.") && strings.Contains(m[2], "quotient_")) {
			qs = append(qs, query{m[1], m[2], ""})
		}
	}
	return qs
}

// isMetric reports whether a cell names a metric, and no alert.
func isMetric(cell string) bool {
	return strings.HasPrefix(cell, "quotient_") || strings.HasPrefix(cell, "throttle_")
}

// promQL is an expression as Grafana sends it.
func promQL(expr string) string {
	return strings.NewReplacer("$job", ".*", "$limiter", ".*", "$__rate_interval", "1m").Replace(expr)
}

var promParser = parser.NewParser(parser.Options{})

// unknown returns what an expression asks for that a scrape does not have.
func unknown(expr parser.Expr, live *scrapes) (wrong []string) {
	known := live.names()
	labels := map[string]bool{"le": true, "instance": true, "job": true}
	made := map[string]bool{}
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			if known[n.Name] == nil {
				wrong = append(wrong, n.Name)
			}
			for _, l := range known[n.Name] {
				labels[l] = true
			}
			for _, m := range n.LabelMatchers {
				if m.Name != "__name__" && !slices.Contains(known[n.Name], m.Name) {
					wrong = append(wrong, n.Name+"{"+m.Name+"}")
				}
			}
		case *parser.AggregateExpr:
			if s, ok := n.Param.(*parser.StringLiteral); ok {
				made[s.Val] = true
			}
		}
		return nil
	})
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if a, ok := n.(*parser.AggregateExpr); ok {
			for _, l := range a.Grouping {
				if !labels[l] && !made[l] {
					wrong = append(wrong, "by "+l)
				}
			}
		}
		return nil
	})
	return wrong
}

func TestQueriesAskForWhatThereIs(t *testing.T) {
	live := liveScrapes(t)
	board, page := readBoard(t).queries(), pageQueries(t)
	if len(board) < 40 || len(page) < 30 {
		t.Fatalf("%d queries of the dashboard and %d of the page", len(board), len(page))
	}
	for _, q := range append(board, page...) {
		expr, err := promParser.ParseExpr(promQL(q.expr))
		if err != nil {
			t.Errorf("%s: %s: %v", q.where, q.expr, err)
			continue
		}
		if wrong := unknown(expr, live); len(wrong) > 0 {
			t.Errorf("%s: %s: no scrape has %q", q.where, q.expr, wrong)
		}
	}
}

// TestUnknownFindsWhatIsWrong holds that the test above can fail.
func TestUnknownFindsWhatIsWrong(t *testing.T) {
	live := liveScrapes(t)
	for _, expr := range []string{
		"quotient_nothing", `quotient_keys{key="a"}`, "sum by (path) (quotient_keys)", `rate(quotient_requests_total{limiters="a"}[1m])`,
	} {
		e, err := promParser.ParseExpr(expr)
		if err != nil || len(unknown(e, live)) == 0 {
			t.Errorf("%s: nothing wrong, %v", expr, err)
		}
	}
}

// TestQueriesAnswer asks every query of real samples: each on the dashboard has an answer, with the labels that its legend shows.
func TestQueriesAnswer(t *testing.T) {
	live := liveScrapes(t)
	for _, q := range readBoard(t).queries() {
		answer := live.ask(t, promQL(q.expr))
		if len(answer) == 0 {
			t.Errorf("%s: %s: no answer", q.where, q.expr)
		}
		for _, m := range regexp.MustCompile(`{{(\w+)}}`).FindAllStringSubmatch(q.legend, -1) {
			if !slices.ContainsFunc(answer, func(s sample) bool { return s.Metric.Get(m[1]) != "" }) {
				t.Errorf("%s: %s: no answer has the label %s of the legend", q.where, q.expr, m[1])
			}
		}
	}
	for _, q := range pageQueries(t) {
		live.ask(t, q.expr) // some are alerts, and silent
	}
}

// TestDashboardShowsEveryMetric holds the other direction, and that the file is one that a stranger can import.
func TestDashboardShowsEveryMetric(t *testing.T) {
	b := readBoard(t)
	var text strings.Builder
	for _, q := range b.queries() {
		text.WriteString(q.expr + "\n")
	}
	for name := range liveScrapes(t).names() {
		if !regexp.MustCompile(name + `\b`).MatchString(text.String()) {
			t.Errorf("no panel shows %s", name)
		}
	}
	var variables []string
	for _, v := range b.Templating.List {
		variables = append(variables, v.Name+" "+v.Type)
	}
	if got := strings.Join(variables, ", "); got != "datasource datasource, job query, limiter query" {
		t.Errorf("variables %s", got)
	}
	for i, p := range b.Panels {
		if p.Type != "row" && (p.Description == "" || p.Datasource.UID != "${datasource}" || len(p.Targets) == 0) {
			t.Errorf("%s: description %q, source %q, %d queries", p.Title, p.Description, p.Datasource.UID, len(p.Targets))
		}
		for _, target := range p.Targets {
			if target.Datasource.UID != "${datasource}" {
				t.Errorf("%s: a query of the source %q", p.Title, target.Datasource.UID)
			}
		}
		for _, o := range b.Panels[:i] {
			if g, h := p.GridPos, o.GridPos; g.X < h.X+h.W && h.X < g.X+g.W && g.Y < h.Y+h.H && h.Y < g.Y+g.H {
				t.Errorf("%s and %s overlap", p.Title, o.Title)
			}
		}
	}
}

// TestAnswersAreRight checks a few figures against the history that the samples are of.
func TestAnswersAreRight(t *testing.T) {
	live := liveScrapes(t)
	for expr, want := range map[string]float64{
		`sum(quotient_requests_total{limiter="api"})`: 4 * rounds,
		`max(quotient_limit{limiter="api", kind="rate", scope="share"}) / max(quotient_limit{limiter="api", kind="rate", scope="global"})`: 0.25,
		`count(quotient_build_info)`:       1,
		`sum(quotient_limiters)`:           2,
		`quotient_in_flight{limiter="up"}`: 1,
		`sum(quotient_limit{limiter="api", plan="paid", kind="rate", scope="share"}) / sum(quotient_limit{limiter="api", plan="paid", kind="rate", scope="global"})`: 0.25,
	} {
		if got := live.ask(t, expr); len(got) != 1 || got[0].F < want*0.99 || got[0].F > want*1.01 {
			t.Errorf("%s is %v, want %v", expr, got, want)
		}
	}
}

// past is a history of some series: each goes from one value to another over the scrapes, in equal steps.
type past map[string][2]float64

// scrapes are the samples of a history. A series is a replica's, a metric's name and its labels but for the limiter, as in "1 quotient_keys source=set"; "1"
// is a replica of the job shop, and "search/1" one of another job.
func (p past) scrapes() *scrapes {
	s := &scrapes{map[string]*series{}, time.Now().Truncate(time.Second)}
	for text, values := range p {
		words := strings.Fields(text)
		job, instance, ok := strings.Cut(words[0], "/")
		if !ok {
			job, instance = "shop", job
		}
		kv := []string{"__name__", words[1], "job", job, "instance", job + instance, "limiter", "api"}
		for _, label := range words[2:] {
			name, value, _ := strings.Cut(label, "=")
			kv = append(kv, name, value)
		}
		one := &series{labels: labels.FromStrings(kv...)}
		for i := range rounds {
			at := s.last.Add(time.Duration(i-rounds+1) * step)
			one.points = append(one.points, point{at.UnixMilli(), values[0] + (values[1]-values[0])*float64(i)/(rounds-1)})
		}
		s.series[one.labels.String()] = one
	}
	return s
}

// overhead is a history in which asks took less than a time, and none more.
func overhead(most string) past {
	p := past{}
	for _, le := range []string{"0.001", "0.01", "0.1", "+Inf"} {
		p["1 quotient_overhead_seconds_bucket le="+le] = [2]float64{0, 0}
		if le >= most || le == "+Inf" {
			p["1 quotient_overhead_seconds_bucket le="+le] = [2]float64{0, 100}
		}
	}
	return p
}

// alerts has for each alert of the page a history that raises it and one that does not.
var alerts = map[string]struct{ raised, silent past }{
	"the share is of a pool that is gone": {
		past{"1 quotient_pool_age_seconds": {540, 600}, "1 quotient_replicas source=followed": {4, 4}},
		past{"1 quotient_pool_age_seconds": {1, 1}, "1 quotient_replicas source=followed": {200, 200}, // a large fleet
			"2 quotient_pool_age_seconds": {540, 600}, "2 quotient_replicas source=set": {4, 4}}, // by an operator's word
	},
	"replicas disagree on the pool": {
		past{"1 quotient_replicas source=followed": {3, 3}, "2 quotient_replicas source=set": {5, 5}},
		past{"1 quotient_replicas source=followed": {3, 3}, "2 quotient_replicas source=followed": {3, 3}, "search/1 quotient_replicas source=followed": {5, 5}},
	},
	"the limiter itself is slow": {overhead("0.1"), overhead("0.001")},
	"busy keys do not fit":       {past{"1 quotient_overflow_decisions_total": {7, 9}}, past{"1 quotient_overflow_decisions_total": {9, 9}}},
	"permits leak":               {past{"1 quotient_reclaimed_permits_total": {0, 1}}, past{"1 quotient_reclaimed_permits_total": {1, 1}}},
	"somebody forgot dry run":    {past{"1 quotient_dry_run": {1, 1}}, past{"1 quotient_dry_run": {0, 0}}},
	"the configuration file is broken": {
		past{"1 quotient_config_last_reload_successful": {0, 0}, "2 quotient_config_last_reload_successful": {1, 1}},
		past{"1 quotient_config_last_reload_successful": {1, 1}},
	},
	"no server grants leases": {
		past{"1 quotient_lease_leads": {0, 0}, "2 quotient_lease_leads": {0, 0}, "search/1 quotient_lease_leads": {1, 1}},
		past{"1 quotient_lease_leads": {0, 0}, "2 quotient_lease_leads": {1, 1}},
	},
	"leases were restored beyond the maximum": {past{"1 quotient_lease_beyond_total": {0, 1}}, past{"1 quotient_lease_beyond_total": {1, 1}}},
	"replicas have no news of each other": {
		past{"1 quotient_demand_fresh": {0, 0}, "2 quotient_demand_fresh": {1, 1}}, past{"1 quotient_demand_fresh": {1, 1}},
	},
	"a change by hand was left behind": {past{"1 quotient_config_differs": {1, 1}}, past{"1 quotient_config_differs": {0, 0}}},
}

// TestAlerts raises each alert of the page, and holds that it is silent when nothing is wrong.
func TestAlerts(t *testing.T) {
	found := 0
	for _, q := range pageQueries(t) {
		if isMetric(q.where) {
			continue
		}
		found++
		history, ok := alerts[q.where]
		if !ok {
			t.Errorf("%s: no history raises it", q.where)
			continue
		}
		if got := history.raised.scrapes().ask(t, q.expr); len(got) != 1 {
			t.Errorf("%s: %s: %v, want one alert", q.where, q.expr, got)
		}
		if got := history.silent.scrapes().ask(t, q.expr); len(got) != 0 {
			t.Errorf("%s: %s: %v, want none", q.where, q.expr, got)
		}
	}
	if found != len(alerts) {
		t.Errorf("%d alerts on the page, %d histories", found, len(alerts))
	}
}

// TestDenyBesidePlans asks the example for quotient_denies: Deny is no alarm as the limiter's own limit beside
// plans, and one in a plan or where there is no plan.
func TestDenyBesidePlans(t *testing.T) {
	for name, tt := range map[string]struct {
		past
		answers int
	}{
		"nothing denies": {past{"1 quotient_denies": {0, 0}}, 0},
		"no plan":        {past{"1 quotient_denies": {1, 1}}, 1},
		"beside plans": {past{"1 quotient_denies": {1, 1},
			"1 quotient_denies plan=free": {0, 0}, "1 quotient_denies plan=paid": {0, 0}}, 0},
		"in a plan": {past{"1 quotient_denies": {0, 0},
			"1 quotient_denies plan=free": {1, 1}, "1 quotient_denies plan=paid": {0, 0}}, 1},
		"in a plan and beside it": {past{"1 quotient_denies": {1, 1}, "1 quotient_denies plan=free": {1, 1}}, 1},
		"plans of another job": {past{"1 quotient_denies": {1, 1},
			"search/1 quotient_denies": {1, 1}, "search/1 quotient_denies plan=free": {0, 0}}, 1},
		"plans of one replica": {past{"1 quotient_denies": {1, 1},
			"2 quotient_denies": {1, 1}, "2 quotient_denies plan=free": {0, 0}}, 1},
	} {
		i := slices.IndexFunc(pageQueries(t), func(q query) bool { return q.where == "quotient_denies" })
		if got := tt.scrapes().ask(t, pageQueries(t)[i].expr); len(got) != tt.answers {
			t.Errorf("%s: %v, want %d answers", name, got, tt.answers)
		}
	}
}

// TestDashboardKeepsPlansApart: what the dashboard shows of a limit is that of each plan.
func TestDashboardKeepsPlansApart(t *testing.T) {
	live, asked := liveScrapes(t), 0
	for _, q := range readBoard(t).queries() {
		if !strings.Contains(q.expr, "quotient_limit{") && !strings.Contains(q.expr, "quotient_denies{") {
			continue
		}
		asked++
		var of []string
		for _, s := range live.ask(t, promQL(q.expr)) {
			if s.Metric.Get("limiter") == "api" {
				of = append(of, s.Metric.Get("plan"))
			}
		}
		if slices.Sort(of); !slices.Equal(slices.Compact(of), []string{"", "paid"}) || !strings.Contains(q.legend, "{{plan}}") {
			t.Errorf("%s: %s: of the plans %q, with the legend %s", q.where, q.expr, of, q.legend)
		}
	}
	if asked != 5 {
		t.Errorf("%d queries, want 5", asked)
	}
}

// TestExamplesKeepApart asks examples of the page of rules of one name, and of services whose limiters have one name.
func TestExamplesKeepApart(t *testing.T) {
	rules := past{}
	for _, scope := range []string{"global", "share"} {
		rules["1 quotient_limit rule=minute unit=requests kind=rate scope="+scope] = [2]float64{100, 100}
		rules["1 quotient_limit rule=minute unit=tokens kind=rate scope="+scope] = [2]float64{1000, 1000}
		rules["1 quotient_limit plan=free rule=minute unit=requests kind=rate scope="+scope] = [2]float64{60, 60}
		rules["1 quotient_limit plan=paid rule=minute unit=requests kind=rate scope="+scope] = [2]float64{6000, 6000}
		rules["search/1 quotient_limit rule=minute unit=requests kind=rate scope="+scope] = [2]float64{10, 10}
	}
	builds := past{"1 quotient_build_info version=a": {1, 1}, "search/1 quotient_build_info version=a": {1, 1}}
	two := past{"1 quotient_overrides": {3, 3}, "search/1 quotient_overrides": {5, 5}}
	for name, want := range map[string]struct {
		past
		answers int
	}{"quotient_limit": {rules, 0}, "quotient_build_info": {builds, 2}, "quotient_overrides": {two, 0}} {
		i := slices.IndexFunc(pageQueries(t), func(q query) bool { return q.where == name })
		if got := want.scrapes().ask(t, pageQueries(t)[i].expr); len(got) != want.answers {
			t.Errorf("%s: %v, want %d answers", name, got, want.answers)
		}
	}
}

// step is the time between two scrapes.
const step = 15 * time.Second
