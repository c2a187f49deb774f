// Command llm shows clients that share the limits of a language model's API and know nothing but these
// limits.
//
//	go run ./examples/llm
//
// The API allows an account a number of requests and a number of tokens a minute. Each answer reports what is
// left, and the API answers 429 beyond that. The cost of an answer is known only afterwards. Four clients use
// the account to the full, each with a limiter of its own, as separate processes would have. First they send
// many small requests, so that requests run out before tokens. Then they send few large ones, so that tokens
// run out first. client.go is the part to copy.
//
// The program ends by itself after 18 seconds and uses only the loopback network. The exit status is 0 when
// the clients used what was scarce, were seldom refused and shared it fairly; 1 when they did not; 2 when the
// run failed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// Exit statuses.
const (
	exitHeld   = 0
	exitBroken = 1
	exitFailed = 2
)

const (
	clients = 4
	workers = 16 // of each client; together they want more than there is
	seconds = 9  // of a phase
	judged  = 3  // of them, the last
)

func main() {
	adaptive := flag.Bool("adaptive", true, "learn from the answers; else each client alone keeps the account's limits, and 429s are many")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	status := loopback(ctx, *adaptive, os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// loopback is a run with a real network.
func loopback(ctx context.Context, adaptive bool, stdout, stderr io.Writer) int {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(stderr, "llm:", err)
		return exitFailed
	}
	base := &http.Transport{MaxIdleConnsPerHost: clients * workers}
	defer base.CloseIdleConnections()
	return run(ctx, listener, base, adaptive, stdout, stderr)
}

// run is the whole command behind a listener, which it closes. It returns the exit status.
func run(ctx context.Context, listener net.Listener, base http.RoundTripper, adaptive bool, stdout, stderr io.Writer) int {
	upstream := newAPI()
	server := &http.Server{Handler: upstream, ReadHeaderTimeout: 5 * time.Second}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // it ends with ErrServerClosed, below
	defer serving.Wait()
	defer func() { _ = server.Close() }()

	fleet, err := newFleet("http://"+listener.Addr().String()+"/", base, adaptive)
	if err != nil {
		fmt.Fprintln(stderr, "llm:", err)
		return exitFailed
	}
	fmt.Fprintf(stdout, "%d clients share %d requests and %d tokens a second. They do not know how many they are.\n", clients, requestsPerMinute, tokensPerMinute)
	status := exitHeld
	for _, p := range phases {
		r, err := p.play(ctx, upstream, fleet, stdout)
		if err != nil {
			fmt.Fprintln(stderr, "llm:", err)
			return exitFailed
		}
		if !r.held(stdout) {
			status = exitBroken
		}
	}
	return status
}

// member is a client and what it has got.
type member struct {
	client
	served atomic.Int64
}

func newFleet(url string, base http.RoundTripper, adaptive bool) ([]*member, error) {
	var ctrl policy.Policy = policy.Tracking{}
	if !adaptive {
		ctrl = policy.Fixed{}
	}
	fleet := make([]*member, clients)
	for i := range fleet {
		l, err := newLimiter(ctrl)
		if err != nil {
			return nil, err
		}
		fleet[i] = &member{client: client{limiter: l, http: &http.Client{Transport: base}, url: url}}
	}
	return fleet, nil
}

// work sends one prompt after the other until ctx ends.
func (m *member) work(ctx context.Context, p prompt) error {
	for {
		_, err := m.complete(ctx, p)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			m.served.Add(1)
		case !errors.Is(err, errRefused):
			return err
		}
	}
}

// A phase is one kind of load.
type phase struct {
	name   string
	prompt prompt
	scarce string
}

// The phases: 40 tokens a request at the mean, 4,000 tokens a second if requests are used up; then 500, and 40 requests a
// second if tokens are.
var phases = []phase{
	{"many small requests", prompt{strings.Repeat("text", 20), 40}, "requests"},
	{"few large requests", prompt{strings.Repeat("text", 300), 400}, "tokens"},
}

// play runs a phase and returns what became of the seconds that are judged.
func (p phase) play(ctx context.Context, upstream *api, fleet []*member, out io.Writer) (result, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	errs := make([]error, clients*workers)
	var working sync.WaitGroup
	for i := range errs {
		working.Go(func() {
			errs[i] = fleet[i%clients].work(ctx, p.prompt)
		})
	}
	fmt.Fprintf(out, "\n%s: %s are scarce\n%4s %18s %18s %9s\n", p.name, p.scarce, "s", "requests/s", "tokens/s", "429")
	r := result{phase: p}
	err := p.watch(ctx, upstream, fleet, &r, out)
	stop()
	working.Wait()
	return r, errors.Join(append(errs, err)...)
}

// watch prints a line a second.
func (p phase) watch(ctx context.Context, upstream *api, fleet []*member, r *result, out io.Writer) error {
	ticks := time.NewTicker(time.Second)
	defer ticks.Stop()
	last := upstream.counted()
	for s := 1; s <= seconds; s++ {
		select {
		case <-ctx.Done():
			return errors.New("interrupted")
		case <-ticks.C:
		}
		now := upstream.counted()
		d := now.since(last)
		fmt.Fprintf(out, "%4d %s %8.1f %%\n", s, d.line(1), 100*d.refusedShare())
		if last = now; s == seconds-judged {
			r.from, r.servedFrom = now, servedOf(fleet)
		}
	}
	r.to, r.servedTo = last, servedOf(fleet)
	return nil
}

func servedOf(fleet []*member) []float64 {
	all := make([]float64, len(fleet))
	for i, m := range fleet {
		all[i] = float64(m.served.Load())
	}
	return all
}
