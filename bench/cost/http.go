package main

import (
	"fmt"
	"net/http"
	"time"

	"github.com/didip/tollbooth/v8"
	"github.com/go-chi/httprate"
	"github.com/throttled/throttled/v2"
	ululelimiter "github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/httplimit"
)

// Names of the HTTP contenders that goals refer to.
const (
	nameBareHandler = "bare handler"
	nameBareTripper = "bare RoundTripper"
	nameMiddleware  = "quotient/httplimit.Middleware"
	nameWait        = "quotient/httplimit.Middleware, Wait"
	nameDraft       = "quotient/httplimit.Middleware, RateLimit fields"
	nameXRateLimit  = "quotient/httplimit.Middleware, X-RateLimit fields"
	nameTransport   = "quotient/httplimit.Transport"
	nameHTTPRate    = "httprate"
)

// httpKeys is how many keys the requests carry, each in the header tenantHeader.
const (
	httpKeys     = 100
	tenantHeader = "X-Tenant"
)

// nopWriter discards the response and counts how often the handler behind the middleware was reached.
type nopWriter struct {
	header http.Header
	served int
}

func (w *nopWriter) Header() http.Header         { return w.header }
func (w *nopWriter) Write(b []byte) (int, error) { return len(b), nil }
func (w *nopWriter) WriteHeader(int)             {}

// serve is the handler behind every middleware.
func serve(w http.ResponseWriter, _ *http.Request) { w.(*nopWriter).served++ }

// tenant is the key of a request, for all that take a function.
func tenant(r *http.Request) string { return r.Header[tenantHeader][0] }

// client sends the same requests over and over, for one worker.
type client struct {
	requests []*http.Request
	writer   nopWriter
	at       int
	_        [64]byte
}

// clients returns one client a worker. Every request has a key and a client address of its own.
func clients(workers int) ([]*client, error) {
	keys := makeKeys("tenant-", httpKeys)
	if err := checkKeys(keys); err != nil {
		return nil, err
	}
	cs := make([]*client, workers)
	for i := range cs {
		cs[i] = &client{writer: nopWriter{header: http.Header{}}}
		for j, key := range keys {
			r, err := http.NewRequest(http.MethodGet, "http://example.com/items", nil)
			if err != nil {
				return nil, err
			}
			r.Header.Set(tenantHeader, key)
			r.RemoteAddr = fmt.Sprintf("192.0.2.%d:4711", j)
			cs[i].requests = append(cs[i].requests, r)
		}
	}
	return cs, nil
}

// next returns the next request.
func (c *client) next() *http.Request {
	if c.at++; c.at == len(c.requests) {
		c.at = 0
	}
	return c.requests[c.at]
}

// run sends n requests through a handler and returns how many came out behind it. Header fields are
// dropped after each request, as a server would, or those that add fields would pile them up.
func (c *client) run(h http.Handler, n int) int {
	c.writer.served = 0
	for range n {
		h.ServeHTTP(&c.writer, c.next())
		clear(c.writer.header)
	}
	return c.writer.served
}

// middlewarePeers wrap a handler. All limit by the tenant's key but tollbooth, which limits by client
// address; there are as many addresses as keys.
func middlewarePeers() ([]named[func(http.Handler) http.Handler], error) {
	l, err := quotient.New(generousLimit())
	if err != nil {
		return nil, err
	}
	gcra, err := newThrottled(generous, 65536)
	if err != nil {
		return nil, err
	}
	thr := throttled.HTTPRateLimiterCtx{RateLimiter: gcra, VaryBy: varyByTenant{}}
	store := ululememory.NewStoreWithOptions(ululelimiter.StoreOptions{CleanUpInterval: time.Hour})
	ulule := stdlib.NewMiddleware(
		ululelimiter.New(store, ululelimiter.Rate{Period: generous.per, Limit: int64(generous.burst)}),
		stdlib.WithKeyGetter(tenant))
	byTenant := func(r *http.Request) (string, error) { return tenant(r), nil }
	return []named[func(http.Handler) http.Handler]{
		{nameBareHandler, func(h http.Handler) http.Handler { return h }},
		{nameTollbooth, tollbooth.HTTPMiddleware(newTollbooth(generous, 0))},
		{nameHTTPRate, httprate.LimitBy(generous.burst, generous.per, byTenant)},
		{nameThrottled, thr.RateLimit},
		{nameUlule, ulule.Handler},
		{nameMiddleware, httplimit.Middleware(l, tenant)},
		{nameWait, httplimit.Middleware(l, tenant, httplimit.Wait(time.Second))},
		{nameDraft, httplimit.Middleware(l, tenant, httplimit.SendFields(httplimit.FieldsDraft11))},
		{nameXRateLimit, httplimit.Middleware(l, tenant, httplimit.SendFields(httplimit.FieldsXRateLimit))},
	}, nil
}

// named is anything with a contender's name.
type named[T any] struct {
	name string
	it   T
}

// varyByTenant is throttled's key function.
type varyByTenant struct{}

func (varyByTenant) Key(r *http.Request) string { return tenant(r) }

func generousLimit() quotient.Limit {
	return quotient.Rates(quotient.Rate{Events: 1, Per: generous.per, Burst: generous.burst})
}

// httpFigure times the middlewares on a writer that does nothing, and the transport on a RoundTripper
// that does nothing.
func httpFigure(c config) ([]table, error) {
	var tables []table
	for _, workers := range c.cpus {
		m, err := middlewareTable(c, workers)
		if err != nil {
			return nil, err
		}
		t, err := transportTable(c, workers)
		if err != nil {
			return nil, err
		}
		tables = append(tables, m, t)
	}
	return tables, nil
}

func middlewareTable(c config, workers int) (table, error) {
	cs, err := middlewareContenders(workers)
	if err != nil {
		return table{}, err
	}
	all, err := race(c, workers, cs)
	if err != nil {
		return table{}, err
	}
	note := fmt.Sprintf("No-op writer, %d keys, every request reached the handler. Fixed policy, no hooks.", httpKeys)
	return raceTable(fmt.Sprintf("Middleware, cpu %d", workers), note, all, []string{nameTollbooth, nameHTTPRate}, []goal{
		{nameMiddleware, "", nanos, 150},
		{nameMiddleware, "", allocsEach, 0},
		{nameDraft, "", nanos, 300},
		{nameDraft, "", allocsEach, 2},
	}), nil
}

func middlewareContenders(workers int) ([]contender, error) {
	peers, err := middlewarePeers()
	if err != nil {
		return nil, err
	}
	var cs []contender
	for _, p := range peers {
		h := p.it(http.HandlerFunc(serve))
		senders, err := clients(workers)
		if err != nil {
			return nil, err
		}
		cs = append(cs, contender{name: p.name, run: func(w, n int) int { return senders[w].run(h, n) }})
	}
	return cs, nil
}

// nopTripper answers every request with 200 and no body.
type nopTripper struct{ header http.Header }

func (t nopTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: t.header, Body: http.NoBody, Request: r}, nil
}

// trip sends n requests and returns how many were answered with 200.
func (c *client) trip(rt http.RoundTripper, n int) int {
	answered := 0
	for range n {
		resp, err := rt.RoundTrip(c.next())
		if err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusOK {
			answered++
		}
	}
	return answered
}

func transportTable(c config, workers int) (table, error) {
	cs, err := transportContenders(workers)
	if err != nil {
		return table{}, err
	}
	all, err := race(c, workers, cs)
	if err != nil {
		return table{}, err
	}
	note := "A rate and an in-flight limit, Fixed policy; the body is closed after every answer, all were 200."
	return raceTable(fmt.Sprintf("Transport, cpu %d", workers), note, all, []string{nameBareTripper}, []goal{
		{nameTransport, nameBareTripper, nanos, 1000},
		{nameTransport, nameBareTripper, allocsEach, 4},
	}), nil
}

func transportContenders(workers int) ([]contender, error) {
	limit := generousLimit()
	limit.InFlight = 1000
	l, err := quotient.New(limit)
	if err != nil {
		return nil, err
	}
	base := nopTripper{header: http.Header{}}
	var cs []contender
	for _, p := range []named[http.RoundTripper]{
		{nameBareTripper, base},
		{nameTransport, &httplimit.Transport{Base: base, Limiter: l, Key: tenant}},
	} {
		senders, err := clients(workers)
		if err != nil {
			return nil, err
		}
		cs = append(cs, contender{name: p.name, run: func(w, n int) int { return senders[w].trip(p.it, n) }})
	}
	return cs, nil
}
