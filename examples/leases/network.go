package main

import (
	"errors"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/quotient-go/quotient/lease"
)

// service is a lease server that can be restarted. The server's state is gone then.
type service struct {
	config lease.Config
	mu     sync.Mutex // guards server
	server *lease.Server
}

func (s *service) start() error {
	server, err := lease.NewServer(s.config, lease.ServerOptions{})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server != nil {
		s.server.Close()
	}
	s.server = server
	return nil
}

func (s *service) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.server.Close()
}

// ServeHTTP passes a request to the server that runs now.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	server := s.server
	s.mu.Unlock()
	server.ServeHTTP(w, r)
}

var errCut = errors.New("the cable is cut")

// cable is a client's way to the server. It can be cut.
type cable struct {
	http.RoundTripper

	cut atomic.Bool
}

func (c *cable) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.cut.Load() {
		return nil, errCut
	}
	return c.RoundTripper.RoundTrip(r)
}
