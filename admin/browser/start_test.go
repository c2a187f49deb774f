package browser

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"go.uber.org/goleak"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/admin"
	"github.com/quotient-go/quotient/internal/needed"
	"github.com/quotient-go/quotient/internal/tested"
)

// tabs is how many tests run at a time: most of the time they wait for the page.
const tabs = "4"

func TestMain(m *testing.M) {
	flag.Parse()
	if given := flag.Lookup("test.parallel"); given.Value.String() == given.DefValue {
		_ = given.Value.Set(tabs)
	}
	code := m.Run()
	if err := errors.Join(endChromium(), goleak.Find()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// inChromium runs tests by name, each in a tab of its own. Nothing is loaded there yet. At the end the browser must
// have complained of nothing that the test has not expected.
func inChromium(t *testing.T, tests map[string]func(p *tab)) {
	t.Helper()
	t.Parallel()
	chromium(t)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := openTab(t, "")
			test(p)
			p.calm()
		})
	}
}

// findChromium returns Chromium, and skips the test where there is none.
func findChromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "/usr/bin/chromium", "chromium-browser"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	needed.Without(t, "chromium",
		"chromium is not installed: nothing is known about the page in a browser (apt-get install chromium)")
	return ""
}

// endChromium ends what chromium has started. Nothing of it may be left then.
var endChromium = func() error { return nil }

var (
	startOnce  sync.Once
	endWindows []context.CancelFunc
)

var started context.Context

// chromium is the browser of all tests.
func chromium(t *testing.T) context.Context {
	t.Helper()
	if underRace {
		t.Skip("the page is tested without the race detector; what it talks to is tested with it in " +
			"package admin")
	}
	exe := findChromium(t)
	startOnce.Do(func() { started = startChromium(t, exe) })
	return started
}

func startChromium(t *testing.T, exe string) context.Context {
	t.Helper()
	dir, err := os.MkdirTemp("", "chromium-*")
	must(t, err)
	opts := append(chromedp.DefaultExecAllocatorOptions[:], // headless, quiet, no shared memory
		chromedp.ExecPath(exe), chromedp.UserDataDir(dir), chromedp.DisableGPU,
		chromedp.Flag("disable-component-update", true), chromedp.Flag("lang", "en-GB"),
	)
	if os.Getuid() == 0 {
		opts = append(opts, chromedp.NoSandbox)
	}
	alloc, stop := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, leave := chromedp.NewContext(alloc)
	endChromium = func() error {
		for _, end := range endWindows {
			end()
		}
		err := chromedp.Cancel(ctx)
		leave()
		stop()
		endRest()
		return errors.Join(err, waitForEnd(dir), os.RemoveAll(dir))
	}
	must(t, chromedp.Do(ctx))
	return ctx
}

// waitForEnd waits until no process mentions the browser's directory on its command line.
func waitForEnd(dir string) error {
	deadline := time.Now().Add(patience)
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for left := processes(dir); len(left) > 0; left = processes(dir) {
		if time.Now().After(deadline) {
			return fmt.Errorf("processes of chromium are left: %v", left)
		}
		<-look.C
	}
	return nil
}

// processes are the ids of those with dir on their command line, where there is a /proc.
func processes(dir string) []string {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	var found []string
	for _, file := range files {
		if line, err := os.ReadFile(filepath.Clean(file)); err == nil && strings.Contains(string(line), dir) {
			found = append(found, filepath.Base(filepath.Dir(file)))
		}
	}
	return found
}

// A window of the browser has one test at a time, and then the next: to open one takes half a second of a CPU.
type window struct {
	ctx  context.Context
	user atomic.Pointer[tab]
}

var windows = make(chan *window, 100) // those that no test has

func openWindow(t *testing.T) *window {
	t.Helper()
	ctx, closeTab := chromedp.NewContext(chromium(t))
	w := &window{ctx: ctx}
	endWindows = append(endWindows, closeTab)
	must(t, chromedp.Listen(ctx, func(event any) {
		if p := w.user.Load(); p != nil {
			p.note(event)
		}
	}))
	return w
}

// restURL is an empty page of the same site as all tests' pages, so that a window keeps its process between them.
var restURL = sync.OnceValue(func() string {
	rest := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `<!doctype html><link rel="icon" href="data:,">`)
	}))
	endRest = rest.Close
	return rest.URL
})

var endRest = func() {}

// openTab gives the test a tab, with nothing loaded.
func openTab(t *testing.T, origin string) *tab {
	t.Helper()
	var w *window
	select {
	case w = <-windows:
	default:
		w = openWindow(t)
	}
	p := &tab{t: t, origin: origin, ctx: w.ctx}
	t.Cleanup(func() {
		if err := chromedp.Do(p.ctx, chromedp.Navigate(restURL())); err != nil {
			return // nobody gets it any more
		}
		w.user.Store(nil)
		windows <- w
	})
	w.user.Store(p)
	call(p, network.Enable, network.EnableParams{})
	p.onLoad(words)
	p.size(1440, 900)
	p.theme("light")
	p.show()
	return p
}

// mount starts to serve a registry's limiters, until the test ends.
func (s *service) mount(t *testing.T, reg *quotient.Registry, opts ...admin.Option) {
	t.Helper()
	opts = append([]admin.Option{
		admin.EventsEvery(500 * time.Millisecond), admin.Logger(slog.New(slog.DiscardHandler)),
	}, opts...)
	handler, err := admin.New(reg, opts...)
	must(t, err)
	s.handler, s.addr = handler, "127.0.0.1:0"
	s.serve(t)
	t.Cleanup(func() { s.stop() })
}

// serve starts the server at s.addr; s.stop ends it and waits for its end.
func (s *service) serve(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l, err := s.handler.Listen(ctx, "tcp", s.addr)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	s.addr = l.Addr().(*net.TCPAddr).String()
	ended := make(chan error, 1)
	go func() { ended <- s.handler.Serve(ctx, l) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		tested.Want(t, "its end", <-ended, nil)
	})
}

func (s *service) url() string { return "http://" + s.addr + "/" }

// serve serves a page of limiters until the test ends, and makes it the origin of the tab.
func (p *tab) serve(reg *quotient.Registry, opts ...admin.Option) *service {
	p.t.Helper()
	s := new(service)
	s.mount(p.t, reg, opts...)
	p.origin = s.url()
	return s
}

// behind makes a server in front of the tab's origin the new one: it answers itself what routes has, and
// forwards the rest.
func (p *tab) behind(routes map[string]http.HandlerFunc) {
	p.t.Helper()
	service, err := url.Parse(p.origin)
	must(p.t, err)
	mux := http.NewServeMux()
	mux.Handle("/", &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(service) }})
	for pattern, handler := range routes {
		mux.HandleFunc(pattern, handler)
	}
	p.origin = startServer(p.t, mux) + "/"
}

// startServer starts a server that ends with the test, with the streams of tabs that are open until later. It
// returns its address.
func startServer(t *testing.T, handler http.Handler) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return server.URL
}
