package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"
)

const (
	wokenPaths = 10
	wokenConns = 40 // clients of one path, of which half get their turn in each second
	easyPace   = 10 * time.Millisecond
)

// woken is a file whose windows wake requests.
const woken = endpoints + `
[[proxy.rules]]
pattern = "/"
limiter = "paths"
[limiters.paths]
rates = [{ events = 20, per = "1s", aligned = true }]
`

// costs is the overhead that was seen.
type costs struct {
	easy, awake cost
	bare        quantiles
}

// cost is the overhead of a proxy's requests, and the part of it that the limiter has.
type cost struct {
	proxy, limiter quantiles
	asked          int
}

// overhead asks what requests that are within their limits lose.
func (b *bench) overhead(ctx context.Context) (section, error) {
	var r costs
	u, err := serveUpstream(func([]byte) {})
	if err != nil {
		return r.section(), err
	}
	defer u.close()
	if err = r.measureEasy(ctx, b, u); err == nil {
		err = r.measureAwake(ctx, b, u)
	}
	return r.section(), err
}

// measureEasy has both proxies serve a load that is no burden, in turn.
func (r *costs) measureEasy(ctx context.Context, b *bench, u *upstream) (err error) {
	ours, err := b.startQuotient(ctx, "quotient proxy", plenty, u)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ours.end()) }()
	bare, err := tracedProxy(ctx, u)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bare.end()) }()
	for range b.rounds {
		for _, s := range []*server{ours, bare} {
			part, cancel := context.WithTimeout(ctx, b.slice)
			got := crowd{addr: s.addr, conns: throughputConns, paths: paths("k", b.keys),
				pace: easyPace}.run(part)
			cancel()
			if err := errors.Join(got.all(200), ctx.Err()); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			if s == ours {
				r.easy.asked += got.asked
			}
		}
	}
	if r.bare, err = bare.measured(ctx); err != nil {
		return err
	}
	return r.easy.read(ctx, ours)
}

// measureAwake has requests wait for the next window all the time.
func (r *costs) measureAwake(ctx context.Context, b *bench, u *upstream) (err error) {
	s, err := b.startQuotient(ctx, "quotient proxy", woken, u)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.end()) }()
	part, cancel := context.WithTimeout(ctx, max(3*time.Second, time.Duration(b.rounds)*b.slice))
	defer cancel()
	got := crowd{addr: s.addr, conns: wokenPaths * wokenConns, paths: paths("k", wokenPaths)}.run(part)
	if err := errors.Join(got.all(200), ctx.Err()); err != nil {
		return err
	}
	r.awake.asked = got.asked
	return r.awake.read(ctx, s)
}

// read takes both histograms from one scrape.
func (c *cost) read(ctx context.Context, s *server) error {
	all, err := s.scrape(ctx)
	if err != nil {
		return err
	}
	var err1, err2 error
	c.proxy, err1 = quantilesIn(all, "quotient_proxy_overhead_seconds")
	c.limiter, err2 = quantilesIn(all, "quotient_overhead_seconds")
	return errors.Join(err1, err2)
}

func tracedProxy(ctx context.Context, u *upstream) (*server, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return launch(ctx, "bare ReverseProxy", func(_ string, port int) ([]string, error) {
		return []string{exe, bareArg, at(port), u.addr, tracedArg}, nil
	})
}

// measured is what a traced proxy says of itself.
func (s *server) measured(ctx context.Context) (q quantiles, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.addr+overheadURL, nil)
	if err != nil {
		return q, err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return q, err
	}
	defer resp.Body.Close()
	return q, json.NewDecoder(resp.Body).Decode(&q)
}

// times is how many times as long as some others together, at p50 and p99.
func (q quantiles) times(others ...quantiles) (p50, p99 float64) {
	var sum quantiles
	for _, o := range others {
		sum.P50, sum.P99 = sum.P50+o.P50, sum.P99+o.P99
	}
	return float64(q.P50) / float64(max(1, sum.P50)), float64(q.P99) / float64(max(1, sum.P99))
}

func (r costs) section() section {
	s := section{
		title: "Overhead",
		note: fmt.Sprintf(
			"From the later of a request's arrival and the instant its tokens and slots were free, to the "+
				"first byte to the upstream, less dialling; in µs. Within limits: %d connections that send requests "+
				"every %v. Woken: %d paths with 20 a second each, by the clock, and %d clients each that "+
				"wait. The limiter alone is quotient_overhead_seconds of the same requests in the same "+
				"process, the proxy is quotient_proxy_overhead_seconds. The bare ReverseProxy is measured "+
				"from its handler to the same byte, in turn with the proxy within limits. A cost of the "+
				"proxy contains that of the limiter. Where nothing waits, a limiter takes so little that no "+
				"proxy on net/http is near it: the last columns show how far off the bare one is, without "+
				"any limiter. So the goals there are beside the two together.",
			throughputConns, easyPace, wokenPaths, wokenConns),
		header: []string{"requests", "what", "count", "p50", "p99", "p50 of the limiter's",
			"p99 of the limiter's"},
	}
	for _, row := range []struct {
		load, what string
		q, limiter quantiles
	}{
		{"within limits", "quotient proxy", r.easy.proxy, r.easy.limiter},
		{"within limits", "the limiter alone", r.easy.limiter, r.easy.limiter},
		{"within limits", "bare ReverseProxy, no limiter", r.bare, r.easy.limiter},
		{"woken", "quotient proxy", r.awake.proxy, r.awake.limiter},
		{"woken", "the limiter alone", r.awake.limiter, r.awake.limiter},
	} {
		p50, p99 := row.q.times(row.limiter)
		s.rows = append(s.rows, []string{row.load, row.what, fmt.Sprint(row.q.Count), micros(row.q.P50),
			micros(row.q.P99), number(p50) + " x", number(p99) + " x"})
	}
	s.verdicts = append(s.verdicts, r.awake.verdicts("woken", "the limiter alone", r.awake.limiter)...)
	s.verdicts = append(s.verdicts, r.easy.verdicts("within limits",
		"the limiter and a bare ReverseProxy together", r.easy.limiter, r.bare)...)
	return s.judge(
		exactly("within limits: requests in both histograms", r.easy.proxy.Count+r.easy.limiter.Count,
			2*r.easy.asked),
		exactly("woken: requests in both histograms", r.awake.proxy.Count+r.awake.limiter.Count,
			2*r.awake.asked),
	)
}

func (c cost) verdicts(load, beside string, others ...quantiles) []verdict {
	p50, p99 := c.proxy.times(others...)
	return []verdict{
		atMost(fmt.Sprintf("%s: p50 beside %s", load, beside), p50, 2, " x"),
		atMost(fmt.Sprintf("%s: p99 beside %s", load, beside), p99, 5, " x"),
	}
}
