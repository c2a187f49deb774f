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

	"github.com/quotient-go/quotient/internal/tested"
	"github.com/quotient-go/quotient/lease"
)

// The interface's page as scripts. Each script is run three times: over loopback against a fresh server, over
// loopback against one that is restarted, and in fake time. A restart happens before every line. The clients
// then bring the state back by POST /restore.
//
// A line is a request, "->", the status and the whole body: "PUT /peers/1/A 1 -> 200 1". A request with «A|B» is
// two, one after the other. In a body, \n is a line feed, @N in a request is N bytes that begin with 1, and
// ~REGEXP in an answer is a pattern. Before it may stand:
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
	first string // the peers that are there; "once": restarted only then, since what is tested does not survive
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
	peers, once := strings.CutSuffix(s.first, "once")
	lines := []string{"peer " + peers}
	for line := range strings.Lines(strings.TrimSpace(s.lines)) {
		lines = append(lines, alternatives(strings.TrimSpace(line))...)
	}
	for i, line := range lines {
		if r.restarts && len(r.pending) == 0 && (i == 0 || !once) {
			r.restart()
		}
		r.line(line)
	}
	r.join()
}

// alternatives are the lines that one with «A|B» stands for.
func alternatives(line string) (all []string) {
	before, rest, several := strings.Cut(line, "«")
	if !several {
		return []string{line}
	}
	each, after, _ := strings.Cut(rest, "»")
	for one := range strings.SplitSeq(each, "|") {
		all = append(all, before+one+after)
	}
	return all
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

func (r *run) take(a answer) answer {
	tested.Not(r.t, a.problem != "", "%s\n%s", a.line, a.problem)
	return a
}

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
	if size, err := strconv.Atoi(strings.TrimPrefix(q.body, "@")); err == nil && strings.HasPrefix(q.body, "@") {
		q.body = "1" + strings.Repeat(" ", size-1)
	}
	if q.contentType == "" && q.body != "" {
		q.contentType = "application/json"
	}
	return q
}

func (r *run) ask(q question) answer {
	a := answer{question: q}
	body := io.Reader(strings.NewReader(q.body))
	if r.restarts {
		body = io.MultiReader(body) // of no known length
	}
	req, err := http.NewRequest(q.method, r.base+q.target, body)
	if err == nil && q.contentType != "" && q.contentType != "none" {
		req.Header.Set("Content-Type", q.contentType)
	}
	var resp *http.Response
	if err == nil {
		resp, err = r.send(req)
	}
	if err == nil {
		defer resp.Body.Close()
		var text []byte
		text, err = io.ReadAll(resp.Body)
		a.status, a.header, a.text = resp.StatusCode, resp.Header, string(text)
	}
	status, want, _ := strings.Cut(q.want, " ")
	switch kind := a.header.Get("Content-Type"); {
	case err != nil:
		a.problem = err.Error()
	case strconv.Itoa(a.status) != status || !matches(a.text, want):
		a.problem = fmt.Sprintf("got %d %q", a.status, a.text)
	case kind != a.kind():
		a.problem = fmt.Sprintf("the content type is %q, want %q", kind, a.kind())
	case a.status == 405 && a.text != "Method not allowed. Want "+a.header.Get("Allow")+".":
		a.problem = fmt.Sprintf("allowed is %q", a.header.Get("Allow"))
	}
	return a
}

// kind is the content type that an answer must have.
func (a *answer) kind() string {
	switch {
	case a.status == 404:
		return "text/html; charset=utf-8"
	case a.status == 503:
		return "application/problem+json"
	case a.method == "HEAD" && strings.HasPrefix(a.target, "/remainder"), json.Valid([]byte(a.text)):
		return "application/json"
	}
	return "text/plain; charset=utf-8"
}

// matches reports whether got is want, or matches it where that is ~REGEXP.
func matches(got, want string) bool {
	if pattern, ok := strings.CutPrefix(want, "~"); ok {
		return regexp.MustCompile("(?s)^(?:" + pattern + ")$").MatchString(got)
	}
	return got == want
}

// restart puts an empty server in place. The clients restore what they hold, and ask again for what they wait for.
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
	{"places that need no peer", "", `
		GET / -> 200 ~.+
		GET /«health|ready|%68ealth» -> 200 Ok
		GET /version -> 200 1.2.3
		HEAD /health -> 200 ~(Ok)?
		HEAD /remainder?semaphore=A -> 200 ~1?`},
	{"404 in HTML, for any method and below places", "", `
		GET /nothing -> 404 ~<!DOCTYPE html>.*404.*</html>\n
		«PUT /nothing 1|DELETE /nothing|PUT /peers/1/ 1|PUT /peers//A 1|PUT /peers/1/A/B 1» -> 404 ~<!DOCTYPE html>.*
		GET /«health/|peers|/health|peers%2F|Health|metrics|peers/1/is_acquired/» -> 404 ~<!DOCTYPE html>.*`},
	{"405 with what is allowed", "", `
		«POST /health|DELETE /|PUT /version|PUT /ready|PUT /metrics» -> 405 Method not allowed. Want GET, HEAD.
		«POST /remainder?semaphore=A|POST /peers/» -> 405 Method not allowed. Want GET, HEAD.
		«GET /new_peer|PUT /restore {}|GET /remove_expired» -> 405 Method not allowed. Want POST.
		«GET /peers/1|GET /peers/1/A|OPTIONS /peers/1/A» -> 405 Method not allowed. Want DELETE, PUT.
		POST /peers/1/is_acquired -> 405 Method not allowed. Want DELETE, GET, HEAD, PUT.`},

	{"ids differ", "", `
		$one = POST /new_peer {"expires_in":"5m"} -> 200 ~[0-9]+
		$two = POST /new_peer {"expires_in":"5m"} -> 200 ~[0-9]+
		PUT /peers/$one/A 1 -> 200 $one
		PUT /peers/$two/A 1 -> 202 $two`},
	{"an id may be 0, or above 2^63", "18446744073709551615 0", `
		PUT /peers/18446744073709551615/A 1 -> 200 18446744073709551615
		PUT /peers/0/B 1 -> 200 0
		GET /peers/ -> 200 [{"id":0},{"id":18446744073709551615}]
		DELETE /peers/18446744073709551615 -> 200 "Peer released"`},
	{"peer is served as peers", "1", `
		PUT /peer/1/A?block_for=1s 1 -> 200 1
		GET /peer/1/is_acquired -> 200 true
		PUT /peer/1 {"expires_in":"5m"} -> 200 Ok
		DELETE /peer/1/A -> 200 Ok
		GET /peer/ -> 200 [{"id":1}]
		DELETE /peer/1 -> 200 "Peer released"`},
	{"ids that are no unsigned integers", "", `
		PUT /peers/me«/A 1| {"expires_in":"5m"}» -> 400 Peer id is "me", want an unsigned integer of 64 bits.
		DELETE /peers/me«|/A» -> 400 Peer id is "me", want an unsigned integer of 64 bits.
		GET /peers/me/is_acquired -> 400 Peer id is "me", want an unsigned integer of 64 bits.
		DELETE /peers/«-1|+1|18446744073709551616» -> 400 ~Peer id is ".*1.*", want an unsigned integer of 64 bits.`},

	{"names are percent-decoded, once, with a plus as a plus in a path and a blank in a query", "1 2 3 4 5 6 7", `
		PUT /peers/1/%2F%26 1 -> 200 1
		PUT /peers/2/a%20b 1 -> 200 2
		PUT /peers/3/+ 1 -> 200 3
		PUT /peers/4/%C3%BC 1 -> 200 4
		PUT /peers/5/%2541 1 -> 200 5
		PUT /peers/6/.. 1 -> 200 6
		GET /remainder?semaphore=«%2F%26|/%26|a+b|a%20b|%2B|%C3%BC|%2541|..» -> 200 0
		GET /remainder?semaphore=+ -> 400 Unknown semaphore
		GET /remainder?semaphore=A -> 200 1
		PUT /peers/7/%41 1 -> 200 7
		GET /remainder?semaphore=A -> 200 0
		DELETE /peers/1/%2f%26 -> 200 Ok
		GET /remainder?semaphore=%2F%26 -> 200 1`},
	{"a semaphore called is_acquired", "1 2", `
		PUT /peers/1/is_acquired 1 -> 200 1
		PUT /peers/2/is_acquired 1 -> 202 2
		GET /peers/1/is_acquired -> 200 true
		GET /peers/2/is_acquired -> 200 false
		DELETE /peers/1/is_acquired -> 200 Ok
		GET /peers/2/is_acquired -> 200 true`},

	{"remainder", "", `
		GET /remainder?semaphore=C -> 200 5
		GET /remainder?semaphore=«X|» -> 400 Unknown semaphore
		GET /«remainder|remainder?|remainder?Semaphore=A» -> 400 The parameter semaphore is missing.
		GET /remainder?x=1&semaphore=A&y -> 200 1`},

	// Bodies, content types, counts and durations.
	{"415 without a content type, or for another one", "1", `
		[none] PUT /peers/1«/A 1| {"expires_in":"5m"}» -> 415 Content-Type is "", want application/json.
		[none] POST «/new_peer {"expires_in":"5m"}|/restore {}» -> 415 Content-Type is "", want application/json.
		[text/plain] PUT /peers/1/A 1 -> 415 Content-Type is "text/plain", want application/json.
		[application/jsonx] PUT /peers/1/A 1 -> 415 Content-Type is "application/jsonx", want application/json.`},
	{"JSON content types", "1", `
		[«application/json; charset=utf-8|APPLICATION/JSON|application/vnd.count+json»] PUT /peers/1/A 1 -> 200 1`},
	{"400 for what is no JSON", "1", `
		PUT /peers/1/A «one|01|+1|1 2|-» -> 400 ~The body is no JSON: .*
		«POST /new_peer {"expires_in":"5m"|PUT /peers/1 5m|POST /restore {]}» -> 400 ~The body is no JSON: .*
		[application/json] «PUT /peers/1/A|POST /new_peer» -> 400 ~The body is no JSON: .*`},
	{"422 for a body of another shape", "1", `
		PUT /peers/1/A «"1"|1.5|null|true|[1]|{"count":1}» -> 422 ~The body is .*, want a lock count: .*
		PUT /peers/1/A 9223372036854775808 -> 422 ~The body is .*, want a lock count: .*
		POST /new_peer "5m" -> 422 The body is "\"5m\"", want a JSON object.
		«PUT /peers/1 []|POST /restore 5» -> 422 ~The body is ".*", want a JSON object.
		POST /new_peer «null|{}|{"Expires_In":"5m"}» -> 422 expires_in is missing, want a duration.
		«PUT /peers/1 {"expires":"5m"}|POST /restore {"peer_id":1,"acquired":{}}» -> 422 ~expires_in is missing, .*
		POST /new_peer {"expires_in":«5|null|["5m"]»} -> 422 ~expires_in is ".*", want a duration.
		POST /new_peer {"expires_in":«""|"5"|"m"|"-5m"|"5 parsecs"|"5m!"»} -> 422 ~expires_in: .*`},
	{"durations of the page, beside keys that are ignored", "1", `
		POST /new_peer {"expires_in":«"5m"|"30s"|"12h"|"500ms"|"1h 30m"|"2days"|"0ms"»} -> 200 ~[1-9][0-9]{0,19}
		POST /new_peer {"expires_in":"5m","name":"x"} -> 200 ~[0-9]+
		PUT /peers/1 {"expires_in":"5m","active":{"A":1}} -> 200 Ok
		POST /restore {"expires_in":"5m","peer_id":2,"acquired":{},"pending":{"A":1}} -> 200 Ok`},
	{"a body of 16 KiB is read, one of 2 MiB by a restore, and 413 for a larger one", "1", `
		«PUT /peers/1/A|POST /new_peer|PUT /peers/1» @16385 -> 413 The body is too large, want at most 16384 bytes.
		POST /restore @2097153 -> 413 The body is too large, want at most 2097152 bytes.
		POST /restore @2097152 -> 422 ~The body is .*, want a JSON object.
		«POST /new_peer|PUT /peers/1» @16384 -> 422 ~The body is .*, want a JSON object.
		GET /remainder?semaphore=A -> 200 1
		PUT /peers/1/A @16384 -> 200 1`},

	{"a count that is not positive, or above the maximum", "1", `
		PUT /peers/1/A «0|-0» -> 400 Lock count must be a positive number. Found: 0.
		PUT /peers/1/A -9223372036854775808 -> 400 Lock count must be a positive number. Found: -9223372036854775808.
		PUT /peers/1/C 6 -> 409 Lock can never be acquired. Lock asks for count 6 yet full count is only 5.
		PUT /peers/1/A 9223372036854775807 -> 409 ~Lock can never .* asks for count 9223372036854775807 yet .*`},
	{"the unknown semaphore comes first, then the maximum", "", `
		PUT /peers/1/X «0|99|1» -> 400 Unknown semaphore
		PUT /peers/1/A 2 -> 409 Lock can never be acquired. Lock asks for count 2 yet full count is only 1.`},
	{"parameters that are no durations", "1", `
		PUT /peers/1/A?block_for=«5||%zz» 1 -> 400 ~block_for: .*
		PUT /peers/1/A?expires_in=soon 1 -> 400 ~expires_in: .*
		GET /remainder?semaphore=A -> 200 1`},
	{"parameters in any order, encoded, empty or unknown", "1", `
		PUT /peers/1/A?«expires_in=1h+30m&block_for=1s|block_for=1s&expires_in=1h%2030m» 1 -> 200 1
		PUT /peers/1/A?«%62lock_for=1s||priority=9» 1 -> 200 1`},
	{"durations as the Rust client writes them", "", `
		$peer = POST /new_peer {"expires_in":"1year 1month 3days 4h 5m 6s 7ms 8us 9ns"} -> 200 ~[0-9]+
		PUT /peers/$peer/A?expires_in=1day+1m&block_for=1s+500ms 1 -> 200 $peer
		PUT /peers/$peer {"expires_in":"1day 4h"} -> 200 Ok`},

	// Peers: heartbeats, expiry and removal.
	{"unknown peers", "", `
		PUT /peers/9«/A 1|/A?block_for=1h&expires_in=5m 1| {"expires_in":"5m"}» -> 400 Unknown peer
		«GET /peers/9/is_acquired|DELETE /peers/9/A» -> 400 Unknown peer
		DELETE /peers/9 -> 200 "Peer not found"`},
	{"is_acquired is false with one lock held and another pending", "1 2", `
		PUT /peers/1/Low 1 -> 200 1
		PUT /peers/2/Mid 1 -> 200 2
		PUT /peers/2/Low 1 -> 202 2
		GET /peers/2/is_acquired -> 200 false
		DELETE /peers/1 -> 200 "Peer released"
		GET /peers/2/is_acquired -> 200 true`},
	{"removing a peer releases its locks", "1", `
		PUT /peers/1/«High 1|C 4» -> 200 1
		DELETE /peers/1 -> 200 "Peer released"
		DELETE /peers/1 -> 200 "Peer not found"
		GET /remainder?semaphore=High -> 200 1
		GET /remainder?semaphore=C -> 200 5`},
	{"too many peers", "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 once", `
		POST /new_peer {"expires_in":"5m"} -> 503 {"title":"Service Unavailable","status":503,"detail":"Too many peers."}\n
		header Retry-After: 1
		POST /restore {"expires_in":"5m","peer_id":21,"acquired":{}} -> 503 ~.*Too many peers..*
		DELETE /peers/20 -> 200 "Peer released"
		POST /new_peer {"expires_in":"5m"} -> 200 ~[0-9]+`},

	{"a lock of a peer that expires at once", "1 once", `
		PUT /peers/1/A?expires_in=0ms 1 -> 200 1
		until GET /remainder?semaphore=A -> 200 1
		until GET /peers/1/is_acquired -> 400 Unknown peer`},
	{"a waiter gets an expired lock", "1 2 once", `
		PUT /peers/1/A?expires_in=20ms 1 -> 200 1
		PUT /peers/2/A?block_for=1h 1 -> 200 2`},
	{"a peer without locks outlives its expiry", "once", `
		POST /restore {"expires_in":"0ms","peer_id":1,"acquired":{}} -> 200 Ok
		GET /peers/1/is_acquired -> 200 true
		PUT /peers/1 {"expires_in":"5m"} -> 200 Ok
		PUT /peers/1/A 1 -> 200 1`},
	{"a peer that is made expired holds its lock, and goes", "once", `
		$peer = POST /new_peer {"expires_in":"0ms"} -> 200 ~[0-9]+
		PUT /peers/$peer/A 1 -> 200 $peer
		header Fencing-Token: ~[1-9][0-9]*
		POST /remove_expired -> 200 0
		GET /remainder?semaphore=A -> 200 1
		GET /peers/$peer/is_acquired -> 400 Unknown peer`},
	{"a peer that has expired waits for nothing", "2 once", `
		PUT /peers/2/A 1 -> 200 2
		POST /restore {"expires_in":"0ms","peer_id":1,"acquired":{}} -> 200 Ok
		PUT /peers/1/A?block_for=1h 1 -> 400 Unknown peer
		POST /restore {"expires_in":"0ms","peer_id":1,"acquired":{}} -> 200 Ok
		PUT /peers/1/A 1 -> 202 1
		GET /peers/1/is_acquired -> 400 Unknown peer`},
	{"a peer that has expired may be kept by its request", "", `
		POST /restore {"expires_in":"10s","peer_id":1,"acquired":{}} -> 200 Ok
		sleep 10s 1ns
		PUT /peers/1/A?expires_in=5m 1 -> 200 1
		GET /remainder?semaphore=A -> 200 0`},
	{"remove_expired removes peers that are kept", "once", `
		POST /restore {"expires_in":"0ms","peer_id":1,"acquired":{}} -> 200 Ok
		peer 2
		until POST /remove_expired -> 200 1
		POST /remove_expired -> 200 0
		GET /peers/1/is_acquired -> 400 Unknown peer
		GET /peers/ -> 200 [{"id":2}]`},

	{"a lock ends at the exact instant", "1 2", `
		PUT /peers/1/A?expires_in=30s 1 -> 200 1
		PUT /peers/2/A 1 -> 202 2
		sleep 29s 999ms 999us 999ns
		GET /peers/2/is_acquired -> 200 false
		sleep 1ns
		GET /peers/2/is_acquired -> 200 true
		GET /peers/1/is_acquired -> 400 Unknown peer`},
	{"a heartbeat keeps locks alive", "1", `
		PUT /peers/1/A?expires_in=10s 1 -> 200 1
		sleep 9s
		PUT /peers/1 {"expires_in":"10s"} -> 200 Ok
		sleep 9s
		GET /remainder?semaphore=A -> 200 0
		sleep 1s
		GET /remainder?semaphore=A -> 200 1`},
	{"a repeated request keeps locks alive, if it says so", "1", `
		PUT /peers/1/A?expires_in=10s 1 -> 200 1
		sleep 9s
		PUT /peers/1/A?expires_in=10s 1 -> 200 1
		sleep 9s
		PUT /peers/1/A 1 -> 200 1
		GET /remainder?semaphore=A -> 200 0
		sleep 1s
		GET /remainder?semaphore=A -> 200 1`},
	{"a blocked request does not keep its peer alive", "1 2", `
		PUT /peers/1/A?expires_in=1h 1 -> 200 1
		go PUT /peers/2/A?block_for=1h&expires_in=10s 1 -> 400 Unknown peer
		sleep 10s
		join
		GET /peers/2/is_acquired -> 400 Unknown peer`},
	{"a heartbeat keeps a blocked request alive", "1 2", `
		PUT /peers/1/A?expires_in=1h 1 -> 200 1
		go PUT /peers/2/A?block_for=15s&expires_in=10s 1 -> 202 2
		sleep 9s
		PUT /peers/2 {"expires_in":"10s"} -> 200 Ok
		sleep 6s
		join
		GET /peers/2/is_acquired -> 200 false`},
	{"a peer without locks is kept for 5 minutes more", "", `
		POST /restore {"expires_in":"10s","peer_id":1,"acquired":{}} -> 200 Ok
		sleep 5m 9s 999ms
		GET /peers/1/is_acquired -> 200 true
		sleep 1ms
		GET /peers/1/is_acquired -> 400 Unknown peer
		GET /peers/ -> 200 []`},
	{"a lock given back leaves the expiry as it was", "1", `
		PUT /peers/1/A?expires_in=10s 1 -> 200 1
		DELETE /peers/1/A -> 200 Ok
		sleep 11s
		PUT /peers/1/A 1 -> 200 1
		GET /peers/1/is_acquired -> 400 Unknown peer
		GET /remainder?semaphore=A -> 200 1`},

	// Admission, fairness, blocking, levels, repeating and releasing.
	{"a free lock is held at once, and a taken one is pending", "1 2", `
		PUT /peers/1/A 1 -> 200 1
		header Fencing-Token: ~[1-9][0-9]*
		GET /peers/1/is_acquired -> 200 true
		GET /remainder?semaphore=A -> 200 0
		PUT /peers/2/A 1 -> 202 2
		header Fencing-Token:
		GET /peers/2/is_acquired -> 200 false`},
	{"none overtakes a large request", "1 2 3", `
		PUT /peers/1/C 1 -> 200 1
		PUT /peers/2/C 5 -> 202 2
		PUT /peers/3/C 1 -> 202 3
		GET /remainder?semaphore=C -> 200 4
		DELETE /peers/1/C -> 200 Ok
		GET /peers/2/is_acquired -> 200 true
		GET /peers/3/is_acquired -> 200 false
		GET /remainder?semaphore=C -> 200 0`},
	{"a release stops at the first that does not fit", "1 2 3 4", `
		PUT /peers/1/C 3 -> 200 1
		PUT /peers/4/C 2 -> 200 4
		PUT /peers/2/C 4 -> 202 2
		PUT /peers/3/C 1 -> 202 3
		DELETE /peers/1/C -> 200 Ok
		GET /peers/«2|3»/is_acquired -> 200 false
		GET /remainder?semaphore=C -> 200 3
		DELETE /peers/4/C -> 200 Ok
		GET /peers/«2|3»/is_acquired -> 200 true
		GET /remainder?semaphore=C -> 200 0`},
	{"a waiter that leaves lets the next one in", "1 2 3", `
		PUT /peers/1/C 1 -> 200 1
		PUT /peers/2/C 5 -> 202 2
		PUT /peers/3/C 4 -> 202 3
		DELETE /peers/2/C -> 200 Ok
		GET /peers/«3|2»/is_acquired -> 200 true
		GET /remainder?semaphore=C -> 200 0`},
	{"first come first served: a pending lock that is asked for again keeps its place", "1 2 3", `
		PUT /peers/1/A 1 -> 200 1
		PUT /peers/2/A 1 -> 202 2
		PUT /peers/3/A 1 -> 202 3
		PUT /peers/2/A 1 -> 202 2
		DELETE /peers/1/A -> 200 Ok
		GET /peers/2/is_acquired -> 200 true
		GET /peers/3/is_acquired -> 200 false
		DELETE /peers/2/A -> 200 Ok
		GET /peers/3/is_acquired -> 200 true`},
	{"a larger count is refused, of a lock that is held and of one that is pending", "1 2", `
		PUT /peers/1/C 4 -> 200 1
		PUT /peers/2/C 2 -> 202 2
		PUT /peers/1/C 5 -> 409 Lock count can only shrink. The lock has count 4, asked for is 5.
		PUT /peers/2/C 3 -> 409 Lock count can only shrink. The lock has count 2, asked for is 3.
		GET /remainder?semaphore=C -> 200 1`},
	{"a smaller count shrinks the lock, which lets others in", "1 2", `
		PUT /peers/1/C 5 -> 200 1
		PUT /peers/2/C 4 -> 202 2
		PUT /peers/2/C 3 -> 202 2
		PUT /peers/1/C  2  -> 200 1
		GET /peers/2/is_acquired -> 200 true
		GET /remainder?semaphore=C -> 200 0
		DELETE /peers/1/C -> 200 Ok
		GET /remainder?semaphore=C -> 200 2`},
	{"only one pending lock", "1 2", `
		PUT /peers/1/A 1 -> 200 1
		PUT /peers/2/A 1 -> 202 2
		PUT /peers/2/B 1 -> 409 Already pending. Only one pendig lock per peer is allowed.`},

	{"levels must fall, below the lowest that the peer holds", "1 2", `
		PUT /peers/1/«High|Mid|Low» 1 -> 200 1
		DELETE /peers/1/Mid -> 200 Ok
		PUT /peers/1/Mid 1 -> 409 Lock hierachy violation. This may deadlock. The current lock level is 0 the\n        requested lock level was 1.
		PUT /peers/1/B 1 -> 409 ~Lock hierachy violation.* level is 0 .* was 0.
		GET /remainder?semaphore=Mid -> 200 1
		PUT /peers/2/Mid 1 -> 200 2`},
	{"a violation comes before waiting", "1 2", `
		PUT /peers/1/Mid 1 -> 200 1
		PUT /peers/2/Low 1 -> 200 2
		PUT /peers/2/Mid?block_for=1h 1 -> 409 ~Lock hierachy violation.*`},

	{"release, also of what is not held", "1 2", `
		PUT /peers/1/B 1 -> 200 1
		PUT /peers/2/B 1 -> 200 2
		DELETE /peers/1/B -> 200 Ok
		DELETE /peers/1/«B|A» -> 200 Ok
		GET /remainder?semaphore=B -> 200 1
		GET /peers/1/is_acquired -> 200 true
		DELETE /peers/1/X -> 400 Unknown semaphore`},
	{"release of a pending lock", "1 2", `
		PUT /peers/1/A 1 -> 200 1
		PUT /peers/2/A 1 -> 202 2
		DELETE /peers/2/A -> 200 Ok
		GET /peers/2/is_acquired -> 200 true
		DELETE /peers/1/A -> 200 Ok
		GET /remainder?semaphore=A -> 200 1`},
	{"tokens grow", "once", `
		POST /restore {"expires_in":"5m","peer_id":1,"acquired":{"A":1},"tokens":{"A":17}} -> 200 Ok
		PUT /peers/1/A 1 -> 200 1
		header Fencing-Token: 17
		DELETE /peers/1/A -> 200 Ok
		PUT /peers/1/A 1 -> 200 1
		header Fencing-Token: ~[0-9]{18,19}`},

	{"a blocked request is answered as soon as the lock is held", "1 2", `
		PUT /peers/1/A 1 -> 200 1
		go PUT /peers/2/A?block_for=1h 1 -> 200 2
		until GET /peers/2/is_acquired -> 200 false
		DELETE /peers/1/A -> 200 Ok
		join
		GET /peers/2/is_acquired -> 200 true`},
	{"a blocked request is answered 202 when its time is over", "1 2", `
		PUT /peers/1/A?block_for=1h 1 -> 200 1
		PUT /peers/2/A?block_for=«10ms|0ms» 1 -> 202 2
		GET /peers/2/is_acquired -> 200 false`},
	{"a blocked request whose peer is removed", "1 2", `
		PUT /peers/1/A 1 -> 200 1
		go PUT /peers/2/A?block_for=1h 1 -> 400 Unknown peer
		until GET /peers/2/is_acquired -> 200 false
		DELETE /peers/2 -> 200 "Peer released"`},
	{"a blocked request whose lock is given back", "1 2", `
		PUT /peers/1/A 1 -> 200 1
		go PUT /peers/2/A?block_for=1h 1 -> 409 No such lock is held.
		until GET /peers/2/is_acquired -> 200 false
		DELETE /peers/2/A -> 200 Ok`},

	// Restoring what a server has forgotten.
	{"restore, whatever the levels", "", `
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{"A":1,"C":3,"Low":1,"/&":1},"tokens":{"A":17}} -> 200 Ok
		GET /remainder?semaphore=C -> 200 2
		GET /remainder?semaphore=«A|Low|%2F%26» -> 200 0
		GET /peers/42/is_acquired -> 200 true
		PUT /peers/42/A 1 -> 200 42
		header Fencing-Token: 17
		PUT /peers/42/B 1 -> 409 ~Lock hierachy violation.*`},
	{"restore beyond the maximum", "1", `
		PUT /peers/1/A 1 -> 200 1
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{"A":7}} -> 200 Ok
		GET /remainder?semaphore=A -> 200 -7
		GET /peers/«1|42»/is_acquired -> 200 true
		PUT /peers/42/A 7 -> 200 42`},
	{"restore may not change an existing peer", "1", `
		POST /restore {"expires_in":"5m","peer_id":1,"acquired":{"A":1}} -> 409 Restore is not allowed to change existing peers.
		PUT /peers/1/C 2 -> 200 1
		POST /restore {"expires_in":"5m","peer_id":1,"acquired":{«|"C":1|"C":3»}} -> 409 ~Restore is not allowed .*
		GET /remainder?semaphore=C -> 200 3`},
	{"restore with a field of another shape, or without", "", `
		POST /restore {} -> 422 expires_in is missing, want a duration.
		POST /restore {"expires_in":"5m","acquired":{}} -> 422 peer_id is missing, want an unsigned integer of 64 bits.
		POST /restore {"expires_in":"5m","peer_id":1} -> 422 acquired is missing, want an object of counts by semaphore.
		POST /restore {"expires_in":"5m","peer_id":«-1|"1"|null»,"acquired":{}} -> 422 ~peer_id is ".*", want .*
		POST /restore {"expires_in":"5m","peer_id":1,"acquired":«[]|null|{"A":"1"}|{"A":1.5}»} -> 422 ~acquired is .*, want .*
		POST /restore {"expires_in":"5m","peer_id":1,"acquired":{"A":null}} -> 422 ~acquired.* is null, want a count.
		POST /restore {"expires_in":"soon","peer_id":1,"acquired":{}} -> 422 ~expires_in: .*
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{"A":1},"tokens":«[]|{"A":-1}»} -> 422 ~tokens is .*
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{},"tokens":{"A":17}} -> 422 ~tokens.*A.* belongs to no lock in acquired.
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{"A":1},"tokens":{"A":«4611686018427387903|9223372036854775807»}} -> 400 ~Token .* was never given: .*
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{"A":1},"tokens":{"A":18446744073709551615}} -> 400 ~Token 18446744073709551615 was never .*
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{"A":«0|-1»}} -> 400 ~Lock count must be a positive number. Found: .*
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{"A":1099511627777}} -> 400 ~Lock count must be at most 1099511627776.*
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{«"X":1|"A":1,"X":1»}} -> 400 Unknown semaphore
		GET /peers/ -> 200 []
		GET /remainder?semaphore=A -> 200 1`},
	{"a peer that expired is restored", "1", `
		PUT /peers/1/A?expires_in=10s 1 -> 200 1
		sleep 10s
		PUT /peers/1 {"expires_in":"10s"} -> 400 Unknown peer
		POST /restore {"expires_in":"10s","peer_id":1,"acquired":{"A":1}} -> 200 Ok
		GET /remainder?semaphore=A -> 200 0`},
}
