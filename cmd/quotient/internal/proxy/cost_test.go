package proxy

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/internal/tested"
)

// priced is a file of a limit of tokens: what a request costs is an estimate, until its answer says.
const priced = `
[limiters.all]
mode = "refuse"
rates = [{ name = "tokens", events = 100, per = "1000h", kind = "window", unit = "tokens" }]
[proxy]
upstreams = ["UPSTREAM"]
trusted = ["127.0.0.0/8"]
[[proxy.rules]]
pattern = "/"
limiter = "all"
costs = [{ unit = "tokens", default = 10, request = "header:x-estimate", answer = "header:x-total", most = 50 }]
`

// TestCosts: a request takes its estimate, and then costs what its answer says.
func TestCosts(t *testing.T) {
	const say = "X-Estimate"
	for _, row := range []struct {
		what            string
		request, answer []string
		first, last     int // left while it is at the upstream, and then; 0: it does not come there
		status          int
	}{
		{"neither says", nil, nil, 90, 90, 200},
		{"the request says", []string{say, "30"}, nil, 70, 70, 200},
		{"the request says nothing", []string{say, "0"}, nil, 100, 100, 200},
		{"the request says too much", []string{say, "99999999999999999999999"}, nil, 50, 50, 200},
		{"the request says more than there is", []string{say, "101"}, nil, 0, 100, 413},
		{"the answer says less", []string{say, "030"}, []string{"5"}, 70, 95, 200},
		{"the answer says more", nil, []string{"20"}, 90, 80, 200},
		{"the answer says nothing", nil, []string{"0"}, 90, 100, 200},
		{"the answer says too much", nil, []string{"51"}, 90, 50, 200},
		{"a negative answer", nil, []string{"-5"}, 90, 90, 200},
		{"an empty answer", nil, []string{""}, 90, 90, 200},
		{"an answer that is a list", nil, []string{"5, 5"}, 90, 90, 200},
		{"an answer that says two things", nil, []string{"5", "6"}, 90, 90, 200},
		{"a negative request", []string{say, "-1"}, nil, 0, 100, 400},
		{"an empty request", []string{say, ""}, nil, 0, 100, 400},
		{"a request that is no whole number", []string{say, "1.5"}, nil, 0, 100, 400},
		{"a request that says two things", []string{say, "1", say, "2"}, nil, 0, 100, 400},
		{"any client says", []string{say, "30"}, []string{"20"}, 90, 80, 200},
		{"any client says what is no number", []string{say, "x"}, nil, 90, 90, 200},
		{"an answer that does not count", nil, []string{"20"}, 90, 100, 500},
		{"an answer that counts", nil, []string{"20"}, 90, 80, 201},
	} {
		text := priced
		if strings.Contains(row.what, "any client") {
			text = strings.Replace(text, "127.0.0.0/8", "10.0.0.0/8", 1)
		}
		if row.status == 413 {
			text = strings.Replace(text, "most = 50", "most = 500", 1)
		}
		if strings.Contains(row.what, "count") {
			text += "count = \"2xx\"\n"
		}
		var w *world
		w = newWorld(t, text, func(rw http.ResponseWriter, _ *http.Request) {
			want(t, row.what+": left at the upstream", w.left("all", "/"), float64(row.first))
			rw.Header().Set("X-Total", "1")
			rw.WriteHeader(http.StatusEarlyHints) // not the answer yet
			rw.Header()["X-Total"] = row.answer
			rw.WriteHeader(row.status)
		})
		resp, _ := w.get("/", row.request...)
		want(t, row.what+": status", resp.StatusCode, row.status)
		want(t, row.what+": left", w.left("all", "/"), float64(row.last))
	}
}

// TestCostsWithoutAnAnswer: what an upstream may have got costs its estimate, and other requests cost nothing.
func TestCostsWithoutAnAnswer(t *testing.T) {
	broken, _ := breaking(t, "")
	for _, row := range []struct {
		url    string
		header []string
		left   float64
	}{
		{broken, nil, 90}, {nowhere, nil, 100}, {broken, []string{"Connection", "Upgrade", "Upgrade", "a\x80b"}, 100},
	} {
		w := worldBefore(t, priced, row.url)
		w.get("/", row.header...)
		want(t, fmt.Sprint("left after ", row), w.left("all", "/"), row.left)
	}
}

// TestCostsOfSeveralLimiters: each limiter of a rule that counts a unit is charged, also by calls of gRPC. A
// refused request costs nothing.
func TestCostsOfSeveralLimiters(t *testing.T) {
	const own = `
[limiters.own]
mode = "refuse"
rates = [{ events = 30, per = "1000h", kind = "window", unit = "tokens" }]
[limiters.slots]
in-flight = 9
`
	w := newWorld(t, own+priced+`also = [{ limiter = "slots" }, { limiter = "own", key = "header:X-A", or = "host" }]
`, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Grpc-Status", "5")
		w.Header().Set("X-Total", "12")
	}, overH2C)
	const path, key = "/grpc.health.v1.health/check", "host|127.0.0.1"
	left := func() string { return fmt.Sprint(w.left("all", path), w.left("own", key)) }
	want(t, "the first call", status.Code(w.call()), codes.NotFound)
	want(t, "left", left(), "88 18")
	want(t, "the second call", status.Code(w.call()), codes.NotFound)
	want(t, "left", left(), "76 6")
	want(t, "the third call", status.Code(w.call()), codes.ResourceExhausted)
	want(t, "left after a refusal", left(), "76 6")
}

// TestCostsReload: other costs, and other units of a limiter, are in force at once. What is on its way is corrected by
// what was.
func TestCostsReload(t *testing.T) {
	entered, answers := make(chan struct{}, 9), make(chan string, 9)
	w := newWorld(t, strings.Replace(priced, ", answer = \"header:x-total\"", "", 1)+"count = \"2xx\"\n",
		func(w http.ResponseWriter, _ *http.Request) {
			entered <- struct{}{}
			w.Header().Set("X-Total", <-answers)
		})
	file := *w.conf.File()
	section := *file.Proxy
	file.Proxy = &section
	section.Rules = append(section.Rules[:0:0], section.Rules...)
	section.Rules[0].Costs = append(section.Rules[0].Costs[:0:0], section.Rules[0].Costs...)
	section.Rules[0].Costs[0].Answer, section.Rules[0].Costs[0].Default = "X-Total", 20
	first := w.later(t.Context(), "")
	tested.Event(t, entered)
	w.reload(&file)
	second := w.later(t.Context(), "")
	tested.Event(t, entered)
	want(t, "left", w.left("all", "/"), 70)
	answers <- "15"
	answers <- "15"
	want(t, "status", tested.Event(t, first)+tested.Event(t, second), 400)
	want(t, "left then", w.left("all", "/"), 75)
	all := file.Limiters["all"]
	all.Limit.Rates = nil
	file.Limiters = map[string]config.Limiter{"all": all}
	w.reload(&file)
	answers <- "15"
	w.get("/")
	want(t, "left where the file counts no tokens", w.left("all", "/"), 75)
}

// TestCostsThatAnOperatorHasReplaced: a limiter knows three units at a time. A reload does without one that has gone.
func TestCostsThatAnOperatorHasReplaced(t *testing.T) {
	w := newWorld(t, priced, ok)
	var limit quotient.Limit
	for _, unit := range []string{"a", "b", "c"} {
		limit.Rates = append(limit.Rates, quotient.Rate{Events: 1, Per: time.Hour, Unit: unit})
	}
	must(t, w.limiter().SetLimit(limit))
	resp, _ := w.get("/")
	want(t, "status before a reload", resp.StatusCode, 429)
	file := *w.conf.File()
	section := *file.Proxy
	file.Proxy, section.Fields = &section, "off"
	w.reload(&file)
	resp, _ = w.get("/")
	want(t, "status", resp.StatusCode, 200)
}

// TestWeightOfAField: a request counts as what a trusted peer says of it, and never as less than one.
func TestWeightOfAField(t *testing.T) {
	for _, row := range []struct {
		header, trusted string
		status          int
		left            float64
	}{
		{"", "127.0.0.0/8", 200, 4}, {"3", "127.0.0.0/8", 200, 2}, {"0", "127.0.0.0/8", 200, 4},
		{"6", "127.0.0.0/8", 413, 5}, {strings.Repeat("9", 99), "127.0.0.0/8", 413, 5},
		{"-3", "127.0.0.0/8", 400, 5}, {"1e1", "127.0.0.0/8", 400, 5}, {"3", "10.0.0.0/8", 200, 4},
		{"-3", "10.0.0.0/8", 200, 4},
	} {
		w := newWorld(t, `[limiters.all]
mode = "refuse"
rates = [{ events = 5, per = "1000h", kind = "window" }]
in-flight = 5
[proxy]
upstreams = ["UPSTREAM"]
`+fmt.Sprintf("trusted = [%q]\n", row.trusted)+all+"weight = \"header:x-items\"\n", ok)
		var header []string
		if row.header != "" {
			header = []string{"X-Items", row.header}
		}
		resp, _ := w.get("/", header...)
		want(t, fmt.Sprint(row, ": status"), resp.StatusCode, row.status)
		want(t, fmt.Sprint(row, ": left"), w.left("all", "/"), row.left)
	}
}
