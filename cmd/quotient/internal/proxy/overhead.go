package proxy

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Overhead is how long requests took although they were within their limits. It counts from the latest of
// their arrival, the start of their window and the instant at which their tokens and slots were free. It
// ends when the head of the request to the upstream is written. The time to get a connection that was not
// idle is left out. Quantiles are at most 4 percent off.
type Overhead struct {
	Count                    uint64
	P50, P90, P99, P999, Max time.Duration
}

// Overhead returns that of all requests so far.
func (p *Proxy) Overhead() Overhead { return p.cost.all.overhead() }

// Describe sends the histogram of the overhead.
func (p *Proxy) Describe(ch chan<- *prometheus.Desc) { p.cost.byRule.Describe(ch) }

// Collect sends the histograms, one a rule.
func (p *Proxy) Collect(ch chan<- prometheus.Metric) { p.cost.byRule.Collect(ch) }

type overhead struct {
	all    histogram
	byRule *prometheus.HistogramVec
}

// observer is where the requests of one rule are counted.
type observer struct {
	all  *histogram
	rule prometheus.Observer
}

func newOverhead() *overhead {
	return &overhead{byRule: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "quotient_proxy_overhead_seconds",
		Help: "Time that the proxy adds to a request, without intended waiting and dialling.",
		// From what a limiter takes to what people notice.
		Buckets: []float64{
			.00001, .000025, .00005, .0001, .00025, .0005, .001, .0025, .005, .01, .1, 1,
		},
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160,
	}, []string{"rule"})}
}

func (o *overhead) observer(pattern string) *observer {
	return &observer{&o.all, o.byRule.WithLabelValues(pattern)}
}

func (o *observer) observe(d time.Duration) {
	d = max(d, 0)
	o.all.add(d)
	o.rule.Observe(d.Seconds())
}

// stepBits is how finely a power of two is divided: into 16 steps, so that the middle of one is at most 1/32 off.
const stepBits = 4

// histogram counts durations by their size. The zero value is empty.
type histogram struct {
	counts [(64 - stepBits + 1) << stepBits]atomic.Uint64
	most   atomic.Int64
}

// add counts one. It is 0 or more.
func (h *histogram) add(d time.Duration) {
	h.counts[stepOf(uint64(d))].Add(1)
	for most := h.most.Load(); int64(d) > most; most = h.most.Load() {
		if h.most.CompareAndSwap(most, int64(d)) {
			return
		}
	}
}

func stepOf(n uint64) int {
	if n < 1<<stepBits {
		return int(n)
	}
	shift := bits.Len64(n) - stepBits - 1
	return (shift+1)<<stepBits + int(n>>shift) - 1<<stepBits
}

func middle(step int) time.Duration {
	if step < 1<<stepBits {
		return time.Duration(step)
	}
	shift := step>>stepBits - 1
	least := uint64(step&(1<<stepBits-1)+1<<stepBits) << shift
	return time.Duration(least + 1<<shift>>1)
}

// overhead is what was counted so far. Requests that come meanwhile may be in it.
func (h *histogram) overhead() Overhead {
	var counts [len(h.counts)]uint64
	o := Overhead{Max: time.Duration(h.most.Load())}
	for i := range h.counts {
		counts[i] = h.counts[i].Load()
		o.Count += counts[i]
	}
	of := func(part float64) time.Duration {
		rank, seen := uint64(part*float64(o.Count)), uint64(0)
		for i, n := range counts {
			if seen += n; n > 0 && seen > rank {
				return min(middle(i), o.Max)
			}
		}
		return o.Max
	}
	o.P50, o.P90, o.P99, o.P999 = of(.5), of(.9), of(.99), of(.999)
	return o
}
