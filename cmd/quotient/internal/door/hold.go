package door

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"
)

// Bounds of what callers hold. A permit has a goroutine, which waits, and the head of its request.
const (
	maxPermits = 16 << 10
	maxHead    = 8 << 10 // bytes
)

// permitField has the token of a permit, in the answer to a question and in the request that releases it.
const permitField = "Quotient-Permit"

var (
	errFull = fmt.Errorf("%d permits are held, or it shuts down: no other can be", maxPermits)
	errLong = fmt.Errorf("the head of a request whose permit is held has at most %d bytes", maxHead)
)

// token names a permit to whoever may release it.
type token [16]byte

// String is the token as fields have it.
func (t token) String() string { return hex.EncodeToString(t[:]) }

// readToken reads what String returns.
func readToken(text string) (t token, ok bool) {
	if len(text) != hex.EncodedLen(len(t)) {
		return t, false
	}
	_, err := hex.Decode(t[:], []byte(text))
	return t, err == nil
}

// permits are those that are held, or may be: their requests still wait.
type permits struct {
	mu    sync.Mutex
	taken int
	held  map[token]*permit
}

// permit is what a request has from its limiters, for longer than the question takes.
type permit struct {
	token    token
	door     *Door
	most     time.Duration
	stay     func() bool   // the caller may leave from now on; false: it has left
	held     bool          // when the answer is there
	answered chan struct{} // is closed then, if it is held
	released chan struct{} // is closed by whoever takes the permit out of permits.held
	over     chan struct{} // is closed when the limiters have it back
}

// holding is for how long a question asks to hold its permit, 0 for not at all. Only POST does so, because a proxy that
// passes its client's query on, as Caddy does, asks by GET; and none by a profile whose method is the client's.
func (s *settings) holding(r *http.Request) (time.Duration, error) {
	if r.Method != http.MethodPost || s.profile.fields[method] == "" {
		return 0, nil
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return 0, errors.New("the query cannot be read")
	}
	texts := query["hold"]
	if len(texts) == 0 {
		return 0, nil
	}
	most, err := time.ParseDuration(texts[0])
	if err != nil || most <= 0 || len(texts) > 1 {
		return 0, fmt.Errorf("hold is %.100q, want one duration of more than 0, such as 30s", texts)
	}
	return min(most, s.maxHold), nil
}

// hold has the handler decide on a question, and returns when the answer is there. An admitted request stays in flight
// until it is released, or for the given time, or until the shutdown.
func (d *Door) hold(q *question, most time.Duration) error {
	if q.length() > maxHead {
		return errLong
	}
	p := &permit{
		door: d, most: most,
		answered: make(chan struct{}), released: make(chan struct{}), over: make(chan struct{}),
	}
	_, _ = rand.Read(p.token[:]) // it never fails
	if !d.permits.enter(d.drain) {
		return errFull
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.stay = context.AfterFunc(q.Context, cancel)
	q.Context, q.permit = ctx, p
	go func() {
		defer d.permits.leave()
		defer close(p.over)
		defer cancel()
		defer func() {
			if v := recover(); v != nil { // as a server does
				d.log.Error("a question ended in a panic", "panic", v)
			}
		}()
		d.ask.ServeHTTP(q, &q.request)
	}()
	select {
	case <-p.answered:
	case <-p.over:
	}
	return nil
}

// length is how many bytes the head of the request has.
func (q *question) length() int {
	n := len(q.request.Method) + len(q.request.Host) + len(q.request.RequestURI)
	for name, lines := range q.request.Header {
		for _, line := range lines {
			n += len(name) + len(line)
		}
	}
	return n
}

// wait holds the permit, of a request that has just been admitted, until its end.
func (p *permit) wait() {
	if !p.stay() || p.door.drain.Err() != nil {
		return
	}
	end := time.NewTimer(p.most)
	defer end.Stop()
	p.door.permits.put(p)
	defer p.door.permits.take(p.token)
	p.held = true
	close(p.answered)
	select {
	case <-p.released:
	case <-end.C:
	case <-p.door.drain.Done():
	}
}

// enter takes a place, unless there is none, or drain has ended.
func (s *permits) enter(drain context.Context) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken == maxPermits || drain.Err() != nil {
		return false
	}
	s.taken++
	return true
}

// leave gives a place back.
func (s *permits) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken--
}

func (s *permits) put(p *permit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == nil {
		s.held = make(map[token]*permit)
	}
	s.held[p.token] = p
}

// take returns the permit of a token to one caller, and nil to others.
func (s *permits) take(t token) *permit {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.held[t]
	delete(s.held, t)
	return p
}

// release ends the holding of a permit. When the answer is there the limiters have it back.
func (d *Door) release(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "want POST", http.StatusMethodNotAllowed)
		return
	}
	texts := slices.Concat(r.Header[permitField], r.URL.Query()["token"])
	if len(texts) != 1 {
		d.refuse(w, r, http.StatusBadRequest, fmt.Errorf("want one token, in the field %s or as ?token=", permitField))
		return
	}
	var p *permit
	if t, ok := readToken(texts[0]); ok {
		p = d.permits.take(t)
	}
	if p == nil {
		http.Error(w, "no permit with this token is held", http.StatusNotFound)
		return
	}
	close(p.released)
	<-p.over
	w.WriteHeader(http.StatusNoContent)
}
