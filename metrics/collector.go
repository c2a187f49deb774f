// Package metrics shows limiters to Prometheus: one [Collector] serves all limiters of a quotient.Registry.
//
//	var limiters quotient.Registry
//	collector := metrics.New(&limiters)
//	api, err := limiters.Limiter("api", limit, collector.Observe("api"))
//	prometheus.MustRegister(collector)
//
// A scrape reads Limiter.Stats. A limiter that is never scraped has no cost. The histograms of waiting and
// overhead need [Collector.Observe].
//
// No metric uses a client-controlled label. Labels are names of limiters, plans and rules, and words of a
// fixed list. The number of series does not depend on traffic. README.md lists every metric, docs/metrics.md has
// queries, and docs/alerts.md the alerts in deploy/prometheus/rules.yaml.
package metrics

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/metrics/internal/figures"
)

// Collector is a prometheus.Collector over the limiters that a registry has at each scrape. The series of a
// limiter end when it is removed from the registry, and begin at 0 when another takes its name. Make it with
// New or Of. It is safe for concurrent use and starts no goroutine.
type Collector struct {
	limiters *quotient.Registry
	hists    histograms
}

var (
	limitersDesc = prometheus.NewDesc("quotient_limiters", figures.LimitersText, nil, nil)
	buildDesc    = prometheus.NewDesc("quotient_build_info",
		"1, labelled with the versions of quotient and Go in this program.",
		[]string{"version", "go_version"}, nil)
	descs = func() (all []*prometheus.Desc) { // of figures.All
		for _, f := range figures.All {
			all = append(all, prometheus.NewDesc(f.Prometheus, f.Text, append([]string{"limiter"}, f.Labels...), nil))
		}
		return all
	}()
)

// New returns a collector over reg. Register it once. Limiters may be added to reg before and after. It
// panics if reg is nil.
func New(reg *quotient.Registry) *Collector {
	if reg == nil {
		panic("metrics: New: the registry is nil")
	}
	return &Collector{limiters: reg}
}

// Of returns a collector over one limiter. Name is what Registry.Add accepts; another name, or a nil
// limiter, is an error. The collector has no histograms: see Observe. A prometheus.Registerer accepts one
// collector of Of or New. For a second limiter add both to a quotient.Registry and use New.
func Of(name string, l *quotient.Limiter) (*Collector, error) {
	reg := new(quotient.Registry)
	if err := reg.Add(name, l); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return New(reg), nil
}

// Describe sends every metric that Collect may send.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- limitersDesc
	ch <- buildDesc
	for _, desc := range descs {
		ch <- desc
	}
	ch <- waitDesc
	ch <- overheadDesc
}

// Collect reads every limiter once. It costs a call of Limiter.Stats for each, which does not grow with the
// number of keys. For a limiter that learns it also reads up to 1,000 keys.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	n := 0
	for name, l := range c.limiters.All() {
		n++
		collect(ch, name, figures.Of(l))
		c.hists.collect(ch, name)
	}
	ch <- prometheus.MustNewConstMetric(limitersDesc, prometheus.GaugeValue, float64(n))
	ch <- prometheus.MustNewConstMetric(buildDesc, prometheus.GaugeValue, 1, version(), runtime.Version())
}

// collect sends the figures of one limiter.
func collect(ch chan<- prometheus.Metric, name string, r *figures.Reading) {
	for i, f := range figures.All {
		kind := prometheus.GaugeValue
		if f.Kind == figures.Counts {
			kind = prometheus.CounterValue
		}
		f.Read(r, func(v float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(descs[i], kind, v, append([]string{name}, labels...)...)
		})
	}
}

// module is the path under which the program's build information knows quotient.
const module = "github.com/quotient-go/quotient"

// version returns the version of quotient in this program. It is "unknown" in a program that was built
// without modules, and "(devel)" in quotient itself.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == module {
			return m.Version
		}
	}
	return "unknown"
}
