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
	kind, unit, text string
	labels           []string
	points           []string // in order, with labels; of a histogram the count and the sum
}

// point is one value with its labels.
func point(labels []string, values ...any) string {
	slices.Sort(labels)
	return strings.Join(labels, " ") + " " + fmt.Sprint(values...)
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
			slices.Sort(s.points)
			all[m.Name] = s
		}
	}
	return all
}

func see(t *testing.T, m metricdata.Metrics) seen {
	t.Helper()
	s := seen{unit: m.Unit, text: m.Description}
	add := func(set attribute.Set, values ...any) {
		s.labels = nil
		var pairs []string
		for _, kv := range set.ToSlice() {
			s.labels = append(s.labels, string(kv.Key))
			pairs = append(pairs, fmt.Sprintf("%s=%q", kv.Key, kv.Value.AsString()))
		}
		s.points = append(s.points, point(pairs, values...))
	}
	var points []metricdata.DataPoint[float64]
	switch d := m.Data.(type) {
	case metricdata.Gauge[float64]:
		s.kind, points = "gauge", d.DataPoints
	case metricdata.Sum[float64]:
		if s.kind, points = "up-down counter", d.DataPoints; d.IsMonotonic {
			s.kind = "counter"
		}
	case metricdata.Histogram[float64]:
		s.kind = "histogram"
		for _, p := range d.DataPoints {
			add(p.Attributes, float64(p.Count), p.Sum)
		}
	default:
		t.Fatalf("%s: %T", m.Name, d)
	}
	for _, p := range points {
		add(p.Attributes, p.Value)
	}
	return s
}

// gather is the same of Prometheus.
func gather(c prometheus.Collector) map[string]seen {
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(c)
	all := map[string]seen{}
	for _, f := range must(reg.Gather()) {
		s := seen{text: f.GetHelp()}
		for _, m := range f.GetMetric() {
			values := []any{m.GetCounter().GetValue() + m.GetGauge().GetValue()}
			if h := m.GetHistogram(); h != nil {
				values = []any{float64(h.GetSampleCount()), h.GetSampleSum()}
			}
			var pairs []string
			for _, p := range m.GetLabel() {
				pairs = append(pairs, fmt.Sprintf("quotient.%s=%q", p.GetName(), p.GetValue()))
			}
			s.points = append(s.points, point(pairs, values...))
		}
		slices.Sort(s.points)
		all[f.GetName()] = s
	}
	return all
}

// TestPage holds the table of README.md to a collection in both directions, and every point to that of Prometheus.
func TestPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reg quotient.Registry
		reader := sdk.NewManualReader()
		meter := sdk.NewMeterProvider(sdk.WithReader(reader)).Meter("test")
		must(otel.Register(meter, &reg))
		prom := metrics.New(&reg)
		history(t, &reg, prom.Observe("api"), must(otel.Observe(meter))("api"))

		live, want := collect(t, reader), gather(prom)
		if over := want["quotient_overhead_seconds"].points; strings.HasSuffix(fmt.Sprint(over), " 0]") {
			t.Errorf("no overhead: %v", over)
		}
		page := string(must(os.ReadFile("README.md")))
		labels := labelsOf(string(must(os.ReadFile("../README.md"))))
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
			if p := want[m[4]]; s.text != p.text || !slices.Equal(s.points, p.points) {
				t.Errorf("%s: %s\n%q\nin Prometheus: %s\n%q", m[1], s.text, s.points, p.text, p.points)
			}
			delete(live, m[1])
			delete(want, m[4])
		}
		delete(want, "quotient_build_info")
		if len(live)+len(want) > 0 {
			t.Errorf("the page does not list %v, and %v of Prometheus", live, want)
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

// late is a context whose caller begins to wait two seconds too late.
type late struct{ context.Context }

func (c late) Done() <-chan struct{} {
	time.Sleep(2 * time.Second)
	return c.Context.Done()
}

// history gives every instrument a point; package figures tests whose number it is.
func history(t *testing.T, reg *quotient.Registry, opts ...quotient.Option) {
	t.Helper()
	limit := quotient.Limit{InFlight: 6, Rates: []quotient.Rate{
		{Name: "a\xff", Events: 20, Per: time.Second, Burst: 8},
		{Name: "tokens", Unit: "tokens", Events: 100, Per: time.Second},
	}}
	opts = append(opts, quotient.Policy(policy.AIMD{}), quotient.Demand(10, time.Hour))
	l := must(reg.Limiter("api", limit, opts...))
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() { cancel(); synctest.Wait() })
	src := &carried.Source{Replicas: 4, Every: time.Second, Age: time.Second, Others: [6]int64{3}}
	go func() { _ = l.Follow(ctx, src) }()
	<-src.Turned()
	for range 5 {
		must(l.Acquire(late{t.Context()}, "k")).Release()
	}
	time.Sleep(time.Second / 2) // between two turns of the source
	must(reg.Limiter("other", quotient.Limit{Deny: true})).Allow("x")
}

// TestLimitersComeAndGo checks that a collection shows the limiters of its moment, and that Unregister ends
// it.
func TestLimitersComeAndGo(t *testing.T) {
	var reg quotient.Registry
	reader := sdk.NewManualReader()
	registration := must(otel.Register(sdk.NewMeterProvider(sdk.WithReader(reader)).Meter("test"), &reg))
	expect := func(n int) {
		t.Helper()
		if shown := len(collect(t, reader)["quotient.key.count"].points); shown != n {
			t.Fatalf("%d limiters, want %d", shown, n)
		}
	}
	expect(0)
	must(reg.Limiter("a", quotient.Limit{InFlight: 1}))
	must(reg.Limiter("b", quotient.Limit{InFlight: 1}))
	expect(2)
	reg.Remove("a")
	expect(1)
	if err := registration.Unregister(); err != nil {
		t.Fatal(err)
	}
	expect(0)
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
	register := func(m metric.Meter, reg *quotient.Registry) error { return second(otel.Register(m, reg)) }
	observe := func(m metric.Meter) error { return second(otel.Observe(m)) }
	some := new(quotient.Registry)
	for name, err := range map[string]error{
		"quotient.requests":          register(refusing{name: "quotient.requests"}, some),
		"quotient.pool.age":          register(refusing{name: "quotient.pool.age"}, some),
		"quotient.limiter.count":     register(refusing{name: "quotient.limiter.count"}, some),
		"quotient.wait.duration":     observe(refusing{name: "quotient.wait.duration"}),
		"quotient.overhead.duration": observe(refusing{name: "quotient.overhead.duration"}),
		"meter <nil> and registry":   register(nil, some),
		"registry <nil>":             register(noop.Meter{}, nil),
		"meter: nil":                 observe(nil),
	} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// second is the error of a call.
func second(_ any, err error) error { return err }

// TestRecordingAllocatesNothing checks it for requests within the limit, with the SDK behind the meter.
func TestRecordingAllocatesNothing(t *testing.T) {
	observe := must(otel.Observe(sdk.NewMeterProvider(sdk.WithReader(sdk.NewManualReader())).Meter("test")))
	l := must(new(quotient.Registry).Limiter("api",
		quotient.Rates(quotient.Rate{Events: 1e9, Per: time.Second}), observe("api")))
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
	api, err := limiters.Limiter("api", quotient.Rates(quotient.PerMinute(100)), observe("api"))
	fmt.Println(api.Allow("alice"), err)
	// Output: true <nil>
}
