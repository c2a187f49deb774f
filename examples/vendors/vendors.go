// Package vendors puts an httplimit.Transport under the clients of four vendors. Each function turns off what the
// client does about refusals by itself: it would send a request several times, to an upstream that has just said that
// it is too many, and would ask the own limiter again, whose refusal looks like a broken connection to it.
package vendors

import (
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/google/go-github/v84/github"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/httplimit"
	"github.com/quotient-go/quotient/policy"
	"github.com/stripe/stripe-go/v84"
)

// Limited is a client whose requests wait until the upstream will take them: it follows what the upstream announces,
// and its refusals, up to a limit of your own. Give it to one of the functions below. Base sends the requests; nil is
// http.DefaultTransport.
func Limited(most quotient.Limit, base http.RoundTripper, opts ...quotient.Option) (*http.Client, error) {
	opts = append(opts, quotient.Policy(policy.Tracking{}), quotient.BeyondShare())
	limiter, err := quotient.New(most, opts...)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: &httplimit.Transport{Limiter: limiter, Base: base}}, nil
}

// OpenAI is a client without its two retries.
func OpenAI(c *http.Client, key string) openai.Client {
	return openai.NewClient(option.WithAPIKey(key), option.WithHTTPClient(c), option.WithMaxRetries(0))
}

// GitHub is a client that does not fail by itself until the reset of a quota that is spent: calls wait in c in place of
// that. It has no retries. WithAuthToken comes first, as the copy that it returns has the check again.
func GitHub(c *http.Client, token string) *github.Client {
	client := github.NewClient(c).WithAuthToken(token)
	client.DisableRateLimitCheck = true
	return client
}

// Stripe is a client without its two retries. They are not of 429, but of all that is no answer.
func Stripe(c *http.Client, key string) *stripe.Client {
	config := &stripe.BackendConfig{HTTPClient: c, MaxNetworkRetries: stripe.Int64(0)}
	return stripe.NewClient(key, stripe.WithBackends(stripe.NewBackendsWithConfig(config)))
}

// AWS is a configuration of all services of the SDK, without its two retries.
func AWS(c *http.Client, region string, credentials aws.CredentialsProvider) aws.Config {
	return aws.Config{
		Region: region, Credentials: credentials, HTTPClient: c,
		Retryer: func() aws.Retryer { return aws.NopRetryer{} },
	}
}

// STS is one of these services.
func STS(c *http.Client, region string, credentials aws.CredentialsProvider) *sts.Client {
	return sts.NewFromConfig(AWS(c, region, credentials))
}
