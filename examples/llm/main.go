// Command llm shows clients that share the limits of a language model's API and know nothing but these limits.
//
//	go run ./examples/llm
//
// The API allows an account so many requests and so many tokens a minute, says what is left, and answers 429
// beyond that. What an answer costs is known only afterwards. Four clients want more than there is, each with
// a limiter of its own, as separate processes would have: first of requests, then of tokens. client.go is the
// part to copy. After 18 seconds the program ends, with status 1 when too little was used, or often refused.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/policy"
)

const (
	minute           = time.Second // of this API, so that a run is short
	clients, workers = 4, 16       // of each client
	settles, judged  = 6, 3        // minutes
)

// account is what the API allows.
var account = quotient.Rates(quotient.Rate{Name: "requests", Events: 100, Per: minute},
	quotient.Rate{Name: "tokens", Unit: "tokens", Events: 20_000, Per: minute})

func main() {
	fmt.Println("Look at which limit is used up: with short prompts that of requests, with long ones that of tokens.\n" +
		"In both few requests are refused. This takes 18 seconds.")
	upstream := &api{limits: quotient.Must(quotient.New(account))}
	base := &http.Transport{MaxIdleConnsPerHost: clients * workers}
	if err := run(os.Stdout, upstream, httptest.NewServer(upstream).URL, base, policy.Tracking{}); err != nil {
		fmt.Fprintln(os.Stderr, "llm:", err)
		os.Exit(1)
	}
}

// run shows prompts that use up the requests, then others that use up the tokens. Most of these must be used.
func run(out io.Writer, upstream *api, url string, base http.RoundTripper, p policy.Policy) (err error) {
	var fleet [clients]client
	for i := range fleet {
		fleet[i] = client{newLimiter(p), &http.Client{Transport: base}, url}
	}
	for _, p := range []prompt{{strings.Repeat("text", 20), 40}, {strings.Repeat("text", 300), 400}} {
		ctx, stop := context.WithCancelCause(context.Background())
		var working sync.WaitGroup
		for i := range clients * workers {
			working.Go(func() {
				for ctx.Err() == nil {
					_, err := fleet[i%clients].complete(ctx, p)
					if err != nil && err != status(http.StatusTooManyRequests) { // which the API counts
						stop(err)
					}
				}
			})
		}
		time.Sleep(settles * minute)
		before := upstream.counted()
		time.Sleep(judged * minute)
		after := upstream.counted()
		stop(nil)
		working.Wait()
		if failed := context.Cause(ctx); failed != context.Canceled {
			return failed
		}
		served, tokens, refused := after[0]-before[0], after[1]-before[1], after[2]-before[2]
		fmt.Fprintf(out, "prompts of %3d tokens: %.0f of 100 requests a minute, %.0f of 20,000 tokens, %.1f refused\n",
			p.tokens(), served/judged, tokens/judged, refused/judged)
		used := max(served/account.Rates[0].Events, tokens/account.Rates[1].Events) / judged
		if used < .85 || refused > .05*(served+refused) {
			err = errors.Join(err, fmt.Errorf("%.0f %% used, %v refused of %v", 100*used, refused, served+refused))
		}
	}
	return err
}

type prompt struct {
	Text      string `json:"prompt"`
	MaxTokens int    `json:"max_tokens"` // of the answer
}

func (p prompt) tokens() int { return len(p.Text) / 4 } // by a rule of thumb

type answer struct {
	Text   string `json:"text"`
	Tokens int    `json:"total_tokens"` // of both
}

// api imitates the API of a language model. It takes the tokens of an answer when that is written, there or not.
type api struct {
	limits *quotient.Limiter
	tokens atomic.Int64
}

// counted is how many requests were served, what they cost, and how many were refused.
func (a *api) counted() [3]float64 {
	s := a.limits.Stats()
	return [3]float64{float64(s.Admitted), float64(a.tokens.Load()), float64(s.Refused[quotient.ReasonRate])}
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var p prompt
	var reply answer
	_ = json.NewDecoder(r.Body).Decode(&p) // of a client that we know
	status := http.StatusTooManyRequests
	if permit, d := a.limits.TryAcquire("account", quotient.Cost("tokens", p.tokens())); d.OK {
		status = http.StatusOK
		said := rand.IntN(p.MaxTokens + 1)
		time.Sleep(20*time.Millisecond + time.Duration(said)*20*time.Microsecond)
		reply = answer{strings.Repeat("word ", said), p.tokens() + said}
		a.tokens.Add(int64(reply.Tokens))
		_ = permit.Correct("tokens", reply.Tokens)
		permit.Release()
	}
	for _, rule := range a.limits.Explain("account").Rules {
		w.Header().Set("x-ratelimit-limit-"+rule.Name, strconv.Itoa(int(rule.Limit)))
		w.Header().Set("x-ratelimit-remaining-"+rule.Name, strconv.Itoa(int(max(0, rule.Left))))
		w.Header().Set("x-ratelimit-reset-"+rule.Name, rule.Reset.String()) // until it is full: 12ms, 1s, 6m0s
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(reply) // a client that has left
}
