package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// Defaults of a Client.
const (
	DefaultExpiresIn = 30 * time.Second
	DefaultBlockFor  = 10 * time.Second
	DefaultTimeout   = 5 * time.Second
)

// Bounds of a Client's durations.
const (
	minExpiresIn = 100 * time.Millisecond
	minTimeout   = time.Millisecond
	maxURLs      = 16
)

// Client acquires locks from a lease service. It is safe for concurrent use. Do not change its fields, or copy it, once
// it is in use. It needs no Close: it runs only while a Lock waits, and for each Lease until that is unlocked or lost.
//
// It works with every server of this HTTP interface. Only a Server of this package sends fencing tokens and
// its grace time, in headers.
type Client struct {
	// URLs are the addresses of the servers, 1 to 16. A client uses the server that answered last. If that
	// fails or is on stand-by, it tries the next one. It follows a stand-by's redirect to the leader.
	URLs []string
	// HTTP sends the requests; nil is http.DefaultClient. Its own Timeout should be above BlockFor.
	HTTP *http.Client
	// ExpiresIn is how long the server keeps a lock without a heartbeat of its holder, 100 ms to 100 years.
	// 0 means DefaultExpiresIn. The client sends a heartbeat about three times in that time, or in the
	// server's grace time if that is shorter.
	ExpiresIn time.Duration
	// BlockFor is how long one request of a Lock waits at the server, 1 ms to 1 h. 0 means DefaultBlockFor.
	BlockFor time.Duration
	// Timeout is how long a request may take beyond its BlockFor, 1 ms to 1 h. 0 means DefaultTimeout.
	Timeout time.Duration
	// Log receives restored and lost locks, the first request that no server answers, and when one does again, with how
	// long that took. Nil means no log.
	Log *slog.Logger

	random func() float64 // tests put their own here; nil: math/rand/v2

	mu       sync.Mutex
	prefer   string // base of the URL that answered last; guarded by mu, as is what follows
	failures failures
}

// Lock waits until it holds count of the semaphore called name, and returns the Lease. Call its Unlock at the end.
//
// If ctx ends first, Lock returns ctx's error. It gives up its place in the queue in the background, for at
// most Timeout. Lock tries again after network errors, and while servers are not ready, until ctx ends. So
// give ctx a deadline. Lease.Context derives from ctx.
//
// If ctx derives from the Context of a Lease, Lock acquires one more lock for the same peer. The server then refuses a
// lock that is not below the lowest level held, because its wait might be a deadlock. Such a peer waits for one lock at
// a time: a second one is ErrAlreadyPending. A lock that the peer already holds is ErrAlreadyHeld.
//
// Other errors are ErrUnknownSemaphore, a CountError, a NeverError, a LevelError and an AnswerError. The error is
// ErrLost if the peer was lost meanwhile. An invalid field of the Client is an error that names the field.
func (c *Client) Lock(ctx context.Context, name string, count int64) (*Lease, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	l, err := c.lock(ctx, name, count)
	if err != nil {
		return nil, fmt.Errorf("lease: lock %.40q: %w", name, err)
	}
	return l, nil
}

func (c *Client) lock(ctx context.Context, name string, count int64) (*Lease, error) {
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case name == "" || len(name) > maxName:
		return nil, ErrUnknownSemaphore
	case count < 1 || count > MaxCount:
		return nil, &CountError{count}
	}
	s, ok := ctx.Value(sessionKey{c}).(*session)
	err := errOver
	if ok {
		err = s.begin(ctx, name)
	}
	if errors.Is(err, errOver) {
		s, err = c.open(ctx, name)
	}
	if err != nil {
		return nil, err
	}
	return s.ask(ctx, name, count)
}

// check is an error that names the first field which makes no sense, and its value.
func (c *Client) check() error {
	if len(c.URLs) < 1 || len(c.URLs) > maxURLs {
		return fmt.Errorf("lease: Client.URLs has %d, want 1 to %d", len(c.URLs), maxURLs)
	}
	for i, u := range c.URLs {
		p, err := url.Parse(u)
		if err != nil {
			return fmt.Errorf("lease: Client.URLs[%d]: %w", i, err)
		}
		if p.Scheme != "http" && p.Scheme != "https" || p.Host == "" || p.RawQuery != "" || p.Fragment != "" {
			return fmt.Errorf("lease: Client.URLs[%d] is %q, want http://HOST or https://HOST",
				i, p.Redacted())
		}
	}
	for _, f := range []struct {
		name            string
		value, min, max time.Duration
	}{
		{"ExpiresIn", c.ExpiresIn, minExpiresIn, maxDuration},
		{"BlockFor", c.BlockFor, minTimeout, maxBlockFor},
		{"Timeout", c.Timeout, minTimeout, maxBlockFor},
	} {
		if f.value != 0 && (f.value < f.min || f.value > f.max) {
			return fmt.Errorf("lease: Client.%s is %v, want %v to %v", f.name, f.value, f.min, f.max)
		}
	}
	return nil
}

func (c *Client) expiresIn() time.Duration { return cmp.Or(c.ExpiresIn, DefaultExpiresIn) }
func (c *Client) timeout() time.Duration   { return cmp.Or(c.Timeout, DefaultTimeout) }

// blockFor leaves the answer some time where the http.Client has a Timeout of its own.
func (c *Client) blockFor() time.Duration {
	d := cmp.Or(c.BlockFor, DefaultBlockFor)
	if most := c.http().Timeout; most > 0 {
		d = min(d, most/2)
	}
	return d
}

func (c *Client) http() *http.Client { return cmp.Or(c.HTTP, http.DefaultClient) }
func (c *Client) log() *slog.Logger  { return cmp.Or(c.Log, noLog) }

var noLog = slog.New(slog.DiscardHandler)

// jitter is d, more or less a part of it, so that clients which began together do not stay together.
func (c *Client) jitter(d time.Duration, part float64) time.Duration {
	random := c.random
	if random == nil {
		random = rand.Float64
	}
	return time.Duration(float64(d) * (1 - part + 2*part*random()))
}

// backoff is the pause after so many failures in a row: 100 ms, doubled up to 5 s, and a half of that more or
// less. Our choice.
type backoff struct{ failures int }

func (b *backoff) next(c *Client) time.Duration {
	const first, most = 100 * time.Millisecond, 5 * time.Second
	b.failures++
	return c.jitter(min(first<<min(b.failures-1, 10), most), .5)
}
