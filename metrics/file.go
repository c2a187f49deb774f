package metrics

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/quotient-go/quotient/metrics/internal/figures"
)

// FileState is the state of a configuration file of limits. The State of package config converts to it.
type FileState struct {
	Path     string
	Loaded   time.Time // when the configuration in force was read
	Reloads  uint64    // that were applied
	Failures uint64    // reloads that changed nothing
	Error    string    // of the last failure
	ErrorAt  time.Time // when the last failure was; not before Loaded while the file is broken
	Differs  []string  // changes by hand, such as "api: limit, override /x"
}

// File returns a collector of the state of a configuration file. Register it beside the one of New. It calls
// state at each scrape, possibly concurrently. It panics if state is nil.
//
//	prometheus.MustRegister(metrics.File(func() metrics.FileState { return metrics.FileState(c.State()) }))
func File(state func() FileState) prometheus.Collector {
	if state == nil {
		panic("metrics: File: state is nil")
	}
	return file(state)
}

// file is the collector of File.
type file func() FileState

var (
	fileWellDesc = prometheus.NewDesc("quotient_config_last_reload_successful",
		"1 if the last load of the configuration file succeeded, else 0: the one before is in force then.",
		nil, nil)
	fileLoadedDesc = prometheus.NewDesc("quotient_config_last_load_timestamp_seconds",
		"When the configuration in force was read.", nil, nil)
	fileReloadsDesc = prometheus.NewDesc("quotient_config_reloads_total",
		"Reloads of the configuration file by outcome: applied, or failed without effect.",
		[]string{"outcome"}, nil)
	fileDiffersDesc = prometheus.NewDesc("quotient_config_differs",
		"Limiters that differ from the configuration file because they were changed by hand.", nil, nil)
)

// Describe sends every metric that Collect sends.
func (f file) Describe(ch chan<- *prometheus.Desc) {
	prometheus.DescribeByCollect(file(func() FileState { return FileState{} }), ch)
}

// Collect calls state once.
func (f file) Collect(ch chan<- prometheus.Metric) {
	s := f()
	gauge := func(desc *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v)
	}
	gauge(fileWellDesc, figures.Bit(s.Error == "" || s.ErrorAt.Before(s.Loaded)))
	gauge(fileLoadedDesc, figures.Epoch(s.Loaded))
	differs := make(map[string]bool) // the limiters that lines such as "api: limit" are about
	for _, line := range s.Differs {
		name, _, _ := strings.Cut(line, ":")
		differs[name] = true
	}
	gauge(fileDiffersDesc, float64(len(differs)))
	for outcome, n := range map[string]uint64{"applied": s.Reloads, "failed": s.Failures} {
		ch <- prometheus.MustNewConstMetric(fileReloadsDesc, prometheus.CounterValue, float64(n), outcome)
	}
}
