package lease_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient/lease"
)

// The interface's page as scripts. Each script is run three times: over loopback against a fresh server, over
// loopback against one that is restarted, and in fake time. A restart happens before every line. The clients
// then bring the state back by POST /restore.
//
// A line is a request, "->", the status and the whole body: "PUT /peers/1/A 1 -> 200 1". In a body, \n is a
// line feed, @N in a request is N bytes that begin with 1, and ~REGEXP in an answer is a pattern. Before it
// may stand:
//
//	[TYPE]  the content type; application/json else where there is a body
//	go      asks in the background; the answer must come before the next "join", or the end
//	until   asks again until the answer is as wanted
//
// "peer N" restores a peer without locks that expires in 5 minutes. "$x = " before a request names its
// answer. "header NAME: VALUE" checks the last answer. "sleep D" lets time pass, and makes the script one
// that is run in fake time only.
type script struct {
	name  string
	once  bool // restarted only before the first line: what is tested does not survive a restart
	lines string
}

// semaphores are those of every script.
var semaphores = map[string]lease.Semaphore{
	"A": {Max: 1}, "B": {Max: 2}, "C": {Max: 5}, "is_acquired": {Max: 1},
	"High": {Max: 1, Level: 2}, "Mid": {Max: 1, Level: 1}, "Low": {Max: 1},
	"/&": {Max: 1}, "a b": {Max: 1}, "ü": {Max: 1}, "%41": {Max: 1}, "+": {Max: 1}, "..": {Max: 1},
}

func scripts() []script {
	return slices.Concat(routeScripts, bodyScripts, peerScripts, lockScripts, restoreScripts)
}

func TestConformance(t *testing.T) {
	names := map[string]bool{}
	for _, s := range scripts() {
		if names[s.name] {
			t.Errorf("two scripts are called %q", s.name)
		}
		names[s.name] = true
	}
	if len(names) < 120 {
		t.Errorf("%d scripts, want at least 120", len(names))
	}
	for _, mode := range []string{"fresh", "restarted"} {
		for _, s := range scripts() {
			if strings.Contains(s.lines, "\tsleep ") {
				continue
			}
			t.Run(mode+"/"+s.name, func(t *testing.T) {
				t.Parallel()
				r := newRun(t)
				web := httptest.NewServer(r)
				t.Cleanup(web.Close)
				r.send, r.base, r.restarts = web.Client().Do, web.URL, mode == "restarted"
				r.play(s)
			})
		}
	}
	for _, s := range scripts() {
		t.Run("fake time/"+s.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRun(t)
				r.base, r.settle = "http://server", synctest.Wait
				r.send = func(req *http.Request) (*http.Response, error) {
					w := httptest.NewRecorder()
					if req.Body == nil {
						req.Body = http.NoBody
					}
					r.ServeHTTP(w, req)
					return w.Result(), nil
				}
				r.play(s)
			})
		})
	}
}

// run plays one script.
type run struct {
	t        *testing.T
	server   atomic.Pointer[lease.Server]
	base     string
	send     func(*http.Request) (*http.Response, error)
	settle   func() // waits until all that was sent is in the server, where that can be known
	restarts bool
	names    map[string]string // of answers
	last     answer
	pending  []chan answer // in the background
	clients  clients
}

// question is a line up to its arrow, and what is wanted of the answer.
type question struct{ line, method, target, contentType, body, want string }

type answer struct {
	question
	status  int
	header  http.Header
	text    string
	problem string // what is wrong with it
}

func newRun(t *testing.T) *run {
	r := &run{t: t, settle: func() {}, names: map[string]string{}}
	r.start()
	t.Cleanup(func() { r.server.Load().Close() })
	return r
}

// ServeHTTP is that of the server of the moment.
func (r *run) ServeHTTP(w http.ResponseWriter, req *http.Request) { r.server.Load().ServeHTTP(w, req) }

// start puts an empty server in place.
func (r *run) start() {
	c := lease.Config{Semaphores: semaphores, MaxPeers: 20}
	s, err := lease.NewServer(c, lease.ServerOptions{Version: "1.2.3"})
	if err != nil {
		r.t.Fatal(err)
	}
	if old := r.server.Swap(s); old != nil {
		old.Close()
	}
}

func (r *run) play(s script) {
	for i, line := range strings.Split(strings.TrimSpace(s.lines), "\n") {
		if r.restarts && len(r.pending) == 0 && (i == 0 || !s.once) {
			r.restart()
		}
		r.line(strings.TrimSpace(line))
	}
	r.join()
}

func (r *run) line(line string) {
	switch word, rest, _ := strings.Cut(line, " "); word {
	case "join":
		r.join()
	case "sleep":
		d, err := lease.ParseDuration(rest)
		if err != nil {
			r.t.Fatal(err)
		}
		time.Sleep(d)
		r.settle()
	case "peer":
		r.line(`POST /restore {"expires_in":"5m","peer_id":` + rest + `,"acquired":{}} -> 200 Ok`)
	case "header":
		name, want, _ := strings.Cut(rest, ":")
		if got := strings.Join(r.last.header.Values(name), " "); !matches(got, strings.TrimSpace(want)) {
			r.t.Errorf("%s: header is %q", line, got)
		}
	case "go":
		q, done := r.read(rest), make(chan answer, 1)
		r.pending = append(r.pending, done)
		go func() { done <- r.ask(q) }()
		r.settle()
	case "until":
		a := r.ask(r.read(rest))
		for end := time.Now().Add(5 * time.Second); a.problem != "" && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
			a = r.ask(r.read(rest))
		}
		r.take(a)
	default:
		name, named, ok := strings.Cut(line, " = ")
		if ok = ok && strings.HasPrefix(name, "$"); ok {
			line = named
		}
		r.last = r.take(r.ask(r.read(line)))
		if ok {
			r.names[name] = r.last.text
		}
	}
}

// join waits for the answers of the background.
func (r *run) join() {
	for _, done := range r.pending {
		select {
		case a := <-done:
			r.take(a)
		case <-time.After(10 * time.Second):
			r.t.Error("no answer in 10 s")
		}
	}
	r.pending = nil
}

// take reports what is wrong with an answer, and lets the clients learn from it.
func (r *run) take(a answer) answer {
	if a.problem != "" {
		r.t.Errorf("%s\n%s", a.line, a.problem)
	} else if err := r.clients.learn(a); err != nil {
		r.t.Errorf("%s\n%v", a.line, err)
	}
	return a
}

// read takes a line apart.
func (r *run) read(line string) question {
	for name, value := range r.names {
		line = strings.ReplaceAll(line, name, value)
	}
	q := question{line: line}
	line, want, _ := strings.Cut(line, " -> ")
	q.want = strings.ReplaceAll(want, `\n`, "\n")
	if strings.HasPrefix(line, "[") {
		q.contentType, line, _ = strings.Cut(line[1:], "] ")
	}
	q.method, line, _ = strings.Cut(line, " ")
	q.target, q.body, _ = strings.Cut(line, " ")
	if size, err := strconv.Atoi(strings.TrimPrefix(q.body, "@")); err == nil &&
		strings.HasPrefix(q.body, "@") {
		q.body = "1" + strings.Repeat(" ", size-1)
	}
	if q.contentType == "" && q.body != "" {
		q.contentType = "application/json"
	}
	return q
}

// ask sends a request and compares the answer.
func (r *run) ask(q question) answer {
	a := answer{question: q}
	req, err := http.NewRequest(q.method, r.base+q.target, strings.NewReader(q.body))
	if err != nil {
		a.problem = err.Error()
		return a
	}
	if q.contentType != "" && q.contentType != "none" {
		req.Header.Set("Content-Type", q.contentType)
	}
	resp, err := r.send(req)
	if err != nil {
		a.problem = err.Error()
		return a
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		a.problem = err.Error()
		return a
	}
	a.status, a.header, a.text = resp.StatusCode, resp.Header, string(text)
	status, want, _ := strings.Cut(q.want, " ")
	if strconv.Itoa(a.status) != status || !matches(a.text, want) {
		a.problem = fmt.Sprintf("got %d %q", a.status, a.text)
	}
	return a
}

// matches reports whether got is want, or matches it where that is ~REGEXP.
func matches(got, want string) bool {
	if pattern, ok := strings.CutPrefix(want, "~"); ok {
		return regexp.MustCompile("(?s)^(?:" + pattern + ")$").MatchString(got)
	}
	return got == want
}
