package quotient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/quotient-go/quotient/internal/inside"
	"github.com/quotient-go/quotient/policy"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // where sources fail without a Logger, as in many tests
	goleak.VerifyTestMain(m)
}

// inFakeTime runs a test in a bubble whose clock moves only when all goroutines wait.
func inFakeTime(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

// row runs one row of a table in a bubble, under a name made of what the row holds.
func row(t *testing.T, name any, test func(t *testing.T)) {
	t.Helper()
	t.Run(fmt.Sprint(name), func(t *testing.T) { inFakeTime(t, test) })
}

// perSecond is a named rate of requests with a burst.
func perSecond(events float64, burst int) Rate {
	return Rate{Name: "second", Events: events, Per: time.Second, Burst: burst}
}

// tokensPerMinute is a rate that is asked for with Cost("tokens", n).
func tokensPerMinute(events float64, burst int) Rate {
	return Rate{Name: "tokens", Unit: "tokens", Events: events, Per: time.Minute, Burst: burst}
}

// wants fails unless Allow lets the key through n times now, and not once more.
func wants(t *testing.T, l *Limiter, key string, n int) {
	t.Helper()
	for i := range n {
		if !l.Allow(key) {
			t.Errorf("key %q: ask %d of %d was refused", key, i+1, n)
			return
		}
	}
	wrong(t, l.Allow(key), "key %q: more than %d asks were admitted", key, n)
}

// took returns a permit that must be admitted now.
func took(t *testing.T, l *Limiter, key string, opts ...CallOption) Permit {
	t.Helper()
	p, d := l.TryAcquire(key, opts...)
	if !d.OK {
		t.Fatalf("key %q: refused: %v", key, refusal(key, d))
	}
	return p
}

// refusedFor fails unless the call is refused now, for the reason. It leaves no promise.
func refusedFor(t *testing.T, l *Limiter, reason Reason, key string, opts ...CallOption) Decision {
	t.Helper()
	_, d := l.TryAcquire(key, opts...)
	l.forgetPromises()
	if d.OK || d.Reason != reason {
		t.Errorf("key %q: got OK %v, reason %v, want a refusal for %v", key, d.OK, d.Reason, reason)
	}
	return d
}

// upTo takes as much of n as there is, and fails the test when it is not want.
func upTo(t *testing.T, l *Limiter, key string, n, want int, opts ...CallOption) Permit {
	t.Helper()
	p, got := l.TryAcquireUpTo(key, n, opts...)
	wrong(t, got != want, "of %d there were %d, want %d", n, got, want)
	return p
}

func correct(t *testing.T, p Permit, used int) {
	t.Helper()
	must(t, p.Correct("", used))
}

// setLimit changes the limit of a limiter; it must be valid.
func setLimit(t *testing.T, l *Limiter, limit Limit) {
	t.Helper()
	must(t, l.SetLimit(limit))
}

// setReplicas is SetPool with a number of replicas and no ordinal.
func setReplicas(t *testing.T, l *Limiter, n int) {
	t.Helper()
	must(t, l.SetPool(Pool{Replicas: n}, 0))
}

// call is a call of Acquire in a goroutine of its own, inside a bubble.
type call struct {
	permit Permit
	err    error
	took   time.Duration
	done   chan struct{} // closed when the above are set
	cancel context.CancelFunc
}

// ended reports whether the call has returned, once all goroutines wait.
func (c *call) ended() bool {
	synctest.Wait()
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// asking starts a call and returns once it waits or has ended.
func asking(t *testing.T, l *Limiter, key string, opts ...CallOption) *call {
	return askingUntil(t, l, 0, key, opts...)
}

// askingUntil is asking with a deadline from now, if it is not 0.
func askingUntil(t *testing.T, l *Limiter, deadline time.Duration, key string, opts ...CallOption) *call {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	if deadline > 0 {
		ctx, cancel = context.WithTimeout(t.Context(), deadline)
	}
	return calling(ctx, cancel, l, key, opts...)
}

// calling starts a call with a context.
func calling(ctx context.Context, cancel func(), l *Limiter, key string, opts ...CallOption) *call {
	c := &call{cancel: cancel, done: make(chan struct{})}
	go func() {
		start := time.Now()
		c.permit, c.err = l.Acquire(ctx, key, opts...)
		c.took = time.Since(start)
		close(c.done)
	}()
	synctest.Wait()
	return c
}

// hooked is a context that calls f before the first wait of the call that has it.
type hooked struct {
	context.Context
	f func()
}

func (c *hooked) Done() <-chan struct{} {
	if f := c.f; f != nil {
		c.f = nil
		f()
	}
	return c.Context.Done()
}

// waits fails unless the call is still waiting.
func (c *call) waits(t *testing.T) {
	t.Helper()
	if c.ended() { // else what it has come to is not to be read yet
		t.Errorf("the call ended after %v with %v, want it to wait", c.took, c.err)
	}
}

// admittedAfter fails unless the call was admitted, so long after it was made.
func (c *call) admittedAfter(t *testing.T, d time.Duration) {
	t.Helper()
	if !c.ended() {
		t.Errorf("still waiting, want admitted after %v", d)
	} else if c.err != nil || c.took != d {
		t.Errorf("ended after %v with %v, want admitted after %v", c.took, c.err, d)
	}
}

// refusedAfter fails unless the call was refused for the reason, so long after it was made.
func (c *call) refusedAfter(t *testing.T, d time.Duration, reason Reason) *LimitedError {
	t.Helper()
	var limited *LimitedError
	if !c.ended() {
		t.Errorf("still waiting, want refused for %v after %v", reason, d)
		return &LimitedError{}
	}
	if c.took != d || !errors.As(c.err, &limited) || limited.Reason != reason {
		t.Errorf("ended after %v with %v, want refused for %v after %v", c.took, c.err, reason, d)
		return &LimitedError{}
	}
	return limited
}

// gaveUp cancels the call and fails unless it ends with the context's error.
func (c *call) gaveUp(t *testing.T) {
	t.Helper()
	c.cancel()
	if !c.ended() || !errors.Is(c.err, context.Canceled) {
		t.Errorf("the call does not end with %v", context.Canceled)
	}
}

// Whether the controllers of a test may go beyond the share.
const withinShare, beyondShare = false, true

// policyOf is Policy, with BeyondShare if controllers may go beyond the share.
func policyOf(p policy.Policy, beyond bool) Option {
	if beyond {
		return together(Policy(p), BeyondShare())
	}
	return Policy(p)
}

// together is one option for several.
func together(opts ...Option) Option {
	return func(o *options) error {
		for _, opt := range opts {
			if err := opt(o); err != nil {
				return err
			}
		}
		return nil
	}
}

// refusal is the error for a decision.
func refusal(key string, d Decision) error { return &LimitedError{Key: key, Decision: d} }

// ctrls are the rules that are controllers of a policy, that of requests first.
func (k KeyState) ctrls() (ctrls []RuleState) {
	for _, r := range k.Rules {
		if r.Pace > 0 {
			ctrls = append(ctrls, r)
		}
	}
	return ctrls
}

// pace is what the controller of requests allows, or 0.
func (k KeyState) pace() float64 {
	for _, ctrl := range k.ctrls() {
		return ctrl.Pace
	}
	return 0
}

// steady is a source that says one pool, once.
func steady(p Pool) Source { return static{func() (Pool, error) { return p, p.validate() }} }

// stateOf is the state of a key, which must be remembered.
func stateOf(t testing.TB, l *Limiter, key string) KeyState {
	t.Helper()
	for ks := range l.Keys() {
		if ks.Key == key {
			return ks
		}
	}
	t.Fatalf("key %q is not remembered", key)
	return KeyState{}
}

// tokensOf is what each rate of a key has left.
func tokensOf(t *testing.T, l *Limiter, key string) (left []float64) {
	t.Helper()
	for _, r := range stateOf(t, l, key).Rules {
		if r.Window > 0 {
			left = append(left, r.Left)
		}
	}
	return left
}

// has fails unless the first rate of the key has n events left, negative for a debt.
func has(t *testing.T, l *Limiter, key string, n float64) {
	t.Helper()
	if got := tokensOf(t, l, key)[0]; math.Abs(got-n) > 0.0015 {
		t.Errorf("key %q has %v events, want %v", key, got, n)
	}
}

// says fails unless err names all words.
func says(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one that says %q", words)
		return
	}
	for _, w := range words {
		wrong(t, !strings.Contains(err.Error(), w), "error %q does not say %q", err, w)
	}
}

// panics fails unless f panics.
func panics(t *testing.T, f func()) {
	t.Helper()
	defer func() {
		wrong(t, recover() == nil, "no panic")
	}()
	f()
}

// gateOf is the gate of a key; nil when the key is not remembered.
func gateOf(l *Limiter, key string) *gate {
	s := l.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find(l.hash(key))
}

// property checks prop on many histories, each in a bubble of its own with fake time.
func property(t *testing.T, prop func(*rapid.T)) {
	t.Helper()
	rapid.Check(t, func(rt *rapid.T) { rapid.SyncTest(rt, prop) })
}

// few keys make a limiter of one shard, cheap to make.
var few = MaxKeys(8)

func mustNew(t interface{ Fatal(...any) }, limit Limit, opts ...Option) *Limiter {
	l, err := New(limit, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func must(t interface{ Fatal(...any) }, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

func key(i int) string { return fmt.Sprintf("key-%d", i) }

// WithMostPlans bounds how many plans a limiter can have at a time.
func WithMostPlans(n int) Option { return fix(func(c *inside.Chance) { c.Plans = n }) }

// WithHash fixes the hash of keys: with it their shards, and the seeds of their controllers.
func WithHash(hash func(key string) uint64) Option {
	return fix(func(c *inside.Chance) { c.Hash = hash })
}

// shard returns the shard of a key.
func (l *Limiter) shard(key string) *shard { return l.shardOf(l.hash(key)) }
