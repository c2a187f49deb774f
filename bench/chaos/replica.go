package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/rest"
	"github.com/quotient-go/quotient/poolsize/dns"
	"github.com/quotient-go/quotient/poolsize/file"
	"github.com/quotient-go/quotient/poolsize/gossip"
	"github.com/quotient-go/quotient/poolsize/redis"
)

const (
	replicaArg = "replica" // first argument of a process that is one; the program that it becomes may follow
	dnsName    = "replicas.chaos.test"
	fleetName  = "chaos"
	key        = "key"

	watchEvery = 5 * ms // how often a replica looks at its pools, and whether it gets to run
	leastStall = 5 * ms // shorter ones are not worth a note
	leakTries  = 5      // each takes half a second

	leastHold = 60 * ms // a permit is held for, and
	mostHold  = 140 * ms
	pollEvery = 10 * ms // of callers that do not wait
	sipEvery  = 20 * ms // of those that take their fill of a counted window
)

// An assignment tells a replica what to do: one line of JSON on its standard input. Further lines are other values of
// Busy, and the end of the input is its own.
type assignment struct {
	config
	Busy    bool // callers ask
	ID      int  // 1, 2, …: never used twice
	Epoch   int64
	Address netip.Addr // its own, in DNS
	File    string
	DNS     string // address of the server
	Steady  string // address of the one that never fails
	Redis   string

	Bind, Advertise, JoinFile string // of one that gossips
}

type replica struct {
	assignment
	start     time.Time
	throttles []*throttle
	busy      atomic.Bool // callers ask

	mu     sync.Mutex // guards what follows
	out    *json.Encoder
	failed string
}

type throttle struct {
	path    path
	limiter *quotient.Limiter
	waited  time.Duration // of the last caller until there was room; of the only caller's goroutine
	said    map[what]int  // what was noted
}

func replicaMain(stdin io.Reader, stdout, stderr io.Writer) int {
	in, r := json.NewDecoder(stdin), &replica{out: json.NewEncoder(stdout)}
	err := in.Decode(&r.assignment)
	r.start = beginOf(r.Epoch)
	for _, p := range r.paths() {
		t, err1 := newThrottle(p)
		r.throttles, err = append(r.throttles, t), errors.Join(err, err1)
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 2
	}
	signal.Ignore(os.Interrupt) // Ctrl-C reaches the whole process group; the parent ends us in order
	ctx, stop := context.WithCancel(context.Background())
	go func() { // it obeys until the parent ends, or wants us to
		for busy, err := r.Busy, error(nil); err == nil; err = in.Decode(&busy) {
			r.busy.Store(busy)
		}
		stop()
	}()
	r.live(ctx)
	err = goleak.Find()
	for i := 0; i < leakTries && err != nil; i++ { // a probe of memberlist outlives its end by up to its own time-out
		err = goleak.Find()
	}
	if err != nil {
		r.failed = "a leak: " + err.Error()
	}
	r.note(note{What: isEnd, Text: r.failed})
	return 0
}

// newThrottle makes the limiter of a path. This is all that a program has to do to be a replica.
func newThrottle(p path) (t *throttle, err error) {
	t = &throttle{path: p, said: map[what]int{}}
	options := []quotient.Option{quotient.HoldDown(holdDown), quotient.AwaitPool(time.Hour)}
	if p.gossips() {
		options = append(options, quotient.Demand(10, newsMaxAge))
	}
	if usual[p].slots == 0 { // OnAdmit runs in the caller's goroutine
		admitted := func(_ string, waited, overhead time.Duration) { t.waited = waited - overhead }
		options = append(options, quotient.OnAdmit(admitted))
	}
	t.limiter, err = quotient.New(p.whole(), options...)
	return t, err
}

// live follows the sources and asks until ctx ends. All that it has started has ended then.
func (r *replica) live(ctx context.Context) {
	born := r.now()
	r.note(note{What: isBorn, To: born})
	logging.Disable() // the source reports what fails, and repeats it
	client := goredis.NewClient(&goredis.Options{
		Addr: r.Redis, ContextTimeoutEnabled: true, DialTimeout: redisPeriod, DialerRetries: 1, MaxRetries: -1,
	})
	defer client.Close() //nolint:errcheck // it has no state
	var work sync.WaitGroup
	defer work.Wait()
	if r.Gossip {
		work.Go(func() { r.fail(ctx, r.whisper(ctx)) })
	}
	for _, t := range r.throttles {
		if !r.Gossip {
			work.Go(func() { r.fail(ctx, t.limiter.Follow(ctx, r.source(t.path, client))) })
		}
		r.ask(ctx, t, &work)
	}
	work.Go(func() { r.watch(ctx, born) })
}

// whisper follows the other replicas. The limiters share the source.
func (r *replica) whisper(ctx context.Context) error {
	var registry quotient.Registry
	source, err := gossip.New(gossip.Config{
		Fleet: fleetName, Name: r.Advertise, Bind: r.Bind, Advertise: r.Advertise, JoinFile: r.JoinFile,
		Interval: gossipEvery, Probe: gossipEvery, Rejoin: gossipRejoin,
	})
	for _, t := range r.throttles {
		err = errors.Join(err, registry.Add(t.path.String(), t.limiter))
	}
	if err != nil {
		return err
	}
	return registry.Follow(ctx, source)
}

// source is where a path's pool comes from. With DNS a replica finds its ordinal by its own address.
func (r *replica) source(p path, client goredis.UniversalClient) quotient.Source {
	server := r.Steady
	switch p {
	case fromFile:
		return &file.Source{Path: r.File, Every: fileEvery}
	case fromRedis:
		return &redis.Source{Client: client, Fleet: fleetName, ID: strconv.Itoa(r.ID), Period: redisPeriod, Expiry: redisExpiry}
	case fromDNS:
		server = r.DNS
	}
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, server)
	}}
	return &dns.Source{
		Name: dnsName, Refresh: dnsRefresh, Timeout: dnsTimeout, Resolver: resolver,
		Own: []netip.Addr{r.Address}, Uncapped: true, // eight replicas are right here
	}
}

// ask lets callers take all that the limiter of a path admits, until ctx ends. For slots there are several, which
// hold what they get. At counted windows there is one, which tries, as at the aligned windows of one half of the
// replicas: a waiter sleeps until the instant that the limiter has worked out, one who tries sees each window.
func (r *replica) ask(ctx context.Context, t *throttle, work *sync.WaitGroup) {
	callers, every := 1, time.Duration(0) // 0: it waits
	switch {
	case t.path == onSlots:
		callers = 6 // more than it has slots
	case t.path == onLentSlots:
		callers = usual[t.path].slots + 1
	case t.path == onCounted:
		every = sipEvery
	case t.path == onWindows && r.ID%2 == 0:
		every = pollEvery
	}
	for range callers {
		work.Go(func() {
			for ctx.Err() == nil {
				if !r.busy.Load() {
					rest.For(ctx, watchEvery)
				} else if err := r.once(ctx, t, every); err != nil {
					r.fail(ctx, err)
					return
				}
			}
		})
	}
}

// once asks for one permit, notes when there was one, and holds one that is in flight.
func (r *replica) once(ctx context.Context, t *throttle, every time.Duration) error {
	n := note{What: isAdmitted, Path: t.path, From: r.now()}
	if every > 0 {
		permit, d := t.limiter.TryAcquire(key)
		if n.To = r.now(); d.OK {
			permit.Release()
			r.note(n)
		}
		if !d.OK || t.path == onCounted {
			rest.For(ctx, every)
		}
		return nil
	}
	permit, err := t.limiter.Acquire(ctx, key)
	if err != nil {
		return err
	}
	n.From, n.To = n.From+t.waited, r.now()
	if usual[t.path].slots > 0 {
		n.From = n.To
		rest.For(ctx, leastHold+rand.N(mostHold-leastHold))
		n.To = r.now()
	}
	permit.Release()
	r.note(n)
	return nil
}

func (r *replica) now() time.Duration { return time.Since(r.start) }

func (r *replica) note(n note) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.out.Encode(n) // a parent that is gone does not listen
}

// fail keeps an error that is not the end.
func (r *replica) fail(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.failed = err.Error()
	}
}

// watch notes which pool is in force, as soon as it changes, and when the process did not get to run.
func (r *replica) watch(ctx context.Context, last time.Duration) {
	for ; ctx.Err() == nil; rest.For(ctx, watchEvery) {
		now := r.now()
		if now-last > watchEvery+leastStall {
			r.note(note{What: isStalled, From: last, To: now})
		}
		for _, t := range r.throttles {
			r.look(t, last)
		}
		last = now
	}
}

// look notes what is new about the pool in force; it was not so at an earlier look.
func (r *replica) look(t *throttle, earlier time.Duration) {
	pool := t.limiter.Stats().Pool
	if pool.Source == "awaited" {
		return
	}
	for w, n := range map[what]int{isPool: pool.Replicas, isPlace: pool.Ordinal} {
		if t.said[w] != n {
			t.said[w] = n
			r.note(note{What: w, Path: t.path, From: earlier, To: r.now(), N: n})
		}
	}
}
