// Package metrics shows limiters to Prometheus: one [Collector] serves all limiters of a quotient.Registry.
//
//	var limiters quotient.Registry
//	collector := metrics.New(&limiters)
//	limiters.Options = []quotient.Option{collector.Observe()}
//	api, err := limiters.Limiter("api", limit)
//	prometheus.MustRegister(collector)
//
// Everything but the two histograms is read from Limiter.Stats at each scrape, so that a limiter which is
// never scraped pays nothing. The histograms of waiting and overhead need [Collector.Observe].
//
// The labels are names of limiters, of their plans and of rules, and words of a fixed list: never a key or a
// path. Their number does not depend on traffic. docs/metrics.md lists every metric with an example of its use.
package metrics

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/quotient-go/quotient"
)

// Collector is a prometheus.Collector over the limiters of a registry, whichever they are when it is scraped. The series of a limiter
// vanish when it is removed from the registry, and begin at 0 when another takes its name. Make it with New or Of. It is safe for
// concurrent use and starts no goroutine.
type Collector struct {
	limiters *quotient.Registry
	hists    histograms
}

var (
	limitersDesc = prometheus.NewDesc("quotient_limiters", "Limiters that the collector shows.", nil, nil)
	buildDesc    = prometheus.NewDesc("quotient_build_info", "1, labelled with the version of quotient in this program and the version of Go that built it.",
		[]string{"version", "go_version"}, nil)
)

// New returns a collector over reg. It panics if reg is nil: else the first scrape would. One collector for a registry is enough: register it once, and add
// limiters whenever they are made.
func New(reg *quotient.Registry) *Collector {
	if reg == nil {
		panic("metrics: New: the registry is nil")
	}
	return &Collector{limiters: reg}
}

// Of returns a collector over a single limiter, named as Registry.Add takes it. It has no histograms, since they are observed from the time
// when the limiter is made: see Observe. A prometheus.Registerer takes one collector of this package, of Of or of New: for a second limiter
// add both to a quotient.Registry, and use New.
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
	for i := range families {
		ch <- families[i].desc
	}
	ch <- waitDesc
	ch <- overheadDesc
}

// Collect reads every limiter once. The cost is that of Limiter.Stats, which grows with the limiter's shards and not with its keys,
// and for a limiter that learns a look at up to 1,000 keys.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	n := 0
	for name, l := range c.limiters.All() {
		n++
		r := reading{Stats: l.Stats(), limiter: l}
		for i := range families {
			families[i].collect(ch, name, &r)
		}
		c.hists.collect(ch, name)
	}
	ch <- prometheus.MustNewConstMetric(limitersDesc, prometheus.GaugeValue, float64(n))
	ch <- prometheus.MustNewConstMetric(buildDesc, prometheus.GaugeValue, 1, version(), runtime.Version())
}

// module is the path under which the program's build information knows quotient.
const module = "github.com/quotient-go/quotient"

// version is that of quotient in this program; "unknown" in a program that was built without modules, and "(devel)" in quotient itself.
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
