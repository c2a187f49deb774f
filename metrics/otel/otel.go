// Package otel exports limiters to OpenTelemetry: the figures of package metrics under OpenTelemetry's kind of names.
// The caller owns the meter and the SDK. This package starts no goroutine and exports nothing by itself.
//
//	registration, err := otel.Register(meter, &limiters)
//	observe, err := otel.Observe(meter)
//	api, err := limiters.Limiter("api", limit, observe("api"))
//
// Spans adds events to traces. README.md lists the instruments, each beside the metric of Prometheus that has the same
// meaning.
package otel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/metrics/internal/figures"
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
	made := make([]metric.Float64Observable, len(figures.All))
	all := make([]metric.Observable, 0, len(figures.All)+1)
	for i, f := range figures.All {
		var err error
		if made[i], err = instrument(meter, f); err != nil {
			return nil, fmt.Errorf("otel: Register: %s: %w", f.OTel, err)
		}
		all = append(all, made[i])
	}
	count, err := meter.Float64ObservableGauge("quotient.limiter.count",
		metric.WithUnit("{limiter}"), metric.WithDescription(figures.LimitersText))
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
	r := figures.Of(l)
	for i, f := range figures.All {
		f.Read(r, func(v float64, labels ...string) {
			kvs := []attribute.KeyValue{attribute.String("quotient.limiter", name)}
			for i, v := range labels {
				kvs = append(kvs, attribute.String("quotient."+f.Labels[i], v))
			}
			o.ObserveFloat64(made[i], v, metric.WithAttributeSet(attribute.NewSet(kvs...)))
		})
	}
}

func instrument(m metric.Meter, f figures.Figure) (metric.Float64Observable, error) {
	switch unit, text := metric.WithUnit(f.Unit), metric.WithDescription(f.Text); f.Kind {
	case figures.Counts:
		return m.Float64ObservableCounter(f.OTel, unit, text)
	case figures.Sums:
		return m.Float64ObservableUpDownCounter(f.OTel, unit, text)
	default:
		return m.Float64ObservableGauge(f.OTel, unit, text)
	}
}

// Observe returns the option that records waiting and overhead of the limiter of a name: use it in Registry.Options, or
// in a call of Registry.Limiter. Admissions are recorded, refusals are not. A nil meter is an error, and so is one that
// refuses an instrument. The SDK keeps what a limiter has recorded after the limiter is gone.
func Observe(meter metric.Meter) (func(name string) quotient.Option, error) {
	if meter == nil {
		return nil, errors.New("otel: Observe: meter: nil")
	}
	wait, err := meter.Float64Histogram("quotient.wait.duration",
		metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(figures.WaitBuckets...),
		metric.WithDescription(figures.WaitText))
	if err != nil {
		return nil, fmt.Errorf("otel: Observe: quotient.wait.duration: %w", err)
	}
	overhead, err := meter.Float64Histogram("quotient.overhead.duration",
		metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(figures.OverheadBuckets...),
		metric.WithDescription(figures.OverheadText))
	if err != nil {
		return nil, fmt.Errorf("otel: Observe: quotient.overhead.duration: %w", err)
	}
	return func(name string) quotient.Option { return record(name, wait, overhead) }, nil
}

// record is the hook of one limiter. The options are made once, so that recording allocates nothing here.
func record(name string, wait, overhead metric.Float64Histogram) quotient.Option {
	set := attribute.NewSet(attribute.String("quotient.limiter", name))
	opts := []metric.RecordOption{metric.WithAttributeSet(set)}
	ctx := context.Background()
	return quotient.OnAdmit(func(_ string, waited, late time.Duration) {
		wait.Record(ctx, waited.Seconds(), opts...)
		overhead.Record(ctx, late.Seconds(), opts...)
	})
}
