package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/httplimit"
	"github.com/quotient-go/quotient/policy"
)

// fields is how this API tells about its limits: x-ratelimit-remaining-requests, …-tokens and so on, as OpenAI does. For
// an API that httplimit knows by its host, httplimit.ProfileFor(host) is all that is needed.
var fields = httplimit.ProfileFor("api.openai.com")

// newLimiter makes the limiter of one client. The limits are those of the account, for all its
// clients together: no client goes beyond them, and each learns from the answers what the others leave it.
func newLimiter(p policy.Policy) (*quotient.Limiter, error) {
	return quotient.New(quotient.Limit{Rates: []quotient.Rate{
		{Name: "requests", Events: requestsPerMinute, Per: minute},
		{Name: "tokens", Unit: "tokens", Events: tokensPerMinute, Per: minute},
	}}, quotient.Policy(p), quotient.BeyondShare())
}

// A client calls the API under its own limiter. It is safe for use by many goroutines.
type client struct {
	limiter *quotient.Limiter
	http    *http.Client
	url     string
}

// errRefused is a 429. A retry calls complete again, and waits for its turn again.
var errRefused = errors.New("the API answers 429")

// complete sends one prompt, when its turn has come, and returns the answer. The turn comes when both a
// request and the tokens that it will take, as far as one can tell, are free.
func (c *client) complete(ctx context.Context, p prompt) (answer, error) {
	permit, err := c.limiter.Acquire(ctx, "model-a", quotient.Cost("tokens", p.estimate()))
	if err != nil {
		return answer{}, err
	}
	heard := policy.Feedback{Outcome: policy.Failed} // unless an answer comes
	defer func() { permit.Done(heard) }()

	body, err := json.Marshal(p)
	if err != nil {
		return answer{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	heard, _ = fields.Feedback(resp.StatusCode, resp.Header, time.Time{})
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusTooManyRequests:
		return answer{}, errRefused
	default:
		return answer{}, fmt.Errorf("the API answers %s", resp.Status)
	}
	var a answer
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		return answer{}, err
	}
	return a, permit.Correct("tokens", a.Usage.TotalTokens) // what it really took, in place of the estimate
}

// prompt is the question to the model.
type prompt struct {
	Text      string `json:"prompt"`
	MaxTokens int    `json:"max_tokens"` // of the answer
}

// tokens of the text, by a rule of thumb.
func (p prompt) tokens() int { return len(p.Text) / 4 }

// estimate is what a prompt will cost if the answer is half as long as it may be.
func (p prompt) estimate() int { return p.tokens() + p.MaxTokens/2 }

// answer is what the model says, and what it has cost.
type answer struct {
	Text  string `json:"text"`
	Usage struct {
		TotalTokens int `json:"total_tokens"`
	} `json:"usage"`
}
