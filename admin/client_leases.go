package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
)

// Leases returns the semaphores of the lease service, at most top of them, 1 to 1,000, those with the most
// pending first. A Problem with status 404 means that there is no lease service.
func (c *Client) Leases(ctx context.Context, top int) (LeaseState, error) {
	var s LeaseState
	err := c.do(ctx, http.MethodGet, "leases", url.Values{"top": {strconv.Itoa(top)}}, nil, "", &s)
	return s, err
}

// LeaseLocks returns the oldest locks of a semaphore: at most top held ones and top pending ones, 1 to
// 1,000.
func (c *Client) LeaseLocks(ctx context.Context, semaphore string, top int) (LeaseLocks, error) {
	var s LeaseLocks
	query := url.Values{"semaphore": {semaphore}, "top": {strconv.Itoa(top)}}
	err := c.do(ctx, http.MethodGet, "leases", query, nil, "", &s)
	return s, err
}

// BreakLease takes a held lock from its peer, and returns the lock as it was. The token is that of the
// lock. The error is ErrConflict if the peer no longer holds it.
func (c *Client) BreakLease(ctx context.Context, semaphore string, peer, token uint64, opts ...PutOption) (
	LeaseLock, error,
) {
	var p put
	for _, opt := range opts {
		opt(&p)
	}
	body := struct {
		Semaphore string `json:"semaphore"`
		Peer      uint64 `json:"peer,string"`
		Token     uint64 `json:"token,string"`
	}{semaphore, peer, token}
	text, err := json.Marshal(body)
	if err != nil {
		return LeaseLock{}, fmt.Errorf("admin: Client: %w", err)
	}
	var old LeaseLock
	err = c.do(ctx, http.MethodPost, "leases/break", p.in(url.Values{}), text, p.ifMatch, &old)
	return old, err
}
