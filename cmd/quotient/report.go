package main

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/quotient-go/quotient/admin"
	"github.com/quotient-go/quotient/cmd/quotient/internal/cmdline"
	"github.com/quotient-go/quotient/cmd/quotient/internal/upstream"
	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/metrics"
)

// reportStart logs what is in force, one line each, and what is suspicious.
func (s *service) reportStart() {
	f := s.conf.File()
	scheme := "http://"
	if f.Proxy.TLS != nil {
		scheme = "https://"
	}
	if s.decider != nil {
		s.log.Info("decisions are given", "http", urlOf(scheme, f.Decide.HTTP, s.listener),
			"grpc", urlOf("", f.Decide.GRPC, s.decider.l), "profile", f.Decide.Profile,
			"ratelimit_files", strings.Join(f.Decide.RateLimitFiles, " "), "version", version())
	} else {
		var ups []string
		for _, u := range f.Proxy.Upstreams {
			ups = append(ups, u.String())
		}
		s.log.Info("proxy listens", "url", urlOf(scheme, f.Proxy.Listen, s.listener),
			"upstreams", strings.Join(ups, " "), "version", version())
	}
	if s.operator.l == nil {
		s.log.Info("operator's page is off")
	} else {
		s.log.Info("operator's page", "url", s.operator.url)
	}
	for _, name := range cmdline.SortedKeys(f.Limiters) {
		l := f.Limiters[name]
		s.log.Info("limiter", "name", name, "limit", l.Limit.String(), "over_limit", modeOf(l), "plans", len(l.Plans),
			"policy", l.Policy)
	}
	replicas := strconv.Itoa(f.Pool.Replicas)
	if f.Pool.Replicas == 0 {
		replicas = "not known"
	}
	s.log.Info("pool", "replicas", replicas, "ordinal", f.Pool.Ordinal, "source", f.Pool.Redacted())
	for _, w := range suspicious(f) {
		s.log.Warn(w)
	}
	if s.leases != nil {
		s.leases.report(s.log, f)
	}
}

// urlOf is where clients reach a listener that was opened at an address, "off" if there is none.
func urlOf(scheme, address string, l net.Listener) string {
	if l == nil || strings.HasPrefix(address, "unix:") {
		return address
	}
	return scheme + l.Addr().String()
}

// modeOf is what becomes of a request that is over a limit.
func modeOf(l config.Limiter) string {
	switch {
	case l.Refuse:
		return "refused"
	case l.MaxWait > 0:
		return "waits for " + l.MaxWait.String()
	}
	return "waits"
}

// suspicious is what is valid and seldom meant.
func suspicious(f *config.File) (lines []string) {
	for _, name := range cmdline.SortedKeys(f.Limiters) {
		l := f.Limiters[name]
		if l.DryRun {
			lines = append(lines, fmt.Sprintf("limiter %s is in a dry run: everything is admitted", name))
		}
		if n := l.Limit.InFlight; n > 0 && n < f.Pool.Replicas {
			lines = append(lines, fmt.Sprintf("limiter %s has %d slots for %d replicas: some refuse everything",
				name, n, f.Pool.Replicas))
		}
	}
	if f.Decide != nil && f.Leases == nil { // which tells them
		for _, w := range f.Warnings {
			lines = append(lines, w.Error())
		}
	}
	for _, u := range f.Proxy.Upstreams {
		if u.Host == f.Proxy.Listen || u.String() == f.Proxy.Listen {
			lines = append(lines, fmt.Sprintf("upstream %s is the proxy's own address: requests would go round", u))
		}
	}
	return lines
}

// tables are what the page shows beside the limiters.
func (s *service) tables() []admin.Table {
	o := s.proxy.Overhead()
	row := []string{strconv.FormatUint(o.Count, 10)}
	for _, d := range []time.Duration{o.P50, o.P90, o.P99, o.P999, o.Max} {
		row = append(row, cmdline.Short(d))
	}
	overhead := admin.Table{
		Title:   "Overhead of requests within their limits",
		Columns: []string{"Requests", "p50", "p90", "p99", "p99.9", "max"},
		Rows:    [][]string{row},
	}
	ups := admin.Table{
		Title: "Upstreams", Columns: []string{"URL", "Address", "State", "Since", "In flight", "Last error"},
	}
	for _, u := range s.upstreams() {
		state, failure := "healthy", u.Error
		switch {
		case u.Leaving:
			state = "leaving"
		case !u.Healthy:
			state = "out"
		}
		if failure != "" {
			failure = u.ErrorAt.UTC().Format(time.RFC3339) + " " + failure
		}
		since := u.Since.UTC().Format(time.RFC3339)
		ups.Rows = append(ups.Rows, []string{u.URL, u.Address, state, since, strconv.Itoa(u.InFlight), failure})
	}
	c := s.front.State()
	clients := admin.Table{
		Title:   "Connections of clients",
		Columns: []string{"Open", "Upgraded", "Closed to make room", "Refused"},
		Rows: [][]string{{
			strconv.Itoa(c.Connections), strconv.Itoa(c.Upgraded),
			strconv.FormatUint(c.Evicted, 10), strconv.FormatUint(c.Refused, 10),
		}},
	}
	if s.ups == nil {
		return []admin.Table{overhead, clients}
	}
	return []admin.Table{overhead, ups, clients}
}

// upstreams are the states of all upstreams; none for quotient decide.
func (s *service) upstreams() []upstream.State {
	if s.ups == nil {
		return nil
	}
	return s.ups.State()
}

func (s *service) metrics() prometheus.Gatherer {
	reg := prometheus.NewRegistry()
	reg.MustRegister(s.limits, s.proxy, parts{s}, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if s.conf.File().Path != "" {
		reg.MustRegister(metrics.File(func() metrics.FileState { return metrics.FileState(s.conf.State()) }))
	}
	if s.leases != nil {
		reg.MustRegister(metrics.NewLeases(s.leases.leases.Stats))
	}
	return reg
}

// parts shows upstreams and connections to Prometheus.
type parts struct{ s *service }

var (
	upDesc = prometheus.NewDesc("quotient_upstream_up",
		"1 while the upstream receives requests, else 0.", []string{"upstream", "address"}, nil)
	resentDesc = prometheus.NewDesc("quotient_upstream_resent_total",
		"Requests sent once more because their connection had been closed.", []string{"upstream", "address"}, nil)
	inFlightDesc = prometheus.NewDesc("quotient_upstream_in_flight",
		"Requests sent to the upstream whose responses are not complete.", []string{"upstream", "address"}, nil)
)

var refusedDesc = prometheus.NewDesc("quotient_proxy_request_errors_total",
	"Requests refused before a rule was looked for, and connections ended in place of one.", []string{"reason"}, nil)

// Describe sends each metric: quotient proxy always has an upstream.
func (p parts) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(p, ch) }

// Collect reads the state of the upstreams and of the connections.
func (p parts) Collect(ch chan<- prometheus.Metric) {
	for _, u := range p.s.upstreams() {
		up := 0.
		if u.Healthy && !u.Leaving {
			up = 1
		}
		ch <- prometheus.MustNewConstMetric(upDesc, prometheus.GaugeValue, up, u.URL, u.Address)
		ch <- prometheus.MustNewConstMetric(inFlightDesc, prometheus.GaugeValue, float64(u.InFlight), u.URL, u.Address)
		ch <- prometheus.MustNewConstMetric(resentDesc, prometheus.CounterValue, float64(u.Resent), u.URL, u.Address)
	}
	for reason, n := range p.s.front.Refusals() {
		ch <- prometheus.MustNewConstMetric(refusedDesc, prometheus.CounterValue, float64(n), reason)
	}
	c := p.s.front.State()
	for _, m := range []struct {
		kind       prometheus.ValueType
		value      float64
		name, help string
	}{
		{prometheus.GaugeValue, float64(c.Connections), "connections", "Open client connections."},
		{prometheus.CounterValue, float64(c.Evicted), "connections_evicted_total",
			"Idle client connections closed to make room for others."},
		{prometheus.CounterValue, float64(c.Refused), "connections_refused_total",
			"Client connections refused because there was no room."},
		{prometheus.GaugeValue, float64(c.Held), "held_bytes",
			"Memory that requests hold beyond what each connection may."},
		{prometheus.CounterValue, float64(c.Shed), "shed_total",
			"Requests refused, in whole or in part, because too much memory was held."},
		{prometheus.CounterValue, float64(p.s.proxy.Dropped()), "log_dropped_total",
			"Lines of the access log dropped because they found no room, or could not be written."},
	} {
		desc := prometheus.NewDesc("quotient_proxy_"+m.name, m.help, nil, nil)
		ch <- prometheus.MustNewConstMetric(desc, m.kind, m.value)
	}
}
