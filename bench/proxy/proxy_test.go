package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/quotient-go/quotient/bench/rig"
	"github.com/quotient-go/quotient/internal/needed"
)

// TestMain lets the test program be what it starts: a bare proxy.
func TestMain(m *testing.M) {
	bare()
	const fasthttp = "github.com/valyala/fasthttp." // ends what it has started some time later
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(fasthttp+"(*HostClient).connsCleaner"),
		goleak.IgnoreAnyFunction(fasthttp+"(*TCPDialer).tcpAddrsClean"),
		goleak.IgnoreAnyFunction(fasthttp+"(*workerPool).Start.func2"),
		goleak.IgnoreAnyFunction(fasthttp+"updateServerDate.func1"))
}

// TestPartsPlay plays each part small. Only counts are held: a busy machine misses times.
func TestPartsPlay(t *testing.T) {
	if testing.Short() {
		t.Skip("short: real processes")
	}
	if got := command([]string{"more"}, io.Discard, io.Discard); got != 2 {
		t.Errorf("an argument too many: exit status %d", got)
	}
	for _, program := range []string{"nginx", "haproxy"} {
		if _, err := rig.Find(program); err != nil {
			needed.Without(t, program, err.Error())
		}
	}
	b := &bench{rounds: 1, paths: 20, slice: 300 * time.Millisecond, dir: t.TempDir(), stderr: os.Stderr}
	for _, part := range b.parts() {
		s, err := part.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range s.Verdicts {
			if !v.OK && !strings.Contains(v.Name, "beside") {
				t.Error(v)
			}
		}
		if len(s.Rows) < 4 || t.Failed() {
			t.Error(s)
		}
	}
}

// TestJudge holds that a good record misses no goal, and that each one which is spoilt misses one.
func TestJudge(t *testing.T) {
	good := func() race {
		r := race{rounds: 3, paths: 20, arrived: 500, admitted: 100, remembered: 20}
		names := []string{"quotient proxy", "bare ReverseProxy", "nginx, limit_req", "Caddy, rate_limit", "no proxy"}
		for i, name := range names {
			v, rate := []float64{100, 100, 100}, []float64{100, 80, 200, 50, 500}[i]
			c := &contender{server: server{name: name}, rate: []float64{rate, rate, rate}, p50: v, p99: slices.Clone(v), cpu: v,
				asked: 100}
			if i == 4 {
				c.p50 = []float64{50, 50, 50}
			}
			r.all = append(r.all, c)
		}
		return r
	}
	for name, spoil := range map[string]func(*race){
		"":                        func(*race) {},
		"as many as were sent":    func(r *race) { r.arrived-- },
		"quotient proxy received": func(r *race) { r.admitted-- },
		"remembers":               func(r *race) { r.remembered = 1 },
		"requests/s beside bare":  func(r *race) { r.all[1].rate = []float64{70, 81, 81} },
		"requests/s beside nginx": func(r *race) { r.all[2].rate = []float64{200, 209, 209} },
		"requests/s beside Caddy": func(r *race) { r.all[3].rate = []float64{50, 51, 51} },
		"p99 beside the bare":     func(r *race) { r.all[0].p99 = []float64{201, 201, 90} },
		"added to p50, beside":    func(r *race) { r.all[0].p50 = []float64{151, 151, 151} },
	} {
		r := good()
		spoil(&r)
		missed := map[string]bool{}
		for _, v := range slices.Concat(r.throughput().Verdicts, r.overhead().Verdicts) {
			if !v.OK {
				missed[v.Name] = true
			}
		}
		for is := range missed {
			if name == "" || !strings.Contains(is, name) {
				t.Errorf("%q: %q is missed", name, is)
			}
		}
		if name != "" && len(missed) != 1 {
			t.Errorf("%q: missed %v", name, missed)
		}
	}
}

// TestALostRequestIsSeen holds that no crowd is content with a server that hangs up, or refuses.
func TestALostRequestIsSeen(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/gone" {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer s.Close()
	for path, want := range map[string]string{"/gone": "", "/refused": "status 429"} {
		c := crowd{addr: s.Listener.Addr().String(), paths: []string{path}}
		if _, err := c.one(t.Context(), 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
