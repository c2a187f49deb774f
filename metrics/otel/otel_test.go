package otel_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/carried"
	"github.com/quotient-go/quotient/metrics"
	"github.com/quotient-go/quotient/metrics/otel"
	"github.com/quotient-go/quotient/policy"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// must is the value of a call that cannot fail here.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// seen is an instrument after a collection.
type seen struct {
	kind, unit string
	text       string
	labels     []string
	values     []float64 // in order; of a histogram the count and the sum
}

func collect(t *testing.T, reader *sdk.ManualReader) map[string]seen {
	t.Helper()
	var rm metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &rm); err != nil {
		t.Fatal(err)
	}
	all := map[string]seen{}
	for _, scope := range rm.ScopeMetrics {
		for _, m := range scope.Metrics {
			s := see(t, m)
			slices.Sort(s.values)
			all[m.Name] = s
		}
	}
	return all
}

func see(t *testing.T, m metricdata.Metrics) seen {
	t.Helper()
	s := seen{unit: m.Unit, text: m.Description}
	points := func(ps []metricdata.DataPoint[float64]) {
		for _, p := range ps {
			s.values, s.labels = append(s.values, p.Value), keys(p.Attributes)
		}
	}
	switch d := m.Data.(type) {
	case metricdata.Gauge[float64]:
		s.kind = "gauge"
		points(d.DataPoints)
	case metricdata.Sum[float64]:
		if s.kind = "up-down counter"; d.IsMonotonic {
			s.kind = "counter"
		}
		points(d.DataPoints)
	case metricdata.Histogram[float64]:
		s.kind = "histogram"
		for _, p := range d.DataPoints {
			s.values, s.labels = append(s.values, float64(p.Count), p.Sum), keys(p.Attributes)
		}
	default:
		t.Fatalf("%s: %T", m.Name, d)
	}
	return s
}

func keys(set attribute.Set) (names []string) {
	for _, kv := range set.ToSlice() {
		names = append(names, string(kv.Key))
	}
	return names
}

// gather is the same of Prometheus: the values of each metric, in order.
func gather(t *testing.T, c prometheus.Collector) map[string][]float64 {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(c)
	all := map[string][]float64{}
	for _, f := range must(reg.Gather()) {
		for _, m := range f.GetMetric() {
			vs := []float64{m.GetCounter().GetValue() + m.GetGauge().GetValue()}
			if h := m.GetHistogram(); h != nil {
				vs = []float64{float64(h.GetSampleCount()), h.GetSampleSum()}
			}
			all[f.GetName()] = append(all[f.GetName()], vs...)
		}
		slices.Sort(all[f.GetName()])
	}
	return all
}

// TestPage holds the table of docs/metrics.md to a collection in both directions, and every value to that of
// Prometheus.
func TestPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reg quotient.Registry
		reader := sdk.NewManualReader()
		meter := sdk.NewMeterProvider(sdk.WithReader(reader)).Meter("test")
		must(otel.Register(meter, &reg))
		prom := metrics.New(&reg)
		history(t, &reg, prom.Observe(), must(otel.Observe(meter)))

		live, want := collect(t, reader), gather(t, prom)
		metricsHelp := helpOf(t, prom)
		got := map[string][]float64{}
		page := string(must(os.ReadFile("../../docs/metrics.md")))
		labels := labelsOf(page)
		row := regexp.MustCompile("(?m)^\\| `(quotient\\.[a-z_.]+)` \\| ([a-z -]+) \\| ([^|]+) \\| " +
			"`(quotient_[a-z_]+)` \\|$")
		for _, m := range row.FindAllStringSubmatch(page, -1) {
			s, ok := live[m[1]]
			if !ok {
				t.Errorf("the page lists %s, which no collection has", m[1])
			}
			if m[2] != s.kind || m[3] != s.unit || !slices.Equal(labels[m[4]], s.labels) {
				t.Errorf("%s is %s %q in %s, the page says %s %q in %s",
					m[1], s.kind, s.labels, s.unit, m[2], labels[m[4]], m[3])
			}
			got[m[4]] = append(got[m[4]], s.values...)
			if help := metricsHelp[m[4]]; s.text != help {
				t.Errorf("%s: %q, in Prometheus %q", m[1], s.text, help)
			}
			delete(live, m[1])
		}
		for name := range live {
			t.Errorf("the page does not list %s", name)
		}
		delete(want, "quotient_build_info")
		for name, vs := range want {
			slices.Sort(got[name])
			if !slices.Equal(got[name], vs) {
				t.Errorf("%s is %v, here %v", name, vs, got[name])
			}
		}
	})
}

// labelsOf returns the labels of each metric of Prometheus in the page, as sorted names of attributes.
func labelsOf(page string) map[string][]string {
	all := map[string][]string{}
	row := regexp.MustCompile("(?m)^\\| `(quotient_[a-z_]+)` \\| \\w+ \\| ([a-z_, ]+) \\|")
	for _, m := range row.FindAllStringSubmatch(page, -1) {
		var names []string
		for name := range strings.SplitSeq(m[2], ", ") {
			if name != "none" {
				names = append(names, "quotient."+name)
			}
		}
		slices.Sort(names)
		all[m[1]] = names
	}
	return all
}

// helpOf returns the help texts of Prometheus.
func helpOf(t *testing.T, c prometheus.Collector) map[string]string {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(c)
	all := map[string]string{}
	for _, f := range must(reg.Gather()) {
		all[f.GetName()] = f.GetHelp()
	}
	return all
}

// history gives every figure a value, most of them above 0.
func history(t *testing.T, reg *quotient.Registry, opts ...quotient.Option) {
	t.Helper()
	limit := quotient.Limit{InFlight: 6, Rates: []quotient.Rate{
		{Name: "a\xff", Events: 20, Per: time.Second, Burst: 8},
		{Name: "a\xfe", Events: 30, Per: time.Second},
		{Name: "tokens", Unit: "tokens", Events: 100, Per: time.Second},
	}}
	plans := map[string]quotient.Limit{"free": {Deny: true}, "paid": {InFlight: 9, Rates: limit.Rates[:2]}}
	opts = append(opts, quotient.Policy(policy.AIMD{}), quotient.MaxHold(time.Minute), quotient.Plans(plans),
		quotient.Demand(10, time.Hour))
	l := must(reg.Limiter("api", limit, opts...))
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() { cancel(); synctest.Wait() })
	src := &carried.Source{Replicas: 4, Every: time.Second, Age: time.Second,
		Others: quotient.Terms{3, 1000, 7, 5, 9}}
	go func() { _ = l.Follow(ctx, src) }()
	<-src.Turned()
	if err := l.SetPool(quotient.Pool{Replicas: 2, Ordinal: 1}, time.Hour); err != nil {
		t.Fatal(err)
	}
	_ = l.SetPool(quotient.Pool{}, 0)
	for _, key := range []string{"k", "k", "k", "k", "k", "other"} {
		p := must(l.Acquire(t.Context(), key))
		p.Done(policy.Feedback{Outcome: policy.Throttled})
		p.Release()
	}
	for range 9 {
		_, _ = l.TryAcquire("k") // some are refused, and none is released
	}
	own := quotient.Limit{Deny: true}
	err := errors.Join(l.Override("z", &own), l.SetPool(quotient.Pool{Replicas: 3}, time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	l.SetDryRun(true)
	l.Allow("z")
	time.Sleep(2*time.Minute + time.Second/2) // between two turns of the source
	must(reg.Limiter("other", quotient.Limit{Deny: true})).Allow("x")
}

// TestPlans: each point of a limit names its plan, and the limiter's own has an empty name.
func TestPlans(t *testing.T) {
	var reg quotient.Registry
	reader := sdk.NewManualReader()
	must(otel.Register(sdk.NewMeterProvider(sdk.WithReader(reader)).Meter("test"), &reg))
	two := quotient.Limit{InFlight: 4, Rates: []quotient.Rate{quotient.PerSecond(10)}}
	must(reg.Limiter("api", quotient.Limit{Deny: true}, quotient.Replicas(2),
		quotient.Plans(map[string]quotient.Limit{"paid": two})))
	var rm metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &rm); err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, m := range rm.ScopeMetrics[0].Metrics {
		if !strings.HasPrefix(m.Name, "quotient.limit.") {
			continue
		}
		for _, p := range m.Data.(metricdata.Gauge[float64]).DataPoints {
			plan, ok := p.Attributes.Value("quotient.plan")
			scope, _ := p.Attributes.Value("quotient.scope")
			got[m.Name] = append(got[m.Name],
				fmt.Sprintf("%q %t %s %v", plan.AsString(), ok, scope.AsString(), p.Value))
		}
		slices.Sort(got[m.Name])
	}
	for name, want := range map[string][]string{
		"quotient.limit.rate":      {`"paid" true global 10`, `"paid" true share 5`},
		"quotient.limit.in_flight": {`"paid" true global 4`, `"paid" true share 2`},
		"quotient.limit.denies":    {`"" true  1`, `"paid" true  0`},
	} {
		if !slices.Equal(got[name], want) {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
}

// TestLimitersComeAndGo checks that a collection shows the limiters of its moment, and that Unregister ends
// it.
func TestLimitersComeAndGo(t *testing.T) {
	var reg quotient.Registry
	reader := sdk.NewManualReader()
	registration := must(otel.Register(sdk.NewMeterProvider(sdk.WithReader(reader)).Meter("test"), &reg))
	shown := func() int {
		return len(collect(t, reader)["quotient.keys"].values) +
			len(collect(t, reader)["quotient.key.count"].values)
	}
	if shown() != 0 {
		t.Fatal("there is no limiter yet")
	}
	must(reg.Limiter("a", quotient.Limit{InFlight: 1}))
	must(reg.Limiter("b", quotient.Limit{InFlight: 1}))
	if shown() != 2 {
		t.Fatalf("%d limiters, want 2", shown())
	}
	reg.Remove("a")
	if shown() != 1 {
		t.Fatalf("%d limiters, want 1", shown())
	}
	if err := registration.Unregister(); err != nil || shown() != 0 {
		t.Fatalf("%d limiters after Unregister, %v", shown(), err)
	}
}

// refusing is a meter that makes no instrument of one name.
type refusing struct {
	noop.Meter
	name string
}

func (m refusing) no(name string) error {
	if name == m.name {
		return errors.New("no")
	}
	return nil
}

func (m refusing) Float64ObservableCounter(n string,
	_ ...metric.Float64ObservableCounterOption) (metric.Float64ObservableCounter, error) {
	return noop.Float64ObservableCounter{}, m.no(n)
}

func (m refusing) Float64ObservableGauge(n string,
	_ ...metric.Float64ObservableGaugeOption) (metric.Float64ObservableGauge, error) {
	return noop.Float64ObservableGauge{}, m.no(n)
}

func (m refusing) Float64Histogram(n string,
	_ ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	return noop.Float64Histogram{}, m.no(n)
}

func TestErrorsNameTheInstrument(t *testing.T) {
	for _, name := range []string{"quotient.requests", "quotient.pool.age", "quotient.limiter.count"} {
		if _, err := otel.Register(refusing{name: name}, new(quotient.Registry)); err == nil ||
			!strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"quotient.wait.duration", "quotient.overhead.duration"} {
		if _, err := otel.Observe(refusing{name: name}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := otel.Register(nil, new(quotient.Registry)); err == nil {
		t.Error("no meter")
	}
	if _, err := otel.Register(noop.Meter{}, nil); err == nil {
		t.Error("no registry")
	}
	if _, err := otel.Observe(nil); err == nil {
		t.Error("no meter to observe with")
	}
}

// TestOverheadInFakeTime: five seconds of intended waiting, and two by which the caller was late.
func TestOverheadInFakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := sdk.NewManualReader()
		observe := must(otel.Observe(sdk.NewMeterProvider(sdk.WithReader(reader)).Meter("test")))
		// a turn of a paced limit would be lost
		unpaced := quotient.Rates(quotient.Rate{Events: 1, Per: 5 * time.Second, Burst: 2})
		l := must(new(quotient.Registry).Limiter("api", unpaced, observe,
			quotient.OnWait(func(string, time.Duration) { time.Sleep(7 * time.Second) })))
		must(l.Acquire(t.Context(), "k", quotient.Weight(2)))
		must(l.Acquire(t.Context(), "k"))
		all := collect(t, reader)
		got := fmt.Sprint(all["quotient.wait.duration"].values, all["quotient.overhead.duration"].values)
		if got != "[2 7] [2 2]" {
			t.Errorf("got %s", got)
		}
	})
}

// TestRecordingAllocatesNothing checks it for requests within the limit, with the SDK behind the meter.
func TestRecordingAllocatesNothing(t *testing.T) {
	observe := must(otel.Observe(sdk.NewMeterProvider(sdk.WithReader(sdk.NewManualReader())).Meter("test")))
	l := must(new(quotient.Registry).Limiter("api",
		quotient.Rates(quotient.Rate{Events: 1e9, Per: time.Second}), observe))
	if n := testing.AllocsPerRun(1000, func() { l.Allow("k") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func Example() {
	// a real program has a reader that exports
	provider := sdk.NewMeterProvider(sdk.WithReader(sdk.NewManualReader()))
	meter := provider.Meter("github.com/quotient-go/quotient")
	var limiters quotient.Registry
	registration, err := otel.Register(meter, &limiters)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = registration.Unregister() }()
	observe, err := otel.Observe(meter)
	if err != nil {
		fmt.Println(err)
		return
	}
	api, err := limiters.Limiter("api", quotient.Rates(quotient.PerMinute(100)), observe)
	fmt.Println(api.Allow("alice"), err)
	// Output: true <nil>
}
