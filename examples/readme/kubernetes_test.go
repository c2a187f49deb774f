package readme

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"time"
)

// The function of docs/kubernetes.md, to the letter.

func shutDown(ctx context.Context, server *http.Server, drain func(), listed, grace time.Duration) error {
	<-ctx.Done()       // SIGTERM, by signal.NotifyContext
	time.Sleep(listed) // the Service still sends requests for this long
	drain()            // waiting requests get 503; admitted ones continue
	end, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	return server.Shutdown(end)
}

// A server ends in order: it goes on while it is listed, then drains, then ends without an error.
func TestKubernetesShutDown(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	drained := false
	server := &http.Server{ReadHeaderTimeout: time.Second,
		Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { cancel() })}
	served := make(chan error)
	go func() { served <- server.Serve(l) }()
	transport := &http.Transport{}
	resp, err := (&http.Client{Transport: transport}).Get("http://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	transport.CloseIdleConnections()
	err = shutDown(ctx, server, func() { drained = true }, time.Millisecond, 5*time.Second)
	if err != nil || !drained {
		t.Errorf("%v, drained %v", err, drained)
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("served until %v", err)
	}
}
