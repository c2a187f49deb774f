// Package otel exports limiters to OpenTelemetry: the figures of package metrics under OpenTelemetry's kind
// of names. The caller owns the meter and the SDK. This package starts no goroutine and exports nothing by
// itself.
//
//	registration, err := otel.Register(meter, &limiters)
//	observe, err := otel.Observe(meter)
//	api, err := limiters.Limiter("api", limit, observe("api"))
//
// docs/metrics.md lists the instruments beside the metrics of Prometheus that have the same meaning.
package otel

import (
	"context"
	"errors"
	"fmt"

	"github.com/quotient-go/quotient"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Register adds observable instruments over the limiters of reg to the meter. Each collection reads
// Limiter.Stats once for every limiter that reg has then. Unregister of the result ends that. A nil meter or
// registry is an error, and so is a meter that refuses an instrument.
func Register(meter metric.Meter, reg *quotient.Registry) (metric.Registration, error) {
	if meter == nil || reg == nil {
		return nil, fmt.Errorf("otel: Register: meter %v and registry %v: want both", meter, reg)
	}
	made := make([]metric.Float64Observable, len(instruments))
	all := make([]metric.Observable, 0, len(instruments)+1)
	for i, in := range instruments {
		var err error
		if made[i], err = in.make(meter); err != nil {
			return nil, fmt.Errorf("otel: Register: %s: %w", in.name, err)
		}
		all = append(all, made[i])
	}
	count, err := meter.Float64ObservableGauge("quotient.limiter.count",
		metric.WithUnit("{limiter}"), metric.WithDescription("Limiters that the collector shows."))
	if err != nil {
		return nil, fmt.Errorf("otel: Register: quotient.limiter.count: %w", err)
	}
	return meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		n := 0
		for name, l := range reg.All() {
			n++
			observeAll(o, made, name, l)
		}
		o.ObserveFloat64(count, float64(n))
		return nil
	}, append(all, count)...)
}

// observeAll reads one limiter once.
func observeAll(o metric.Observer, made []metric.Float64Observable, name string, l *quotient.Limiter) {
	r := reading{Stats: l.Stats(), limiter: l}
	for i, in := range instruments {
		in.read(&r, func(v float64, labels ...string) {
			o.ObserveFloat64(made[i], v, metric.WithAttributeSet(in.attributes(name, labels)))
		})
	}
}

// attributes are the limiter's name and the instrument's own labels.
func (in *instrument) attributes(name string, labels []string) attribute.Set {
	kvs := []attribute.KeyValue{attribute.String("quotient.limiter", name)}
	for i, v := range labels {
		kvs = append(kvs, attribute.String("quotient."+in.labels[i], v))
	}
	return attribute.NewSet(kvs...)
}

func (in *instrument) make(m metric.Meter) (metric.Float64Observable, error) {
	switch unit, text := metric.WithUnit(in.unit), metric.WithDescription(in.text); in.kind {
	case counts:
		return m.Float64ObservableCounter(in.name, unit, text)
	case sums:
		return m.Float64ObservableUpDownCounter(in.name, unit, text)
	default:
		return m.Float64ObservableGauge(in.name, unit, text)
	}
}

const (
	waitText     = "Time from a request to its admission: intended waiting and overhead together."
	overheadText = "Time an admitted request spent in the limiter although its tokens and slots were free."
)

// Bounds of the buckets, in seconds, as advice to the SDK: those of package metrics.
var (
	overheadBuckets = []float64{
		1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3,
		0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
	}
	waitBuckets = []float64{
		1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300,
	}
)

// Observe returns the option that records waiting and overhead of the limiter of a name: use it in
// Registry.Options, or in a call of Registry.Limiter. Admissions are recorded, refusals are not. A nil meter
// is an error, and so is one that refuses an instrument. The SDK keeps what a limiter has recorded after the
// limiter is gone.
func Observe(meter metric.Meter) (func(name string) quotient.Option, error) {
	if meter == nil {
		return nil, errors.New("otel: Observe: meter: nil")
	}
	wait, err := meter.Float64Histogram("quotient.wait.duration",
		metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(waitBuckets...),
		metric.WithDescription(waitText))
	if err != nil {
		return nil, fmt.Errorf("otel: Observe: quotient.wait.duration: %w", err)
	}
	overhead, err := meter.Float64Histogram("quotient.overhead.duration",
		metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(overheadBuckets...),
		metric.WithDescription(overheadText))
	if err != nil {
		return nil, fmt.Errorf("otel: Observe: quotient.overhead.duration: %w", err)
	}
	return func(name string) quotient.Option { return record(name, wait, overhead) }, nil
}
