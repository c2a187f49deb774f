// Package etcd elects the leader of several lease servers with etcd. An Election takes part for one server.
// It makes that server lead, with fencing tokens above those of all leaders before, or redirects its
// clients to the leader. No lease is stored in etcd: holders restore their leases at the next leader. The
// tests run with etcd 3.4.23, the version in Debian 12, and client 3.6.
//
// # What is promised
//
//   - At most one server grants leases at a time. A leader stops by itself before the store may let another
//     one lead. Its term counts from the time at which it sent the last renewal that was answered.
//   - Fencing tokens rise from each leader to the next, as the store's revisions do.
//   - A leader whose Run ends hands over at once. If a server was killed, stopped or cut off, another one
//     leads after its TTL and half a second that the store may take.
//   - While the store is away, the leader leads until its term is over, and then no server does. All
//     continue by themselves when the store is back.
//
// # What is not promised
//
// On Linux, the clock that counts a term stops while the whole machine is suspended. A lease.Server also reads the
// time of day, and grants nothing once that is past its term. If the time of day stopped or was set back as well, the
// server leads until its next call to the store, at most a quarter of the TTL later. If only the process is stopped,
// both clocks run on. A holder may be suspended too: only fencing tokens help there.
//
// The clocks need not agree, but must run at one speed. A tenth of the TTL is the margin for differences.
//
// A store that has lost its data begins with small revisions, and so with small tokens. A server that has
// seen larger tokens leads no more, and logs the reason.
//
// # The client
//
// The program makes the client, sets its options and closes it. Two of the options matter here:
//
//	clientv3.Config{
//		Endpoints:            []string{"https://a:2379", "https://b:2379", "https://c:2379"}, // all members
//		DialKeepAliveTime:    10 * time.Second, // without it a dead connection is found after minutes
//		DialKeepAliveTimeout: 3 * time.Second,
//	}
//
// # Keys
//
//	quotient-leases/locks/694d9a2c1f0e8a05    https://a.example:8000
//
// A key has the election's name, and the lease in etcd. Its value is the server's URL. The server with the oldest key
// leads. The election package of etcd's own client uses such keys too, and so does etcdctl: "etcdctl elect -l
// quotient-leases/locks" shows the leader. That package is not used itself, because it does not say until when a
// process leads, and has defects in 3.6 (etcd issues 18163, 19597, 21128, 22123, 22387). Every client that may write
// these keys is trusted.
package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"net/url"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-go/quotient/internal/rest"
	"github.com/quotient-go/quotient/lease"
)

// DefaultTTL is the TTL of an Election that sets none.
const DefaultTTL = 10 * time.Second

const (
	leastTTL    = 2 * time.Second // what etcd grants at least, by default
	mostTTL     = time.Hour
	longestName = 200  // bytes
	longestURL  = 2000 // bytes
	// keyPrefix is what the keys of all elections begin with.
	keyPrefix = "quotient-leases/"

	// firstPause is the pause after a first failure. It doubles up to the longest.
	firstPause   = 100 * time.Millisecond
	longestPause = 2 * time.Second
	// farewell is the longest that giving up the candidacy may take at the end. The rest of a second is for the
	// process to end.
	farewell = 600 * time.Millisecond
)

// Server is the server that an Election makes the leader: a *lease.Server.
type Server interface {
	// Lead makes the server lead until the given time. Extend extends that.
	Lead(tokens lease.Tokens, until time.Time) error
	Extend(until time.Time) error
	// StandBy makes the server redirect its clients to the leader's URL; empty: not known.
	StandBy(leader string)
	AddTokens(more lease.Tokens) error
	TokensLeft() uint64
}

// Election makes one of several servers the leader. All must use the same Name and TTL.
type Election struct {
	Client *clientv3.Client // of the store; Run does not close it
	Server Server           // it is on stand-by until Run makes it lead
	// URL is the address of this server for clients: http or https, a host, and no query, at most 2,000 bytes.
	URL string
	// Name is the name of the election, 1 to 200 bytes without a slash.
	Name string
	// TTL is how long a leader leads without contact to the store, less a tenth: whole seconds, 2 s to 1 h.
	// 0 means DefaultTTL.
	TTL time.Duration
	// Log receives each change of the leader, at INFO, and the first of several failures, at WARN. Nil is slog.Default.
	Log *slog.Logger
}

// Run takes part in the election until the context ends. Then it gives up its lead or its candidacy, within
// a second, and returns the context's error. The server is on stand-by when Run returns.
//
// A wrong field is an error at once, which names field and value. A Server that cannot lead is an error too. Run logs
// failures of the store and tries again. Run may be called again, but not while another Run of the Election is running.
func (e *Election) Run(ctx context.Context) error {
	c, err := e.complete()
	if err != nil {
		return err
	}
	return c.run(ctx, client{c.Client})
}

// run is Run of a complete Election.
func (e *Election) run(ctx context.Context, st store) error {
	var seen int64           // the newest revision that was drawn
	var old clientv3.LeaseID // may be left of a candidacy before
	failures := 0
	for {
		began := time.Now()
		t := &term{e: e, store: st, seen: &seen, old: old}
		err := t.run(ctx)
		e.Server.StandBy("")
		old = t.leave(ctx)
		var end *endError
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &end) && end.unfit:
			return end.error
		}
		if time.Since(began) > 2*e.TTL {
			failures = 0
		}
		level := slog.LevelWarn
		if failures > 0 {
			level = slog.LevelDebug
		}
		e.Log.Log(ctx, level, "lease election: this server takes no part, trying again",
			"election", e.Name, "led", t.leads, "error", err)
		rest.For(ctx, jittered(min(firstPause<<min(failures, 10), longestPause)))
		failures++
	}
}

// complete returns an Election with all its fields set, or an error that names the first one that is wrong.
func (e *Election) complete() (*Election, error) {
	c := *e
	c.TTL, c.Log = cmp.Or(c.TTL, DefaultTTL), cmp.Or(c.Log, slog.Default())
	switch {
	case c.Client == nil || c.Client.ActiveConnection() == nil:
		return nil, errors.New("lease/etcd: Election.Client is nil, or has no connection")
	case c.Server == nil:
		return nil, errors.New("lease/etcd: Election.Server is nil")
	case c.Name == "" || len(c.Name) > longestName || strings.Contains(c.Name, "/"):
		return nil, fmt.Errorf("lease/etcd: Election.Name is %.40q of %d bytes, want 1 to %d without a slash",
			c.Name, len(c.Name), longestName)
	case c.TTL < leastTTL || c.TTL > mostTTL || c.TTL%time.Second != 0:
		return nil, fmt.Errorf("lease/etcd: Election.TTL is %v, want whole seconds, %v to %v",
			c.TTL, leastTTL, mostTTL)
	}
	if err := checkURL(c.URL); err != nil {
		return nil, fmt.Errorf("lease/etcd: Election.URL is %.200q: %w", c.URL, err)
	}
	return &c, nil
}

// checkURL returns an error if clients cannot be sent there.
func checkURL(s string) error {
	u, err := url.Parse(s)
	var parse *url.Error
	switch {
	case errors.As(err, &parse):
		return parse.Err
	case len(s) > longestURL:
		return fmt.Errorf("it has %d bytes, want at most %d", len(s), longestURL)
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return errors.New("want http:// or https:// and a host")
	case u.User != nil || strings.ContainsAny(s, "?#"):
		return errors.New("want no user, query or fragment")
	}
	return nil
}

// keys returns what the keys of this election begin with.
func (e *Election) keys() string { return keyPrefix + e.Name + "/" }

// beat returns how often a server renews its lease. Each command may take half of that.
func (e *Election) beat() time.Duration { return e.TTL / 4 }

// lasts returns how long a lease lasts for sure from the instant at which its renewal was sent. The rest is
// for clocks that do not run at one speed.
func (e *Election) lasts() time.Duration { return e.TTL - e.TTL/10 }

// jittered returns d, up to a quarter shorter.
func jittered(d time.Duration) time.Duration { return d - mathrand.N(d/4+1) }
