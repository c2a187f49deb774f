package main

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The limits of the account. A minute of this API lasts a second, so that a run is short.
const (
	minute            = time.Second
	requestsPerMinute = 100
	tokensPerMinute   = 20_000
)

// latency is how long an answer takes, but for what each of its tokens adds.
const (
	latency      = 20 * time.Millisecond
	tokenLatency = 20 * time.Microsecond
)

// api imitates the API of a language model. Requests and tokens are limited each by a token bucket that
// holds a minute's worth. The cost of an answer is known, and taken, when it is written.
type api struct {
	mu               sync.Mutex
	requests, tokens bucket
	now              tally
	refusals         int
}

// tally counts since the beginning.
type tally struct{ Served, Refused, Tokens float64 }

func newAPI() *api {
	now := time.Now()
	return &api{
		requests: bucket{limit: requestsPerMinute, left: requestsPerMinute, at: now},
		tokens:   bucket{limit: tokensPerMinute, left: tokensPerMinute, at: now},
	}
}

// counted returns what was counted so far.
func (a *api) counted() tally {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.now
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var p prompt
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&p); err != nil || p.MaxTokens < 0 {
		http.Error(w, "bad prompt", http.StatusBadRequest)
		return
	}
	if !a.admit(p.tokens()) {
		a.tell(w.Header(), true)
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	said := rand.IntN(p.MaxTokens + 1)
	select {
	case <-time.After(latency + time.Duration(said)*tokenLatency):
	case <-r.Context().Done():
		return
	}
	a.charge(said)
	a.tell(w.Header(), false)
	reply := answer{Text: strings.Repeat("word ", said)}
	reply.Usage.TotalTokens = p.tokens() + said
	_ = json.NewEncoder(w).Encode(reply) // a client that has left
}

// admit takes a request and the tokens of its prompt, or neither.
func (a *api) admit(tokens int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fill()
	if a.requests.left < 1 || a.tokens.left < float64(tokens) {
		a.now.Refused++
		return false
	}
	a.requests.left--
	a.tokens.left -= float64(tokens)
	a.now.Served++
	a.now.Tokens += float64(tokens)
	return true
}

// charge takes the tokens of an answer, there or not.
func (a *api) charge(tokens int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fill()
	a.tokens.left -= float64(tokens)
	a.now.Tokens += float64(tokens)
}

// tell writes the fields that an answer has. Some refusals ask to wait.
func (a *api) tell(h http.Header, refused bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fill()
	a.requests.tell(h, "requests")
	a.tokens.tell(h, "tokens")
	if !refused {
		return
	}
	if a.refusals++; a.refusals%3 == 0 {
		h.Set("Retry-After", "1")
	}
}

func (a *api) fill() {
	now := time.Now()
	a.requests.fill(now)
	a.tokens.fill(now)
}

// bucket is a token bucket that fills in a minute.
type bucket struct {
	limit, left float64
	at          time.Time
}

func (b *bucket) fill(now time.Time) {
	b.left = min(b.limit, b.left+b.limit*float64(now.Sub(b.at))/float64(minute))
	b.at = now
}

// tell writes the fields of one limit. Reset is how long it takes until the bucket is full: 12ms, 1s, 6m0s.
func (b *bucket) tell(h http.Header, name string) {
	full := time.Duration((b.limit - b.left) / b.limit * float64(minute))
	h.Set("x-ratelimit-limit-"+name, strconv.Itoa(int(b.limit)))
	h.Set("x-ratelimit-remaining-"+name, strconv.Itoa(int(max(b.left, 0))))
	h.Set("x-ratelimit-reset-"+name, full.Round(time.Millisecond).String())
}
