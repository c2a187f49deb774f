package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/carried"
	"github.com/quotient-go/quotient/lease"
	"github.com/quotient-go/quotient/metrics"
	"github.com/quotient-go/quotient/policy"
)

// rounds is how often the live collector is scraped, with traffic before each time.
const rounds = 5

// scrapes are samples by series, as a server would have them.
type scrapes struct {
	series map[string]*series
	last   time.Time
}

type series struct {
	labels labels.Labels
	points []chunks.Sample
}

// point is one sample of a series.
type point struct {
	t int64
	v float64
}

func (p point) T() int64                      { return p.t }
func (p point) ST() int64                     { return 0 }
func (p point) F() float64                    { return p.v }
func (p point) H() *histogram.Histogram       { return nil }
func (p point) FH() *histogram.FloatHistogram { return nil }
func (p point) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (p point) Copy() chunks.Sample           { return p }

type sample = promql.Sample

// live returns what shows two limiters, a file and a lease service, and what the limiters do between two
// scrapes. It has every metric.
func live(t *testing.T) (prometheus.Gatherer, func()) {
	t.Helper()
	var limiters quotient.Registry
	c := metrics.New(&limiters)
	prom := prometheus.NewRegistry()
	loaded := time.Now()
	prom.MustRegister(c, metrics.File(func() metrics.FileState { return metrics.FileState{Loaded: loaded} }),
		leases(t))
	return prom, traffic(t, &limiters, c)
}

// liveScrapes scrapes two limiters at work, over HTTP on the loopback interface.
func liveScrapes(t *testing.T) *scrapes {
	t.Helper()
	prom, work := live(t)
	server := httptest.NewServer(promhttp.HandlerFor(prom, promhttp.HandlerOpts{}))
	defer server.Close()
	s := &scrapes{map[string]*series{}, time.Now().Truncate(time.Second)}
	for range rounds {
		work()
		s.last = s.last.Add(step)
		s.scrape(t, server.URL, "replica-1")
	}
	return s
}

// leases shows a lease service in which one peer holds a semaphore, and another waits for it.
func leases(t *testing.T) prometheus.Collector {
	t.Helper()
	start := time.Now()
	table, err := lease.NewTable(lease.Config{Semaphores: map[string]lease.Semaphore{"A": {Max: 1}}},
		lease.ClockTokens(start), start)
	if err != nil {
		t.Fatal(err)
	}
	for id := range uint64(2) {
		err := table.AddPeer(id, time.Hour, start)
		_, err2 := table.Acquire(id, "A", 1, start)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
	}
	return metrics.NewLeases(func() lease.Stats {
		return lease.Stats{Leads: true, Peers: 2, Semaphores: table.Stats(time.Now())}
	})
}

// traffic makes the limiters and returns what they do between two scrapes.
func traffic(t *testing.T, reg *quotient.Registry, c *metrics.Collector) func() {
	t.Helper()
	limit := quotient.Limit{InFlight: 8,
		Rates: []quotient.Rate{{Name: "second", Events: 1e-3, Per: time.Second, Burst: 8}}}
	api, err := reg.Limiter("api", limit, c.Observe(), quotient.MaxKeys(2))
	up, err2 := reg.Limiter("up",
		quotient.Limit{InFlight: 1, Rates: []quotient.Rate{quotient.PerSecond(1e6)}}, c.Observe(),
		quotient.Policy(policy.AIMD{}), quotient.Demand(10, time.Hour))
	paid := quotient.Limit{InFlight: 16,
		Rates: []quotient.Rate{{Name: "second", Events: 1, Per: time.Second, Burst: 8}}}
	err3 := errors.Join(api.SetPool(quotient.Pool{Replicas: 4, Ordinal: 1}, time.Hour),
		api.SetPlan("paid", &paid))
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
	up.TryAcquire("held")
	carry(t, up)
	return func() {
		for i := range 4 {
			api.Allow(fmt.Sprint(i))
		}
		if p, err := up.Acquire(context.Background(), "other"); err == nil {
			p.Done(policy.Feedback{Outcome: policy.Throttled})
			p.Release()
		}
	}
}

// carry has a limiter know what three other replicas do, until the test ends.
func carry(t *testing.T, l *quotient.Limiter) {
	t.Helper()
	src := &carried.Source{Replicas: 4, Every: 5 * time.Millisecond, Others: quotient.Terms{3, 1000, 7, 5, 9}}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- l.Follow(ctx, src) }()
	t.Cleanup(func() { cancel(); <-ended })
	<-src.Turned()
}

// scrape reads the metrics of one replica.
func (s *scrapes) scrape(t *testing.T, url, instance string) {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	p := expfmt.NewTextParser(model.UTF8Validation)
	families, err := p.TextToMetricFamilies(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatal(res.Status, err)
	}
	for _, f := range families {
		vector, err := expfmt.ExtractSamples(
			&expfmt.DecodeOptions{Timestamp: model.TimeFromUnixNano(s.last.UnixNano())}, f)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range vector {
			s.add(v, instance)
		}
	}
}

func (s *scrapes) add(v *model.Sample, instance string) {
	b := labels.NewBuilder(labels.EmptyLabels())
	for name, value := range v.Metric {
		b.Set(string(name), string(value))
	}
	b.Set("instance", instance).Set("job", "quotient")
	ls := b.Labels()
	one := s.series[ls.String()]
	if one == nil {
		one = &series{labels: ls}
		s.series[ls.String()] = one
	}
	one.points = append(one.points, point{int64(v.Timestamp), float64(v.Value)})
}

// names are the metrics, each with its labels.
func (s *scrapes) names() map[string][]string {
	all := map[string][]string{}
	for _, one := range s.series {
		name := one.labels.Get(model.MetricNameLabel)
		one.labels.Range(func(l labels.Label) {
			if !slices.Contains(all[name], l.Name) {
				all[name] = append(all[name], l.Name)
			}
		})
	}
	return all
}

// eval evaluates an expression at the time of the last scrape.
func (s *scrapes) eval(t *testing.T, expr string) promql.Vector {
	t.Helper()
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, Parser: promParser})
	defer func() { _ = engine.Close() }()
	q, err := engine.NewInstantQuery(t.Context(), s, nil, expr, s.last)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	defer q.Close()
	res := q.Exec(t.Context())
	v, err := res.Vector()
	if err != nil {
		t.Errorf("%s: %v", expr, err)
	}
	return slices.Clone(v)
}

// Querier implements storage.Queryable.
func (s *scrapes) Querier(_, _ int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: s.find}, nil
}

func (s *scrapes) find(_ bool, _ *storage.SelectHints, ms ...*labels.Matcher) storage.SeriesSet {
	var found []storage.Series
	for _, one := range s.series {
		if !slices.ContainsFunc(ms, func(m *labels.Matcher) bool {
			return !m.Matches(one.labels.Get(m.Name))
		}) {
			found = append(found, storage.NewListSeries(one.labels, one.points))
		}
	}
	return &seriesSet{SeriesSet: storage.NoopSeriesSet(), found: found}
}

// seriesSet iterates over what was found.
type seriesSet struct {
	storage.SeriesSet
	found []storage.Series
	at    int
}

func (s *seriesSet) Next() bool         { s.at++; return s.at <= len(s.found) }
func (s *seriesSet) At() storage.Series { return s.found[s.at-1] }
func (s *seriesSet) Err() error         { return nil }
