package proxy

import (
	"context"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quotient-go/quotient/cmd/quotient/internal/wire"
	"github.com/quotient-go/quotient/config"
)

// TestQuantilesAreClose: within 5 percent of those of the sorted numbers.
func TestQuantilesAreClose(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, spread := range []float64{.1, 1, 3} {
		h := new(histogram)
		var all []time.Duration
		for range 20_000 {
			d := time.Duration(math.Exp(10 + spread*random.NormFloat64()))
			h.add(d)
			all = append(all, d)
		}
		slices.Sort(all)
		o := h.overhead()
		want(t, "count", o.Count, uint64(len(all)))
		want(t, "max", o.Max, all[len(all)-1])
		for part, got := range map[float64]time.Duration{.5: o.P50, .9: o.P90, .99: o.P99, .999: o.P999} {
			exact := all[int(part*float64(len(all)))]
			if off := math.Abs(got.Seconds()/exact.Seconds() - 1); off > .05 {
				t.Errorf("quantile %v is %v, want %v: %.1f percent off", part, got, exact, 100*off)
			}
		}
	}
	want(t, "overhead of nothing", new(histogram).overhead(), Overhead{})
}

// TestStepsHaveNoGap: each number is in one step, whose middle is close to it.
func TestStepsHaveNoGap(t *testing.T) {
	last := -1
	for _, n := range []uint64{0, 1, 15, 16, 17, 31, 32, 33, 34, 63, 64, 1000, 1 << 20, 1<<20 + 1<<15,
		1<<62 + 5, math.MaxInt64} {
		step := stepOf(n)
		if step < last {
			t.Errorf("step of %d is %d, below the one before", n, step)
		}
		last = step
		if off := math.Abs(float64(middle(step)) - float64(n)); off > float64(n)/32+1 {
			t.Errorf("the middle of the step of %d is %d", n, middle(step))
		}
	}
	for n := range uint64(1 << 12) {
		if a, b := stepOf(n), stepOf(n+1); b != a && b != a+1 {
			t.Errorf("steps of %d and %d are %d and %d", n, n+1, a, b)
		}
	}
}

// TestOverheadIsNoWait: what a request waits for its turn is no overhead, and neither is dialling.
func TestOverheadIsNoWait(t *testing.T) {
	w := newWorld(t, "[limiters.all]\nrates = [{ events = 5, per = \"1s\", burst = 1, no-turns "+
		"= true }]\n"+all, ok)
	start := time.Now()
	for range 4 {
		resp, _ := w.get("/")
		want(t, "status", resp.StatusCode, 200)
		// One with a body, which is read before it waits.
		resp, _ = w.do(w.ask(http.MethodPost, "/", strings.NewReader("body")))
		want(t, "status", resp.StatusCode, 200)
	}
	waited := time.Since(start)
	if waited < time.Second {
		t.Fatalf("8 requests at 5 a second took %v: none has waited", waited)
	}
	until(t, "all are counted", func() bool { return w.proxy.Overhead().Count == 8 })
	if o := w.proxy.Overhead(); o.P50 > 100*time.Millisecond || o.P50 <= 0 {
		t.Errorf("the overhead is %+v", o)
	}
}

// TestOverheadWithoutDialling: a connection that is slow to open is no overhead of ours.
func TestOverheadWithoutDialling(t *testing.T) {
	const slow = 400 * time.Millisecond
	w := newWorld(t, loose+all, ok)
	address := w.conf.File().Proxy.Upstreams[0].Host
	tr := &wire.Transport{Buffer: 4096, MaxHead: 1 << 20, Dial: func(ctx context.Context) (net.Conn, error) {
		time.Sleep(slow)
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}}
	defer tr.Retire()
	w.proxy.ups = tr
	start := time.Now()
	w.get("/")
	if time.Since(start) < slow {
		t.Fatal("nothing was dialled")
	}
	until(t, "it is counted", func() bool { return w.proxy.Overhead().Count == 1 })
	if o := w.proxy.Overhead(); o.Max >= slow {
		t.Errorf("the overhead is %v, and dialling took %v", o.Max, slow)
	}
}

// TestOverheadIsByRule: the histogram has the rules of the file in force, and no others.
func TestOverheadIsByRule(t *testing.T) {
	const file = loose + "[[proxy.rules]]\npattern = \"/PATH\"\nexempt = true\n" + all
	w := newWorld(t, strings.ReplaceAll(file, "PATH", "a"), ok)
	for range 3 {
		w.get("/a")
		w.get("/some/key")
	}
	rules := func() map[string]uint64 {
		reg, found := prometheus.NewRegistry(), map[string]uint64{}
		must(t, reg.Register(w.proxy))
		families, err := reg.Gather()
		must(t, err)
		for _, f := range families {
			want(t, "name", f.GetName(), "quotient_proxy_overhead_seconds")
			for _, m := range f.GetMetric() {
				found[m.GetLabel()[0].GetValue()] = m.GetHistogram().GetSampleCount()
			}
		}
		return found
	}
	until(t, "all are counted", func() bool { return rules()["/"] == 3 && rules()["/a"] == 3 })
	f, err := config.Parse("test.toml", []byte(strings.ReplaceAll(
		"[proxy]\nupstreams = [\"http://127.0.0.1:1\"]\n"+file, "PATH", "b")))
	must(t, err)
	w.reload(f)
	got := rules()
	if _, stale := got["/a"]; stale || len(got) != 2 || got["/"] != 3 {
		t.Errorf("after a reload the rules are %v", got)
	}
}
