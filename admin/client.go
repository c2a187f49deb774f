package admin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/quotient-go/quotient"
)

// Bounds of a Client.
const (
	clientTimeout = 30 * time.Second // of a request, beside its context
	maxAnswer     = 64 << 20         // bytes; a thousand limiters with a thousand overrides each have more
)

// Client calls a Handler. It is safe for concurrent use. Its methods return a *Problem when the handler
// refuses, which is ErrConflict by errors.Is if an IfMatch did not hold. An empty limiter means the only
// one, or all where a method's documentation permits that.
type Client struct {
	base  string
	token string
	most  int // bytes of an answer

	objects int // of its JSON, each of which may take a hundred times its bytes here; 0: any number
	http    *http.Client
}

// A ClientOption changes what NewClient makes.
type ClientOption func(*Client)

// BearerToken sends the token with each request.
func BearerToken(secret string) ClientOption { return func(c *Client) { c.token = secret } }

// HTTPClient sends requests with a copy of the caller's client, for client certificates for example. It
// replaces the time-out of 30 s. It cannot be combined with a unix URL. The copy follows no redirects.
func HTTPClient(client *http.Client) ClientOption { return func(c *Client) { c.http = client } }

// NewClient returns a client of the handler at a URL such as "http://127.0.0.1:9090",
// "https://ops.example/admin", or "unix:///run/quotient.sock" for one that is at the root of a Unix socket.
func NewClient(baseURL string, opts ...ClientOption) (*Client, error) {
	u, err := url.Parse(baseURL)
	if err != nil {
		return nil, fmt.Errorf("admin: NewClient: URL: %w", err)
	}
	if u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.User != nil {
		return nil, errors.New("admin: NewClient: URL: it has more than scheme, host and path")
	}
	c := &Client{most: maxAnswer}
	for i, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("admin: NewClient: option %d: nil", i+1)
		}
		opt(c)
	}
	switch {
	case (u.Scheme == "http" || u.Scheme == "https") && u.Host != "":
		c.base = u.JoinPath("/").String()
	case u.Scheme == "unix" && u.Host == "" && u.Path != "" && c.http == nil:
		c.base, c.http = "http://localhost/", overSocket(u.Path)
	default:
		return nil, fmt.Errorf(
			"admin: NewClient: URL: %q is not http://, https:// or, without HTTPClient, unix:///path", u.Redacted())
	}
	own := *cmp.Or(c.http, &http.Client{Timeout: clientTimeout})
	// The handler never redirects, and a token must not go elsewhere.
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.http = &own
	return c, nil
}

func overSocket(path string) *http.Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}
	return &http.Client{
		Timeout:   clientTimeout,
		Transport: &http.Transport{DialContext: dial, IdleConnTimeout: idleTimeout, MaxIdleConns: 1},
	}
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// State returns the state of all limiters.
func (c *Client) State(ctx context.Context) (State, error) {
	return fetch[State](ctx, c, "state", nil)
}

// StateAndHistory is State with State.History: what the limiters did in the last two minutes.
func (c *Client) StateAndHistory(ctx context.Context) (State, error) {
	return fetch[State](ctx, c, "state", url.Values{"history": {"1"}})
}

// Peers returns the processes of the fleet, as the one that is asked sees them. A Problem with status 404 means that it
// knows of no others.
func (c *Client) Peers(ctx context.Context) (Peers, error) {
	return fetch[Peers](ctx, c, "peers", nil)
}

// Limiter returns the state of one limiter. Its ETag is for IfMatch.
func (c *Client) Limiter(ctx context.Context, limiter string) (LimiterState, error) {
	return one(fetch[State](ctx, c, "state", named(limiter)))
}

// A KeysOption changes a call of Client.Keys.
type KeysOption func(url.Values)

// ByRefused has the keys with the most calls refused in the last minute first, and others behind them as without it.
func ByRefused() KeysOption { return func(query url.Values) { query.Set("by", "refused") } }

// Keys returns the hottest keys of a limiter, at most top of them: 1 to 1,000.
func (c *Client) Keys(ctx context.Context, limiter string, top int, opts ...KeysOption) (Keys, error) {
	query := named(limiter)
	query.Set("top", strconv.Itoa(top))
	for _, opt := range opts {
		opt(query)
	}
	return fetch[Keys](ctx, c, "keys", query)
}

// An ExplainOption changes a call of Client.Explain.
type ExplainOption func(url.Values)

// InPlan explains the key as if it were in this plan: "" is the limiter's own limit. Without it the plan is
// the one that the key is in.
func InPlan(name string) ExplainOption { return func(query url.Values) { query.Set("plan", name) } }

// Explain returns the state of a key.
func (c *Client) Explain(ctx context.Context, limiter, key string, opts ...ExplainOption) (Explanation, error) {
	query := named(limiter)
	for _, opt := range opts {
		opt(query)
	}
	if raw := inBase64(key); raw != nil {
		query.Set("key_base64", base64.StdEncoding.EncodeToString(raw))
	} else {
		query.Set("key", key)
	}
	return fetch[Explanation](ctx, c, "explain", query)
}

// A PutOption is a condition of a change.
type PutOption func(*put)

type put struct {
	ifMatch  string
	validate bool
}

// IfMatch makes a change only if the limiter still is as in the state that had this ETag. An empty ETag is
// no condition.
func IfMatch(etag string) PutOption { return func(p *put) { p.ifMatch = etag } }

// ValidateOnly checks a change and does not make it. The result is the present state, or the *Problem that
// the change would get now. BreakLease returns an error for it.
func ValidateOnly() PutOption { return func(p *put) { p.validate = true } }

// SetReplicas sets the pool of one limiter or, without a name, of all. A ttl above 0 ends it: after that
// the followed or configured pool counts again. A ttl of 0 means for good. Pool.Fixed is not sent.
func (c *Client) SetReplicas(
	ctx context.Context, limiter string, p quotient.Pool, ttl time.Duration, opts ...PutOption,
) (State, error) {
	body := struct {
		Replicas   int     `json:"replicas"`
		Weight     int     `json:"weight,omitempty"`
		Ordinal    int     `json:"ordinal,omitempty"`
		TTLSeconds float64 `json:"ttl_seconds,omitempty"`
	}{p.Replicas, p.Weight, p.Ordinal, ttl.Seconds()}
	return c.put(ctx, "replicas", limiter, body, opts)
}

// SetLimit sets the limit of a limiter. The zero Limit is no limit at all.
func (c *Client) SetLimit(
	ctx context.Context, limiter string, limit quotient.Limit, opts ...PutOption,
) (LimiterState, error) {
	return c.putOne(ctx, "limit", limiter, newLimitRequest(&limit), opts)
}

// SetPlan gives the plan a limit for each of its keys; nil removes the plan. It calls SetPlan of the quotient.Limiter.
func (c *Client) SetPlan(
	ctx context.Context, limiter, plan string, limit *quotient.Limit, opts ...PutOption,
) (LimiterState, error) {
	body := map[string]any{"plan": plan, "limit": newLimitRequest(limit)}
	return c.putOne(ctx, "plan", limiter, body, opts)
}

// Override gives a key a limit of its own; nil removes it. A ttl of 1 ms to a year ends it, and 0 is for good: see
// Override of quotient.Limiter. The Was of the result is what the key had before: to undo the change, send that with
// IfMatch and the ETag of the result, after its Then with a ttl of 0, if it has one.
func (c *Client) Override(
	ctx context.Context, limiter, key string, limit *quotient.Limit, ttl time.Duration, opts ...PutOption,
) (LimiterState, error) {
	body := keyRequest(key)
	body["limit"] = newLimitRequest(limit)
	if ttl != 0 {
		body["ttl_seconds"] = ttl.Seconds()
	}
	return c.putOne(ctx, "override", limiter, body, opts)
}

// Reset makes a key start fresh, but for its slots in flight, its waiters and its override. It is no error
// if the key is not remembered, since such a key starts fresh anyway. A key that shares a gate, since
// MaxKeys keys are busy, is refused.
func (c *Client) Reset(ctx context.Context, limiter, key string, opts ...PutOption) (LimiterState, error) {
	return c.putOne(ctx, "reset", limiter, keyRequest(key), opts)
}

// keyRequest is a key as PUT takes it: in base64 where JSON cannot carry it.
func keyRequest(key string) map[string]any {
	if raw := inBase64(key); raw != nil {
		return map[string]any{"key_base64": raw}
	}
	return map[string]any{"key": key}
}

// SetDryRun turns the dry run of a limiter on or off.
func (c *Client) SetDryRun(ctx context.Context, limiter string, on bool, opts ...PutOption) (LimiterState, error) {
	return c.putOne(ctx, "dry-run", limiter, map[string]bool{"dry_run": on}, opts)
}

// Leases returns the semaphores of the lease service, at most top of them, 1 to 1,000, those with the most
// pending first. A Problem with status 404 means that there is no lease service.
func (c *Client) Leases(ctx context.Context, top int) (LeaseState, error) {
	return fetch[LeaseState](ctx, c, "leases", url.Values{"top": {strconv.Itoa(top)}})
}

// LeaseLocks returns the oldest locks of a semaphore: at most top held ones and top pending ones, 1 to 1,000.
func (c *Client) LeaseLocks(ctx context.Context, semaphore string, top int) (LeaseLocks, error) {
	query := url.Values{"semaphore": {semaphore}, "top": {strconv.Itoa(top)}}
	return fetch[LeaseLocks](ctx, c, "leases", query)
}

// BreakLease takes a held lock from its peer, and returns the lock as it was. The token is that of the
// lock. The error is ErrConflict if the peer no longer holds it.
func (c *Client) BreakLease(ctx context.Context, semaphore string, peer, token uint64, opts ...PutOption) (
	old LeaseLock, err error,
) {
	body := map[string]string{
		"semaphore": semaphore, "peer": strconv.FormatUint(peer, 10), "token": strconv.FormatUint(token, 10),
	}
	return send[LeaseLock](ctx, c, http.MethodPost, "leases/break", url.Values{}, body, opts)
}

// limitRequest is a limit as PUT takes it, nil for none.
type limitRequest struct {
	Rates    []RateState `json:"rates"`
	InFlight int         `json:"in_flight"`
	Deny     bool        `json:"deny"`

	Unlimited bool `json:"unlimited,omitempty"`
}

func newLimitRequest(limit *quotient.Limit) *limitRequest {
	if limit == nil {
		return nil
	}
	s := newLimitState(*limit)
	return &limitRequest{Rates: s.Rates, InFlight: s.InFlight, Deny: s.Denies, Unlimited: s.Unlimited}
}

// one is the only limiter of an answer.
func one(s State, err error) (LimiterState, error) {
	if err == nil && len(s.Limiters) != 1 {
		err = fmt.Errorf("admin: Client: there are %d limiters, and none was named", len(s.Limiters))
	}
	if err != nil {
		return LimiterState{}, err
	}
	_, l := only(s.Limiters)
	return l, nil
}

func named(limiter string) url.Values {
	query := make(url.Values)
	if limiter != "" {
		query.Set("limiter", limiter)
	}
	return query
}

func (c *Client) putOne(ctx context.Context, path, limiter string, body any, opts []PutOption) (LimiterState, error) {
	return one(c.put(ctx, path, limiter, body, opts))
}

func (c *Client) put(ctx context.Context, path, limiter string, body any, opts []PutOption) (State, error) {
	return send[State](ctx, c, http.MethodPut, path, named(limiter), body, opts)
}

// send sends a change and reads its answer.
func send[T any](
	ctx context.Context, c *Client, method, path string, query url.Values, body any, opts []PutOption,
) (v T, err error) {
	var p put
	for _, opt := range opts {
		opt(&p)
	}
	if p.validate {
		query.Set("validate", "1")
	}
	text, err := json.Marshal(body)
	if err != nil {
		return v, fmt.Errorf("admin: Client: %w", err)
	}
	err = c.do(ctx, method, path, query, text, p.ifMatch, &v)
	return v, err
}

func fetch[T any](ctx context.Context, c *Client, path string, query url.Values) (v T, err error) {
	err = c.do(ctx, http.MethodGet, path, query, nil, "", &v)
	return v, err
}

// do sends one request and reads its answer into v.
func (c *Client) do(
	ctx context.Context, method, path string, query url.Values, body []byte, ifMatch string, v any,
) error {
	address := c.base + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("admin: Client: %w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if ifMatch != "" {
		req.Header.Set("If-Match", ifMatch)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("admin: Client: %w", err)
	}
	defer resp.Body.Close()
	err = c.readAnswer(resp, v)
	if keyed, ok := v.(interface{ restore() }); ok {
		keyed.restore()
	}
	return err
}

// restore puts keys that are not UTF-8 in place of what JSON made of them.
func (s State) restore() {
	for _, l := range s.Limiters {
		for i := range l.Overrides {
			restore(&l.Overrides[i].Key, l.Overrides[i].KeyBase64)
		}
		if l.Was != nil {
			restore(&l.Was.Key, l.Was.KeyBase64)
		}
	}
}

func (k Keys) restore() {
	for i := range k.Keys {
		restore(&k.Keys[i].Key, k.Keys[i].KeyBase64)
	}
}

func (e *Explanation) restore() { restore(&e.Key, e.KeyBase64) }

func restore(key *string, raw []byte) {
	if raw != nil {
		*key = string(raw)
	}
}

// readAnswer reads a bounded answer, or the problem that it is.
func (c *Client) readAnswer(resp *http.Response, v any) error {
	text, err := io.ReadAll(io.LimitReader(resp.Body, int64(c.most)+1))
	if err != nil {
		return fmt.Errorf("admin: Client: reading the answer: %w", err)
	}
	if len(text) > c.most {
		return fmt.Errorf("admin: Client: the answer is longer than %d bytes", c.most)
	}
	if c.objects > 0 && bytes.Count(text, []byte("{")) > c.objects {
		return fmt.Errorf("admin: Client: the answer has more than %d objects", c.objects)
	}
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode == http.StatusOK && media == "application/json" {
		if err := json.Unmarshal(text, v); err != nil {
			return fmt.Errorf("admin: Client: reading the answer: %w", err)
		}
		return nil
	}
	p := new(Problem)
	if media != "application/problem+json" || json.Unmarshal(text, p) != nil || p.Status != resp.StatusCode {
		p = &Problem{
			Title: http.StatusText(resp.StatusCode), Status: resp.StatusCode,
			Detail: "no answer of an admin handler: " + clip(string(text)),
		}
	}
	return p
}
