package dashboard

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

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

// promQL is an expression as Grafana sends it.
func promQL(expr string) string {
	return strings.NewReplacer("$job", ".*", "$limiter", ".*", "$__rate_interval", "1m").Replace(expr)
}

var promParser = parser.NewParser(parser.Options{})

// unknown returns the names and labels of an expression that no scrape has.
func unknown(expr parser.Expr, live *scrapes) (wrong []string) {
	known := live.names()
	labels := map[string]bool{"le": true, "instance": true, "job": true, "namespace": true}
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

func TestQueriesNameWhatExists(t *testing.T) {
	live := liveScrapes(t)
	board, rules := readBoard(t).queries(), ruleQueries(t)
	if len(board) < 40 || len(rules) < 20 {
		t.Fatalf("%d queries of the dashboard and %d of the rules", len(board), len(rules))
	}
	for _, q := range append(board, rules...) {
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

// TestUnknownFindsWhatIsWrong checks that the test above can fail.
func TestUnknownFindsWhatIsWrong(t *testing.T) {
	live := liveScrapes(t)
	for _, expr := range []string{
		"quotient_nothing", `quotient_keys{key="a"}`, "sum by (path) (quotient_keys)",
		`rate(quotient_requests_total{limiters="a"}[1m])`,
	} {
		e, err := promParser.ParseExpr(expr)
		if err != nil || len(unknown(e, live)) == 0 {
			t.Errorf("%s: nothing wrong, %v", expr, err)
		}
	}
}

// TestQueriesAnswer evaluates every query on real samples. Each query of the dashboard has an answer, with
// the labels of its legend.
func TestQueriesAnswer(t *testing.T) {
	live := liveScrapes(t)
	for _, q := range readBoard(t).queries() {
		answer := live.eval(t, promQL(q.expr))
		if len(answer) == 0 {
			t.Errorf("%s: %s: no answer", q.where, q.expr)
		}
		for _, m := range regexp.MustCompile(`{{(\w+)}}`).FindAllStringSubmatch(q.legend, -1) {
			if !slices.ContainsFunc(answer, func(s sample) bool { return s.Metric.Get(m[1]) != "" }) {
				t.Errorf("%s: %s: no answer has the label %s of the legend", q.where, q.expr, m[1])
			}
		}
	}
	for _, q := range ruleQueries(t) {
		live.eval(t, q.expr) // most alerts are silent
	}
}

// TestDashboardShowsEveryMetric holds the other direction, and that the file is one that a stranger can
// import.
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
		if p.Type != "row" &&
			(p.Description == "" || p.Datasource.UID != "${datasource}" || len(p.Targets) == 0) {
			t.Errorf("%s: description %q, source %q, %d queries", p.Title, p.Description, p.Datasource.UID,
				len(p.Targets))
		}
		for _, target := range p.Targets {
			if target.Datasource.UID != "${datasource}" {
				t.Errorf("%s: a query of the source %q", p.Title, target.Datasource.UID)
			}
		}
		for _, o := range b.Panels[:i] {
			if g, h := p.GridPos, o.GridPos; g.X < h.X+h.W && h.X < g.X+g.W && g.Y < h.Y+h.H &&
				h.Y < g.Y+g.H {
				t.Errorf("%s and %s overlap", p.Title, o.Title)
			}
		}
	}
}

// TestAnswersAreRight checks a few figures against the history of the samples.
func TestAnswersAreRight(t *testing.T) {
	live := liveScrapes(t)
	for expr, want := range map[string]float64{
		`sum(quotient_requests_total{limiter="api"})`: 4 * rounds,
		`max(quotient_limit_events_per_second{limiter="api", scope="share"}) / max(quotient_limit_events_per_second{limiter="api", scope="global"})`: 0.25,
		`count(quotient_build_info)`:       1,
		`sum(quotient_limiters)`:           2,
		`quotient_in_flight{limiter="up"}`: 1,
		`sum(quotient_limit_events_per_second{limiter="api", plan="paid", scope="share"}) / sum(quotient_limit_events_per_second{limiter="api", plan="paid", scope="global"})`: 0.25,
	} {
		if got := live.eval(t, expr); len(got) != 1 || got[0].F < want*0.99 || got[0].F > want*1.01 {
			t.Errorf("%s is %v, want %v", expr, got, want)
		}
	}
}

// TestDashboardKeepsPlansApart: what the dashboard shows of a limit is that of each plan.
func TestDashboardKeepsPlansApart(t *testing.T) {
	live, found := liveScrapes(t), 0
	for _, q := range readBoard(t).queries() {
		if !strings.Contains(q.expr, "quotient_limit_") && !strings.Contains(q.expr, "quotient_denies{") {
			continue
		}
		found++
		var of []string
		for _, s := range live.eval(t, promQL(q.expr)) {
			if s.Metric.Get("limiter") == "api" {
				of = append(of, s.Metric.Get("plan"))
			}
		}
		if slices.Sort(of); !slices.Equal(slices.Compact(of), []string{"", "paid"}) ||
			!strings.Contains(q.legend, "{{plan}}") {
			t.Errorf("%s: %s: of the plans %q, with the legend %s", q.where, q.expr, of, q.legend)
		}
	}
	if found != 5 {
		t.Errorf("%d queries, want 5", found)
	}
}

// step is the time between two scrapes.
const step = 15 * time.Second
