// Package api is a file of the README, to the letter: the client of an API with a limit.
package api

import (
	"net/http"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/httplimit"
	"github.com/quotient-go/quotient/policy"
)

// Client calls an API that allows 100 requests a second; four replicas share them.
func Client() *http.Client {
	limit := quotient.Rates(quotient.PerSecond(100)) // for each host
	limiter := quotient.Must(quotient.New(limit, quotient.Replicas(4), quotient.Policy(policy.Tracking{})))
	return &http.Client{Transport: &httplimit.Transport{Limiter: limiter}}
}
