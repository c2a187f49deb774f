package lease_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
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
// "peer N M" restores peers without locks that expire in 5 minutes. "$x = " before a request names its
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

func TestConformance(t *testing.T) {
	for _, mode := range []string{"fresh", "restarted"} {
		for _, s := range conformance {
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
	for _, s := range conformance {
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
		for id := range strings.FieldsSeq(rest) {
			r.line(`POST /restore {"expires_in":"5m","peer_id":` + id + `,"acquired":{}} -> 200 Ok`)
		}
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

// take reports what is wrong with an answer.
func (r *run) take(a answer) answer {
	if a.problem != "" {
		r.t.Errorf("%s\n%s", a.line, a.problem)
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

// restart puts an empty server in place. The clients restore what they hold, and ask again for what they wait
// for.
func (r *run) restart() {
	old := r.server.Load()
	var peers []struct{ ID uint64 }
	if err := json.Unmarshal(sent(old, "GET", "/peers/", "").Body.Bytes(), &peers); err != nil {
		r.t.Fatal(err)
	}
	acquired, tokens := map[uint64]map[string]int64{}, map[uint64]map[string]uint64{}
	for _, p := range peers {
		acquired[p.ID], tokens[p.ID] = map[string]int64{}, map[string]uint64{}
	}
	var again []string
	for name := range semaphores {
		held, pending, err := old.Locks(name, 100)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, l := range held {
			acquired[l.Peer][name], tokens[l.Peer][name] = l.Count, l.Token
		}
		for _, l := range pending {
			again = append(again, fmt.Sprintf("PUT /peers/%d/%s %d -> 202 %d",
				l.Peer, url.PathEscape(name), l.Count, l.Peer))
		}
	}
	r.start()
	for _, p := range peers {
		body, _ := json.Marshal(map[string]any{"peer_id": p.ID, "expires_in": "5m",
			"acquired": acquired[p.ID], "tokens": tokens[p.ID]})
		r.take(r.ask(r.read("POST /restore " + string(body) + " -> 200 Ok")))
	}
	for _, line := range again {
		r.take(r.ask(r.read(line)))
	}
}

var conformance = []script{
	// Routes, methods, paths and the texts that stand alone.
	{name: "places that need no peer", lines: `
		GET / -> 200 ~.+
		header Content-Type: text/plain; charset=utf-8
		GET /health -> 200 Ok
		header Content-Type: text/plain; charset=utf-8
		GET /ready -> 200 Ok
		GET /version -> 200 1.2.3
		HEAD /health -> 200 ~(Ok)?
		HEAD /remainder?semaphore=A -> 200 ~1?`},
	{name: "404 in HTML, for any method and below places", lines: `
		GET /nothing -> 404 ~<!DOCTYPE html>.*404.*</html>\n
		header Content-Type: text/html; charset=utf-8
		PUT /nothing 1 -> 404 ~<!DOCTYPE html>.*
		DELETE /nothing -> 404 ~<!DOCTYPE html>.*
		GET /health/ -> 404 ~<!DOCTYPE html>.*
		GET /peers -> 404 ~<!DOCTYPE html>.*
		PUT /peers/1/ 1 -> 404 ~<!DOCTYPE html>.*
		PUT /peers//A 1 -> 404 ~<!DOCTYPE html>.*
		PUT /peers/1/A/B 1 -> 404 ~<!DOCTYPE html>.*
		GET /peers/1/is_acquired/ -> 404 ~<!DOCTYPE html>.*
		GET //health -> 404 ~<!DOCTYPE html>.*
		GET /peers%2F -> 404 ~<!DOCTYPE html>.*
		GET /Health -> 404 ~<!DOCTYPE html>.*
		GET /metrics -> 404 ~<!DOCTYPE html>.*`},
	{name: "405 with what is allowed", lines: `
		POST /health -> 405 Method not allowed. Want GET, HEAD.
		header Allow: GET, HEAD
		DELETE / -> 405 Method not allowed. Want GET, HEAD.
		PUT /version -> 405 ~.*
		PUT /ready -> 405 ~.*
		PUT /metrics -> 405 ~.*
		header Allow: GET, HEAD
		GET /new_peer -> 405 Method not allowed. Want POST.
		header Allow: POST
		PUT /restore {} -> 405 ~.*
		header Allow: POST
		GET /remove_expired -> 405 ~.*
		header Allow: POST
		POST /remainder?semaphore=A -> 405 ~.*
		header Allow: GET, HEAD
		POST /peers/ -> 405 ~.*
		header Allow: GET, HEAD
		GET /peers/1 -> 405 ~.*
		header Allow: DELETE, PUT
		GET /peers/1/A -> 405 ~.*
		header Allow: DELETE, PUT
		POST /peers/1/is_acquired -> 405 ~.*
		header Allow: DELETE, GET, HEAD, PUT
		OPTIONS /peers/1/A -> 405 ~.*`},

	{name: "new_peer answers a bare integer", lines: `
		POST /new_peer {"expires_in":"300000ms"} -> 200 ~[1-9][0-9]{0,19}
		header Content-Type: application/json`},
	{name: "ids differ", lines: `
		$one = POST /new_peer {"expires_in":"5m"} -> 200 ~[0-9]+
		$two = POST /new_peer {"expires_in":"5m"} -> 200 ~[0-9]+
		PUT /peers/$one/A 1 -> 200 $one
		PUT /peers/$two/A 1 -> 202 $two`},
	{name: "an id may be above 2^63", lines: `
		peer 18446744073709551615
		PUT /peers/18446744073709551615/A 1 -> 200 18446744073709551615
		GET /peers/ -> 200 [{"id":18446744073709551615}]
		DELETE /peers/18446744073709551615 -> 200 "Peer released"`},
	{name: "an id may be 0", lines: `
		peer 0
		PUT /peers/0/A 1 -> 200 0`},
	{name: "no peers", lines: `
		GET /peers/ -> 200 []
		header Content-Type: application/json`},
	{name: "the list of peers", lines: `
		peer 7 5
		GET /peers/ -> 200 [{"id":5},{"id":7}]`},
	{name: "peer is served as peers", lines: `
		peer 1
		PUT /peer/1/A?block_for=1s 1 -> 200 1
		GET /peer/1/is_acquired -> 200 true
		PUT /peer/1 {"expires_in":"5m"} -> 200 Ok
		DELETE /peer/1/A -> 200 Ok
		GET /peer/ -> 200 [{"id":1}]
		DELETE /peer/1 -> 200 "Peer released"`},
	{name: "ids that are no unsigned integers", lines: `
		PUT /peers/me/A 1 -> 400 Peer id is "me", want an unsigned integer of 64 bits.
		DELETE /peers/me -> 400 Peer id is "me", want an unsigned integer of 64 bits.
		GET /peers/me/is_acquired -> 400 Peer id is "me", want an unsigned integer of 64 bits.
		DELETE /peers/me/A -> 400 Peer id is "me", want an unsigned integer of 64 bits.
		PUT /peers/me {"expires_in":"5m"} -> 400 Peer id is "me", want an unsigned integer of 64 bits.
		DELETE /peers/-1 -> 400 Peer id is "-1", want an unsigned integer of 64 bits.
		DELETE /peers/+1 -> 400 Peer id is "+1", want an unsigned integer of 64 bits.
		DELETE /peers/18446744073709551616 -> 400 ~Peer id is "18446744073709551616", want .*`},

	{name: "a semaphore with a slash and an ampersand", lines: `
		peer 1
		PUT /peers/1/%2F%26 1 -> 200 1
		GET /remainder?semaphore=%2F%26 -> 200 0
		GET /remainder?semaphore=/%26 -> 200 0
		DELETE /peers/1/%2f%26 -> 200 Ok
		GET /remainder?semaphore=%2F%26 -> 200 1`},
	{name: "a semaphore with a blank", lines: `
		peer 1
		PUT /peers/1/a%20b 1 -> 200 1
		GET /remainder?semaphore=a+b -> 200 0
		GET /remainder?semaphore=a%20b -> 200 0`},
	{name: "a plus is a plus in a path, and a blank in a query", lines: `
		peer 1
		PUT /peers/1/+ 1 -> 200 1
		GET /remainder?semaphore=%2B -> 200 0
		GET /remainder?semaphore=+ -> 400 Unknown semaphore`},
	{name: "a semaphore beyond ASCII", lines: `
		peer 1
		PUT /peers/1/%C3%BC 1 -> 200 1
		GET /remainder?semaphore=%C3%BC -> 200 0`},
	{name: "names are decoded once", lines: `
		peer 1
		PUT /peers/1/%2541 1 -> 200 1
		GET /remainder?semaphore=%2541 -> 200 0
		GET /remainder?semaphore=A -> 200 1`},
	{name: "a name that needs no encoding may be encoded", lines: `
		peer 1
		PUT /peers/1/%41 1 -> 200 1
		GET /remainder?semaphore=A -> 200 0`},
	{name: "places may be encoded too", lines: `
		peer 1
		GET /%68ealth -> 200 Ok
		PUT /%70eers/%31/A 1 -> 200 1`},
	{name: "dots are a name", lines: `
		peer 1
		PUT /peers/1/.. 1 -> 200 1
		GET /remainder?semaphore=.. -> 200 0`},
	{name: "a semaphore called is_acquired", lines: `
		peer 1 2
		PUT /peers/1/is_acquired 1 -> 200 1
		PUT /peers/2/is_acquired 1 -> 202 2
		GET /peers/1/is_acquired -> 200 true
		GET /peers/2/is_acquired -> 200 false
		DELETE /peers/1/is_acquired -> 200 Ok
		GET /peers/2/is_acquired -> 200 true`},

	{name: "remainder", lines: `
		GET /remainder?semaphore=C -> 200 5
		header Content-Type: application/json
		GET /remainder?semaphore=X -> 400 Unknown semaphore
		header Content-Type: text/plain; charset=utf-8
		GET /remainder?semaphore= -> 400 Unknown semaphore
		GET /remainder -> 400 The parameter semaphore is missing.
		GET /remainder? -> 400 The parameter semaphore is missing.
		GET /remainder?Semaphore=A -> 400 The parameter semaphore is missing.
		GET /remainder?x=1&semaphore=A&y -> 200 1`},
	{name: "remainder counts what is held, not what is pending", lines: `
		peer 1 2
		PUT /peers/1/C 2 -> 200 1
		PUT /peers/2/C 4 -> 202 2
		GET /remainder?semaphore=C -> 200 3`},
	{name: "remove_expired without peers", lines: `
		POST /remove_expired -> 200 0
		header Content-Type: application/json
		peer 1
		POST /remove_expired {} -> 200 0
		GET /peers/ -> 200 [{"id":1}]`},

	// Bodies, content types, counts and durations.
	{name: "415 without a content type, or for another one", lines: `
		peer 1
		[none] PUT /peers/1/A 1 -> 415 Content-Type is "", want application/json.
		[none] POST /new_peer {"expires_in":"5m"} -> 415 Content-Type is "", want application/json.
		[none] PUT /peers/1 {"expires_in":"5m"} -> 415 Content-Type is "", want application/json.
		[none] POST /restore {} -> 415 Content-Type is "", want application/json.
		[text/plain] PUT /peers/1/A 1 -> 415 Content-Type is "text/plain", want application/json.
		[application/jsonx] PUT /peers/1/A 1 -> 415 Content-Type is "application/jsonx", want application/json.`},
	{name: "JSON content types", lines: `
		peer 1
		[application/json; charset=utf-8] PUT /peers/1/A 1 -> 200 1
		[APPLICATION/JSON] PUT /peers/1/A 1 -> 200 1
		[application/vnd.count+json] PUT /peers/1/A 1 -> 200 1`},
	{name: "400 for what is no JSON", lines: `
		peer 1
		PUT /peers/1/A one -> 400 ~The body is no JSON: .*
		PUT /peers/1/A 01 -> 400 ~The body is no JSON: .*
		PUT /peers/1/A +1 -> 400 ~The body is no JSON: .*
		PUT /peers/1/A 1 2 -> 400 ~The body is no JSON: .*
		PUT /peers/1/A - -> 400 ~The body is no JSON: .*
		POST /new_peer {"expires_in":"5m" -> 400 ~The body is no JSON: .*
		PUT /peers/1 5m -> 400 ~The body is no JSON: .*
		POST /restore {]} -> 400 ~The body is no JSON: .*
		[application/json] PUT /peers/1/A -> 400 ~The body is no JSON: .*
		[application/json] POST /new_peer -> 400 ~The body is no JSON: .*`},
	{name: "422 for a body of another shape", lines: `
		peer 1
		PUT /peers/1/A "1" -> 422 ~The body is .*, want a lock count: .*
		PUT /peers/1/A 1.5 -> 422 ~The body is .*, want a lock count: .*
		PUT /peers/1/A null -> 422 ~The body is .*, want a lock count: .*
		PUT /peers/1/A true -> 422 ~The body is .*, want a lock count: .*
		PUT /peers/1/A [1] -> 422 ~The body is .*, want a lock count: .*
		PUT /peers/1/A {"count":1} -> 422 ~The body is .*, want a lock count: .*
		PUT /peers/1/A 9223372036854775808 -> 422 ~The body is .*, want a lock count: .*
		POST /new_peer "5m" -> 422 The body is "\"5m\"", want a JSON object.
		PUT /peers/1 [] -> 422 The body is "[]", want a JSON object.
		POST /restore 5 -> 422 The body is "5", want a JSON object.
		POST /new_peer null -> 422 expires_in is missing, want a duration.
		POST /new_peer {} -> 422 expires_in is missing, want a duration.
		POST /new_peer {"Expires_In":"5m"} -> 422 expires_in is missing, want a duration.
		PUT /peers/1 {"expires":"5m"} -> 422 expires_in is missing, want a duration.
		POST /restore {"peer_id":1,"acquired":{}} -> 422 expires_in is missing, want a duration.
		POST /new_peer {"expires_in":5} -> 422 expires_in is "5", want a duration.
		POST /new_peer {"expires_in":null} -> 422 expires_in is "null", want a duration.
		POST /new_peer {"expires_in":["5m"]} -> 422 expires_in is "[\"5m\"]", want a duration.
		POST /new_peer {"expires_in":""} -> 422 ~expires_in: .*
		POST /new_peer {"expires_in":"5"} -> 422 ~expires_in: .*
		POST /new_peer {"expires_in":"m"} -> 422 ~expires_in: .*
		POST /new_peer {"expires_in":"-5m"} -> 422 ~expires_in: .*
		POST /new_peer {"expires_in":"5 parsecs"} -> 422 ~expires_in: .*
		POST /new_peer {"expires_in":"5m!"} -> 422 ~expires_in: .*`},
	{name: "durations of the page", lines: `
		POST /new_peer {"expires_in":"5m"} -> 200 ~[0-9]+
		POST /new_peer {"expires_in":"30s"} -> 200 ~[0-9]+
		POST /new_peer {"expires_in":"12h"} -> 200 ~[0-9]+
		POST /new_peer {"expires_in":"500ms"} -> 200 ~[0-9]+
		POST /new_peer {"expires_in":"1h 30m"} -> 200 ~[0-9]+
		POST /new_peer {"expires_in":"2days"} -> 200 ~[0-9]+
		POST /new_peer {"expires_in":"0ms"} -> 200 ~[0-9]+`},
	{name: "other keys of a body are ignored", lines: `
		POST /new_peer {"expires_in":"5m","name":"x"} -> 200 ~[0-9]+
		peer 1
		PUT /peers/1 {"expires_in":"5m","active":{"A":1}} -> 200 Ok
		POST /restore {"expires_in":"5m","peer_id":2,"acquired":{},"pending":{"A":1}} -> 200 Ok`},
	{name: "blanks around a count", lines: `
		peer 1
		PUT /peers/1/C  2  -> 200 1
		GET /remainder?semaphore=C -> 200 3`},
	{name: "a body of 2 MiB is read, and 413 for a larger one", lines: `
		peer 1
		PUT /peers/1/A @2097153 -> 413 The body is too large, want at most 2097152 bytes.
		POST /new_peer @2097153 -> 413 The body is too large, want at most 2097152 bytes.
		GET /remainder?semaphore=A -> 200 1
		PUT /peers/1/A @2097152 -> 200 1`},

	{name: "a count that is not positive", lines: `
		peer 1
		PUT /peers/1/A 0 -> 400 Lock count must be a positive number. Found: 0.
		PUT /peers/1/A -0 -> 400 Lock count must be a positive number. Found: 0.
		PUT /peers/1/A -3 -> 400 Lock count must be a positive number. Found: -3.
		PUT /peers/1/A -9223372036854775808 -> 400 ~Lock count must be a positive number. Found: -9223372036854775808.`},
	{name: "a count above the maximum", lines: `
		peer 1
		PUT /peers/1/A 2 -> 409 Lock can never be acquired. Lock asks for count 2 yet full count is only 1.
		header Content-Type: text/plain; charset=utf-8
		PUT /peers/1/C 6 -> 409 Lock can never be acquired. Lock asks for count 6 yet full count is only 5.
		PUT /peers/1/A 9223372036854775807 -> 409 ~Lock can never be acquired. Lock asks for count 9223372036854775807 yet .*`},
	{name: "the unknown semaphore comes first, then the maximum", lines: `
		PUT /peers/1/X 0 -> 400 Unknown semaphore
		PUT /peers/1/X 99 -> 400 Unknown semaphore
		PUT /peers/1/X 1 -> 400 Unknown semaphore
		PUT /peers/1/A 2 -> 409 Lock can never be acquired. Lock asks for count 2 yet full count is only 1.`},
	{name: "parameters that are no durations", lines: `
		peer 1
		PUT /peers/1/A?block_for=5 1 -> 400 ~block_for: .*
		PUT /peers/1/A?expires_in=soon 1 -> 400 ~expires_in: .*
		PUT /peers/1/A?block_for= 1 -> 400 ~block_for: .*
		PUT /peers/1/A?block_for=%zz 1 -> 400 ~block_for: .*
		GET /remainder?semaphore=A -> 200 1`},
	{name: "parameters in any order, encoded", lines: `
		peer 1
		PUT /peers/1/A?expires_in=1h+30m&block_for=1s 1 -> 200 1
		PUT /peers/1/A?block_for=1s&expires_in=1h%2030m 1 -> 200 1
		PUT /peers/1/A?%62lock_for=1s 1 -> 200 1`},
	{name: "durations as the Rust client writes them", lines: `
		$peer = POST /new_peer {"expires_in":"1year 1month 3days 4h 5m 6s 7ms 8us 9ns"} -> 200 ~[0-9]+
		PUT /peers/$peer/A?expires_in=1day+1m&block_for=1s+500ms 1 -> 200 $peer
		PUT /peers/$peer {"expires_in":"1day 4h"} -> 200 Ok`},
	{name: "parameters that are empty or unknown", lines: `
		peer 1
		PUT /peers/1/A? 1 -> 200 1
		PUT /peers/1/A?priority=9 1 -> 200 1`},

	// Peers: heartbeats, expiry and removal.
	{name: "heartbeat", lines: `
		peer 1
		PUT /peers/1 {"expires_in":"5m"} -> 200 Ok
		header Content-Type: text/plain; charset=utf-8`},
	{name: "unknown peers", lines: `
		PUT /peers/9 {"expires_in":"5m"} -> 400 Unknown peer
		header Content-Type: text/plain; charset=utf-8
		PUT /peers/9/A 1 -> 400 Unknown peer
		PUT /peers/9/A?block_for=1h&expires_in=5m 1 -> 400 Unknown peer
		GET /peers/9/is_acquired -> 400 Unknown peer
		DELETE /peers/9 -> 200 "Peer not found"
		header Content-Type: application/json
		DELETE /peers/9/A -> 400 Unknown peer`},
	{name: "is_acquired of a peer that wants nothing", lines: `
		peer 1
		GET /peers/1/is_acquired -> 200 true
		header Content-Type: application/json`},
	{name: "is_acquired is false with one lock held and another pending", lines: `
		peer 1 2
		PUT /peers/1/Low 1 -> 200 1
		PUT /peers/2/Mid 1 -> 200 2
		PUT /peers/2/Low 1 -> 202 2
		GET /peers/2/is_acquired -> 200 false
		DELETE /peers/1 -> 200 "Peer released"
		GET /peers/2/is_acquired -> 200 true`},
	{name: "removing a peer twice", lines: `
		peer 1
		DELETE /peers/1 -> 200 "Peer released"
		DELETE /peers/1 -> 200 "Peer not found"`},
	{name: "removing a peer releases its locks", lines: `
		peer 1
		PUT /peers/1/High 1 -> 200 1
		PUT /peers/1/C 4 -> 200 1
		DELETE /peers/1 -> 200 "Peer released"
		GET /remainder?semaphore=High -> 200 1
		GET /remainder?semaphore=C -> 200 5`},
	{name: "removing a peer drops its pending lock", lines: `
		peer 1 2
		PUT /peers/1/A 1 -> 200 1
		PUT /peers/2/A 1 -> 202 2
		DELETE /peers/2 -> 200 "Peer released"
		DELETE /peers/1 -> 200 "Peer released"
		GET /remainder?semaphore=A -> 200 1`},
	{name: "too many peers", once: true, lines: `
		peer 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20
		POST /new_peer {"expires_in":"5m"} -> 503 {"title":"Service Unavailable","status":503,"detail":"Too many peers."}\n
		header Content-Type: application/problem+json
		header Retry-After: 1
		POST /restore {"expires_in":"5m","peer_id":21,"acquired":{}} -> 503 ~.*Too many peers..*
		DELETE /peers/20 -> 200 "Peer released"
		POST /new_peer {"expires_in":"5m"} -> 200 ~[0-9]+`},

	{name: "a lock of a peer that expires at once", once: true, lines: `
		peer 1
		PUT /peers/1/A?expires_in=0ms 1 -> 200 1
		until GET /remainder?semaphore=A -> 200 1
		until GET /peers/1/is_acquired -> 400 Unknown peer`},
	{name: "an expired lock is free, and its peer unknown", once: true, lines: `
		POST /new_peer {"expires_in":"5m"} -> 200 ~[0-9]+
		peer 1
		PUT /peers/1/A?expires_in=20ms 1 -> 200 1
		until GET /remainder?semaphore=A -> 200 1
		PUT /peers/1 {"expires_in":"5m"} -> 400 Unknown peer
		DELETE /peers/1/A -> 400 Unknown peer
		DELETE /peers/1 -> 200 "Peer not found"`},
	{name: "a waiter gets an expired lock", once: true, lines: `
		peer 1 2
		PUT /peers/1/A?expires_in=20ms 1 -> 200 1
		PUT /peers/2/A?block_for=1h 1 -> 200 2`},
	{name: "a blocked request whose peer expires", once: true, lines: `
		peer 1 2
		PUT /peers/1/A 1 -> 200 1
		PUT /peers/2/A?block_for=1h&expires_in=20ms 1 -> 400 Unknown peer`},
	{name: "a peer without locks outlives its expiry", once: true, lines: `
		POST /restore {"expires_in":"0ms","peer_id":1,"acquired":{}} -> 200 Ok
		GET /peers/1/is_acquired -> 200 true
		PUT /peers/1 {"expires_in":"5m"} -> 200 Ok
		PUT /peers/1/A 1 -> 200 1`},
	{name: "a peer that has expired may not acquire before its heartbeat", lines: `
		POST /restore {"expires_in":"10s","peer_id":1,"acquired":{}} -> 200 Ok
		sleep 10s 1ns
		PUT /peers/1/A 1 -> 400 Unknown peer
		PUT /peers/1/A?expires_in=5m 1 -> 200 1`},
	{name: "remove_expired removes peers that are kept", once: true, lines: `
		POST /restore {"expires_in":"0ms","peer_id":1,"acquired":{}} -> 200 Ok
		peer 2
		until POST /remove_expired -> 200 1
		POST /remove_expired -> 200 0
		GET /peers/1/is_acquired -> 400 Unknown peer
		GET /peers/ -> 200 [{"id":2}]`},

	{name: "a lock ends at the exact instant", lines: `
		peer 1 2
		PUT /peers/1/A?expires_in=30s 1 -> 200 1
		PUT /peers/2/A 1 -> 202 2
		sleep 29s 999ms 999us 999ns
		GET /peers/2/is_acquired -> 200 false
		sleep 1ns
		GET /peers/2/is_acquired -> 200 true
		GET /peers/1/is_acquired -> 400 Unknown peer`},
	{name: "a heartbeat keeps locks alive", lines: `
		peer 1
		PUT /peers/1/A?expires_in=10s 1 -> 200 1
		sleep 9s
		PUT /peers/1 {"expires_in":"10s"} -> 200 Ok
		sleep 9s
		GET /remainder?semaphore=A -> 200 0
		sleep 1s
		GET /remainder?semaphore=A -> 200 1`},
	{name: "a repeated request keeps locks alive", lines: `
		peer 1
		PUT /peers/1/A?expires_in=10s 1 -> 200 1
		sleep 9s
		PUT /peers/1/A?expires_in=10s 1 -> 200 1
		sleep 9s
		GET /remainder?semaphore=A -> 200 0`},
	{name: "a repeated request without expires_in does not", lines: `
		peer 1
		PUT /peers/1/A?expires_in=10s 1 -> 200 1
		sleep 9s
		PUT /peers/1/A 1 -> 200 1
		sleep 1s
		GET /remainder?semaphore=A -> 200 1`},
	{name: "a blocked request does not keep its peer alive", lines: `
		peer 1 2
		PUT /peers/1/A?expires_in=1h 1 -> 200 1
		go PUT /peers/2/A?block_for=1h&expires_in=10s 1 -> 400 Unknown peer
		sleep 10s
		join
		GET /peers/2/is_acquired -> 400 Unknown peer`},
	{name: "a heartbeat keeps a blocked request alive", lines: `
		peer 1 2
		PUT /peers/1/A?expires_in=1h 1 -> 200 1
		go PUT /peers/2/A?block_for=15s&expires_in=10s 1 -> 202 2
		sleep 9s
		PUT /peers/2 {"expires_in":"10s"} -> 200 Ok
		sleep 6s
		join
		GET /peers/2/is_acquired -> 200 false`},
	{name: "a peer without locks is kept for 5 minutes more", lines: `
		POST /restore {"expires_in":"10s","peer_id":1,"acquired":{}} -> 200 Ok
		sleep 5m 9s 999ms
		GET /peers/1/is_acquired -> 200 true
		sleep 1ms
		GET /peers/1/is_acquired -> 400 Unknown peer
		GET /peers/ -> 200 []`},
	{name: "a lock given back leaves the expiry as it was", lines: `
		peer 1
		PUT /peers/1/A?expires_in=10s 1 -> 200 1
		DELETE /peers/1/A -> 200 Ok
		sleep 11s
		PUT /peers/1/A 1 -> 400 Unknown peer
		PUT /peers/1/A?expires_in=10s 1 -> 200 1`},

	// Admission, fairness, blocking, levels, repeating and releasing.
	{name: "a free lock is held at once", lines: `
		peer 1
		PUT /peers/1/A 1 -> 200 1
		header Content-Type: application/json
		header Fencing-Token: ~[1-9][0-9]*
		GET /peers/1/is_acquired -> 200 true
		GET /remainder?semaphore=A -> 200 0`},
	{name: "a taken lock is pending", lines: `
		peer 1 2
		PUT /peers/1/A 1 -> 200 1
		PUT /peers/2/A 1 -> 202 2
		header Content-Type: application/json
		header Fencing-Token:
		GET /peers/2/is_acquired -> 200 false`},
	{name: "counts add up", lines: `
		peer 1 2 3
		PUT /peers/1/C 2 -> 200 1
		PUT /peers/2/C 3 -> 200 2
		GET /remainder?semaphore=C -> 200 0
		PUT /peers/3/C 1 -> 202 3`},
	{name: "none overtakes a large request", lines: `
		peer 1 2 3
		PUT /peers/1/C 1 -> 200 1
		PUT /peers/2/C 5 -> 202 2
		PUT /peers/3/C 1 -> 202 3
		GET /remainder?semaphore=C -> 200 4
		DELETE /peers/1/C -> 200 Ok
		GET /peers/2/is_acquired -> 200 true
		GET /peers/3/is_acquired -> 200 false
		GET /remainder?semaphore=C -> 200 0`},
	{name: "a small request beside a pending one that leaves room", lines: `
		peer 1 2 3
		PUT /peers/1/C 3 -> 200 1
		PUT /peers/2/C 3 -> 202 2
		PUT /peers/3/C 1 -> 202 3`},
	{name: "first come first served", lines: `
		peer 1 2 3
		PUT /peers/1/A 1 -> 200 1
		PUT /peers/2/A 1 -> 202 2
		PUT /peers/3/A 1 -> 202 3
		DELETE /peers/1/A -> 200 Ok
		GET /peers/2/is_acquired -> 200 true
		GET /peers/3/is_acquired -> 200 false
		DELETE /peers/2/A -> 200 Ok
		GET /peers/3/is_acquired -> 200 true`},
	{name: "a release serves as many as fit", lines: `
		peer 1 2 3 4
		PUT /peers/1/C 5 -> 200 1
		PUT /peers/2/C 2 -> 202 2
		PUT /peers/3/C 3 -> 202 3
		PUT /peers/4/C 1 -> 202 4
		DELETE /peers/1/C -> 200 Ok
		GET /peers/2/is_acquired -> 200 true
		GET /peers/3/is_acquired -> 200 true
		GET /peers/4/is_acquired -> 200 false
		GET /remainder?semaphore=C -> 200 0`},
	{name: "a release stops at the first that does not fit", lines: `
		peer 1 2 3 4
		PUT /peers/1/C 3 -> 200 1
		PUT /peers/4/C 2 -> 200 4
		PUT /peers/2/C 4 -> 202 2
		PUT /peers/3/C 1 -> 202 3
		DELETE /peers/1/C -> 200 Ok
		GET /peers/2/is_acquired -> 200 false
		GET /peers/3/is_acquired -> 200 false
		GET /remainder?semaphore=C -> 200 3
		DELETE /peers/4/C -> 200 Ok
		GET /peers/2/is_acquired -> 200 true
		GET /peers/3/is_acquired -> 200 true
		GET /remainder?semaphore=C -> 200 0`},
	{name: "a waiter that leaves lets the next one in", lines: `
		peer 1 2 3
		PUT /peers/1/C 1 -> 200 1
		PUT /peers/2/C 5 -> 202 2
		PUT /peers/3/C 4 -> 202 3
		DELETE /peers/2/C -> 200 Ok
		GET /peers/3/is_acquired -> 200 true
		GET /peers/2/is_acquired -> 200 true
		GET /remainder?semaphore=C -> 200 0`},
	{name: "a waiting peer that is removed lets the next one in", lines: `
		peer 1 2 3
		PUT /peers/1/C 1 -> 200 1
		PUT /peers/2/C 5 -> 202 2
		PUT /peers/3/C 4 -> 202 3
		DELETE /peers/2 -> 200 "Peer released"
		GET /peers/3/is_acquired -> 200 true`},
	{name: "a lock keeps its fencing token", lines: `
		POST /restore {"expires_in":"5m","peer_id":1,"acquired":{"A":1},"tokens":{"A":77}} -> 200 Ok
		PUT /peers/1/A 1 -> 200 1
		header Fencing-Token: 77`},
	{name: "a pending lock keeps its place", lines: `
		peer 1 2 3
		PUT /peers/1/A 1 -> 200 1
		PUT /peers/2/A 1 -> 202 2
		PUT /peers/3/A 1 -> 202 3
		PUT /peers/2/A 1 -> 202 2
		PUT /peers/2/A 1 -> 202 2
		DELETE /peers/1/A -> 200 Ok
		GET /peers/2/is_acquired -> 200 true
		GET /peers/3/is_acquired -> 200 false`},
	{name: "a larger count is refused", lines: `
		peer 1
		PUT /peers/1/C 2 -> 200 1
		PUT /peers/1/C 3 -> 409 Lock count can only shrink. The lock has count 2, asked for is 3.
		GET /remainder?semaphore=C -> 200 3`},
	{name: "a larger count is refused while it is pending", lines: `
		peer 1 2
		PUT /peers/1/C 5 -> 200 1
		PUT /peers/2/C 2 -> 202 2
		PUT /peers/2/C 3 -> 409 Lock count can only shrink. The lock has count 2, asked for is 3.`},
	{name: "a smaller count shrinks the lock", lines: `
		peer 1
		PUT /peers/1/C 5 -> 200 1
		PUT /peers/1/C 2 -> 200 1
		GET /remainder?semaphore=C -> 200 3
		DELETE /peers/1/C -> 200 Ok
		GET /remainder?semaphore=C -> 200 5`},
	{name: "a lock that shrinks lets the next one in", lines: `
		peer 1 2
		PUT /peers/1/C 5 -> 200 1
		PUT /peers/2/C 3 -> 202 2
		PUT /peers/1/C 2 -> 200 1
		GET /peers/2/is_acquired -> 200 true`},
	{name: "a pending lock that shrinks may fit", lines: `
		peer 1 2
		PUT /peers/1/C 3 -> 200 1
		PUT /peers/2/C 4 -> 202 2
		PUT /peers/2/C 2 -> 200 2
		GET /remainder?semaphore=C -> 200 0`},
	{name: "only one pending lock", lines: `
		peer 1 2
		PUT /peers/1/A 1 -> 200 1
		PUT /peers/2/A 1 -> 202 2
		PUT /peers/2/B 1 -> 409 Already pending. Only one pendig lock per peer is allowed.
		header Content-Type: text/plain; charset=utf-8`},
	{name: "a peer whose pending lock was granted may ask for one below", lines: `
		peer 1 2
		PUT /peers/1/High 1 -> 200 1
		PUT /peers/2/High 1 -> 202 2
		DELETE /peers/1/High -> 200 Ok
		PUT /peers/2/Mid 1 -> 200 2`},

	{name: "locks of falling levels", lines: `
		peer 1
		PUT /peers/1/High 1 -> 200 1
		PUT /peers/1/Mid 1 -> 200 1
		PUT /peers/1/Low 1 -> 200 1`},
	{name: "a higher level is a violation", lines: `
		peer 1
		PUT /peers/1/Low 1 -> 200 1
		PUT /peers/1/Mid 1 -> 409 Lock hierachy violation. This may deadlock. The current lock level is 0 the\n        requested lock level was 1.
		header Content-Type: text/plain; charset=utf-8
		GET /remainder?semaphore=Mid -> 200 1`},
	{name: "the same level is a violation", lines: `
		peer 1
		PUT /peers/1/A 1 -> 200 1
		PUT /peers/1/B 1 -> 409 Lock hierachy violation. This may deadlock. The current lock level is 0 the\n        requested lock level was 0.`},
	{name: "the lowest level that is held counts", lines: `
		peer 1
		PUT /peers/1/High 1 -> 200 1
		PUT /peers/1/Low 1 -> 200 1
		PUT /peers/1/Mid 1 -> 409 Lock hierachy violation. This may deadlock. The current lock level is 0 the\n        requested lock level was 1.`},
	{name: "a level is free again after the release", lines: `
		peer 1
		PUT /peers/1/Low 1 -> 200 1
		PUT /peers/1/Mid 1 -> 409 ~Lock hierachy violation.*
		DELETE /peers/1/Low -> 200 Ok
		PUT /peers/1/Mid 1 -> 200 1
		PUT /peers/1/Low 1 -> 200 1`},
	{name: "levels are those of one peer", lines: `
		peer 1 2
		PUT /peers/1/Low 1 -> 200 1
		PUT /peers/2/High 1 -> 200 2`},
	{name: "a violation comes before waiting", lines: `
		peer 1 2
		PUT /peers/1/Mid 1 -> 200 1
		PUT /peers/2/Low 1 -> 200 2
		PUT /peers/2/Mid?block_for=1h 1 -> 409 ~Lock hierachy violation.*`},

	{name: "release", lines: `
		peer 1
		PUT /peers/1/A 1 -> 200 1
		DELETE /peers/1/A -> 200 Ok
		header Content-Type: text/plain; charset=utf-8
		GET /remainder?semaphore=A -> 200 1
		GET /peers/1/is_acquired -> 200 true`},
	{name: "release of what is not held", lines: `
		peer 1
		DELETE /peers/1/A -> 200 Ok
		GET /remainder?semaphore=A -> 200 1
		DELETE /peers/1/X -> 400 Unknown semaphore`},
	{name: "release twice", lines: `
		peer 1 2
		PUT /peers/1/B 1 -> 200 1
		PUT /peers/2/B 1 -> 200 2
		DELETE /peers/1/B -> 200 Ok
		DELETE /peers/1/B -> 200 Ok
		GET /remainder?semaphore=B -> 200 1`},
	{name: "release of what is not held keeps what is pending", lines: `
		peer 1 2
		PUT /peers/1/A 1 -> 200 1
		PUT /peers/2/A 1 -> 202 2
		DELETE /peers/2/B -> 200 Ok
		GET /peers/2/is_acquired -> 200 false
		DELETE /peers/1/A -> 200 Ok
		PUT /peers/2/A 1 -> 200 2`},
	{name: "release of what is held keeps what is pending", lines: `
		peer 1 2
		PUT /peers/1/Low 1 -> 200 1
		PUT /peers/2/Mid 1 -> 200 2
		PUT /peers/2/Low 1 -> 202 2
		DELETE /peers/2/Mid -> 200 Ok
		GET /peers/2/is_acquired -> 200 false
		GET /remainder?semaphore=Mid -> 200 1`},
	{name: "release of a pending lock", lines: `
		peer 1 2
		PUT /peers/1/A 1 -> 200 1
		PUT /peers/2/A 1 -> 202 2
		DELETE /peers/2/A -> 200 Ok
		GET /peers/2/is_acquired -> 200 true
		DELETE /peers/1/A -> 200 Ok
		GET /remainder?semaphore=A -> 200 1`},
	{name: "release by another peer", lines: `
		peer 1 2
		PUT /peers/1/A 1 -> 200 1
		DELETE /peers/2/A -> 200 Ok
		GET /remainder?semaphore=A -> 200 0`},
	{name: "a lock may be asked for again after its release, with a newer token", lines: `
		POST /restore {"expires_in":"5m","peer_id":1,"acquired":{"A":1},"tokens":{"A":4000000000000000000}} -> 200 Ok
		DELETE /peers/1/A -> 200 Ok
		PUT /peers/1/A 1 -> 200 1`},
	{name: "tokens grow", once: true, lines: `
		POST /restore {"expires_in":"5m","peer_id":1,"acquired":{"A":1},"tokens":{"A":4000000000000000000}} -> 200 Ok
		PUT /peers/1/A 1 -> 200 1
		header Fencing-Token: 4000000000000000000
		DELETE /peers/1/A -> 200 Ok
		PUT /peers/1/A 1 -> 200 1
		header Fencing-Token: 4000000000000000001
		peer 2
		PUT /peers/2/B 1 -> 200 2
		header Fencing-Token: 4000000000000000002`},

	{name: "a blocked request is answered as soon as the lock is held", lines: `
		peer 1 2
		PUT /peers/1/A 1 -> 200 1
		go PUT /peers/2/A?block_for=1h 1 -> 200 2
		until GET /peers/2/is_acquired -> 200 false
		DELETE /peers/1/A -> 200 Ok
		join
		GET /peers/2/is_acquired -> 200 true`},
	{name: "a blocked request is answered 202 when its time is over", lines: `
		peer 1 2
		PUT /peers/1/A 1 -> 200 1
		PUT /peers/2/A?block_for=10ms 1 -> 202 2
		GET /peers/2/is_acquired -> 200 false`},
	{name: "block_for 0 does not wait", lines: `
		peer 1 2
		PUT /peers/1/A 1 -> 200 1
		PUT /peers/2/A?block_for=0ms 1 -> 202 2`},
	{name: "a free lock does not wait", lines: `
		peer 1
		PUT /peers/1/A?block_for=1h 1 -> 200 1`},
	{name: "a blocked request whose peer is removed", lines: `
		peer 1 2
		PUT /peers/1/A 1 -> 200 1
		go PUT /peers/2/A?block_for=1h 1 -> 400 Unknown peer
		until GET /peers/2/is_acquired -> 200 false
		DELETE /peers/2 -> 200 "Peer released"`},
	{name: "a blocked request whose lock is given back", lines: `
		peer 1 2
		PUT /peers/1/A 1 -> 200 1
		go PUT /peers/2/A?block_for=1h 1 -> 409 No such lock is held.
		until GET /peers/2/is_acquired -> 200 false
		DELETE /peers/2/A -> 200 Ok`},

	// Restoring what a server has forgotten.
	{name: "restore", lines: `
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{"C":3}} -> 200 Ok
		header Content-Type: text/plain; charset=utf-8
		GET /remainder?semaphore=C -> 200 2
		GET /peers/42/is_acquired -> 200 true`},
	{name: "restore of several locks", lines: `
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{"A":1,"C":2,"High":1}} -> 200 Ok
		GET /remainder?semaphore=A -> 200 0
		GET /remainder?semaphore=C -> 200 3
		GET /remainder?semaphore=High -> 200 0`},
	{name: "restore ignores levels", lines: `
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{"A":1,"Low":1}} -> 200 Ok
		PUT /peers/42/B 1 -> 409 ~Lock hierachy violation.*`},
	{name: "a restored lock may be released", lines: `
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{"C":3}} -> 200 Ok
		DELETE /peers/42/C -> 200 Ok
		GET /remainder?semaphore=C -> 200 5`},
	{name: "restore beyond the maximum", lines: `
		peer 1
		PUT /peers/1/A 1 -> 200 1
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{"A":1}} -> 200 Ok
		GET /remainder?semaphore=A -> 200 -1
		GET /peers/1/is_acquired -> 200 true
		GET /peers/42/is_acquired -> 200 true`},
	{name: "restore of a count above the maximum", lines: `
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{"A":7}} -> 200 Ok
		GET /remainder?semaphore=A -> 200 -6
		PUT /peers/42/A 7 -> 200 42`},
	{name: "nothing is granted until demand falls below the maximum", lines: `
		peer 1 2
		PUT /peers/1/A 1 -> 200 1
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{"A":1}} -> 200 Ok
		PUT /peers/2/A 1 -> 202 2
		DELETE /peers/1/A -> 200 Ok
		GET /remainder?semaphore=A -> 200 0
		GET /peers/2/is_acquired -> 200 false
		DELETE /peers/42 -> 200 "Peer released"
		GET /peers/2/is_acquired -> 200 true`},
	{name: "restore overtakes what is pending", lines: `
		peer 1 2
		PUT /peers/1/A 1 -> 200 1
		PUT /peers/2/A 1 -> 202 2
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{"A":1}} -> 200 Ok
		GET /peers/42/is_acquired -> 200 true
		GET /peers/2/is_acquired -> 200 false`},
	{name: "restore of a peer that lives without locks", lines: `
		$peer = POST /new_peer {"expires_in":"5m"} -> 200 ~[0-9]+
		POST /restore {"expires_in":"5m","peer_id":$peer,"acquired":{}} -> 200 Ok`},
	{name: "restore may not change an existing peer", lines: `
		peer 1
		POST /restore {"expires_in":"5m","peer_id":1,"acquired":{"A":1}} -> 409 Restore is not allowed to change existing peers.
		header Content-Type: text/plain; charset=utf-8
		GET /remainder?semaphore=A -> 200 1
		PUT /peers/1/A 1 -> 200 1
		POST /restore {"expires_in":"5m","peer_id":1,"acquired":{}} -> 409 Restore is not allowed to change existing peers.`},
	{name: "restore may not change a count", lines: `
		peer 1
		PUT /peers/1/C 2 -> 200 1
		POST /restore {"expires_in":"5m","peer_id":1,"acquired":{"C":1}} -> 409 Restore is not allowed to change existing peers.
		POST /restore {"expires_in":"5m","peer_id":1,"acquired":{"C":3}} -> 409 Restore is not allowed to change existing peers.
		GET /remainder?semaphore=C -> 200 3`},
	{name: "restore with a field of another shape, or without", lines: `
		POST /restore {} -> 422 expires_in is missing, want a duration.
		POST /restore {"expires_in":"5m","acquired":{}} -> 422 peer_id is missing, want an unsigned integer of 64 bits.
		POST /restore {"expires_in":"5m","peer_id":1} -> 422 acquired is missing, want an object of counts by semaphore.
		POST /restore {"expires_in":"5m","peer_id":-1,"acquired":{}} -> 422 ~peer_id is "-1", want .*
		POST /restore {"expires_in":"5m","peer_id":"1","acquired":{}} -> 422 ~peer_id is .*, want .*
		POST /restore {"expires_in":"5m","peer_id":null,"acquired":{}} -> 422 ~peer_id is "null", want .*
		POST /restore {"expires_in":"5m","peer_id":1,"acquired":[]} -> 422 ~acquired is .*, want .*
		POST /restore {"expires_in":"5m","peer_id":1,"acquired":null} -> 422 ~acquired is .*, want .*
		POST /restore {"expires_in":"5m","peer_id":1,"acquired":{"A":"1"}} -> 422 ~acquired is .*, want .*
		POST /restore {"expires_in":"5m","peer_id":1,"acquired":{"A":1.5}} -> 422 ~acquired is .*, want .*
		POST /restore {"expires_in":"5m","peer_id":1,"acquired":{"A":null}} -> 422 ~acquired.* is null, want a count.
		POST /restore {"expires_in":"soon","peer_id":1,"acquired":{}} -> 422 ~expires_in: .*
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{},"tokens":[]} -> 422 ~tokens is .*
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{"A":1},"tokens":{"A":-1}} -> 422 ~tokens is .*
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{},"tokens":{"A":17}} -> 422 ~tokens.*A.* belongs to no lock in acquired.
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{"A":1},"tokens":{"A":18446744073709551615}} -> 400 Token 18446744073709551615 was never given.
		GET /peers/ -> 200 []
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{"A":0}} -> 400 Lock count must be a positive number. Found: 0.
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{"A":-1}} -> 400 Lock count must be a positive number. Found: -1.
		GET /peers/ -> 200 []
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{"X":1}} -> 400 Unknown semaphore
		GET /peers/ -> 200 []
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{"A":1,"X":1}} -> 400 Unknown semaphore
		GET /remainder?semaphore=A -> 200 1`},
	{name: "restore of a semaphore with a slash", lines: `
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{"/&":1}} -> 200 Ok
		GET /remainder?semaphore=%2F%26 -> 200 0`},
	{name: "restore with tokens", lines: `
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{"A":1,"C":1},"tokens":{"A":17}} -> 200 Ok
		PUT /peers/42/A 1 -> 200 42
		header Fencing-Token: 17`},
	{name: "a peer that expired is restored", lines: `
		peer 1
		PUT /peers/1/A?expires_in=10s 1 -> 200 1
		sleep 10s
		PUT /peers/1 {"expires_in":"10s"} -> 400 Unknown peer
		POST /restore {"expires_in":"10s","peer_id":1,"acquired":{"A":1}} -> 200 Ok
		GET /remainder?semaphore=A -> 200 0`},
}
