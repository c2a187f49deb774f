package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/quotient-go/quotient/admin"
)

// server serves /metrics and the operator's API on the loopback interface, and is the client of both.
type server struct {
	http   *http.Server
	url    string
	client *http.Client
	ended  chan error
	events atomic.Int64 // that the open page has received
	bytes  atomic.Int64 // of them
	tables atomic.Int64 // of the hottest keys
}

func serve(w *world) (*server, error) {
	api, err := admin.New(&w.limiters, admin.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, err
	}
	prom := prometheus.NewRegistry()
	if err := prom.Register(w.collector); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(prom, promhttp.HandlerOpts{}))
	mux.Handle("/", api)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{
		http: &http.Server{Handler: mux, ReadHeaderTimeout: time.Second}, url: "http://" + l.Addr().String(),
		client: &http.Client{Transport: &http.Transport{}}, ended: make(chan error, 1),
	}
	go func() { s.ended <- s.http.Serve(l) }()
	return s, nil
}

// stop ends the server and waits for it.
func (s *server) stop() {
	s.client.CloseIdleConnections()
	_ = s.http.Close()
	<-s.ended
}

// open keeps a page open until the context ends: it reads GET /events, coming again when a stream has ended, and asks for the hottest
// keys now and then. The channel then gives the errors of both, nil if there were none.
func (s *server) open(ctx context.Context) <-chan error {
	closed := make(chan error, 2)
	repeat := func(once func(context.Context) error) {
		var err error
		for err == nil && ctx.Err() == nil {
			err = once(ctx)
		}
		if ctx.Err() != nil {
			err = nil // the end has cut it short
		}
		closed <- err
	}
	go repeat(s.read)
	go repeat(s.keys)
	return closed
}

// read reads one stream to its end.
func (s *server) read(ctx context.Context) error {
	body, err := s.get(ctx, "/events")
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	lines := bufio.NewReader(body)
	for {
		line, err := lines.ReadString('\n')
		if strings.HasPrefix(line, "data: ") {
			s.events.Add(1)
			s.bytes.Add(int64(len(line)))
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// scrape returns the series of GET /metrics, without their values.
func (s *server) scrape(ctx context.Context) (series []string, size int, err error) {
	body, err := s.get(ctx, "/metrics")
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = body.Close() }()
	text, err := io.ReadAll(body)
	for line := range strings.Lines(string(text)) {
		if i := strings.LastIndexByte(line, ' '); i > 0 && line[0] != '#' {
			series = append(series, line[:i])
		}
	}
	return series, len(text), err
}

// keysEvery is how often the page asks for the hottest keys: each time all keys are looked at.
const keysEvery = 5 * time.Second

// keys asks for the hottest keys, as the page does for its table, and rests.
func (s *server) keys(ctx context.Context) error {
	body, err := s.get(ctx, "/keys?limiter=api&top=20")
	if err != nil {
		return err
	}
	n, err := io.Copy(io.Discard, body)
	if err := errors.Join(err, body.Close()); err != nil {
		return err
	}
	if n > 0 {
		s.tables.Add(1)
	}
	rest := time.NewTimer(keysEvery)
	defer rest.Stop()
	select {
	case <-rest.C:
	case <-ctx.Done():
	}
	return nil
}

func (s *server) get(ctx context.Context, path string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		return nil, err
	}
	res, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		_ = res.Body.Close()
		return nil, fmt.Errorf("GET %s: %s", path, res.Status)
	}
	return res.Body, nil
}
