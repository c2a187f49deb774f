package readme

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/admin"
)

// The functions of docs/kubernetes.md, to the letter.

func serve(ctx context.Context, server *http.Server, l net.Listener, drain func(),
	listed, grace time.Duration) error {
	done := make(chan error, 1)
	go func() {
		<-ctx.Done()       // SIGTERM, by signal.NotifyContext
		time.Sleep(listed) // the Service still sends requests for this long
		drain()            // waiting requests get 503; admitted ones continue
		end, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		done <- server.Shutdown(end)
	}()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-done
}

func serveAdmin(ctx context.Context, limiters *quotient.Registry, addr string) error {
	page, err := admin.New(limiters) // without a token it serves the loopback alone
	if err != nil {
		return err
	}
	return page.ListenAndServe(ctx, addr) // "127.0.0.1:9091"
}

// A server ends in order: it goes on while it is listed, then drains, then ends without an error.
func TestKubernetesServe(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	drained := false
	server := &http.Server{ReadHeaderTimeout: time.Second,
		Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { cancel() })}
	ended := make(chan error)
	go func() {
		ended <- serve(ctx, server, l, func() { drained = true }, time.Millisecond, 5*time.Second)
	}()
	transport := &http.Transport{}
	resp, err := (&http.Client{Transport: transport}).Get("http://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	transport.CloseIdleConnections()
	if err := <-ended; err != nil || !drained {
		t.Errorf("%v, drained %v", err, drained)
	}
}
