package proxy

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/tested"
)

// slotBehind is a file of a client's rate and everybody's slot. MODE is how requests come to have that.
const slotBehind = `
[limiters.client]
rates = [{ name = "hour", events = 3, per = "1h", kind = "window" }]
mode = "refuse"
[limiters.client.plans.paid]
rates = [{ name = "paid", events = 9, per = "1h", kind = "window" }]
[limiters.all]
in-flight = 1
MODE
[proxy]
upstreams = ["UPSTREAM"]
trusted = ["127.0.0.0/8"]
log = { access = "all", keys = "plain" }
[[proxy.rules]]
pattern = "/"
limiter = "client"
key = "header:X-Who"
plan = "header:X-Plan"
also = [{ limiter = "all", key = "pattern" }]
`

// left is how many requests of a key a limiter has room for now.
func (w *world) left(name, key string) float64 {
	w.t.Helper()
	l, ok := w.reg.Get(name)
	if !ok {
		w.t.Fatal("no limiter " + name)
	}
	var states []quotient.RuleState
	l.Check(key, quotient.StateInto(&states))
	return states[0].Left
}

// TestAlsoRefuses: who finds the second limiter full has taken nothing from the first, and is told of the second.
func TestAlsoRefuses(t *testing.T) {
	up, entered, stop := holding(t)
	w := newWorld(t, strings.Replace(slotBehind, "MODE", `mode = "refuse"`, 1), up, overH2C,
		func(s *httptest.Server) { s.Config.Protocols.SetHTTP1(true) })
	lines := w.accessLines()
	first := make(chan int, 1)
	go func() {
		resp, err := w.front.Client().Do(w.ask(http.MethodGet, "/", nil, "X-Who", "a"))
		if err != nil {
			t.Error(err)
			first <- 0
			return
		}
		_ = resp.Body.Close()
		first <- resp.StatusCode
	}()
	tested.Event(t, entered)
	want(t, "left of the one in flight", w.left("client", "a"), 2)
	resp, body := w.get("/", "X-Who", "b")
	want(t, "status", resp.StatusCode, 429)
	want(t, "the slots are named: "+body, strings.Contains(body, `"violated-policies":["in-flight"]`), true)
	want(t, "fields", strings.Join(resp.Header["Ratelimit"], ", "), `"hour";r=2;t=1, "in-flight";r=0`)
	want(t, "call of gRPC", status.Code(w.call()), codes.ResourceExhausted)
	want(t, "left after refusals", w.left("client", "b")+w.left("client", ""), 6)
	line := tested.Event(t, lines)
	tested.Event(t, lines)
	want(t, "limiter, key and reason", fmt.Sprintln(line.Limiter, line.Key, line.Reason), "all / in_flight\n")
	stop()
	want(t, "status of the first", tested.Event(t, first), 200)
	line = tested.Event(t, lines)
	want(t, "line of the first", fmt.Sprintln(line.Limiter, line.Key, line.Decision), "client a admitted\n")
	resp, _ = w.get("/", "X-Who", "a", "X-Plan", "paid")
	want(t, "fields", strings.Join(resp.Header["Ratelimit"], ", ")[:11], `"paid";r=7;`)
	for range 3 {
		resp, _ = w.get("/", "X-Who", "b")
		want(t, "status with a free slot", resp.StatusCode, 200)
	}
	resp, _ = w.get("/", "X-Who", "b")
	want(t, "status above the rate", resp.StatusCode, 429)
	stats := w.limiter().Stats()
	want(t, "slots in flight", stats.InFlight, 0)
	want(t, "asked for a plan that it has not", stats.Refused[quotient.ReasonBadRequest], 0)
}

// TestAlsoWaits: a request waits for the second limiter while it holds what the first has given, and gives that back
// should it leave.
func TestAlsoWaits(t *testing.T) {
	both(t, func(t *testing.T, setUp ...func(*httptest.Server)) {
		up, entered, stop := holding(t)
		w := newWorld(t, strings.Replace(slotBehind, "MODE", "", 1), up, setUp...)
		lines := w.accessLines()
		first := w.later(t.Context(), "")
		tested.Event(t, entered)
		ctx, leave := context.WithCancel(t.Context())
		second := w.later(ctx, "body")
		w.waiting(1)
		want(t, "left while one waits", w.left("client", ""), 1)
		leave()
		want(t, "status of who leaves", tested.Event(t, second), 0)
		want(t, "line of who leaves", tested.Event(t, lines).Reason, "left")
		want(t, "left then", w.left("client", ""), 2)
		third := w.later(t.Context(), "body")
		w.waiting(1)
		stop()
		want(t, "body", tested.Event(t, entered), "body")
		want(t, "status of the first", tested.Event(t, first), 200)
		want(t, "status of the third", tested.Event(t, third), 200)
		tested.Event(t, lines)
		line := tested.Event(t, lines)
		want(t, "line of the third", fmt.Sprintln(line.Limiter, line.Decision, line.Wait > 0), "client waited true\n")
		want(t, "left in the end", w.left("client", ""), 1)
	})
}

// TestCount: a request counts by the status of its answer, and until that is there.
func TestCount(t *testing.T) {
	for _, row := range []struct {
		count, status string
		left          float64
	}{
		{`"4xx"`, "401", 8}, {`"4xx"`, "200", 9}, {`"4xx"`, "500", 9}, {`["401", "5xx"]`, "401", 8},
		{`["401", "5xx"]`, "403", 9}, {`["401", "5xx"]`, "599", 8}, {`["401", "5xx"]`, "0", 8}, {"[]", "200", 8},
	} {
		arrived, answers := make(chan struct{}, 1), make(chan struct{})
		w := newWorld(t, "[limiters.all]\nrates = [{ events = 9, per = \"1h\" }]\n"+all+"count = "+row.count+"\n",
			func(w http.ResponseWriter, _ *http.Request) {
				arrived <- struct{}{}
				<-answers
				var status int
				if _, err := fmt.Sscan(row.status, &status); err != nil || status == 0 {
					panic(http.ErrAbortHandler) // no answer
				}
				w.WriteHeader(status)
			})
		ended := w.later(t.Context(), "body")
		tested.Event(t, arrived)
		want(t, "left before the answer", int(w.left("all", "/")), 8)
		close(answers)
		tested.Event(t, ended)
		left := w.left("all", "/")
		want(t, fmt.Sprint(row, ": left ", left), left > row.left-.01 && left < row.left+.1, true)
	}
}

// TestAlsoReloads: a rule follows each of its limiters.
func TestAlsoReloads(t *testing.T) {
	w := newWorld(t, strings.Replace(slotBehind, "MODE", "", 1), ok)
	file := *w.conf.File()
	route := func() *route { return w.proxy.now.Load().routes["/"] }
	was := route()
	w.reload(&file)
	want(t, "the route stays", route(), was)
	file.Limiters = maps.Clone(file.Limiters)
	second := file.Limiters["all"]
	second.MaxWait = time.Second
	file.Limiters["all"] = second
	w.reload(&file)
	want(t, "the route stays with another wait", route() == was, false)
	was = route()
	w.reg.Remove("all")
	w.reload(&file)
	resp, body := w.get("/")
	wantProblem(t, "the second limiter is missing", resp, body, http.StatusServiceUnavailable)
	want(t, "the route stays without it", route() == was, false)
}
