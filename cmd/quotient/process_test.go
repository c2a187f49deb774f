//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/quotient-go/quotient/admin"
)

type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	url   string // of the proxy
	page  string // of the operator; empty when it is off
	ended chan struct{}

	mu  sync.Mutex
	log []map[string]any
}

// start runs quotient proxy on free ports and waits until it has said where it listens.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := launch(t, append([]string{"proxy", "--log", "json"}, args...)...)
	p.url = p.logged("proxy listens")["url"].(string)
	if page, ok := p.logged("operator's page")["url"]; ok {
		p.page = page.(string)
	}
	return p
}

func launch(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{t: t, ended: make(chan struct{})}
	p.cmd = program(t, args...)
	p.cmd.Env = append(p.cmd.Env, asProgram+"="+endsWithInput)
	_, err := p.cmd.StdinPipe()
	must(t, err)
	if args[0] == "leases" { // which ends within a second: the race detector would sleep as long
		p.cmd.Env = append(p.cmd.Env, "GORACE=atexit_sleep_ms=0")
	}
	stderr, err := p.cmd.StderrPipe()
	must(t, err)
	must(t, p.cmd.Start())
	go p.read(stderr)
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
		_ = p.cmd.Wait()
		if t.Failed() {
			t.Logf("log: %v", p.log)
		}
	})
	return p
}

// anywhere are the flags of a proxy on free ports.
func anywhere(args ...string) []string {
	return append([]string{"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, args...)
}

func (p *process) read(stderr io.Reader) {
	defer close(p.ended)
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		var line map[string]any
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			line = map[string]any{"msg": lines.Text()}
		}
		p.mu.Lock()
		p.log = append(p.log, line)
		p.mu.Unlock()
	}
}

// logged waits for a line of the log whose message begins so.
func (p *process) logged(msg string) (found map[string]any) {
	p.t.Helper()
	await(p.t, fmt.Sprintf("%q is logged", msg), func() (ended bool) {
		select {
		case <-p.ended:
			ended = true
		default:
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, line := range p.log {
			if text, _ := line["msg"].(string); found == nil && strings.HasPrefix(text, msg) {
				found = line
			}
		}
		return ended || found != nil
	})
	if found == nil {
		p.t.Fatalf("it ended before it logged %q", msg)
	}
	return found
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	must(p.t, p.cmd.Process.Signal(s))
}

// wait waits for the end and returns the exit code, -1 for a signal.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatal("it does not end")
	}
	_ = p.cmd.Wait()
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) ends(code int) {
	p.t.Helper()
	equal(p.t, "the exit code", p.wait(), code)
}

func (p *process) has(text string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Contains(fmt.Sprint(p.log), text)
}

// says requires an answer of the operator's page.
func (p *process) says(path string, status int, body string) {
	p.t.Helper()
	if a := get(p.t, p.page+path); a.status != status || body != "" && a.body != body {
		p.t.Errorf("/%s: %v, want %d %q", path, a, status, body)
	}
}

func later(t *testing.T, url string) <-chan answer {
	c := make(chan answer, 1)
	go func() { c <- get(t, url) }()
	return c
}

func (p *process) state() admin.State {
	p.t.Helper()
	var s admin.State
	must(p.t, json.Unmarshal([]byte(get(p.t, p.page+"state").body), &s))
	return s
}

func (p *process) until(what string, ok func(admin.State) bool) {
	p.t.Helper()
	await(p.t, what, func() bool { return ok(p.state()) })
}

// await asks until the answer is as it should be: a process is another one, and there is no event for it.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not so: %s", what)
		}
	}
}

// holding is an upstream that holds each request for /held until release is called.
type holding struct {
	*httptest.Server
	held    chan string // the path of each request that is held
	release func()
}

func hold(t *testing.T) *holding {
	t.Helper()
	gate := make(chan struct{})
	h := &holding{held: make(chan string, 1000), release: sync.OnceFunc(func() { close(gate) })}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/held") {
			h.held <- r.URL.Path
			<-gate
		}
		_, _ = io.WriteString(w, "from upstream "+r.URL.Path)
	}))
	t.Cleanup(h.Close)
	t.Cleanup(h.release)
	return h
}

func (h *holding) arrived(t *testing.T) {
	t.Helper()
	select {
	case <-h.held:
	case <-time.After(patience):
		t.Fatal("no request has arrived")
	}
}

// nowhere is an address where nothing listens.
const nowhere = "127.0.0.1:1"
