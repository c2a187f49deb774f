package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/quotient-go/quotient/cmd/quotient/internal/cmdline"
	"github.com/quotient-go/quotient/internal/rest"
)

// visitors are the load of the demo: for each path so many clients, one after the other request, each with a
// pause. With the default of 100 a minute the first two stay below their limit and the others do not.
var visitors = []struct {
	path    string
	clients int
	pause   time.Duration
}{
	{"/calm", 1, 3 * time.Second},
	{"/steady", 2, 2 * time.Second},
	{"/busy", 4, 1500 * time.Millisecond},
	{"/rush", 20, 500 * time.Millisecond},
}

type tally struct {
	passed, refused, failed atomic.Uint64
	longest                 atomic.Int64 // time.Duration
}

// demo serves with an upstream and load of its own, until ctx ends or --demo-for has passed.
func (c *proxyCmd) demo(ctx context.Context, s cmdline.Streams) error {
	ctx, cancel := context.WithTimeout(ctx, c.DemoFor)
	defer cancel()
	upstream, answer, err := openDemoUpstream(ctx)
	if err != nil {
		return err
	}
	c.Upstreams = []string{"http://" + upstream.Addr().String()}
	service, err := c.open(ctx, newLog(c.Log, slog.LevelWarn, s.Err))
	if err != nil {
		return errors.Join(err, upstream.Close())
	}
	service.out = s.Out
	tallies := make([]tally, len(visitors))
	target := "http://" + service.listener.Addr().String()
	explain(s.Out, service, target, c.DemoFor)
	load := func(ctx context.Context) error { visit(ctx, target, tallies); return nil }
	// The load ends with ctx, before the proxy does, the upstream after it.
	serve := func(ctx context.Context) error { return service.run(ctx, nil) }
	err = together(ctx, serve, answer, within(ctx, load))
	sum(s.Out, tallies)
	return err
}

// explain says what there is to see.
func explain(w io.Writer, s *service, target string, most time.Duration) {
	l := s.conf.File().Limiters[limiterName]
	beyond := "wait"
	if l.Refuse {
		beyond = "get 429s"
	}
	fmt.Fprintf(w, "The proxy is at %s. Each path has its own limit over the fleet: %s.\n", target, l.Limit)
	fmt.Fprintf(w, "Its clients stay within the default limit on /calm and /steady. "+
		"They exceed it on /busy and /rush, and %s.\n", beyond)
	if s.operator.url != "" {
		fmt.Fprintf(w, "\n  The page: %s\n\n", s.operator.url)
	}
	fmt.Fprintf(w, "Try: curl -i %s/mine\n", target)
	fmt.Fprintf(w, "It ends with Ctrl-C, or after %v.\n", most)
}

func sum(w io.Writer, tallies []tally) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\npath\tpassed\trefused\tfailed\tlongest wait\t")
	for i := range tallies {
		n := &tallies[i]
		longest := time.Duration(n.longest.Load()).Round(time.Millisecond)
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%v\t\n",
			visitors[i].path, n.passed.Load(), n.refused.Load(), n.failed.Load(), longest)
	}
	_ = t.Flush()
}

// visit is the load, until ctx ends.
func visit(ctx context.Context, target string, tallies []tally) {
	transport := &http.Transport{MaxIdleConnsPerHost: 32}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	var all sync.WaitGroup
	for i, v := range visitors {
		for range v.clients {
			all.Go(func() {
				for rest.For(ctx, v.pause) {
					tallies[i].ask(ctx, client, target+v.path)
				}
			})
		}
	}
	all.Wait()
}

func (n *tally) ask(ctx context.Context, client *http.Client, target string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		n.failed.Add(1)
		return
	}
	start := time.Now()
	resp, err := client.Do(req)
	if took := int64(time.Since(start)); took > n.longest.Load() {
		n.longest.Store(took)
	}
	switch {
	case ctx.Err() != nil: // the end of the demo, and not the proxy's answer
	case err != nil:
		n.failed.Add(1)
	case resp.StatusCode == http.StatusOK:
		n.passed.Add(1)
	default:
		n.refused.Add(1)
	}
	if err == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
		_ = resp.Body.Close()
	}
}

// openDemoUpstream opens a listener on loopback, at which serve answers every path until its context ends.
func openDemoUpstream(ctx context.Context) (l net.Listener, serve runs, err error) {
	var config net.ListenConfig
	if l, err = config.Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
		return nil, nil, err
	}
	hello := func(w http.ResponseWriter, r *http.Request) {
		rest.For(r.Context(), 20*time.Millisecond)
		fmt.Fprintf(w, "The demo's upstream answers %q, process %d.\n", r.URL.Path, os.Getpid())
	}
	srv := &http.Server{Handler: http.HandlerFunc(hello), ReadHeaderTimeout: 5 * time.Second}
	return l, func(ctx context.Context) error {
		defer context.AfterFunc(ctx, func() { _ = srv.Close() })()
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}, nil
}
