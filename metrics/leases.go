package metrics

import (
	"strconv"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/quotient-go/quotient/lease"
	"github.com/quotient-go/quotient/metrics/internal/figures"
)

// NewLeases returns a collector of a lease service; pass the Stats of a lease.Server. It calls stats once a
// scrape, possibly concurrently. It panics if stats is nil. The metrics named throttle_ have the names of the
// throttle service, so that its dashboards keep working.
//
// The label semaphore is a name of the configuration, or a removed one while a lock of it is held. A stand-by
// has no semaphores. All totals begin at 0 when the service begins to lead.
func NewLeases(stats func() lease.Stats) prometheus.Collector {
	if stats == nil {
		panic("metrics: NewLeases: stats is nil")
	}
	return leases(stats)
}

// leases is the collector of NewLeases.
type leases func() lease.Stats

// leaseFamily is one metric of every semaphore.
type leaseFamily struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	read func(s *lease.SemaphoreStats) float64
}

func leaseGauge(name, help string, read func(*lease.SemaphoreStats) float64) leaseFamily {
	return leaseFamily{prometheus.NewDesc(name, help, bySemaphore, nil), prometheus.GaugeValue, read}
}

func leaseCounter(name, help string, read func(*lease.Totals) uint64) leaseFamily {
	return leaseFamily{prometheus.NewDesc(name, help, bySemaphore, nil), prometheus.CounterValue,
		func(s *lease.SemaphoreStats) float64 { return float64(read(&s.Totals)) }}
}

var bySemaphore = []string{"semaphore"}

// leaseFamilies are the metrics of a semaphore, in the order of README.md.
var leaseFamilies = []leaseFamily{
	leaseGauge("throttle_acquired", "Locks that are held now.",
		func(s *lease.SemaphoreStats) float64 { return float64(s.Acquired) }),
	leaseGauge("throttle_pending", "Locks that are waited for now.",
		func(s *lease.SemaphoreStats) float64 { return float64(s.Pending) }),
	leaseGauge("throttle_max", "The most locks of the semaphore that may be held at once.",
		func(s *lease.SemaphoreStats) float64 { return float64(s.Max) }),
	leaseGauge("throttle_longest_pending_sec",
		"How long the first peer in the queue has waited.",
		func(s *lease.SemaphoreStats) float64 { return s.LongestPending.Seconds() }),
	leaseCounter("quotient_lease_granted_total", "Locks granted, without those restored.",
		func(t *lease.Totals) uint64 { return t.Granted }),
	leaseCounter("quotient_lease_released_total", "Locks released by their holder.",
		func(t *lease.Totals) uint64 { return t.Released }),
	leaseCounter("quotient_lease_expired_total", "Locks that ended because their peer expired.",
		func(t *lease.Totals) uint64 { return t.Expired }),
	leaseCounter("quotient_lease_broken_total", "Locks taken from their holder by an operator.",
		func(t *lease.Totals) uint64 { return t.Broken }),
	leaseCounter("quotient_lease_restored_total", "Locks restored by their holder.",
		func(t *lease.Totals) uint64 { return t.Restored }),
	leaseCounter("quotient_lease_beyond_total", "Locks restored although the maximum was already held.",
		func(t *lease.Totals) uint64 { return t.Beyond }),
}

var (
	leaseMissingDesc = prometheus.NewDesc("throttle_num_404", "Requests for an unknown path.", nil, nil)
	leasePeersDesc   = prometheus.NewDesc("quotient_lease_peers", "Peers that the service knows.", nil, nil)
	leaseLeadsDesc   = prometheus.NewDesc("quotient_lease_leads",
		"1 while this process grants locks, 0 on stand-by.", nil, nil)
	leaseGraceDesc = prometheus.NewDesc("quotient_lease_grace_seconds",
		"Rest of the grace time after the start: locks are restored then, and none is granted.", nil, nil)
	leaseWaitDesc = prometheus.NewDesc("quotient_lease_wait_seconds",
		"Time from the request for a lock to its grant.", bySemaphore, nil)
	leaseHoldDesc = prometheus.NewDesc("quotient_lease_hold_seconds",
		"Time for which a lock was held.", bySemaphore, nil)
)

// Describe sends every metric that Collect may send.
func (l leases) Describe(ch chan<- *prometheus.Desc) {
	service := []*prometheus.Desc{leaseMissingDesc, leasePeersDesc, leaseLeadsDesc, leaseGraceDesc}
	for _, desc := range append(service, leaseWaitDesc, leaseHoldDesc) {
		ch <- desc
	}
	for i := range leaseFamilies {
		ch <- leaseFamilies[i].desc
	}
}

// Collect calls stats once.
func (l leases) Collect(ch chan<- prometheus.Metric) {
	st := l()
	gauge := func(desc *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v)
	}
	ch <- prometheus.MustNewConstMetric(leaseMissingDesc, prometheus.CounterValue, float64(st.Missing))
	gauge(leasePeersDesc, float64(st.Peers))
	gauge(leaseLeadsDesc, figures.Bit(st.Leads))
	gauge(leaseGraceDesc, max(0, st.Grace.Seconds()))
	for i := range st.Semaphores {
		s := &st.Semaphores[i]
		name := s.Name
		if !utf8.ValidString(name) { // no two become the same
			name = strconv.QuoteToASCII(name)
		}
		for _, f := range leaseFamilies {
			ch <- prometheus.MustNewConstMetric(f.desc, f.kind, f.read(s), name)
		}
		ch <- leaseHistogram(leaseWaitDesc, &s.Totals.Wait, name)
		ch <- leaseHistogram(leaseHoldDesc, &s.Totals.Hold, name)
	}
}

// leaseHistogram returns h with cumulative buckets, as Prometheus has them.
func leaseHistogram(desc *prometheus.Desc, h *lease.Histogram, name string) prometheus.Metric {
	buckets := make(map[float64]uint64, len(lease.Bounds))
	var below uint64
	for i, bound := range lease.Bounds {
		below += h.Buckets[i]
		buckets[bound.Seconds()] = below
	}
	return prometheus.MustNewConstHistogram(desc, h.Count, h.Sum, buckets, name)
}
