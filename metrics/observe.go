package metrics

import (
	"maps"
	"sync"
	"time"
	"weak"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/metrics/internal/figures"
)

const (
	waitName     = "quotient_wait_seconds"
	overheadName = "quotient_overhead_seconds"
)

// The native buckets: eight for each power of two, and half as many once there are more than 160. A time
// below a microsecond counts as 0, as in the classic buckets.
const (
	growth      = 1.1
	mostBuckets = 160
	zero        = 1e-6
)

var (
	waitDesc     = prometheus.NewDesc(waitName, figures.WaitText, []string{"limiter"}, nil)
	overheadDesc = prometheus.NewDesc(overheadName, figures.OverheadText, []string{"limiter"}, nil)
)

// Observe returns an option that records waiting and overhead of the limiter of that name: use it in
// Registry.Options, or in a call of Registry.Limiter. Admissions are observed, refusals are not. An
// observation takes 0.1 to 0.2 microseconds and allocates nothing.
//
// Limiters of one name share the histograms while any of them is in use. After that the next one begins at 0.
func (c *Collector) Observe(name string) quotient.Option {
	h := c.hists.of(name)
	return quotient.OnAdmit(func(_ string, waited, overhead time.Duration) {
		h.wait.Observe(waited.Seconds())
		h.overhead.Observe(overhead.Seconds())
	})
}

// histograms holds the histograms of each name while a limiter fills them. The limiter's hook owns them and
// the map does not, so an unused name leaves nothing behind. The zero value is empty.
type histograms struct {
	mu     sync.Mutex
	byName map[string]weak.Pointer[times]
}

// times are the histograms of one limiter.
type times struct{ wait, overhead prometheus.Histogram }

func newTimes(name string) *times {
	made := func(metric, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: metric, Help: help, Buckets: buckets,
			NativeHistogramBucketFactor: growth, NativeHistogramMaxBucketNumber: mostBuckets,
			NativeHistogramZeroThreshold: zero,
		}, []string{"limiter"}).WithLabelValues(name).(prometheus.Histogram)
	}
	return &times{
		wait:     made(waitName, figures.WaitText, figures.WaitBuckets),
		overhead: made(overheadName, figures.OverheadText, figures.OverheadBuckets),
	}
}

// of returns the histograms of a name, and drops those that are no longer filled.
func (h *histograms) of(name string) *times {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.byName[name].Value(); t != nil {
		return t
	}
	maps.DeleteFunc(h.byName, func(_ string, t weak.Pointer[times]) bool { return t.Value() == nil })
	if h.byName == nil {
		h.byName = make(map[string]weak.Pointer[times])
	}
	t := newTimes(name)
	h.byName[name] = weak.Make(t)
	return t
}

func (h *histograms) collect(ch chan<- prometheus.Metric, name string) {
	h.mu.Lock()
	t := h.byName[name].Value()
	h.mu.Unlock()
	if t != nil {
		ch <- t.wait
		ch <- t.overhead
	}
}
