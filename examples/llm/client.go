package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/httplimit"
	"github.com/quotient-go/quotient/policy"
)

// fields is how this API tells about its limits: as OpenAI does. httplimit knows other APIs by their hosts, too.
var fields = httplimit.ProfileFor("api.openai.com")

// newLimiter makes the limiter of one client. The limits are those of the account: no client goes beyond them, and
// each learns from the answers what the others leave it.
func newLimiter(p policy.Policy) *quotient.Limiter {
	return quotient.Must(quotient.New(account, quotient.Policy(p), quotient.BeyondShare()))
}

// A client calls the API under its own limiter. It is safe for use by many goroutines.
type client struct {
	limiter *quotient.Limiter
	http    *http.Client
	url     string
}

// status is the error of an answer that is none.
type status int

func (s status) Error() string { return http.StatusText(int(s)) }

// complete sends one prompt, when its turn has come, and returns the answer. The turn comes when both a
// request and the tokens that it will take, as far as one can tell, are free.
func (c *client) complete(ctx context.Context, p prompt) (a answer, err error) {
	permit, err := c.limiter.Acquire(ctx, "model-a", quotient.Cost("tokens", p.tokens()+p.MaxTokens/2))
	if err != nil {
		return a, err
	}
	heard := policy.Feedback{Outcome: policy.Failed} // unless an answer comes
	defer func() { permit.Done(heard) }()

	body, err := json.Marshal(p)
	req, err2 := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err := errors.Join(err, err2); err != nil {
		return a, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return a, err
	}
	defer func() { _ = resp.Body.Close() }()
	heard, _ = fields.Feedback(resp.StatusCode, resp.Header, time.Time{})
	if resp.StatusCode != http.StatusOK {
		return a, status(resp.StatusCode) // of a 429 too: a retry calls complete again, and waits for its turn again
	}
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		return a, err
	}
	return a, permit.Correct("tokens", a.Tokens) // what it really took, in place of the estimate
}
