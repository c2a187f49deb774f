package main

import (
	"fmt"
	"math"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// quantilesIn reads a native histogram, which has one series that was observed.
func quantilesIn(all map[string]*dto.MetricFamily, name string) (q quantiles, err error) {
	var found *dto.Histogram
	for _, m := range all[name].GetMetric() {
		if h := m.GetHistogram(); h.GetSampleCount() > 0 {
			if found != nil {
				return q, fmt.Errorf("%s: more than one series has samples", name)
			}
			found = h
		}
	}
	if len(found.GetPositiveSpan()) == 0 {
		return q, fmt.Errorf("%s: no native histogram with samples", name)
	}
	return quantiles{int(found.GetSampleCount()), nativeQuantile(found, 0.5),
		nativeQuantile(found, 0.99)}, nil
}

// nativeQuantile is a quantile of a native histogram in seconds. Within a bucket it grows evenly on a
// logarithmic scale.
func nativeQuantile(h *dto.Histogram, q float64) time.Duration {
	rank := q * float64(h.GetSampleCount())
	below := float64(h.GetZeroCount())
	if rank <= below {
		return seconds(h.GetZeroThreshold())
	}
	growth := math.Exp2(math.Exp2(-float64(h.GetSchema()))) // from bucket to bucket
	index, in, delta := int32(0), int64(0), 0
	for _, span := range h.GetPositiveSpan() {
		index += span.GetOffset()
		for range span.GetLength() {
			in += h.GetPositiveDelta()[delta]
			delta++
			if n := float64(in); n > 0 && rank <= below+n {
				return seconds(math.Pow(growth, float64(index-1)+(rank-below)/n))
			}
			below += float64(in)
			index++
		}
	}
	return seconds(math.Pow(growth, float64(index-1)))
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
