package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/quotient-go/quotient/internal/rest"
	"github.com/quotient-go/quotient/lease"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A token has three parts: a bit, the revision of a put in etcd, and a number of its own. The bit sets it
// above all tokens that a lone server takes from its clock.
const (
	tokenBase = 1 << 62
	tokenBits = 24 // of the number: so many tokens, 16 million, come from one put
	// mostRevision leaves room above the last block: see lease.EndOfTokens.
	mostRevision = 1<<(62-tokenBits) - 1<<17
)

// endError ends a term, and Run where the server is unfit: trying again does not help.
type endError struct {
	error
	unfit bool
}

func over(format string, args ...any) error { return &endError{error: fmt.Errorf(format, args...)} }

// term is one candidacy: one lease of the store and one key, until either is lost.
type term struct {
	e     *Election // complete
	store store
	seen  *int64           // the newest revision that tokens were made of
	old   clientv3.LeaseID // of a candidacy before, which may still be there; 0: none

	lease  clientv3.LeaseID // 0: none
	own    candidate
	sent   time.Time // when the last renewal that was answered was sent
	leads  bool
	leader string // URL, as the server knows it
}

// until returns the end of what is known of the lease.
func (t *term) until() time.Time { return t.sent.Add(t.e.lasts()) }

// run stands until the term is over. The server may still lead then.
func (t *term) run(ctx context.Context) error {
	if err := t.begin(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	changed := make(chan struct{}, 1)
	var watching sync.WaitGroup
	watching.Go(func() {
		t.store.watch(ctx, t.e.keys(), func() { rest.Wake(changed) })
	})
	defer watching.Wait()
	defer cancel()
	next := time.NewTimer(0)
	defer next.Stop()
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		case <-next.C:
		}
		wait, err := t.round(ctx, &failures)
		if err != nil {
			return err
		}
		next.Reset(wait)
	}
}

// begin takes a lease and creates the key. A rest of a former candidacy would stand in front of it.
func (t *term) begin(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, t.e.beat())
	defer cancel()
	if t.old != 0 { // a store that was restarted keeps it for another TTL
		if err := t.store.revoke(ctx, t.old); err != nil {
			return fmt.Errorf("revoke the lease before: %w", err)
		}
		t.old = 0
	}
	t.sent = time.Now()
	if t.lease, err = t.store.grant(ctx, int64(t.e.TTL/time.Second)); err != nil {
		return fmt.Errorf("grant a lease: %w", err)
	}
	t.own = candidate{key: fmt.Sprintf("%s%x", t.e.keys(), t.lease), url: t.e.URL}
	if t.own.revision, err = t.store.put(ctx, t.own, t.lease); err != nil {
		return fmt.Errorf("put %s: %w", t.own.key, err)
	}
	return nil
}

// leave gives up the lease, and the key with it, as well as it can within a second. It returns the lease that
// may still be there; 0: none. The client's own Resign forgets the key where its request fails.
func (t *term) leave(ctx context.Context) (left clientv3.LeaseID) {
	if t.lease == 0 {
		return t.old
	}
	ctx = context.WithoutCancel(ctx)
	err := rest.Twice(ctx, farewell/2, func(ctx context.Context) error { return t.store.revoke(ctx, t.lease) })
	if err != nil {
		t.e.Log.DebugContext(ctx, "lease election: the candidacy stays until its lease ends",
			"election", t.e.Name, "error", err)
		return t.lease
	}
	return 0
}

// round renews the lease and does what follows from it. It returns when the next one is due, or why the term is over.
func (t *term) round(ctx context.Context, failures *int) (wait time.Duration, err error) {
	short, cancel := context.WithDeadline(ctx, t.until())
	defer cancel()
	err = t.renew(short)
	var end *endError
	switch {
	case err == nil:
		*failures = 0
		return jittered(t.e.beat()), nil
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case errors.Is(err, errGone) || errors.As(err, &end):
		return 0, err
	case !time.Now().Before(t.until()):
		return 0, fmt.Errorf("not renewed within %v: %w", t.e.lasts(), err)
	}
	t.e.Log.DebugContext(ctx, "lease election: not renewed, trying again", "election", t.e.Name, "error", err)
	t.store.hurry()
	wait = min(jittered(min(firstPause<<min(*failures, 10), longestPause)), time.Until(t.until()))
	*failures++
	return wait, nil
}

// renew renews the lease, finds who leads, and has the server do so, or stand by.
func (t *term) renew(ctx context.Context) error {
	var sent time.Time
	var before, after uint64 // raft terms
	var first candidate
	err := rest.Twice(ctx, t.e.beat()/2, func(ctx context.Context) (err error) {
		sent = time.Now()
		before, err = t.store.renew(ctx, t.lease)
		return err
	})
	if err != nil {
		return fmt.Errorf("renew the lease: %w", err)
	}
	err = rest.Twice(ctx, t.e.beat()/2, func(ctx context.Context) (err error) {
		first, after, err = t.store.first(ctx, t.e.keys(), t.own)
		return err
	})
	switch {
	case err != nil:
		return fmt.Errorf("find the leader: %w", err)
	case before != after:
		return errors.New("the members of etcd have elected another leader among them") // renew's may not know it yet
	}
	t.sent = sent
	if first.key != t.own.key {
		t.follow(ctx, first.url)
		return nil
	}
	if !t.leads {
		return t.lead(ctx)
	}
	return t.goOn(ctx)
}

// follow sends the server's clients to the leader.
func (t *term) follow(ctx context.Context, leader string) {
	if err := checkURL(leader); err != nil {
		leader = ""
	}
	if leader == t.leader && !t.leads {
		return
	}
	t.leads, t.leader = false, leader
	t.e.Server.StandBy(leader)
	t.e.Log.InfoContext(ctx, "lease election: this server stands by", "election", t.e.Name, "leader", leader)
}

// lead makes the server lead, by tokens that are drawn when the election is won.
func (t *term) lead(ctx context.Context) error {
	tokens, err := t.draw(ctx)
	if err != nil {
		return err
	}
	if err := t.e.Server.Lead(tokens, t.until()); err != nil {
		return &endError{fmt.Errorf("lease/etcd: Election.Server cannot lead: %w", err), true}
	}
	t.leads = true
	t.e.Log.LogAttrs(ctx, slog.LevelInfo, "lease election: this server leads",
		slog.String("election", t.e.Name), slog.Uint64("tokens_from", tokens.Next))
	return nil
}

// goOn extends the server's lead, and gives it more tokens when half of a block is used.
func (t *term) goOn(ctx context.Context) error {
	if err := t.e.Server.Extend(t.until()); err != nil {
		return over("renewed too late: %w", err)
	}
	if t.e.Server.TokensLeft() > 1<<tokenBits/2 {
		return nil
	}
	tokens, err := t.draw(ctx)
	if err != nil {
		return err
	}
	if err := t.e.Server.AddTokens(tokens); err != nil {
		return over("more tokens: %w", err)
	}
	return nil
}

// draw returns tokens that are newer than all before.
func (t *term) draw(ctx context.Context) (lease.Tokens, error) {
	var revision int64
	err := rest.Twice(ctx, t.e.beat()/2, func(ctx context.Context) (err error) {
		revision, err = t.store.draw(ctx, t.own, t.lease)
		return err
	})
	switch {
	case err != nil:
		return lease.Tokens{}, fmt.Errorf("draw tokens: %w", err)
	case revision <= *t.seen:
		return lease.Tokens{}, over("etcd is at revision %d and was at %d: it has lost its data, and fencing tokens "+
			"would go back", revision, *t.seen)
	case revision > mostRevision:
		return lease.Tokens{}, over("etcd is at revision %d, want at most %d", revision, int64(mostRevision))
	}
	*t.seen = revision
	next := tokenBase | uint64(revision)<<tokenBits
	return lease.Tokens{Next: next, End: next + 1<<tokenBits}, nil
}
