package front

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/quotient-go/quotient/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds what a test waits for; nothing that goes well takes as long.
const patience = 20 * time.Second

func section() *config.Proxy {
	return &config.Proxy{
		Listen: "127.0.0.1:0",
		Timeouts: config.Timeouts{
			ReadHeader: 10 * time.Second, ReadBody: 10 * time.Second, Write: 10 * time.Second,
			Idle: time.Minute, Stream: time.Minute, Shutdown: 10 * time.Second,
		},
		Max: config.Max{HeaderBytes: 64 << 10, Connections: 1000, Streams: 100},
	}
}

// running is a server that serves at an address of loopback until the test ends.
type running struct {
	*Server
	addr string
	end  func()       // begins the shutdown
	over <-chan error // of Serve
}

func serve(t testing.TB, p *config.Proxy, h http.Handler, opts ...Option) *running {
	t.Helper()
	s, err := New(p, h, slog.New(slog.DiscardHandler), opts...)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- s.Serve(ctx, l); close(over) }()
	t.Cleanup(func() {
		end()
		select {
		case err := <-over:
			if err != nil {
				t.Errorf("Serve() = %v", err)
			}
		case <-time.After(patience):
			t.Error("Serve does not end")
		}
	})
	return &running{s, l.Addr().String(), end, over}
}

func dial(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn)
}

func send(t *testing.T, c io.Writer, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

// waitFor waits for something that other goroutines bring about.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("it did not come to this: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

var loopback = netip.MustParsePrefix("127.0.0.0/8")
