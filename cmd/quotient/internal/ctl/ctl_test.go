package ctl

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"go.uber.org/goleak"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/admin"
	"github.com/quotient-go/quotient/admin/pods"
	"github.com/quotient-go/quotient/cmd/quotient/internal/cmdline"
	"github.com/quotient-go/quotient/cmd/quotient/internal/secrets"
	"github.com/quotient-go/quotient/internal/shown"
	"github.com/quotient-go/quotient/internal/tested"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	must  = tested.Must
	await = tested.Until
)

const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
	nowhere    = "127.0.0.1:1" // where nothing listens
)

// run is the command line of package main as far as ctl is concerned.
func run(ctx context.Context, args []string, s cmdline.Streams) int {
	var c Command
	defer c.Close()
	parser, err := kong.New(&c, Helps, kong.Writers(s.Out, s.Err), kong.Bind(s))
	if err != nil {
		panic(err)
	}
	parsed, err := parser.Parse(args)
	if err == nil {
		parsed.BindTo(ctx, (*context.Context)(nil))
		err = parsed.Run()
	}
	if err == nil {
		return exitOK
	}
	fmt.Fprintln(s.Err, shown.Lines(err.Error()))
	if usage := (cmdline.UsageError{}); errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %+v, want %+v", what, got, want)
	}
}

func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing in:\n%s", part, text)
		}
	}
}

func renamed(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path+".new", []byte(text), 0o600))
	must(t, os.Rename(path+".new", path))
}

// pod is one process of a fleet, as far as an operator can tell.
type pod struct {
	*httptest.Server
	limiter atomic.Pointer[quotient.Limiter] // named api
	handler atomic.Pointer[http.Handler]
	broken  func(r *http.Request) bool // answered with 500; nil: none
}

// newPod starts a pod of this name, whose limiter has this rate.
func newPod(t *testing.T, name string, replicas int, rate quotient.Rate, opts ...admin.Option) *pod {
	t.Helper()
	p := new(pod)
	p.restart(t, name, replicas, rate, opts...)
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.broken != nil && p.broken(r) {
			http.Error(w, "no \x1b[2J", http.StatusInternalServerError)
			return
		}
		(*p.handler.Load()).ServeHTTP(w, r)
	}))
	t.Cleanup(p.Close)
	return p
}

// restart makes it another process.
func (p *pod) restart(t *testing.T, name string, replicas int, rate quotient.Rate, opts ...admin.Option) {
	t.Helper()
	limiter, err := quotient.New(quotient.Rates(rate), quotient.Replicas(replicas),
		quotient.Logger(slog.New(slog.DiscardHandler)))
	must(t, err)
	reg := new(quotient.Registry)
	must(t, reg.Add("api", limiter))
	quiet := admin.Logger(slog.New(slog.DiscardHandler))
	made, err := admin.New(reg, append(opts, admin.Replica(name), quiet)...)
	must(t, err)
	p.limiter.Store(limiter)
	var h http.Handler = made
	p.handler.Store(&h)
}

// foreign starts a pod that says this of its state and of what it explains, and nothing of who it is.
func foreign(t *testing.T, answers map[string]string) (url string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, cmp.Or(answers[r.URL.Path], `{"limiters":{"api":{}}}`))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// TestCtlForeign: a pod of another version, with another clock and values that no pod has, is shown as well as it goes.
func TestCtlForeign(t *testing.T) {
	over(t, foreign(t, map[string]string{
		"/state": `{"time":"2020-01-01T00:00:00Z","limiters":{"api":{"keys":1,"pool":{"age_seconds":9.2e300},
			"rules":[{"limit":1e308,"share":-1e308,"window_seconds":1e308}],"limit":{"rates":[{"per_seconds":1e300}]}}}}`,
		"/explain": `{"override_until":"2020-01-01T00:10:00Z","next":{"reason":"\u001b","retry_after_seconds":-9.3e9}}`,
		"/keys":    `{"limiter":"api","keys":[{"used":1e308,"waiting":-1,"refused_last_minute":18446744073709551615}]}`,
	}))
	contains(t, ctl(t, exitOK, "", "explain", "K"), " 10m0s ", ` refused: \x1b`)
	contains(t, ctl(t, exitOK, "", "stats"), " -Inf of +Inf ", " 277777h46m40s ")
	contains(t, ctl(t, exitOK, "", "top"), " 18446744073709551615 ")
}

// over sets the list of pods for the commands that follow.
func over(t *testing.T, urls ...string) {
	t.Helper()
	t.Setenv("QUOTIENT_PODS", strings.Join(urls, ","))
}

// ctl runs a command in this process.
func ctl(t *testing.T, code int, errors string, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if got := run(t.Context(), args, cmdline.Streams{Out: &out, Err: &errs}); got != code {
		t.Errorf("%q: exit %d, want %d: %s", args, got, code, &errs)
	}
	if contains(t, errs.String(), errors); errors == "" && errs.Len() > 0 {
		t.Errorf("%q: stderr has %q", args, &errs)
	}
	return out.String()
}

// TestCtlTop: the calls of a key add up over the pods. Keys, as all that a pod says, are fit to be printed.
func TestCtlTop(t *testing.T) {
	a, b := newPod(t, "a", 2, quotient.PerHour(2)), newPod(t, "b", 2, quotient.PerHour(2))
	over(t, a.URL, b.URL, a.URL+"/")
	const evil = "evil\x1b]0;\u009b\xff"
	for p, calls := range map[*pod]map[string]int{a: {"K": 4, "L": 3, evil: 1}, b: {"K": 3, "M": 2}} {
		for key, n := range calls {
			for range n {
				p.limiter.Load().Allow(key)
			}
		}
	}
	must(t, a.limiter.Load().Override("M", &quotient.Limit{InFlight: 3}, 0))
	lines := strings.Split(ctl(t, exitOK, "", "top"), "\n")
	equal(t, "lines", len(lines), 6)
	for i, want := range []string{"KEY", "K 5 2 of 2", "L 2 1 of 2", "M 1 2 of 2 yes", `evil\x1b]0;\u009b\xff 0 1 of 2`} {
		fields := append(strings.Fields(lines[i]), "", "", "", "", "", "", "", "", "", "")
		row := slices.Concat(fields[:1], fields[4:5], fields[8:12])
		if i == 0 {
			row = row[:1]
		}
		equal(t, lines[i], strings.TrimRight(strings.TrimSuffix(strings.Join(row, " "), " -"), " -"), want)
	}
	equal(t, "keys of -n 1", len(strings.Split(ctl(t, exitOK, "", "top", "-n", "1"), "\n")), 3)
	for _, p := range []*pod{a, b} {
		must(t, p.limiter.Load().Override("K", &quotient.Limit{InFlight: 3}, 0))
	}
	if out := ctl(t, exitOK, "", "top", "--by", "used", "-n", "1"); strings.Contains(out, "\nK ") {
		t.Errorf("K has slots of its own, all of which are free:\n%s", out)
	}

	text := ctl(t, exitOK, "", "top", "--json")
	if strings.ContainsAny(text, "\x1b\u009b") || strings.Count(text, "\n") != 1 {
		t.Errorf("a terminal would obey %q", text)
	}
	var out struct {
		Pods []podJSON
		Keys []topKey
	}
	must(t, json.Unmarshal([]byte(text), &out))
	if len(out.Pods) != 2 || out.Pods[1].Pod != "b" || len(out.Keys) != 4 || out.Keys[0].Refused != 5 ||
		string(out.Keys[3].KeyBase64) != evil {
		t.Errorf("got %+v", out)
	}
	for i := range 20 { // that are hotter than K
		a.limiter.Load().Allow(fmt.Sprint("hot", i))
		b.limiter.Load().Allow(fmt.Sprint("hot", i))
	}
	contains(t, ctl(t, exitOK, "", "top", "-n", "2"), "\nK ") // pods answer the same question again from memory
}

// TestCtlReads: a row for each pod, what differs between them, and those that do not answer.
func TestCtlReads(t *testing.T) {
	a, b, c := newPod(t, "a", 3, quotient.PerSecond(30)), newPod(t, "b", 3, quotient.PerSecond(30)), newPod(t, "c", 2, quotient.PerSecond(20))
	over(t, a.URL, b.URL, c.URL, "http://"+nowhere)
	const away = "no answer from 1 of 4 pods:\n  " + nowhere + ": dial tcp "
	out := ctl(t, exitOK, away, "stats")
	contains(t, out, "\na    3         10 of 30 ", "\nc    2 *       10 of 20  second: 20 per 1s *",
		"\n* differs: replicas: 3 on a, b; 2 on c\n",
		"\n* differs: limit: second: 30 per 1s on a, b; second: 20 per 1s on c\n")
	for _, p := range []*pod{a, b} {
		p.limiter.Load().TryAcquire("K", quotient.Plan(""))
	}
	must(t, b.limiter.Load().Override("K", &quotient.Limit{Deny: true}, 0))
	out = ctl(t, exitOK, away, "explain", "K")
	contains(t, out, "\n* differs: replicas: 3 on a, b; 2 on c\n", "\n* differs: limit: deny on b; second: 30 per 1s on a\n",
		" refused: denied")
	if strings.Contains(out, "20 per 1s") {
		t.Errorf("c has not seen the key, and does not know its plan:\n%s", out)
	}
	for _, command := range []string{"stats", "explain K"} {
		var out differing
		text := ctl(t, exitOK, away, append(strings.Fields(command), "--json", "--limiter", "api")...)
		must(t, json.Unmarshal([]byte(text), &out))
		if len(out.Pods) != 4 || len(out.Differs) < 2 || out.Pods[0].Answer == nil || out.Pods[3].Error == "" {
			t.Errorf("%s: %s", command, text)
		}
	}
	over(t, "http://"+nowhere)
	for _, command := range []string{"stats", "top", "explain K", "override K 1/s", "watch"} {
		ctl(t, exitFailed, "no pod answers:\nno answer from 1 of 1 pod:\n  "+nowhere+": dial tcp", strings.Fields(command)...)
	}
	many := []string{a.URL}
	for i := range 25 {
		many = append(many, fmt.Sprint("unix:///nosuch/", i))
	}
	over(t, many...)
	var errs strings.Builder
	equal(t, "exit code", run(t.Context(), []string{"stats"}, cmdline.Streams{Out: io.Discard, Err: &errs}), exitOK)
	contains(t, errs.String(), "no answer from 25 of 26 pods:\n  /nosuch/0: dial unix /nosuch/0: connect: no such file",
		"\n  and 5 more\n")
	equal(t, "pods that are named", strings.Count(errs.String(), ": dial "), mostLines)
	over(t, a.URL, "unix:///nosuch/%1b")
	ctl(t, exitOK, `  /nosuch/\x1b: dial unix /nosuch/\x1b: connect`, "stats")
	over(t, a.URL)
	a.broken = func(*http.Request) bool { return true }
	ctl(t, exitFailed, `no answer of an admin handler: no \x1b[2J`, "stats")
}

// TestCtlChanges: all pods take a change, or none, unless a part is asked for.
func TestCtlChanges(t *testing.T) {
	a, b := newPod(t, "a", 2, quotient.PerSecond(30)), newPod(t, "b", 2, quotient.PerSecond(30))
	both := []string{a.URL, b.URL}
	dead := append(slices.Clone(both), "http://"+nowhere)
	owns := func() (text string) {
		for _, p := range []*pod{a, b} {
			e, s := p.limiter.Load().Explain("K"), p.limiter.Load().Stats()
			text += map[bool]string{true: "K " + e.Limit.String() + map[bool]string{false: " for a while"}[e.Until.IsZero()]}[e.Overridden]
			for name, plan := range s.Plans {
				text += name + " " + plan.Limit.String()
			}
			text += " " + s.Pool.Source + "; "
		}
		return text
	}
	const nothing, not = " configured;  configured; ", "nothing was changed: --partial changes the others"
	for _, r := range []struct {
		pods       []string
		args       string
		code       int
		says, then string // what stderr has, and what both pods have
	}{
		{dead, "override K 5/s", exitFailed, not, nothing},
		{dead, "override K 5/s --partial", exitOK, nowhere, "K second: 5 per 1s configured; K second: 5 per 1s configured; "},
		{both, "override K none", exitOK, "", nothing},
		{both, "override K none --for 1m", exitUsage, "--for does not go with none", nothing},
		{both, "override K nonsense", exitUsage, `the limit "nonsense": `, nothing},
		{both, "override K 1/s --keep", exitUsage, "--for is 0s", nothing},
		{both, "override K 1/s --for=-1s", exitUsage, "--for is -1s", nothing},
		{both, "override K 1/s --for 9000h", exitFailed, "ttl_seconds: ", nothing},
		{both, "deny K --for 1h", exitOK, "", "K deny for a while configured; K deny for a while configured; "},
		{both, "override K unlimited", exitOK, "", "K no limit configured; K no limit configured; "},
		{both, "override K none", exitOK, "", nothing},
		{both, "plan paid 5/s", exitOK, "", "paid second: 5 per 1s configured; paid second: 5 per 1s configured; "},
		{both, "plan paid none", exitOK, "", nothing},
		{both, "plan \xff 5/s", exitFailed, "it cannot be changed on 2 of 2 pods", nothing},
		{both, "replicas 0", exitFailed, "replicas: ", nothing},
		{both, "replicas 4 --for 1ms", exitOK, "", nothing},
		{both, "override K 1/s --limiter other", exitFailed, `no pod has a limiter "other", want api`, nothing},
		{both, "replicas 4 --for 1h", exitOK, "", " set;  set; "},
	} {
		over(t, r.pods...)
		ctl(t, r.code, r.says, strings.Fields(r.args)...)
		await(t, r.args+": "+r.then, func() bool { return owns() == r.then })
	}
	over(t, both...)
	ctl(t, exitUsage, `no rate of limiter "api" counts "requests"`, "override", "K", "5 requests/s")
	changes := func(r *http.Request) bool { return r.Method == http.MethodPut && !r.URL.Query().Has("validate") }
	b.broken = func(r *http.Request) bool {
		if changes(r) {
			self, err := os.FindProcess(os.Getpid())
			must(t, errors.Join(err, self.Signal(os.Interrupt)))
			_, _ = io.Copy(io.Discard, r.Body) // or it would not see that the client leaves
			<-r.Context().Done()
		}
		return false
	}
	ctl(t, exitFailed, "  b: interrupted\nchanged on ", "override", "K", "2/s") // on a, if that has been quicker
	equal(t, "b's override", b.limiter.Load().Explain("K").Overridden, false)
	b.broken = changes
	out := ctl(t, exitFailed, "changed on 1 of 2 pods, which keep it", "deny", "K", "--json")
	contains(t, out, `"changed":1,`, `{"pod":"b","address":"`+strings.TrimPrefix(b.URL, "http://")+`","error":"`)
	equal(t, "what was changed", owns(), "K deny set;  set; ")

	b.broken = nil
	tokens := quotient.Rates(quotient.Rate{Name: "t", Unit: "tokens", Events: 9, Per: time.Second})
	must(t, b.limiter.Load().SetPlan("bulk", &tokens))
	ctl(t, exitOK, "", "plan", "paid", "5 tokens/s") // which calls of that plan cost
}

// running runs a command until end is called, which returns its exit code.
func running(t *testing.T, out io.Writer, args ...string) (end func() int) {
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int, 1)
	go func() { code <- run(ctx, args, cmdline.Streams{Out: out, Err: out}) }()
	return func() int { cancel(); return tested.Event(t, code) }
}

// TestCtlKeeps: pods that come, and those that have started again, get what is left of the change. One that has lost
// it otherwise was changed by somebody else.
func TestCtlKeeps(t *testing.T) {
	a, b := newPod(t, "a", 2, quotient.PerSecond(30)), newPod(t, "b", 2, quotient.PerSecond(30))
	path := filepath.Join(t.TempDir(), "pods")
	must(t, os.WriteFile(path, []byte(a.URL), 0o600))
	t.Setenv("QUOTIENT_PODS", "file:"+path)
	var out tested.Buffer
	end := running(t, &out, "override", "K", "5/s", "--for", "1h", "--keep", "--look", "10ms")
	says := func(text string) {
		t.Helper()
		await(t, text, func() bool { return strings.Contains(out.String(), text) })
	}
	says("on 1 of 1 pod, for 1h0m0s, until ")
	must(t, a.limiter.Load().Override("K", nil, 0))
	other, old := httptest.NewServer(a.Config.Handler), foreign(t, nil)
	defer other.Close()
	renamed(t, path, other.URL+"\n"+old+"\n"+foreign(t, nil)+"\n"+b.URL)
	says(strings.TrimPrefix(old, "http://") + " has come and has taken it")
	says("b has come and has taken it, for 1h0m0s")
	if e := b.limiter.Load().Explain("K"); e.Limit.String() != "second: 5 per 1s" || e.Until.IsZero() {
		t.Errorf("b has %v", e)
	}
	equal(t, "a, which somebody has changed back", a.limiter.Load().Explain("K").Overridden, false)
	b.restart(t, "b2", 2, quotient.PerSecond(30))
	says("b2 has come and has taken it")
	equal(t, "b, which has started again", b.limiter.Load().Explain("K").Overridden, true)
	b.Close()
	says("it is not on 1 of 4 pods:\n  " + strings.TrimPrefix(b.URL, "http://"))
	equal(t, "exit code", end(), exitOK)
	says("ended; the pods keep it for 1h0m0s")
	equal(t, "reports of the pod that is away", strings.Count(out.String(), "it is not on"), 1)
	equal(t, "pods that have come", strings.Count(out.String(), " has come "), 4)

	over(t, a.URL)
	contains(t, ctl(t, exitOK, "", "deny", "K", "--for", "50ms", "--keep"), "for 50ms") // ends with it
}

// TestCtlWatches: a line each time, and what changes.
func TestCtlWatches(t *testing.T) {
	a, b := newPod(t, "a", 2, quotient.PerSecond(2)), newPod(t, "b", 2, quotient.PerSecond(2))
	over(t, a.URL, b.URL)
	if out := ctl(t, exitOK, "", "watch", "--interval", "10ms", "--times", "2"); strings.Count(out, "\n") != 2 {
		t.Errorf("two lines: %s", out)
	}
	var out tested.Buffer
	end := running(t, &out, "watch", "--interval", "10ms")
	says := func(text string) {
		t.Helper()
		await(t, text, func() bool { return strings.Contains(out.String(), text) })
	}
	says("2 of 2 pods  admitted 0.0/s  refused 0.0/s  waiting 0\n")
	must(t, b.limiter.Load().SetPool(quotient.Pool{Replicas: 4}, 0))
	says("\n* b: api replicas 4, was 2\n")
	await(t, "refused calls have a rate", func() bool {
		a.limiter.Load().Allow("K")
		text := out.String()
		return strings.Count(text, "refused ") > strings.Count(text, "refused 0.0/s")
	})
	b.restart(t, "b2", 2, quotient.PerSecond(2))
	says("\n* b2 has started again\n")
	b.Close()
	says(" does not answer: ")
	says("\x20 1 of 2 pods ")
	a.Close()
	says("\x20 0 of 2 pods ")
	equal(t, "exit code", end(), exitOK)

	over(t, newPod(t, "a", 2, quotient.PerSecond(2)).URL, b.URL)
	text := ctl(t, exitOK, "no answer from 1 of 2 pods:\n", "watch", "--interval", "10ms", "--times", "1", "--json")
	var l watchLine
	must(t, json.Unmarshal([]byte(text), &l))
	if l.Pods != 2 || l.Answer != 1 || l.Changes == nil {
		t.Errorf("got %s", text)
	}
}

// TestCtlRates: a process that was not there at the look before has no rate, whatever it has counted.
func TestCtlRates(t *testing.T) {
	one, two := pods.Process{Replica: "a", Started: time.Unix(1, 0)}, pods.Process{Replica: "a", Started: time.Unix(2, 0)}
	was := podView{process: one, admitted: 10, refused: 5}
	for _, r := range []struct {
		was, now podView
		admitted float64
	}{
		{was, podView{process: one, admitted: 30, refused: 5}, 10},
		{was, podView{process: one}, 0}, // it has counters that fall
		{was, podView{process: two, admitted: 30}, 0},
		{podView{}, podView{process: one, admitted: 30}, 0},
		{podView{process: one, err: "away"}, podView{process: one, admitted: 30}, 0},
		{was, podView{process: one, admitted: 30, err: "away"}, 0},
	} {
		l := line(view{time.Unix(10, 0), map[string]podView{"h": r.was}}, view{time.Unix(12, 0), map[string]podView{"h": r.now}})
		if l.Admitted != r.admitted || l.Refused != 0 {
			t.Errorf("%+v after %+v: %v and %v a second, want %v and 0", r.now, r.was, l.Admitted, l.Refused, r.admitted)
		}
	}
}

// TestCtlIsLetIn: the token and the certificates of the flags, and no token elsewhere.
func TestCtlIsLetIn(t *testing.T) {
	const secret = "0123456789abcdef"
	token := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(token, []byte("# ours\n"+secret+"\nolder-one\n"), 0o600))
	a := newPod(t, "a", 1, quotient.PerSecond(2), admin.Token(secret))
	over(t, a.URL)
	ctl(t, exitFailed, "no pod answers", "stats")
	contains(t, ctl(t, exitOK, "", "stats", "--token-file", token), "\na ")
	var leaked atomic.Bool
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		leaked.Store(leaked.Load() || r.Header.Get("Authorization") != "")
	}))
	defer other.Close()
	var away http.Handler = http.RedirectHandler(other.URL, http.StatusTemporaryRedirect)
	a.handler.Store(&away)
	ctl(t, exitFailed, "no pod answers", "stats", "--token-file", token)
	equal(t, "another server has seen the token", leaked.Load(), false)

	cert, key := tested.Certificate(t, "localhost")
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	must(t, os.WriteFile(certFile, cert, 0o600))
	must(t, os.WriteFile(keyFile, key, 0o600))
	files := secrets.Files{Cert: certFile, Key: keyFile, CA: certFile}
	text, err := files.Read(t.Context())
	must(t, err)
	certs, ca, err := files.Parse(text)
	must(t, err)
	made, err := admin.New(new(quotient.Registry), admin.Replica("a"), admin.MutualTLS())
	must(t, err)
	secure := httptest.NewUnstartedServer(made)
	secure.TLS = &tls.Config{Certificates: certs, ClientCAs: ca, ClientAuth: tls.VerifyClientCertIfGiven}
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	over(t, strings.Replace(secure.URL, "127.0.0.1", "localhost", 1))
	ctl(t, exitFailed, "certificate signed by unknown authority", "stats")
	ctl(t, exitFailed, "client certificate: credentials are missing", "stats", "--ca", certFile)
	ctl(t, exitOK, "", "stats", "--ca", certFile, "--cert", certFile, "--key", keyFile)
	ctl(t, exitFailed, "--cert: "+certFile+" with key "+certFile, "stats", "--cert", certFile, "--key", certFile)
	ctl(t, exitFailed, "--ca: "+keyFile+" has no certificate", "stats", "--ca", keyFile)
}

// TestPlain: an error of a connection is the same text each time.
func TestPlain(t *testing.T) {
	for port := range 2 {
		from, to := &net.TCPAddr{Port: 50000 + port}, &net.TCPAddr{Port: 9091}
		reset := &net.OpError{Op: "read", Net: "tcp", Source: from, Addr: to, Err: errors.New("reset")}
		equal(t, "the text", plain(fmt.Errorf("admin: %w", &url.Error{Op: "Get", Err: reset})), "read tcp :9091: reset")
	}
}

// TestSheet: who has what, where it differs, in few words.
func TestSheet(t *testing.T) {
	s := sheet{head: []string{"POD", "=A", "B", "=C"}}
	for i := range 9 {
		s.add(fmt.Sprint("p", i), fmt.Sprint(i/4), fmt.Sprint(i), map[bool]string{true: "x"}[i == 8])
	}
	equal(t, "what differs", s.differs(), []string{"a: 0 on 4 pods; 1 on 4 pods; 2 on p8"})
	s.rows[0][3], s.rows[1][3], s.rows[2][3], s.rows[3][3], s.rows[4][3], s.rows[5][3] = "1", "2", "3", "4", "5", "6"
	equal(t, "what differs", s.differs()[1], "c: 1 on p0; 2 on p1; 3 on p2; 4 on p3; 5 on p4; and 2 more")
	s = sheet{head: []string{"POD", "=A"}}
	long := strings.Repeat("é", longestCell/2)
	s.add("p", long+"a")
	s.add("q", long+"b")
	var out strings.Builder
	must(t, s.printAll(&out))
	equal(t, "long cells", out.String(), "POD  A\np    "+long+"…\nq    "+long+"… *\n* differs: a: "+long+"… on p; "+long+"… on q\n")
}
