package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/quotient-go/quotient/bench/rig"
	"github.com/quotient-go/quotient/internal/rest"
)

// An upstream is what all proxies stand before. It counts requests, and does as little else as it can.
type upstream struct {
	addr    string
	arrived atomic.Int64
	server  fasthttp.Server
	ended   chan error
}

// serveUpstream starts an upstream on the loopback interface.
func serveUpstream() (*upstream, error) {
	l, err := net.Listen("tcp", rig.At(0))
	if err != nil {
		return nil, err
	}
	u := &upstream{addr: l.Addr().String(), ended: make(chan error, 1)}
	u.server.Handler = func(c *fasthttp.RequestCtx) {
		u.arrived.Add(1)
		c.SetBodyString("ok\n")
	}
	u.server.CloseOnShutdown = true
	go func() { u.ended <- u.server.Serve(l) }()
	return u, nil
}

func (u *upstream) close() error { return errors.Join(u.server.Shutdown(), <-u.ended) }

// A crowd is clients that each send the next request as soon as they were answered, or after a pause.
type crowd struct {
	addr  string
	paths []string
	pause time.Duration
}

// conns is how many connections a crowd has.
const conns = 32

// run lets the crowd ask until the context ends, and returns the µs from each request to its answer. A refusal
// or a lost request is an error: something else was measured then.
func (c crowd) run(ctx context.Context) (took []float64, during time.Duration, err error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	began := time.Now()
	for i := range conns {
		all.Go(func() {
			its, failed := c.one(ctx, i)
			mu.Lock()
			defer mu.Unlock()
			took, err = append(took, its...), errors.Join(err, failed)
		})
	}
	all.Wait()
	if err == nil && len(took) == 0 {
		err = errors.New("no request was answered")
	}
	return took, time.Since(began), err
}

// one is one client. A request that is on its way when the context ends is waited for.
func (c crowd) one(ctx context.Context, i int) (took []float64, err error) {
	client := fasthttp.HostClient{Addr: c.addr, MaxConns: 1, MaxIdemponentCallAttempts: 1,
		ReadTimeout: time.Minute}
	defer client.CloseIdleConnections()
	order := rand.New(rand.NewPCG(uint64(i), 1)).Perm(len(c.paths)) // each client has its own
	var req fasthttp.Request
	var resp fasthttp.Response
	for ctx.Err() == nil {
		req.SetRequestURI("http://bench" + c.paths[order[len(took)%len(order)]])
		began := time.Now()
		if err := client.Do(&req, &resp); err != nil {
			return took, err
		}
		took = append(took, rig.Micros(time.Since(began)))
		if resp.StatusCode() != fasthttp.StatusOK {
			return took, fmt.Errorf("answered with status %d: %.200s", resp.StatusCode(), resp.Body())
		}
		if c.pause > 0 {
			rest.For(ctx, c.pause)
		}
	}
	return took, nil
}

func paths(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("/k/%06d", i))
	}
	return all
}

// used is the processor time of a server and its children so far.
func (s *server) used() (time.Duration, error) {
	if s.Process == nil {
		return 0, nil
	}
	return rig.Used(s.PID)
}
