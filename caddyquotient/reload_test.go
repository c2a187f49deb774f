package caddyquotient

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/quotient-go/quotient/internal/tested"
)

// TestReloadUnderLoad checks that each request has an answer while configurations come and go, that a reload brings no
// tokens, and that the largest limit of them all is what was admitted at most. Caddy's reload may close a connection
// that has just been made, with or without a limit: the client sends that request again.
func TestReloadUnderLoad(t *testing.T) {
	site := "quotient {\n rate %d/h\n key all\n }\n respond hello %d"
	s := start(t, fmt.Sprintf(site, 400, 200))
	var admitted, refused atomic.Int64
	var clients sync.WaitGroup
	ended := make(chan struct{})
	for range 4 {
		clients.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
				}
				resp, err := s.client.Get("http://" + s.addr)
				if err != nil {
					continue
				}
				resp.Body.Close()
				switch resp.StatusCode {
				case http.StatusOK:
					admitted.Add(1)
				case http.StatusTooManyRequests:
					refused.Add(1)
				default:
					t.Errorf("a request got %d", resp.StatusCode)
				}
			}
		})
	}
	for _, limit := range []int{400, 400, 300, 350, 400, 400} {
		before := refused.Load() + admitted.Load()
		tested.Must(t, s.load(fmt.Sprintf(site, limit, 200)))
		tested.Until(t, "requests after a reload", func() bool { return refused.Load()+admitted.Load() > before+50 })
	}
	tested.Until(t, "refusals", func() bool { return refused.Load() > 50 })
	close(ended)
	clients.Wait()
	n := admitted.Load()
	tested.Not(t, n < 290 || n > 401, "%d were admitted, of 400 an hour", n)
}

// TestReloadAdmitsWaiters checks that a request of an old configuration has its turn by the limit of the new one.
func TestReloadAdmitsWaiters(t *testing.T) {
	site := "quotient {\n rate %s burst 1\n wait 10h\n }\n respond hello"
	s := start(t, fmt.Sprintf(site, "1/h"))
	tested.Want(t, "the first", s.statuses(1), "200")
	second := make(chan string)
	go func() { second <- s.statuses(1) }()
	l, _ := limiters.Get("default")
	tested.Until(t, "a request waits", func() bool { return l.Stats().Waiting == 1 })
	tested.Must(t, s.load(fmt.Sprintf(site, "1000/s")))
	tested.Want(t, "the second", tested.Event(t, second), "200")
}

// TestReload checks what a zone is after one configuration has taken the place of another.
func TestReload(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	tested.Must(t, err)
	defer taken.Close()
	fails := of("rate 9/h", "replicas 3") + fmt.Sprintf(
		"\n respond hello\n }\n http://:%d {\n bind 127.0.0.1\n", taken.Addr().(*net.TCPAddr).Port)
	for _, c := range []struct {
		name, first, then string // sites
		err               string // of then
		statuses          string // before and after
		limit             string // after
		plans             int
	}{
		{"same", of("rate 2/h"), of("rate 2/h"), "", "200,200 429", "hour: 2 per 1h", 0},
		{"lower", of("rate 9/h"), of("rate 1/h"), "", "200,200 429", "hour: 1 per 1h", 0},
		{"raised: no new tokens", of("rate 1/h"), of("rate 2/h"), "", "200,429", "hour: 2 per 1h", 0},
		{"slots too", of("rate 2/h"), of("rate 2/h", "in_flight 5"),
			"", "200,200 429", "hour: 2 per 1h, in flight: 5", 0},
		{"dry run", of("rate 1/h"), of("rate 1/h", "dry_run"), "", "200,200 200", "hour: 1 per 1h", 0},
		{"replicas", of("rate 4/h"), of("rate 4/h", "replicas 4"), "", "200,200 429 429", "hour: 4 per 1h", 0},
		{"a plan more", of("deny"), of("deny", "plan p {\n rate 1/h\n }", "plan_by p"),
			"", "429,200 429", "deny", 1},
		{"a plan less", of("deny", "plan p {\n rate 1/h\n }", "plan_by p"), of("rate 5/h"),
			"", "200,200 200 200 200 429", "hour: 5 per 1h", 0},
		{"another key", of("rate 1/h"), of("rate 1/h", "key all"), "", "200,200 429", "hour: 1 per 1h", 0},
		{"another zone", of("rate 1/h"), "quotient b {\n rate 1/h\n }", "", "200,200 429", "", 0},
		{"does not start", of("rate 1/h"), fails, "address already in use", "200,429", "hour: 1 per 1h", 0},
		{"cannot be", of("rate 1/h"), of("rate 1/h", "max_keys 9"),
			"zone default: max_keys: 65536 cannot become 9 while Caddy runs: restart it",
			"200,429", "hour: 1 per 1h", 0},
		{"cannot be either", of("rate 1/h"), of("rate 1/h", "pool env:", "await_pool 1m"),
			"await_pool: 0s cannot become 1m0s", "200,429", "hour: 1 per 1h", 0},
		{"contradicts itself", of("rate 1/h"), of("rate 2/h", "}", "quotient default {", "rate 3/h"),
			"another quotient directive gives it other limits", "200,429", "hour: 1 per 1h", 0},
		{"two without a name", of("rate 1/h"), of("rate 1/h", "}", "handle /b {", "quotient {", "rate 1/h", "}"),
			"another quotient directive names no zone either", "200,429", "hour: 1 per 1h", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := start(t, c.first+"\n respond hello")
			before, after, _ := strings.Cut(c.statuses, ",")
			tested.Want(t, "before", s.statuses(1), before)
			l, _ := limiters.Get("default")
			version := l.Stats().Version
			err := s.load(c.then + "\n respond hello")
			tested.Not(t, err != nil && l.Stats().Version != version, "what does not start has changed the limiter")
			tested.Not(t, (c.err == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.err),
				"error %v, want %q", err, c.err)
			tested.Want(t, "after", s.statuses(strings.Count(after, " ")+1), after)
			if l, there := limiters.Get("default"); there {
				tested.Want(t, "limit", l.Stats().Limit.String(), c.limit)
				tested.Want(t, "plans", len(l.Stats().Plans), c.plans)
			} else {
				tested.Want(t, "limit", "", c.limit)
			}
		})
	}
}

// of is a directive with these lines.
func of(lines ...string) string { return "quotient {\n" + strings.Join(lines, "\n") + "\n}" }

// TestSharedZone checks that directives of one zone have one count, and that the others have their own.
func TestSharedZone(t *testing.T) {
	s := start(t, "(limit) {\n quotient {args[0]} api {\n rate 2/h\n key all\n }\n }\n---"+
		"import limit /a\n import limit /b\n quotient /c {\n rate 1/h\n }\n respond hello")
	for _, c := range []struct {
		path string
		want int
	}{{"/a", 200}, {"/b", 200}, {"/a", 429}, {"/b", 429}, {"/c", 200}, {"/c", 429}, {"/d", 200}} {
		resp, _ := s.get(c.path)
		tested.Want(t, c.path, resp.StatusCode, c.want)
	}
}

// TestPool checks that a zone follows the pool of the configuration in force, and that nothing goes on without it.
func TestPool(t *testing.T) {
	replicas := filepath.Join(t.TempDir(), "replicas")
	tested.Must(t, os.WriteFile(replicas, []byte("2"), 0o600))
	site := "quotient {\n rate 4/h\n await_pool 1h\n pool file:" + replicas + "\n %s\n }\n respond hello"
	s := start(t, fmt.Sprintf(site, ""))
	l, _ := limiters.Get("default")
	pool := func(source string, n int) {
		t.Helper()
		tested.Until(t, fmt.Sprint(source, n), func() bool {
			p := l.Stats().Pool
			return p.Source == source && p.Replicas == n
		})
	}
	pool("followed", 2)
	tested.Want(t, "statuses", s.statuses(3), "200 200 429")
	before := following()
	tested.Must(t, s.load(fmt.Sprintf(site, "wait 1s")))
	pool("followed", 2)
	tested.Want(t, "goroutines that follow", following(), before)
	other := filepath.Join(t.TempDir(), "replicas")
	tested.Must(t, os.WriteFile(other, []byte("3"), 0o600))
	tested.Must(t, s.load(strings.Replace(fmt.Sprintf(site, ""), replicas, other, 1)))
	pool("followed", 3)
	tested.Want(t, "goroutines that follow", following(), before)
	tested.Must(t, s.load("respond hello"))
	tested.Want(t, "goroutines that follow", following(), 0)
	tested.Want(t, "zone", closed("default"), true)
}

// following is how many limiters follow a source.
func following() int {
	stacks := make([]byte, 1<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "(*Limiter).Follow(")
}

func closed(zone string) bool {
	_, there := limiters.Get(zone)
	return !there
}

// TestPoolGoesAway checks that the number of replicas counts again when the pool does not.
func TestPoolGoesAway(t *testing.T) {
	t.Setenv("QUOTIENT_REPLICAS", "4")
	s := start(t, "quotient {\n rate 8/h\n pool env:\n }\n respond hello")
	l, _ := limiters.Get("default")
	want := func(source string, n int) {
		t.Helper()
		tested.Until(t, source, func() bool { return l.Stats().Pool.Source == source && l.Stats().Pool.Replicas == n })
	}
	want("followed", 4)
	tested.Must(t, s.load("quotient {\n rate 8/h\n replicas 2\n }\n respond hello"))
	want("set", 2)
}
