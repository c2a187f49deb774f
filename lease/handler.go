package lease

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quotient-go/quotient/internal/held"
)

type place struct {
	pattern   string // a key of routes
	peer      uint64
	err       error  // of the peer's id: it waits until the method is known
	semaphore string // percent-decoded, once
}

// handler serves a request. An error is not answered yet.
type handler func(*Server, http.ResponseWriter, *http.Request, place) error

// routes are all places of a Server, by method. A GET serves HEAD as well.
var routes = map[string]map[string]handler{
	"/":               {"GET": says("Semaphores by quotient. See docs/leases.md.")},
	"/health":         {"GET": says("Ok")},
	"/ready":          {"GET": (*Server).ready},
	"/version":        {"GET": (*Server).version},
	"/metrics":        {"GET": (*Server).metrics},
	"/new_peer":       {"POST": (*Server).postNewPeer},
	"/peers/":         {"GET": (*Server).getPeers},
	"/remainder":      {"GET": (*Server).getRemainder},
	"/restore":        {"POST": (*Server).postRestore},
	"/remove_expired": {"POST": (*Server).postRemoveExpired},

	"/peers/{id}":             {"DELETE": (*Server).deletePeer, "PUT": (*Server).putPeer},
	"/peers/{id}/{semaphore}": {"DELETE": (*Server).deleteLock, "PUT": (*Server).putLock},
	"/peers/{id}/is_acquired": { // also the name of a semaphore
		"DELETE": (*Server).deleteLock, "GET": (*Server).getAcquired, "PUT": (*Server).putLock,
	},
}

// ServeHTTP serves these routes. Bodies are JSON, and durations are as ParseDuration reads them.
//
//	POST   /new_peer                      {"expires_in":"5m"} creates a peer, and returns its id
//	PUT    /peers/{id}                    {"expires_in":"5m"} is a heartbeat
//	DELETE /peers/{id}                    releases all that the peer holds, and forgets it
//	PUT    /peers/{id}/{semaphore}        acquires the count in the body: 200 is held, 202 is pending
//	DELETE /peers/{id}/{semaphore}        releases the lock, or leaves the queue
//	GET    /peers/{id}/is_acquired        false while the peer waits
//	POST   /restore                       {"expires_in":"5m","peer_id":42,"acquired":{"A":1},"tokens":{"A":123}}
//	GET    /remainder?semaphore=A         the maximum less what is held, which may be negative
//	GET    /peers/                        lists the ids of all peers
//	POST   /remove_expired                removes expired peers without locks
//	GET    /, /health, /version, /metrics
//	GET    /ready                         503 on a stand-by
//
// To acquire takes ?block_for=10s, at most an hour, which is how long the request waits, and &expires_in=5m, a
// heartbeat with it. Waiters are served in order of arrival, large counts too. A repeated request keeps its place and
// its token. A smaller count shrinks the lock, and a larger one is refused. A peer waits for one lock at a time, and
// keeps its place until it expires. An expired peer that is still kept gets its lock and loses it at once, unless the
// request has expires_in. The tokens of a restore are optional.
//
// The status 400 is for an unknown peer or semaphore, 409 for what can never be granted, 413 for a body above 16 KiB,
// or 2 MiB for a restore, and 503 for one peer too many. Three headers may come with an answer: Fencing-Token, the
// number of the grant; Lease-Grace, the grace time of the server, so that a Client gives up sooner; and Lease-Broken,
// the lock that an operator broke.
//
// All that is above 1 KiB of a body shares 16 MiB and has 30 s to come. Lists of peers share 16 MiB and have 30 s to be
// read. None may have more of these than it leaves free, and 16 requests for metrics are answered at a time; one more
// of each gets 503.
//
// Tokens fit into a signed integer of 64 bits. A single server counts them from its clock, so they grow unless it
// restarts after the clock was set back. It refuses to restore a token more than a minute ahead of that, such as one of
// an elected server, and grants nothing until its clock has passed the others. So a token that somebody made up can't
// lift the server's beyond those of its next start.
//
// The routes, texts and names of metrics are those of throttle (https://github.com/pacman82/throttle), with these
// differences: a smaller count shrinks a lock, where throttle answers 501; releasing a semaphore that is not held
// changes nothing, where throttle drops a pending lock; and peers, bodies and names are bounded.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p, method := find(r.URL.EscapedPath()), r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	here := routes[p.pattern]
	serve, err := here[method], p.err
	switch {
	case here == nil:
		s.notFound(w)
		return
	case serve == nil:
		allowed := allow(here)
		w.Header().Set("Allow", allowed)
		answerText(w, http.StatusMethodNotAllowed, "Method not allowed. Want "+allowed+".")
		return
	case err == nil:
		err = serve(s, w, r, p)
	}
	if err != nil {
		refuse(w, r, err)
	}
}

// find takes an escaped path apart. Each part is decoded by itself, so that a name may hold a slash.
func find(path string) place {
	first, rest, more := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	first = decode(first)
	if strings.Contains(first, "/") {
		return place{}
	}
	if !more {
		return place{pattern: "/" + first}
	}
	if first != "peers" && first != "peer" {
		return place{}
	}
	id, name, more := strings.Cut(rest, "/")
	switch {
	case id == "" && !more:
		return place{pattern: "/peers/"}
	case id == "", more && name == "", strings.Contains(name, "/"):
		return place{}
	}
	p := place{pattern: "/peers/{id}/{semaphore}", semaphore: decode(name)}
	switch {
	case !more:
		p.pattern = "/peers/{id}"
	case p.semaphore == "is_acquired":
		p.pattern = "/peers/{id}/is_acquired"
	}
	id = decode(id)
	var err error
	if p.peer, err = strconv.ParseUint(id, 10, 64); err != nil {
		p.err = badRequest("Peer id is %.40q, want an unsigned integer of 64 bits.", id)
	}
	return p
}

// decode undoes percent-encoding, which net/http has checked.
func decode(part string) string {
	decoded, _ := url.PathUnescape(part)
	return decoded
}

func allow(here map[string]handler) string {
	methods := slices.Collect(maps.Keys(here))
	if here[http.MethodGet] != nil {
		methods = append(methods, http.MethodHead)
	}
	slices.Sort(methods)
	return strings.Join(methods, ", ")
}

// query returns the first value of a parameter. It allocates nothing where none is encoded.
func query(r *http.Request, name string) (value string, ok bool, err error) {
	for rest := r.URL.RawQuery; rest != ""; {
		var pair string
		pair, rest, _ = strings.Cut(rest, "&")
		key, value, _ := strings.Cut(pair, "=")
		if key, err := url.QueryUnescape(key); err != nil || key != name {
			continue
		}
		if value, err = url.QueryUnescape(value); err != nil {
			return "", true, badRequest("%s: %v.", name, err)
		}
		return value, true, nil
	}
	return "", false, nil
}

// queryDuration reads a duration, and returns another where there is none.
func queryDuration(r *http.Request, name string, otherwise time.Duration) (time.Duration, error) {
	text, ok, err := query(r, name)
	if err != nil || !ok {
		return otherwise, err
	}
	d, err := ParseDuration(text)
	if err != nil {
		return 0, badRequest("%s: %v.", name, err)
	}
	return d, nil
}

func (s *Server) notFound(w http.ResponseWriter) {
	s.mu.Lock()
	s.missing++
	s.mu.Unlock()
	answer(w, http.StatusNotFound, htmlType, notFoundPage)
}

func says(text string) handler {
	return func(_ *Server, w http.ResponseWriter, _ *http.Request, _ place) error {
		answerText(w, http.StatusOK, text)
		return nil
	}
}

// answers answers with something of the Table, as JSON.
func (s *Server) answers(w http.ResponseWriter, f func(t *Table, now time.Time) (any, error)) error {
	v, err := get(s, f)
	if err == nil {
		answerJSON(w, http.StatusOK, fmt.Sprint(v))
	}
	return err
}

func (s *Server) ready(w http.ResponseWriter, _ *http.Request, _ place) error {
	if err := s.do(func(*Table, time.Time) error { return nil }); err != nil {
		answerText(w, http.StatusServiceUnavailable, err.Error()) // no redirect: the server itself answers
		return nil
	}
	answerText(w, http.StatusOK, "Ok")
	return nil
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request, _ place) error {
	answerText(w, http.StatusOK, cmp.Or(s.options.Version, "unknown"))
	return nil
}

func (s *Server) metrics(w http.ResponseWriter, r *http.Request, _ place) error {
	if s.options.Metrics == nil {
		s.notFound(w)
		return nil
	}
	s.options.Metrics.ServeHTTP(w, r)
	return nil
}

func (s *Server) getPeers(w http.ResponseWriter, _ *http.Request, _ place) error {
	share := held.Share{Room: &s.lists}
	defer share.End()
	ids, err := get(s, func(t *Table, now time.Time) ([]uint64, error) {
		if !share.Take(int64(8 * len(t.peers))) { // a slow client does not hold the text
			return nil, errNoRoom
		}
		return t.Peers(now), nil
	})
	if err != nil {
		return err
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(maxBodyTime)) // the list is counted meanwhile
	slices.Sort(ids)
	w.Header()["Content-Type"] = jsonType
	text := []byte{'['}
	for i, id := range ids {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(strconv.AppendUint(append(text, `{"id":`...), id, 10), '}')
		if _, err := w.Write(text); err != nil {
			return nil // the client is gone
		}
		text = text[:0]
	}
	_, _ = w.Write(append(text, ']'))
	return nil
}

func (s *Server) getRemainder(w http.ResponseWriter, r *http.Request, _ place) error {
	name, ok, err := query(r, "semaphore")
	if err != nil {
		return err
	}
	if !ok {
		return badRequest("The parameter semaphore is missing.")
	}
	return s.answers(w, func(t *Table, now time.Time) (any, error) { return t.Remainder(name, now) })
}

func (s *Server) postRemoveExpired(w http.ResponseWriter, _ *http.Request, _ place) error {
	return s.answers(w, func(t *Table, now time.Time) (any, error) { return t.RemoveExpired(now), nil })
}

func (s *Server) putLock(w http.ResponseWriter, r *http.Request, p place) (err error) {
	a := ask{peer: p.peer, semaphore: p.semaphore}
	if a.blockFor, err = queryDuration(r, "block_for", 0); err != nil {
		return err
	}
	if a.expiresIn, err = queryDuration(r, "expires_in", unchanged); err != nil {
		return err
	}
	err = s.read(w, r, maxBody, func(body []byte) (err error) {
		a.count, err = parseCount(body)
		return err
	})
	if err != nil {
		return err
	}
	token, err := s.acquire(r.Context(), a)
	if err != nil {
		return err
	}
	status := http.StatusAccepted
	if token != 0 {
		status = http.StatusOK
		w.Header()["Fencing-Token"] = []string{strconv.FormatUint(token, 10)}
	}
	answerJSON(w, status, strconv.FormatUint(a.peer, 10))
	return nil
}

func (s *Server) deleteLock(w http.ResponseWriter, _ *http.Request, p place) error {
	err := s.do(func(t *Table, now time.Time) error { return t.Release(p.peer, p.semaphore, now) })
	if err == nil {
		answerText(w, http.StatusOK, "Ok")
	}
	return err
}

func (s *Server) postNewPeer(w http.ResponseWriter, r *http.Request, _ place) error {
	expiresIn, err := s.readExpiry(w, r)
	if err != nil {
		return err
	}
	var id uint64
	err = s.doWithGrace(w, func(t *Table, now time.Time) (err error) {
		id, err = t.newPeer(expiresIn, now)
		return err
	})
	if err == nil {
		answerJSON(w, http.StatusOK, strconv.FormatUint(id, 10))
	}
	return err
}

// putPeer is a heartbeat.
func (s *Server) putPeer(w http.ResponseWriter, r *http.Request, p place) error {
	expiresIn, err := s.readExpiry(w, r)
	if err != nil {
		return err
	}
	var broken []string
	err = s.doWithGrace(w, func(t *Table, now time.Time) (err error) {
		broken, err = t.Heartbeat(p.peer, expiresIn, now)
		return err
	})
	if err != nil {
		return err
	}
	for _, name := range broken {
		w.Header().Add("Lease-Broken", url.PathEscape(name))
	}
	answerText(w, http.StatusOK, "Ok")
	return nil
}

func (s *Server) deletePeer(w http.ResponseWriter, _ *http.Request, p place) error {
	return s.answers(w, func(t *Table, now time.Time) (any, error) {
		if t.RemovePeer(p.peer, now) {
			return `"Peer released"`, nil
		}
		return `"Peer not found"`, nil
	})
}

func (s *Server) getAcquired(w http.ResponseWriter, _ *http.Request, p place) error {
	return s.answers(w, func(t *Table, now time.Time) (any, error) { return t.Acquired(p.peer, now) })
}

func (s *Server) postRestore(w http.ResponseWriter, r *http.Request, _ place) error {
	var back restoration
	err := s.read(w, r, maxRestore, func(body []byte) (err error) {
		back, err = readRestoration(body)
		return err
	})
	if err != nil {
		return err
	}
	var beyond []string
	err = s.doWithGrace(w, func(t *Table, now time.Time) (err error) {
		beyond, err = t.Restore(back.peer, back.expiresIn, back.locks, now)
		return err
	})
	if err != nil {
		return err
	}
	if len(beyond) > 0 {
		s.options.Log.Warn("lease: a peer was restored beyond the maximum", "peer", back.peer, "semaphores", beyond)
	}
	answerText(w, http.StatusOK, "Ok")
	return nil
}

// Values of headers that answers share. Nothing writes to them.
var (
	textType    = []string{"text/plain; charset=utf-8"}
	jsonType    = []string{"application/json"}
	htmlType    = []string{"text/html; charset=utf-8"}
	problemType = []string{"application/problem+json"}
)

const notFoundPage = `<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>404 Not Found</title></head>
<body><h1>404 Not Found</h1><p>There is nothing at this address.</p></body>
</html>
`

func answer(w http.ResponseWriter, status int, contentType []string, body string) {
	w.Header()["Content-Type"] = contentType
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body) // the client may be gone
}

func answerText(w http.ResponseWriter, status int, text string) { answer(w, status, textType, text) }

func answerJSON(w http.ResponseWriter, status int, value string) { answer(w, status, jsonType, value) }

// problem is an answer for a client that must go elsewhere or come again (RFC 9457).
func problem(w http.ResponseWriter, status int, detail string) {
	body, _ := json.Marshal(struct {
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{http.StatusText(status), status, detail}) // it cannot fail
	answer(w, status, problemType, string(body)+"\n")
}

func refuse(w http.ResponseWriter, r *http.Request, err error) {
	var standBy *StandByError
	if errors.As(err, &standBy) && standBy.Leader != "" {
		w.Header().Set("Location", strings.TrimSuffix(standBy.Leader, "/")+r.URL.RequestURI())
		problem(w, http.StatusTemporaryRedirect, err.Error())
		return
	}
	status, say := statusOf(err), answerText
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
		say = problem
	}
	say(w, status, err.Error())
}

// statusOf returns the status of an error. It is 400 for what the server does not know or understand, 409 for
// what it does not allow, and 503 for what it cannot do now.
func statusOf(err error) int {
	var request *requestError
	switch {
	case errors.As(err, &request):
		return request.status
	case errors.Is(err, ErrUnknownPeer), errors.Is(err, ErrUnknownSemaphore),
		errors.As(err, new(*CountError)), errors.As(err, new(*TokenError)):
		return http.StatusBadRequest
	case errors.Is(err, ErrClosed), errors.Is(err, ErrTooManyPeers), errors.Is(err, ErrNoTokens),
		errors.As(err, new(*StandByError)):
		return http.StatusServiceUnavailable
	}
	return http.StatusConflict
}
