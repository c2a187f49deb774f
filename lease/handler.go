package lease

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// place is where a request goes.
type place struct {
	pattern   string // a key of routes
	id        string
	semaphore string // percent-decoded, once
}

type route struct {
	method string
	serve  func(*Server, http.ResponseWriter, *http.Request, place) error // an error is not answered yet
}

// routes are all places of a Server. A GET serves HEAD as well.
var routes = map[string][]route{
	"/":               {{http.MethodGet, (*Server).greet}},
	"/health":         {{http.MethodGet, (*Server).health}},
	"/ready":          {{http.MethodGet, (*Server).ready}},
	"/version":        {{http.MethodGet, (*Server).version}},
	"/metrics":        {{http.MethodGet, (*Server).metrics}},
	"/new_peer":       {{http.MethodPost, (*Server).postNewPeer}},
	"/peers/":         {{http.MethodGet, (*Server).getPeers}},
	"/remainder":      {{http.MethodGet, (*Server).getRemainder}},
	"/restore":        {{http.MethodPost, (*Server).postRestore}},
	"/remove_expired": {{http.MethodPost, (*Server).postRemoveExpired}},

	"/peers/{id}": {
		{http.MethodDelete, (*Server).deletePeer}, {http.MethodPut, (*Server).putPeer},
	},
	"/peers/{id}/{semaphore}": {
		{http.MethodDelete, (*Server).deleteLock}, {http.MethodPut, (*Server).putLock},
	},
	"/peers/{id}/is_acquired": { // also the name of a semaphore
		{http.MethodDelete, (*Server).deleteLock}, {http.MethodGet, (*Server).getAcquired},
		{http.MethodPut, (*Server).putLock},
	},
}

// ServeHTTP serves the routes that docs/leases.md lists.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := find(r.URL.EscapedPath())
	here := routes[p.pattern]
	if here == nil {
		s.notFound(w)
		return
	}
	for _, route := range here {
		if route.method == r.Method || route.method == http.MethodGet && r.Method == http.MethodHead {
			if err := route.serve(s, w, r, p); err != nil {
				refuse(w, r, err)
			}
			return
		}
	}
	w.Header().Set("Allow", allow(here))
	answerText(w, http.StatusMethodNotAllowed, "Method not allowed. Want "+allow(here)+".")
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
	case !more:
		return place{pattern: "/peers/{id}", id: decode(id)}
	}
	name = decode(name)
	if name == "is_acquired" {
		return place{"/peers/{id}/is_acquired", decode(id), name}
	}
	return place{"/peers/{id}/{semaphore}", decode(id), name}
}

// decode undoes percent-encoding. Bad encodings stay: net/http lets none of them through.
func decode(part string) string {
	if decoded, err := url.PathUnescape(part); err == nil {
		return decoded
	}
	return part
}

func allow(here []route) string {
	var methods []string
	for _, route := range here {
		methods = append(methods, route.method)
		if route.method == http.MethodGet {
			methods = append(methods, http.MethodHead)
		}
	}
	return strings.Join(methods, ", ")
}

// peer reads the id of a peer.
func (p place) peer() (uint64, error) {
	id, err := strconv.ParseUint(p.id, 10, 64)
	if err != nil {
		return 0, badRequest("Peer id is %.40q, want an unsigned integer of 64 bits.", p.id)
	}
	return id, nil
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

// answerGrace adds the time after a start in which only restores are served.
func answerGrace(w http.ResponseWriter, grace time.Duration) {
	if grace > 0 {
		w.Header().Set("Lease-Grace", FormatDuration(grace))
	}
}

func (s *Server) notFound(w http.ResponseWriter) {
	s.mu.Lock()
	s.missing++
	s.mu.Unlock()
	answer(w, http.StatusNotFound, htmlType, []byte(notFoundPage))
}

func (s *Server) greet(w http.ResponseWriter, _ *http.Request, _ place) error {
	answerText(w, http.StatusOK, "Semaphores by quotient. See docs/leases.md.")
	return nil
}

func (s *Server) health(w http.ResponseWriter, _ *http.Request, _ place) error {
	answerText(w, http.StatusOK, "Ok")
	return nil
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
	version := s.options.Version
	if version == "" {
		version = "unknown"
	}
	answerText(w, http.StatusOK, version)
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
	var ids []uint64
	err := s.do(func(t *Table, now time.Time) error {
		ids = t.Peers(now)
		return nil
	})
	if err != nil {
		return err
	}
	slices.Sort(ids)
	body := []byte{'['}
	for i, id := range ids {
		if i > 0 {
			body = append(body, ',')
		}
		body = strconv.AppendUint(append(body, `{"id":`...), id, 10)
		body = append(body, '}')
	}
	answer(w, http.StatusOK, jsonType, append(body, ']'))
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
	var remainder int64
	err = s.do(func(t *Table, now time.Time) (err error) {
		remainder, err = t.Remainder(name, now)
		return err
	})
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, strconv.FormatInt(remainder, 10))
	return nil
}

func (s *Server) postRemoveExpired(w http.ResponseWriter, _ *http.Request, _ place) error {
	n := 0
	err := s.do(func(t *Table, now time.Time) error {
		n = t.RemoveExpired(now)
		return nil
	})
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, strconv.Itoa(n))
	return nil
}
