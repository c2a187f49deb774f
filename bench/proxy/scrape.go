package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// scrape reads the metrics of a proxy.
func (s *server) scrape(ctx context.Context) (map[string]*dto.MetricFamily, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	// Native histograms have no other form.
	req.Header.Set("Accept", string(expfmt.NewFormat(expfmt.TypeProtoDelim)))
	resp, err := s.web.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", req.URL, resp.Status)
	}
	all := make(map[string]*dto.MetricFamily)
	decoder := expfmt.NewDecoder(io.LimitReader(resp.Body, 16<<20), expfmt.ResponseFormat(resp.Header))
	for {
		family := new(dto.MetricFamily)
		if err := decoder.Decode(family); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all[family.GetName()] = family
	}
}

// sum adds up the counters or gauges of one name that have this label.
func sum(all map[string]*dto.MetricFamily, name, label, value string) (v float64) {
	for _, m := range all[name].GetMetric() {
		if label == "" || has(m, label, value) {
			v += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return v
}

func has(m *dto.Metric, label, value string) bool {
	for _, l := range m.GetLabel() {
		if l.GetName() == label && l.GetValue() == value {
			return true
		}
	}
	return false
}

// weigh looks at what a proxy holds.
func (s *server) weigh(ctx context.Context) (w weight, err error) {
	all, err := s.scrape(ctx)
	if err != nil {
		return w, err
	}
	w.heap = int64(sum(all, "go_memstats_next_gc_bytes", "", ""))
	w.goroutines = int(sum(all, "go_goroutines", "", ""))
	if w.heap == 0 || w.goroutines == 0 {
		return w, fmt.Errorf("%s: the metrics of the Go runtime are not there", s.name)
	}
	m, err := memoryOf(s.pid)
	w.resident = m.resident
	return w, err
}
