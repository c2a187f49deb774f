package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/carried"
	"github.com/quotient-go/quotient/metrics"
	"github.com/quotient-go/quotient/policy"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// must is the value of a call that cannot fail here.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// perSecond is a limit of one rate of a name.
func perSecond(name string, events float64) quotient.Limit {
	return quotient.Rates(quotient.Rate{Name: name, Events: events, Per: time.Second})
}

// scrape returns the lines of a scrape over HTTP without the comments, and fails when a collector contradicts
// itself.
func scrape(t interface{ Fatalf(string, ...any) }, cs ...prometheus.Collector) []string {
	reg := prometheus.NewPedanticRegistry()
	for _, c := range cs {
		if err := reg.Register(c); err != nil {
			t.Fatalf("register: %v", err)
		}
	}
	w := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("scrape: %d %s", w.Code, w.Body)
	}
	lines := strings.Split(strings.TrimSpace(w.Body.String()), "\n")
	return slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, "#") })
}

// has reports whether a line of a scrape begins so.
func has(lines []string, front string) bool {
	return slices.ContainsFunc(lines, func(s string) bool { return strings.HasPrefix(s, front) })
}

// everything is the collectors of a limiter, a file and a lease service, in which all that can have a series has
// one.
func everything(t testing.TB) []prometheus.Collector {
	var reg quotient.Registry
	c := metrics.New(&reg)
	limit := perSecond("second", 10)
	limit.InFlight = 2
	l := must(reg.Limiter("api", limit, c.Observe("api"), quotient.Policy(policy.AIMD{}),
		quotient.Demand(10, time.Minute)))
	follow(t, l, &carried.Source{Replicas: 2, Every: time.Second, Others: [6]int64{1}})
	err := errors.Join(l.SetPool(quotient.Pool{Replicas: 2, Ordinal: 1}, 0), l.SetPlan("paid", &limit))
	if err != nil {
		t.Fatal(err)
	}
	l.Allow("key")
	return []prometheus.Collector{c, fileOf(configState{}), leasesOf(leases)}
}

// follow has a limiter follow a source until stop or the end of the test, and waits until something was
// carried.
func follow(t testing.TB, l *quotient.Limiter, src *carried.Source) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- l.Follow(ctx, src) }()
	stop = sync.OnceFunc(func() { cancel(); <-ended })
	t.Cleanup(stop)
	<-src.Turned()
	return stop
}

// TestDemand compares all of demand and fleet: while a replica borrows, when a report is missing, and when
// nothing is carried any more.
func TestDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(quotient.New(perSecond("second", 400), quotient.Replicas(4),
			quotient.Demand(10, time.Second)))
		expect := func(when, want string) {
			t.Helper()
			got := slices.DeleteFunc(scrape(t, must(metrics.Of("api", l))), func(s string) bool {
				return !strings.HasPrefix(s, "quotient_demand") && !strings.HasPrefix(s, "quotient_fleet")
			})
			if got := strings.Join(got, "\n"); got != strings.TrimSpace(want) {
				t.Errorf("%s, got\n%s\nwant\n%s", when, got, want)
			}
		}
		expect("before anything is carried", "")
		src := &carried.Source{Replicas: 4, Every: 100 * time.Millisecond, Age: 250 * time.Millisecond,
			Others: [6]int64{3, 1000, 7, 5, 9}}
		stop := follow(t, l, src)
		for range 2000 {
			l.Allow("k")
			time.Sleep(time.Millisecond)
		}
		time.Sleep(50 * time.Millisecond) // the age of the reports has grown by that
		fleet := l.Stats().Fleet
		if sum := fleet.Admitted + fleet.Refused; sum != 1000+7+2000 {
			t.Errorf("%d requests are counted over the fleet", sum)
		}
		expect("while it borrows", fmt.Sprintf(borrows, fleet.Admitted, fleet.Refused))
		onPage(t, "%d more with `quotient.Demand`", strings.Count(borrows, "limiter="))
		src.Silence()
		time.Sleep(100 * time.Millisecond)
		expect("without reports", silent)
		stop()
		expect("when nothing is carried any more", "")
	})
}

const borrows = `
quotient_demand_age_seconds{limiter="api"} 0.3
quotient_demand_bytes_total{direction="received",limiter="api"} 6000
quotient_demand_bytes_total{direction="sent",limiter="api"} 2000
quotient_demand_fresh{limiter="api"} 1
quotient_demand_keys{limiter="api"} 1
quotient_demand_lent_keys{limiter="api"} 1
quotient_demand_named_keys{limiter="api"} 1
quotient_fleet_admitted{limiter="api"} %d
quotient_fleet_in_flight{limiter="api"} 9
quotient_fleet_refused{limiter="api"} %d
quotient_fleet_replicas{limiter="api"} 4
quotient_fleet_waiting{limiter="api"} 5
`

const silent = `
quotient_demand_bytes_total{direction="received",limiter="api"} 6300
quotient_demand_bytes_total{direction="sent",limiter="api"} 2100
quotient_demand_fresh{limiter="api"} 0
quotient_demand_keys{limiter="api"} 1
quotient_demand_lent_keys{limiter="api"} 0
quotient_demand_named_keys{limiter="api"} 1
quotient_fleet_replicas{limiter="api"} 4
`

// TestPlans holds which series of a limit a scrape has: those of the limiter's own, and of each plan that it
// has.
func TestPlans(t *testing.T) {
	denied := quotient.Limit{Deny: true}
	free := perSecond("second", 10)
	paid := quotient.Limit{InFlight: 4,
		Rates: []quotient.Rate{{Name: "second", Events: 1000, Per: time.Second}}}
	ownRate := []string{"rate own second global 8", "rate own second share 4"}
	for _, tt := range []struct {
		name  string
		own   quotient.Limit
		plans map[string]quotient.Limit
		set   func(*quotient.Limiter) error // after all are set
		want  []string
	}{
		{"no plan", perSecond("second", 8), nil, nil, append([]string{"denies own 0"}, ownRate...)},
		{"Deny in place of a rate", perSecond("second", 8), map[string]quotient.Limit{"free": free},
			func(l *quotient.Limiter) error {
				return errors.Join(l.SetLimit(denied), l.SetPlan("free", &denied))
			},
			[]string{"denies own 1", "denies free 1"}},
		{"no plan, Deny", denied, nil, nil, []string{"denies own 1"}},
		{"Deny beside plans", denied, map[string]quotient.Limit{"free": free, "paid": paid}, nil, []string{
			"denies own 1", "denies free 0", "denies paid 0",
			"in_flight paid global 4", "in_flight paid share 2",
			"rate free second global 10", "rate free second share 5",
			"rate paid second global 1000", "rate paid second share 500",
		}},
		{"a plan that denies", perSecond("second", 8), map[string]quotient.Limit{"free": denied}, nil,
			append([]string{"denies own 0", "denies free 1"}, ownRate...)},
		{"a plan without a rule", perSecond("second", 8), map[string]quotient.Limit{"free": {}}, nil,
			append([]string{"denies own 0", "denies free 0"}, ownRate...)},
		{"a rule of another name", perSecond("second", 8), nil,
			func(l *quotient.Limiter) error { return l.SetLimit(perSecond("new", 8)) },
			[]string{"denies own 0", "rate own new global 8", "rate own new share 4"}},
		{"a plan that is taken off", perSecond("second", 8), map[string]quotient.Limit{"free": free},
			func(l *quotient.Limiter) error { return l.SetPlan("free", nil) },
			append([]string{"denies own 0"}, ownRate...)},
	} {
		l := must(quotient.New(tt.own, quotient.Replicas(2), quotient.Plans(tt.plans)))
		if tt.set != nil {
			if err := tt.set(l); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		for _, line := range scrape(t, must(metrics.Of("api", l))) {
			if strings.HasPrefix(line, "quotient_limit_") || strings.HasPrefix(line, "quotient_denies") {
				got = append(got, short.Replace(line))
			}
		}
		slices.Sort(got)
		slices.Sort(tt.want)
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s\ngot\n%s\nwant\n%s", tt.name, strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
		}
	}
}

// TestRequestsByPlan: what names a plan counts there, and all else under the limiter's own limit.
func TestRequestsByPlan(t *testing.T) {
	l := must(quotient.New(perSecond("second", 1), quotient.Plans(map[string]quotient.Limit{"free": {Deny: true}})))
	l.Allow("k")
	for range 3 {
		l.TryAcquire("k", quotient.Plan("free"))
	}
	lines := scrape(t, must(metrics.Of("api", l)))
	for _, want := range []string{
		`plan="",result="admitted"} 1`, `plan="",result="refused"} 0`,
		`plan="free",result="admitted"} 0`, `plan="free",result="refused"} 3`,
	} {
		if !has(lines, `quotient_plan_requests_total{limiter="api",`+want) {
			t.Errorf("no %s in\n%s", want, strings.Join(lines, "\n"))
		}
	}
}

var histogramLine = regexp.MustCompile(`^quotient_(wait|overhead)_seconds_`)

// short writes a line of a scrape on limits in few words.
var short = strings.NewReplacer(
	"quotient_limit_events_per_second", "rate", "quotient_limit_in_flight", "in_flight", "quotient_denies", "denies",
	`{limiter="api",plan=""`, " own", `{limiter="api",plan="`, " ", `",rule="`, " ", `,rule="`, " ",
	`",scope="`, " ", `,scope="`, " ", `",unit="requests"} `, " ", `"} `, " ", "} ", " ")

// about counts the lines of a scrape on a limiter.
func about(lines []string, name string) (n int) {
	for _, line := range lines {
		if strings.Contains(line, `limiter="`+name+`"`) {
			n++
		}
	}
	return n
}

// TestSeriesCount holds what the page says of how many series there are.
func TestSeriesCount(t *testing.T) {
	limit := quotient.Limit{InFlight: 8,
		Rates: []quotient.Rate{quotient.PerSecond(10), quotient.PerMinute(100)}}
	var reg quotient.Registry
	c := metrics.New(&reg)
	l := must(reg.Limiter("api", limit, c.Observe("api")))
	all := about(scrape(t, c), "api")
	counters := about(slices.DeleteFunc(scrape(t, c), histogramLine.MatchString), "api")
	set := l.SetPlan("paid", &limit)
	planned := about(scrape(t, c), "api")
	if err := errors.Join(set, l.SetPool(quotient.Pool{Replicas: 2}, 0)); err != nil {
		t.Fatal(err)
	}
	pooled := about(scrape(t, c), "api")
	onPage(t, "A limiter with two rates and slots has %d series, %d of them for its histograms", all, all-counters)
	onPage(t, "%d more for each plan with two rates and slots", planned-all)
	onPage(t, "It has %d more if its pool is set or followed", pooled-planned)
}

// onPage fails unless docs/metrics.md says so.
func onPage(t *testing.T, format string, values ...any) {
	t.Helper()
	page, want := strings.Join(strings.Fields(text("../docs/metrics.md")), " "), fmt.Sprintf(format, values...)
	if !strings.Contains(page, want) {
		t.Errorf("the page does not say: %s", want)
	}
}

func TestLimitersComeAndGo(t *testing.T) {
	var reg quotient.Registry
	c := metrics.New(&reg)
	expect := func(a, b int) {
		t.Helper()
		lines := scrape(t, c)
		if gotA, gotB := about(lines, "a"), about(lines, "b"); gotA != a || gotB != b {
			t.Fatalf("%d and %d series, want %d and %d", gotA, gotB, a, b)
		}
	}
	expect(0, 0)
	must(reg.Limiter("a", perSecond("x", 1), c.Observe("a"))).Allow("k")
	a := about(scrape(t, c), "a")
	must(reg.Limiter("b", perSecond("x", 1), c.Observe("b")))
	expect(a, a)
	reg.Remove("a")
	expect(0, a)
}

// TestTrafficAddsNoSeries compares the number of series before and after requests for many keys, with and
// without room for them.
func TestTrafficAddsNoSeries(t *testing.T) {
	var reg quotient.Registry
	c := metrics.New(&reg)
	l := must(reg.Limiter("api", perSecond("x", 1e-3), c.Observe("api"), quotient.MaxKeys(900),
		quotient.Policy(policy.AIMD{})))
	l.Allow("first") // the least rate over keys wants a key
	before := len(scrape(t, c))
	for i := range 20_000 {
		l.Allow(fmt.Sprintf("/secret/%d", i))
		_, _ = l.TryAcquire(fmt.Sprintf("/secret/%d", i%10))
	}
	lines := scrape(t, c)
	if len(lines) != before {
		t.Errorf("%d series, before there were %d", len(lines), before)
	}
	if s := strings.Join(lines, "\n"); strings.Contains(s, "secret") {
		t.Errorf("a key in the scrape: %s", s)
	}
	if slices.Contains(lines, `quotient_overflow_decisions_total{limiter="api"} 0`) {
		t.Error("the keys fitted: nothing was tested")
	}
}

// TestLearnedRate checks that the rates of keys are added up, and left out where that would be dear.
func TestLearnedRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(quotient.New(quotient.Limit{InFlight: 9, Rates: perSecond("x", 100).Rates},
			quotient.Policy(policy.AIMD{}), quotient.MaxKeys(5000)))
		c := must(metrics.Of("up", l))
		if has(scrape(t, c), `quotient_adaptive_requests_per_second{limiter="up",over_keys="min"`) {
			t.Error("the least of no keys")
		}
		want, least := 0.0, math.Inf(1)
		for _, key := range []string{"a", "b"} {
			p := must(l.Acquire(t.Context(), key))
			p.Done(policy.Feedback{Outcome: policy.Throttled})
		}
		for k := range l.Keys() {
			want, least = want+k.Rules[2].Pace, min(least, k.Rules[2].Pace) // but not that of the slots
		}
		for over, v := range map[string]float64{"sum": want, "min": least} {
			line := fmt.Sprintf(`quotient_adaptive_requests_per_second{limiter="up",over_keys=%q} %v`, over, v)
			if v == 0 || !slices.Contains(scrape(t, c), line) {
				t.Errorf("no %s", line)
			}
		}
		for i := range 1500 {
			l.Allow(fmt.Sprint(i))
		}
		if has(scrape(t, c), "quotient_adaptive_requests_per_second") {
			t.Error("a scrape has looked at more than 1,000 keys")
		}
	})
}

// TestScrapesWhileAllMoves is for the race detector.
func TestScrapesWhileAllMoves(t *testing.T) {
	var reg quotient.Registry
	c := metrics.New(&reg)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := range 100 {
				name := fmt.Sprintf("l%d", n%3)
				if l, err := reg.Limiter(name, perSecond("x", 1e6), c.Observe(name)); err == nil {
					_, _ = l.Acquire(context.Background(), fmt.Sprint(i))
				}
				reg.Remove(name)
			}
		})
	}
	for range 20 {
		scrape(t, c)
	}
	wg.Wait()
}

// TestMistakes checks that a mistake is reported at once, and not by the first scrape.
func TestMistakes(t *testing.T) {
	own := must(quotient.New(perSecond("x", 1)))
	for want, mistake := range map[string]func(){
		"metrics: New: the registry is nil":        func() { metrics.New(nil) },
		"metrics: File: state is nil":              func() { metrics.File(nil) },
		"metrics: NewLeases: stats is nil":         func() { metrics.NewLeases(nil) },
		`metrics: quotient: Registry: name`:        func() { must(metrics.Of("no spaces", own)) },
		`metrics: quotient: Registry.Add: limiter`: func() { must(metrics.Of("api", nil)) },
	} {
		func() {
			defer func() {
				if p := fmt.Sprint(recover()); !strings.HasPrefix(p, want) {
					t.Errorf("panic %v, want %s", p, want)
				}
			}()
			mistake()
		}()
	}
}

// TestAwkwardRuleNames are names that would cost the whole scrape: not UTF-8, equal once repaired, equal to
// that of the slots, endless.
func TestAwkwardRuleNames(t *testing.T) {
	for _, names := range [][]string{
		{"slots", "in-flight", "requests", "second", ""}, {"", "in-flight"}, {"\x00", "a\nb"},
		{"\xff", "\xfe", "\uFFFD", "\xff #2"}, {"in-flight"}, {"a\nb", `quote"`, "{}", " "},
		{strings.Repeat("x", 100), strings.Repeat("x", 101)}, {strings.Repeat("é", 33), "ok"},
	} {
		checkRules(t, names)
	}
}

func TestPropertyAnyRuleNamesScrape(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		short := rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]byte("a\xff\xc3\xa9 #2")), 1, 3),
			func(b []byte) string { return string(b) })
		names := rapid.SliceOfNDistinct(rapid.OneOf(short,
			rapid.Map(rapid.SliceOfN(rapid.Byte(), 1, 200), func(b []byte) string { return string(b) })), 1,
			16, rapid.ID).Draw(t, "names")
		checkRules(t, names)
	})
}

// checkRules fails unless each rule has its own two series, with short labels, whatever it is called.
func checkRules(t interface{ Fatalf(string, ...any) }, names []string) {
	limit := quotient.Limit{InFlight: 1}
	for i, name := range names {
		r := quotient.Rate{Name: name, Events: 1, Per: time.Second}
		if i >= 1 && i <= 3 { // a limiter counts three units besides requests
			r.Unit = name
		}
		limit.Rates = append(limit.Rates, r)
	}
	seen := map[string]bool{}
	for _, line := range scrape(t, must(metrics.Of("api", must(quotient.New(limit))))) {
		if strings.HasPrefix(line, "quotient_limit_") {
			seen[line] = true
		}
		if !utf8.ValidString(line) || len(line) > 1000 {
			t.Fatalf("a line of %d bytes: %q", len(line), line)
		}
	}
	if want := 2 * (len(names) + 1); len(seen) != want {
		t.Fatalf("%d series of %d rules, want %d", len(seen), len(names)+1, want)
	}
}
