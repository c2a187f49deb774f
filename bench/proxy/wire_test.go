package main

import (
	"bufio"
	"context"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

func TestHeadsAreRead(t *testing.T) {
	for head, want := range map[string]struct {
		status, length int
		last           bool
		err            string
	}{
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n":                         {200, 3, false, ""},
		"HTTP/1.1 429 Too\r\nconnection: Close\r\ncontent-length:  0 \r\n\r\n": {429, 0, true, ""},
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n":                {err: "no Content-Length"},
		"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n":                        {err: "Content-Length"},
		"HTTP/1.1 abc OK\r\n\r\n":                                              {err: "no status"},
		"nothing\r\n":                                                          {err: "no status line"},
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n":                             {err: "EOF"},
	} {
		status, length, last, err := readHead(bufio.NewReader(strings.NewReader(head)))
		if err != nil && (want.err == "" || !strings.Contains(err.Error(), want.err)) {
			t.Errorf("%q: %v", head, err)
		}
		if err == nil && (want.err != "" || status != want.status || length != want.length ||
			last != want.last) {
			t.Errorf("%q: %d %d %v", head, status, length, last)
		}
	}
}

// TestClientsAndUpstreams checks that a crowd asks for all paths, and that a client ends with its context
// while it waits.
func TestClientsAndUpstreams(t *testing.T) {
	book := newLedger(time.Hour)
	g := newGate()
	u, err := serveUpstream(func(target []byte) {
		book.arrive(target)
		g.arrive(target)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer u.close()
	defer g.lift()
	all := paths("k", 20)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	got := crowd{addr: u.addr, conns: 4, paths: all}.run(ctx)
	arrived := 0
	for _, path := range all {
		arrived += book.total(path)
	}
	if err := got.all(200); err != nil || got.keys != 20 || arrived != got.asked ||
		len(got.took) != arrived || got.rate() <= 0 {
		t.Errorf("%v, %d keys, %d of %d arrived", err, got.keys, arrived, got.asked)
	}
	g.pause()
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan seen)
	go func() { done <- crowd{addr: u.addr, conns: 3, paths: all, abandon: true}.run(ctx) }()
	if err := until(t.Context(), time.Minute, func() error {
		if g.holds() < 3 {
			return context.DeadlineExceeded
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	leave()
	if s := <-done; s.asked != 0 || s.lost != 0 {
		t.Errorf("requests that were abandoned count: %+v", s)
	}
}

// TestALostRequestIsSeen checks that no crowd is content with a server that hangs up.
func TestALostRequestIsSeen(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	got := crowd{addr: l.Addr().String(), conns: 1, paths: []string{"/"}}.run(t.Context())
	if got.lost != mostLost || got.asked != mostLost || got.err == nil || got.all(200) == nil {
		t.Errorf("%+v", got)
	}
	_ = l.Close()
	<-gone
}

func TestALedgerKeepsWindowsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the clock is at a full second
		l := newLedger(time.Second)
		first := l.index(time.Now())
		for range 3 {
			l.arrive([]byte("/a?1"))
		}
		l.arrive([]byte("/b"))
		time.Sleep(900 * time.Millisecond)
		l.arrive([]byte("/a?2"))
		time.Sleep(100 * time.Millisecond)
		l.arrive([]byte("/a"))
		both := []string{"/a", "/b"}
		if got, want := l.tally("x", first, both), (tally{name: "x", least: 1, most: 4,
			latest: 900 * time.Millisecond, window: time.Second}); got != want {
			t.Errorf("%+v", got)
		}
		if got := l.tally("y", first+1, both); got.least != 0 || got.most != 1 || got.latest != 0 {
			t.Errorf("%+v", got)
		}
		if l.total("/a") != 5 || l.total("/c") != 0 {
			t.Error(l.total("/a"), l.total("/c"))
		}
		for _, c := range []struct {
			path  string
			limit int
			since int64
			want  float64
		}{
			{"/a", 3, first, 4. / 3}, {"/a", 2, first - 1, 1}, {"/a", 4, first, 1}, {"/b", 4, first, .25},
			{"/c", 5, first, 0},
		} {
			if got := l.pace(c.path, c.limit, c.since); got != c.want {
				t.Errorf("%+v: got %v", c, got)
			}
		}
	})
}

// TestAGateKnowsTheOrder checks that requests that come in another order than they were sent in are noticed.
func TestAGateKnowsTheOrder(t *testing.T) {
	g := newGate()
	for _, target := range []string{"/a?0", "/b?0", "/a?1", "/b?2", "/b?1"} {
		g.arrive([]byte(target))
	}
	if all, disordered := g.arrived(); all != 5 || disordered != 1 || g.holds() != 0 {
		t.Error(all, disordered, g.holds())
	}
}

// TestNativeQuantiles checks that what is read of a native histogram is within a bucket of what was put into
// it.
func TestNativeQuantiles(t *testing.T) {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "h", NativeHistogramBucketFactor: 1.1})
	for i := range 1000 {
		h.Observe(float64(i+1) * 1e-6)
	}
	m := new(dto.Metric)
	if err := h.Write(m); err != nil {
		t.Fatal(err)
	}
	name := "h"
	q, err := quantilesIn(map[string]*dto.MetricFamily{"h": {Name: &name, Metric: []*dto.Metric{m}}}, "h")
	near := func(is, want time.Duration) bool { return is > want*10/11 && is < want*11/10 }
	if err != nil || q.Count != 1000 || !near(q.P50, 500*time.Microsecond) ||
		!near(q.P99, 990*time.Microsecond) {
		t.Errorf("%+v %v", q, err)
	}
	if _, err := quantilesIn(nil, "h"); err == nil {
		t.Error("no histogram is no error")
	}
	if _, err := quantilesIn(map[string]*dto.MetricFamily{"h": {Metric: []*dto.Metric{m, m}}},
		"h"); err == nil {
		t.Error("two series are no error")
	}
}
