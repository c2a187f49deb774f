package main

import (
	"encoding/json"
	"fmt"
	"io"
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
	return &api{requests: bucket{requestsPerMinute, requestsPerMinute, now}, tokens: bucket{tokensPerMinute, tokensPerMinute, now}}
}

// counted returns what was counted so far.
func (a *api) counted() (t tally) {
	a.locked(func() { t = a.now })
	return t
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

// locked does something to buckets that are filled up to now.
func (a *api) locked(do func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	a.requests.fill(now)
	a.tokens.fill(now)
	do()
}

// admit takes a request and the tokens of its prompt, or neither.
func (a *api) admit(tokens int) (ok bool) {
	a.locked(func() {
		if ok = a.requests.left >= 1 && a.tokens.left >= float64(tokens); !ok {
			a.now.Refused++
			return
		}
		a.requests.left--
		a.now.Served++
		a.tokens.left -= float64(tokens)
		a.now.Tokens += float64(tokens)
	})
	return ok
}

// charge takes the tokens of an answer, there or not.
func (a *api) charge(tokens int) {
	a.locked(func() {
		a.tokens.left -= float64(tokens)
		a.now.Tokens += float64(tokens)
	})
}

// tell writes the fields that an answer has. Some refusals ask to wait.
func (a *api) tell(h http.Header, refused bool) {
	a.locked(func() {
		a.requests.tell(h, "requests")
		a.tokens.tell(h, "tokens")
		if refused {
			a.refusals++
		}
		if refused && a.refusals%3 == 0 {
			h.Set("Retry-After", "1")
		}
	})
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

// These are a run's claims about the last seconds of each phase.
const (
	leastUsed   = 0.85 // of what is scarce
	mostRefused = 0.05 // of all requests
	leastFair   = 0.8  // Jain's index over the clients: 1 when all are served alike, 0.75 when one of four gets nothing
)

func (t tally) since(before tally) tally {
	return tally{t.Served - before.Served, t.Refused - before.Refused, t.Tokens - before.Tokens}
}

func (t tally) refusedShare() float64 { return t.Refused / max(1, t.Served+t.Refused) }

// line shows what was served in so many seconds, and how much of the limits that is.
func (t tally) line(seconds float64) string {
	requests, tokens := t.Served/seconds, t.Tokens/seconds
	return fmt.Sprintf("%9.0f (%3.0f %%) %9.0f (%3.0f %%)", requests, 100*requests/requestsPerMinute, tokens, 100*tokens/tokensPerMinute)
}

// result is what became of the last seconds of a phase.
type result struct {
	phase
	from, to             tally
	servedFrom, servedTo []float64 // by client
}

// used is how much of the scarce limit was used.
func (r result) used() float64 {
	d := r.to.since(r.from)
	if r.scarce == "tokens" {
		return d.Tokens / tokensPerMinute / judged
	}
	return d.Served / requestsPerMinute / judged
}

// fairness is Jain's index of what the clients were served.
func (r result) fairness() float64 {
	sum, squares := 0.0, 0.0
	for i := range r.servedTo {
		x := r.servedTo[i] - r.servedFrom[i]
		sum += x
		squares += x * x
	}
	return sum * sum / (float64(len(r.servedTo)) * max(squares, 1))
}

// held prints a verdict, and reports whether all claims held.
func (r result) held(out io.Writer) bool {
	d := r.to.since(r.from)
	ok := true
	say := func(good bool, format string, x, bound float64) {
		word := "held  "
		if !good {
			word, ok = "BROKEN", false
		}
		fmt.Fprintf(out, "%s  %s\n", word, fmt.Sprintf(format, 100*x, 100*bound))
	}
	fmt.Fprintf(out, "last %d s: %s\n", judged, d.line(judged))
	say(r.used() >= leastUsed, r.scarce+" used: %.1f %%, at least %.0f %%", r.used(), leastUsed)
	say(d.refusedShare() <= mostRefused, "refused with 429: %.1f %%, at most %.0f %%", d.refusedShare(), mostRefused)
	say(r.fairness() >= leastFair, "fairness between the clients: %.1f %%, at least %.0f %%", r.fairness(), leastFair)
	return ok
}
