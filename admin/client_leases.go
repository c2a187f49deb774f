package admin

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
)

// Leases returns the semaphores of the lease service, at most top of them, 1 to 1,000, those with the most
// pending first. A Problem with status 404 means that there is no lease service.
func (c *Client) Leases(ctx context.Context, top int) (LeaseState, error) {
	var s LeaseState
	err := c.get(ctx, "leases", url.Values{"top": {strconv.Itoa(top)}}, &s)
	return s, err
}

// LeaseLocks returns the oldest locks of a semaphore: at most top held ones and top pending ones, 1 to
// 1,000.
func (c *Client) LeaseLocks(ctx context.Context, semaphore string, top int) (LeaseLocks, error) {
	var s LeaseLocks
	query := url.Values{"semaphore": {semaphore}, "top": {strconv.Itoa(top)}}
	err := c.get(ctx, "leases", query, &s)
	return s, err
}

// BreakLease takes a held lock from its peer, and returns the lock as it was. The token is that of the
// lock. The error is ErrConflict if the peer no longer holds it.
func (c *Client) BreakLease(ctx context.Context, semaphore string, peer, token uint64, opts ...PutOption) (
	old LeaseLock, err error,
) {
	body := struct {
		Semaphore string `json:"semaphore"`
		Peer      uint64 `json:"peer,string"`
		Token     uint64 `json:"token,string"`
	}{semaphore, peer, token}
	err = c.change(ctx, http.MethodPost, "leases/break", url.Values{}, body, opts, &old)
	return old, err
}
