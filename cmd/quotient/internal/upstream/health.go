package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/quotient-go/quotient/config"
)

// record is what is known of the health of an upstream. Pool.mu guards it.
type record struct {
	pool     *Pool
	healthy  bool
	since    time.Time
	answered bool // a check has succeeded
	checks   int  // that failed in a row
	dials    int  // of requests, that failed in a row
	well     int  // checks that succeeded in a row
	err      string
	errAt    time.Time
}

// dialled learns how a request's attempt to connect ended.
func (u *upstream) dialled(err error) {
	p := u.pool
	p.mu.Lock()
	if err == nil {
		u.dials = 0
		p.mu.Unlock()
		return
	}
	u.failed(err)
	out := false
	if p.watched { // or there is no check that brings it back
		u.dials++
		out = u.healthy && u.dials >= p.health.Unhealthy
	}
	p.turn(u, out, err)
}

// checked learns how a check ended.
func (u *upstream) checked(err error) {
	p := u.pool
	p.mu.Lock()
	if err != nil {
		u.failed(err)
		u.checks++
		p.turn(u, u.healthy && (!u.answered || u.checks >= p.health.Unhealthy), err)
		return
	}
	u.answered, u.checks, u.dials = true, 0, 0
	u.well++
	p.turn(u, !u.healthy && u.well >= p.health.Healthy, nil)
}

// failed notes a failure. The caller holds Pool.mu.
func (u *upstream) failed(err error) {
	u.well, u.err, u.errAt = 0, err.Error(), time.Now()
}

// turn takes an upstream out because of err, or brings it back, if now is true, and logs it. The caller holds
// p.mu, which turn unlocks: no request waits for a log.
func (p *Pool) turn(u *upstream, now bool, err error) {
	if now {
		u.healthy, u.since = !u.healthy, time.Now()
	}
	answered, usable := u.answered, p.usable(u)
	p.mu.Unlock()
	switch {
	case !now:
	case err == nil:
		p.log.Info("upstream is back", u.target.where())
	default:
		message := "upstream is out"
		if !answered {
			message = "upstream does not answer"
		}
		p.log.Warn(message, u.target.where(), slog.String("error", err.Error()),
			slog.Bool("tried", usable)) // a single one is tried all the same
	}
}

// Watch checks the upstreams until ctx ends, and returns nil then. The first checks are made at once. It
// follows each reload. Only one Watch may run at a time; a second one returns an error.
func (p *Pool) Watch(ctx context.Context) error {
	p.mu.Lock()
	if p.watched {
		p.mu.Unlock()
		return errors.New("upstream: Watch: there is one already")
	}
	p.watched = true
	p.mu.Unlock()
	var all sync.WaitGroup
	ctx, stop := context.WithCancel(ctx)
	defer func() {
		stop()
		all.Wait()
		p.mu.Lock()
		p.watched = false
		p.mu.Unlock()
	}()
	p.follow(ctx, &all)
	return nil
}

// follow has one checker for each upstream, of the settings in force, until ctx ends.
func (p *Pool) follow(ctx context.Context, all *sync.WaitGroup) {
	type settings struct {
		health config.Health
		limits limits
	}
	var in settings
	running := map[*upstream]context.CancelFunc{}
	for {
		p.mu.Lock()
		now, ups, changed := settings{p.health, p.limits}, p.ups, p.changed
		p.mu.Unlock()
		wanted := make(map[*upstream]bool, len(ups))
		for _, u := range ups {
			wanted[u] = true
		}
		for u, stop := range running {
			if !wanted[u] || now != in {
				stop()
				delete(running, u)
			}
		}
		for u := range wanted {
			if running[u] == nil {
				c := newChecker(u, now.health, now.limits)
				own, stop := context.WithCancel(ctx)
				running[u] = stop
				all.Go(func() { c.run(own) })
			}
		}
		in = now
		select {
		case <-ctx.Done():
			for _, stop := range running {
				stop()
			}
			return
		case <-changed:
		}
	}
}

type checker struct {
	up     *upstream
	health config.Health
	limits limits
	dial   dial
	bare   *http.Transport // its connections are no request's
}

func newChecker(u *upstream, h config.Health, l limits) *checker {
	c := &checker{up: u, health: h, limits: l, dial: u.target.dial(min(l.dial, h.Timeout))}
	c.bare = bareTransport(u.target, l, c.dial)
	c.bare.DisableKeepAlives = true // a check finds out whether a connection opens
	return c
}

// run checks until ctx ends: at once, and then each Every, a tenth more or less.
func (c *checker) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		err := c.check(ctx)
		if ctx.Err() != nil || err == nil && c.up.target.unknown() { // then its addresses take its place
			return
		}
		c.up.checked(err)
		after := lookAgain
		if err != nil {
			after = lookSoon
		}
		_ = c.up.pool.look(ctx, c.up.target.name(), after) // it is logged
		timer.Reset(time.Duration(float64(c.health.Every) * (0.9 + 0.2*rand.Float64())))
	}
}

func (c *checker) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.health.Timeout)
	defer cancel()
	t := c.up.target
	switch {
	case t.unknown():
		return c.up.pool.look(ctx, t.name(), 0)
	case c.health.Path == "":
		return c.connect(ctx)
	}
	to, err := url.Parse(t.urlScheme() + "://" + t.host + c.health.Path)
	if err != nil {
		return err
	}
	req := &http.Request{Method: http.MethodGet, URL: to, Header: http.Header{"User-Agent": {"quotient"}}}
	req.Host = t.ownHost() // there is no client
	defer c.bare.CloseIdleConnections()
	resp, err := c.bare.RoundTrip(req.WithContext(ctx))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 399 {
		return fmt.Errorf("GET %s: the answer is %s", c.health.Path, resp.Status)
	}
	return nil
}

// connect opens a connection, with its handshake if it has one.
func (c *checker) connect(ctx context.Context) error {
	conn, err := c.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if c.up.target.scheme != "https" {
		return nil
	}
	return tls.Client(conn, c.up.target.tlsConfig(c.limits, "h2", "http/1.1")).HandshakeContext(ctx)
}

// ownHost is the Host of an upstream: without a port that its scheme implies.
func (t target) ownHost() string {
	implied := ":80"
	if t.scheme == "https" {
		implied = ":443"
	}
	return strings.TrimSuffix(strings.TrimSuffix(t.host, implied), ":")
}

// hostFor is the Host that requests get by config.Proxy.Host; empty: they keep the client's.
func (t target) hostFor(setting string) string {
	if setting == "upstream" || setting == "" && t.scheme == "https" {
		return t.ownHost()
	}
	return ""
}

func (t target) hostname() string { return (&url.URL{Host: t.host}).Hostname() }

func (t target) addr() string {
	port := (&url.URL{Host: t.host}).Port()
	switch {
	case port != "":
	case t.scheme == "https":
		port = "443"
	default:
		port = "80"
	}
	return net.JoinHostPort(t.hostname(), port)
}
