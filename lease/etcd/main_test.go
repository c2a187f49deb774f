package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient/internal/etcdtest"
	"github.com/quotient-go/quotient/lease"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var must = etcdtest.Must

// judge sees what all servers of one election are asked to do. It finds two that lead at one instant, and
// tokens that go back.
type judge struct {
	mu      sync.Mutex // guards what follows
	servers []*judged
	newest  uint64   // all tokens so far are below
	leads   int      // calls of Lead
	wrong   []string // what must not be
	more    chan struct{}
}

// judged is one server.
type judged struct {
	*lease.Server
	j    *judge
	name string

	// guarded by j.mu
	leading bool
	until   time.Time
	leader  string // URL, on a stand-by
	unfit   error  // Lead fails by it
	left    uint64 // what TokensLeft returns; 0: as it is
}

func newJudge() *judge { return &judge{more: make(chan struct{}, 1)} }

// server returns one server more. Its URL is http://NAME.
func (j *judge) server(t testing.TB, name string) *judged {
	t.Helper()
	config := lease.Config{Semaphores: map[string]lease.Semaphore{"A": {Max: 1}}}
	s, err := lease.NewServer(config, lease.ServerOptions{StandBy: true})
	must(t, err)
	t.Cleanup(s.Close)
	d := &judged{Server: s, j: j, name: name}
	j.set(func() { j.servers = append(j.servers, d) })
	return d
}

// set calls f under the lock.
func (j *judge) set(f func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	f()
	select {
	case j.more <- struct{}{}:
	default:
	}
}

// alone notes it if d and another server lead.
func (j *judge) alone(d *judged) {
	for _, o := range j.servers {
		if o != d && o.leads() && d.leads() {
			j.wrong = append(j.wrong,
				fmt.Sprintf("%s leads, and %s for another %v", d.name, o.name, time.Until(o.until)))
		}
	}
}

func (j *judge) tokens(k lease.Tokens) {
	if k.Next < j.newest || k.Next < 1<<62 || k.End > lease.EndOfTokens || k.End != k.Next+1<<24 {
		j.wrong = append(j.wrong, fmt.Sprintf("tokens %d to %d after %d", k.Next, k.End, j.newest))
	}
	j.newest = max(j.newest, k.End)
}

// leads reports whether d leads now. The caller holds the lock.
func (d *judged) leads() bool { return d.leading && time.Now().Before(d.until) }

// ends returns until when d leads, and whether it does.
func (d *judged) ends() (until time.Time, leads bool) {
	d.j.mu.Lock()
	defer d.j.mu.Unlock()
	return d.until, d.leads()
}

func (d *judged) Lead(k lease.Tokens, until time.Time) (err error) {
	d.j.set(func() {
		if err = d.unfit; err != nil {
			return
		}
		d.leading, d.until, d.leader = true, until, ""
		d.j.alone(d)
		d.j.tokens(k)
		d.j.leads++
		err = d.Server.Lead(k, until)
	})
	return err
}

func (d *judged) Extend(until time.Time) (err error) {
	d.j.set(func() {
		if err = d.Server.Extend(until); err == nil {
			d.until = until
			d.j.alone(d)
		}
	})
	return err
}

func (d *judged) StandBy(leader string) {
	d.j.set(func() {
		d.leading, d.leader = false, leader
		d.Server.StandBy(leader)
	})
}

func (d *judged) AddTokens(k lease.Tokens) (err error) {
	d.j.set(func() {
		d.j.tokens(k)
		d.left = 0
		err = d.Server.AddTokens(k)
	})
	return err
}

func (d *judged) TokensLeft() (n uint64) {
	d.j.set(func() {
		if n = d.left; n == 0 {
			n = d.Server.TokensLeft()
		}
	})
	return n
}

// now returns the server that leads; nil: none does.
func (j *judge) now() (d *judged) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, o := range j.servers {
		if o.leads() {
			d = o
		}
	}
	return d
}

// follows reports whether d stands by and sends its clients to the leader.
func (j *judge) follows(d *judged, leader string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return !d.leads() && d.leader == leader
}

// verdict fails the test if anything was wrong.
func (j *judge) verdict(t testing.TB) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, w := range j.wrong {
		t.Error(w)
	}
}

// patience bounds every wait for an event of a real store.
const patience = 20 * time.Second

// wait waits until the condition holds. It looks at each call of a server, and now and then.
func (j *judge) wait(t testing.TB, what string, holds func() bool) {
	t.Helper()
	late := time.After(patience)
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for !holds() {
		select {
		case <-j.more:
		case <-look.C:
		case <-late:
			t.Fatalf("%s: not after %v", what, patience)
		}
	}
}

// world is an etcd in fake time. Its leases end on the instant, which is sooner than a real one's do.
type world struct {
	mu       sync.Mutex // guards what follows
	revision int64
	raft     uint64 // the term of those that lead the store
	leases   map[clientv3.LeaseID]*held
	keys     map[string]entry
	watchers map[*reach]func()
}

type held struct {
	ttl   time.Duration
	timer *time.Timer
}

type entry struct {
	candidate
	lease clientv3.LeaseID
}

func newWorld() *world {
	w := &world{raft: 2, watchers: map[*reach]func(){}}
	w.wipe()
	return w
}

// wipe loses all data.
func (w *world) wipe() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.leases {
		l.timer.Stop()
	}
	w.revision, w.leases, w.keys = 1, map[clientv3.LeaseID]*held{}, map[string]entry{}
}

// end ends a lease with its keys. The caller holds the lock.
func (w *world) end(id clientv3.LeaseID) {
	if l := w.leases[id]; l != nil {
		l.timer.Stop()
		delete(w.leases, id)
	}
	for k, e := range w.keys {
		if e.lease == id {
			delete(w.keys, k)
			w.change()
		}
	}
}

// change makes a revision and wakes the watchers. The caller holds the lock.
func (w *world) change() {
	w.revision++
	for r, changed := range w.watchers {
		if r.down == nil && !r.deaf {
			changed()
		}
	}
}

// reach is the store as one server reaches it.
type reach struct {
	*world
	// guarded by world.mu
	down  error         // what each command fails by
	deaf  bool          // its watch says nothing
	hangs string        // this command hangs once, until its context ends
	ever  bool          // it hangs each time
	stale uint64        // the raft term of the member that renews; 0: as it is
	stops chan struct{} // the process stands still after a command, until this is closed
	after string        // that command; empty: any
	asked []string
}

var errAway = errors.New("the store is away")

// call is one command.
func (r *reach) call(ctx context.Context, name string, f func() error) (err error) {
	r.mu.Lock()
	r.asked = append(r.asked, name)
	down, hang := r.down, r.hangs == name
	if hang && !r.ever {
		r.hangs = ""
	}
	if !hang && down == nil {
		err = f()
	}
	var stops chan struct{}
	if r.after == "" || r.after == name {
		stops, r.stops = r.stops, nil
	}
	r.mu.Unlock()
	if stops != nil {
		<-stops
	}
	if hang {
		<-ctx.Done()
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case down != nil:
		return down
	}
	return err
}

func (r *reach) set(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

func (r *reach) count(name string) (n int) {
	r.set(func() { n = strings.Count(strings.Join(r.asked, " ")+" ", name+" ") })
	return n
}

func (r *reach) grant(ctx context.Context, seconds int64) (id clientv3.LeaseID, err error) {
	return id, r.call(ctx, "grant", func() error {
		r.revision++ // a store does not: it only makes ids here
		id = clientv3.LeaseID(r.revision)
		l := &held{ttl: time.Duration(seconds) * time.Second}
		l.timer = time.AfterFunc(l.ttl, func() { r.set(func() { r.end(id) }) })
		r.leases[id] = l
		return nil
	})
}

func (r *reach) revoke(ctx context.Context, id clientv3.LeaseID) error {
	return r.call(ctx, "revoke", func() error { r.end(id); return nil })
}

func (r *reach) renew(ctx context.Context, id clientv3.LeaseID) (raft uint64, err error) {
	return raft, r.call(ctx, "renew", func() error {
		if raft = r.stale; raft != 0 {
			return nil // by a member that leads no more: it does not count
		}
		raft = r.raft
		l := r.leases[id]
		if l == nil || !l.timer.Reset(l.ttl) {
			return errGone
		}
		return nil
	})
}

func (r *reach) put(ctx context.Context, c candidate, id clientv3.LeaseID) (revision int64, err error) {
	return revision, r.call(ctx, "put", func() error {
		if r.leases[id] == nil {
			return errGone
		}
		c.revision = r.revision + 1
		r.keys[c.key] = entry{c, id}
		r.change()
		revision = c.revision
		return nil
	})
}

func (r *reach) draw(ctx context.Context, c candidate, id clientv3.LeaseID) (revision int64, err error) {
	return revision, r.call(ctx, "draw", func() error {
		if r.keys[c.key].revision != c.revision || r.leases[id] == nil {
			return errGone
		}
		r.change()
		revision = r.revision
		return nil
	})
}

func (r *reach) first(ctx context.Context, prefix string, c candidate) (first candidate, raft uint64, err error) {
	return first, raft, r.call(ctx, "first", func() error {
		raft = r.raft
		if r.keys[c.key].revision != c.revision {
			return errGone
		}
		for k, e := range r.keys {
			if strings.HasPrefix(k, prefix) && (first.key == "" || e.revision < first.revision) {
				first = e.candidate
			}
		}
		return nil
	})
}

func (r *reach) watch(ctx context.Context, _ string, changed func()) {
	r.set(func() { r.watchers[r] = changed })
	changed()
	<-ctx.Done()
	r.set(func() { delete(r.watchers, r) })
}

func (r *reach) hurry() {}

// running is one server's Run, in a world or on a real store.
type running struct {
	*judged
	*reach // nil on a real store
	cancel context.CancelFunc
	ended  chan error
}

// runs starts an Election that ends with the test.
func (r *running) runs(t *testing.T, run func(context.Context) error) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r.cancel, r.ended = cancel, make(chan error, 1)
	go func() { r.ended <- run(ctx) }()
	t.Cleanup(r.leave)
	return r
}

// join runs one server more in the world.
func (w *world) join(t *testing.T, j *judge, name string) *running {
	t.Helper()
	r := &running{judged: j.server(t, name), reach: &reach{world: w}}
	e := &Election{Server: r.judged, URL: "http://" + name, Name: "locks", TTL: 8 * time.Second,
		Log: slog.New(slog.DiscardHandler)}
	r.runs(t, func(ctx context.Context) error { return e.run(ctx, r.reach) })
	synctest.Wait()
	return r
}

// set is the reach's, not the judge's.
func (r *running) set(f func()) { r.reach.set(f) }

// leave ends Run.
func (r *running) leave() {
	r.cancel()
	r.ended <- <-r.ended
}
