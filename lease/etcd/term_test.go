package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"pgregory.net/rapid"

	"github.com/quotient-go/quotient/internal/tested"
	"github.com/quotient-go/quotient/lease"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // of servers without a Log
	goleak.VerifyTestMain(m)
}

var must = tested.Must

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

func (j *judge) verdict(t testing.TB) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, w := range j.wrong {
		t.Error(w)
	}
}

// wait waits until the condition holds. It looks at each call of a server, and now and then.
func (j *judge) wait(t testing.TB, what string, holds func() bool) {
	t.Helper()
	late := time.After(tested.Patience)
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for !holds() {
		select {
		case <-j.more:
		case <-look.C:
		case <-late:
			t.Fatalf("%s: not after %v", what, tested.Patience)
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

func (r *running) leave() {
	r.cancel()
	r.ended <- <-r.ended
}

// A wrong field of an Election is an error that names field and value.
func TestRunNamesFieldAndValue(t *testing.T) {
	c := clientAt(t, "127.0.0.1:1") // which is not called
	long := strings.Repeat("x", 201)
	for _, row := range []struct {
		change func(*Election)
		wants  string
	}{
		{func(*Election) {}, ""},
		{func(e *Election) { e.Client = nil }, "Election.Client is nil"},
		{func(e *Election) { e.Client = clientv3.NewCtxClient(t.Context()) },
			"Election.Client is nil, or has no connection"},
		{func(e *Election) { e.Server = nil }, "Election.Server is nil"},
		{func(e *Election) { e.Name = "" }, `Election.Name is "" of 0 bytes, want 1 to 200`},
		{func(e *Election) { e.Name = "a/b" }, `Election.Name is "a/b"`},
		{func(e *Election) { e.Name = long }, "of 201 bytes"},
		{func(e *Election) { e.TTL = 0 }, ""},
		{func(e *Election) { e.TTL = -time.Second }, "Election.TTL is -1s, want whole seconds, 2s to 1h0m0s"},
		{func(e *Election) { e.TTL = 2500 * time.Millisecond }, "Election.TTL is 2.5s"},
		{func(e *Election) { e.TTL = 2 * time.Hour }, "Election.TTL is 2h0m0s"},
		{func(e *Election) { e.URL = "" }, `Election.URL is "": want http:// or https:// and a host`},
		{func(e *Election) { e.URL = "a:8000" }, `Election.URL is "a:8000"`},
		{func(e *Election) { e.URL = "ftp://a" }, `Election.URL is "ftp://a"`},
		{func(e *Election) { e.URL = "http://:80" }, `Election.URL is "http://:80"`},
		{func(e *Election) { e.URL = "http://a/?b" }, "want no user, query or fragment"},
		{func(e *Election) { e.URL = "http://a:b@c" }, "want no user, query or fragment"},
		{func(e *Election) { e.URL = "http://a\n" },
			`Election.URL is "http://a\n": net/url: invalid control character in URL`},
		{func(e *Election) { e.URL = "http://a/" + strings.Repeat("x", 2000) },
			"it has 2009 bytes, want at most 2000"},
		{func(e *Election) { e.URL = "https://[::1]:8000/locks" }, ""},
	} {
		e := &Election{Client: c, Server: newJudge().server(t, "a"), URL: "http://a", Name: "locks",
			TTL: 2 * time.Second}
		row.change(e)
		complete, err := e.complete()
		if (err == nil) != (row.wants == "") || err != nil && !strings.Contains(err.Error(), row.wants) {
			t.Fatalf("got %v, want %q", err, row.wants)
		}
		if row.wants == "" { // the zero TTL is the default one, and the Election itself stays as it was
			if complete.TTL != cmp.Or(e.TTL, DefaultTTL) || complete.Log == nil || e.Log != nil {
				t.Errorf("got %+v of %+v", complete, e)
			}
		} else if got := e.Run(t.Context()); got == nil || got.Error() != err.Error() {
			t.Errorf("Run returned %v", got)
		}
	}
}

// clientAt returns a client with the options that the package's page names.
func clientAt(t testing.TB, addrs ...string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: addrs, Logger: zap.NewNop(),
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second})
	must(t, err)
	t.Cleanup(func() { c.Close() }) //nolint:errcheck // a test may have closed it
	return c
}

// play runs three servers in a world, of which the first leads.
func play(t *testing.T, f func(t *testing.T, w *world, j *judge, a, b, c *running)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w, j := newWorld(), newJudge()
		a, b, c := w.join(t, j, "a"), w.join(t, j, "b"), w.join(t, j, "c")
		wants(t, j, a)
		f(t, w, j, a, b, c)
		for _, r := range []*running{a, b, c} {
			r.leave()
		}
		j.verdict(t)
	})
}

// wants fails the test if another server than this leads; nil: none may.
func wants(t *testing.T, j *judge, r *running) {
	t.Helper()
	synctest.Wait()
	var want *judged
	if r != nil {
		want = r.judged
	}
	tested.Want(t, "who leads", j.now(), want)
}

// The oldest leads as long as it is renewed, and the others send their clients there. A Run
// that ends leaves nothing, and hands over at once.
func TestEndHandsOver(t *testing.T) {
	play(t, func(t *testing.T, w *world, j *judge, a, b, c *running) {
		time.Sleep(time.Hour)
		wants(t, j, a)
		if !j.follows(b.judged, "http://a") || !j.follows(c.judged, "http://a") || j.leads != 1 {
			t.Errorf("b sends to %q, c to %q; %d have led", b.leader, c.leader, j.leads)
		}
		a.leave()
		tested.Is(t, "Run", <-a.ended, context.Canceled)
		a.ended <- nil
		wants(t, j, b)
		if !j.follows(a.judged, "") || !j.follows(c.judged, "http://b") {
			t.Errorf("a sends to %q, c to %q", a.leader, c.leader)
		}
		b.leave()
		wants(t, j, c)
		c.leave()
		wants(t, j, nil)
		if len(w.keys)+len(w.leases)+len(w.watchers) > 0 {
			t.Errorf("%v and %d leases are left", w.keys, len(w.leases))
		}
	})
}

// mostOfEnd is the longest that Run goes on after its context's end. A server needs the rest of a second for
// its callers.
const mostOfEnd = 600 * time.Millisecond

// Run returns a second after its context's end at the latest, whatever the store does.
func TestEndIsBounded(t *testing.T) {
	for _, name := range []string{"renew", "first", "revoke"} {
		play(t, func(t *testing.T, _ *world, _ *judge, a, _, _ *running) {
			a.set(func() { a.hangs, a.ever = name, true })
			time.Sleep(1900 * time.Millisecond) // it renews meanwhile
			began := time.Now()
			a.leave()
			if took := time.Since(began); took > mostOfEnd {
				t.Errorf("%s hangs: Run returned after %v", name, took)
			}
		})
	}
}

// A leader that reaches the store no more stops before another one leads, whether it is cut
// off, stopped, or answered by a member that leads the store no more.
func TestCutOffLeaderStops(t *testing.T) {
	for name, cut := range map[string]func(*running){
		"cut off": func(r *running) { r.down = errAway },
		"deaf":    func(r *running) { r.down, r.deaf = errAway, true },
		"stopped": func(r *running) { r.stops = make(chan struct{}) },
		"stale":   func(r *running) { r.raft, r.stale, r.deaf = 3, 2, true },
	} {
		play(t, func(t *testing.T, _ *world, j *judge, a, b, c *running) {
			time.Sleep(time.Minute)
			var goOn chan struct{}
			a.set(func() { cut(a); goOn = a.stops })
			time.Sleep(5100 * time.Millisecond) // it was renewed 2 s before at most, and 7.2 s last
			wants(t, j, a)
			time.Sleep(5100 * time.Millisecond) // it may have been renewed 2 s after, without learning of it
			wants(t, j, b)
			a.set(func() { a.down, a.deaf, a.stale = nil, false, 0 })
			if goOn != nil {
				close(goOn)
			}
			time.Sleep(5 * time.Second)
			wants(t, j, b)
			if !j.follows(a.judged, "http://b") || !j.follows(c.judged, "http://b") {
				t.Errorf("%s: a sends to %q, c to %q", name, a.leader, c.leader)
			}
		})
	}
}

// A process that stops between winning and leading does not lead when it goes on too late.
func TestStoppedWhileItWins(t *testing.T) {
	play(t, func(t *testing.T, _ *world, j *judge, a, b, c *running) {
		goOn := make(chan struct{})
		b.set(func() { b.stops, b.after = goOn, "draw" })
		a.leave()
		wants(t, j, nil)
		time.Sleep(9 * time.Second)
		wants(t, j, c)
		close(goOn)
		time.Sleep(time.Minute)
		wants(t, j, c)
		tested.Want(t, "draws that won", b.count("draw"), 1)
	})
}

// Each command may hang once, and the leader stays.
func TestOneCommandHangs(t *testing.T) {
	for _, name := range []string{"renew", "first"} {
		play(t, func(t *testing.T, _ *world, j *judge, a, b, _ *running) {
			for range 5 {
				a.set(func() { a.hangs = name })
				b.set(func() { b.hangs = name })
				time.Sleep(20 * time.Second)
				wants(t, j, a)
			}
			if j.leads != 1 || !j.follows(b.judged, "http://a") {
				t.Errorf("%s hangs: %d have led, b sends to %q", name, j.leads, b.leader)
			}
		})
	}
}

// The store is away for long: no server leads. They go on by themselves, and ask with pauses meanwhile.
func TestStoreIsAway(t *testing.T) {
	play(t, func(t *testing.T, _ *world, j *judge, a, b, c *running) {
		a.set(func() { a.down, b.down, c.down = errAway, errAway, errAway })
		time.Sleep(8 * time.Second)
		wants(t, j, nil)
		a.set(func() { a.asked = nil })
		time.Sleep(10 * time.Minute)
		n := 0
		a.set(func() { n = len(a.asked) })
		if n < 200 || n > 600 {
			t.Errorf("the store was asked %d times in ten minutes", n)
		}
		wants(t, j, nil)
		if !j.follows(a.judged, "") || !j.follows(b.judged, "") {
			t.Errorf("a sends to %q, b to %q", a.leader, b.leader)
		}
		a.set(func() { a.down, b.down, c.down = nil, nil, nil })
		time.Sleep(longestPause)
		synctest.Wait()
		tested.Not(t, j.now() == nil, "no server leads")
	})
}

// A server ends what is left of its candidacy before, which a store that was restarted keeps for another TTL.
func TestOldCandidacyEnds(t *testing.T) {
	play(t, func(t *testing.T, w *world, j *judge, a, b, c *running) {
		b.leave()
		c.leave()
		time.Sleep(time.Minute)
		a.set(func() {
			a.down = errAway
			for _, l := range w.leases {
				l.timer.Reset(time.Hour)
			}
		})
		time.Sleep(9 * time.Second)
		wants(t, j, nil)
		a.set(func() { a.down = nil })
		time.Sleep(longestPause)
		wants(t, j, a)
		tested.Want(t, "keys left", len(w.keys), 1)
	})
}

// A store that has lost its data gives small revisions. A server that has seen larger ones does not lead.
func TestLostData(t *testing.T) {
	play(t, func(t *testing.T, w *world, j *judge, a, b, c *running) {
		b.leave()
		c.leave()
		a.set(func() { w.revision = 1000 })
		a.judged.j.set(func() { a.left = 1 })
		time.Sleep(3 * time.Second) // it draws at a large revision
		wants(t, j, a)
		w.wipe()
		time.Sleep(time.Minute)
		wants(t, j, nil)
		a.set(func() { w.revision = 1001 })
		time.Sleep(10 * time.Second)
		wants(t, j, a)
	})
}

// A server whose key was deleted stops at once, and stands again.
func TestDeletedKey(t *testing.T) {
	play(t, func(t *testing.T, w *world, j *judge, a, b, _ *running) {
		w.mu.Lock()
		for k, e := range w.keys {
			if e.url == "http://a" {
				w.end(e.lease)
				delete(w.keys, k)
			}
		}
		w.mu.Unlock()
		wants(t, j, b)
		time.Sleep(time.Second)
		tested.Not(t, !j.follows(a.judged, "http://b"), "a sends to %q", a.leader)
		j.wrong = nil // that two lead for an instant is the doing of the one who deletes
	})
}

// More tokens are drawn when half of them are used. They rise, also to those of a leader
// that stood before they were drawn.
func TestMoreTokens(t *testing.T) {
	play(t, func(t *testing.T, _ *world, j *judge, a, b, _ *running) {
		for _, row := range []struct {
			left  uint64
			draws int
		}{{1<<23 + 1, 1}, {1 << 23, 2}, {1, 3}} {
			j.set(func() { a.left = row.left })
			time.Sleep(3 * time.Second)
			tested.Want(t, fmt.Sprintf("draws with %d left", row.left), a.count("draw"), row.draws)
		}
		tested.Want(t, "tokens left", a.Server.TokensLeft(), 1<<24)
		a.leave()
		wants(t, j, b)
	})
}

// A server that cannot lead ends Run, so that another one does.
func TestUnfit(t *testing.T) {
	play(t, func(t *testing.T, _ *world, j *judge, a, b, c *running) {
		no := errors.New("it cannot")
		b.judged.j.set(func() { b.unfit = no })
		a.leave()
		wants(t, j, c)
		tested.Is(t, "Run", <-b.ended, no)
		b.ended <- nil
	})
}

// A leader's URL that makes no sense is not passed on.
func TestForeignValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, j := newWorld(), newJudge()
		for i, key := range []string{"quotient-leases/lock/0", "quotient-leases/locks/0"} { // the first is another's
			w.keys[key] = entry{candidate{key, "javascript:alert()", int64(i)}, 0}
		}
		a := w.join(t, j, "a")
		time.Sleep(time.Minute)
		wants(t, j, nil)
		tested.Not(t, !j.follows(a.judged, ""), "a sends to %q", a.leader)
		a.leave()
	})
}

// Whatever fails, at most one server leads at a time, tokens rise, and one leads when all is well again.
func TestPropertyOneLeads(t *testing.T) {
	type step struct {
		who, what int
		wait      time.Duration
	}
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
			return step{rapid.IntRange(0, 2).Draw(rt, "who"), rapid.IntRange(0, 7).Draw(rt, "what"),
				time.Duration(rapid.IntRange(1, 12_000).Draw(rt, "ms")) * time.Millisecond}
		}), 1, 40).Draw(rt, "steps")
		var wrong []string
		play(t, func(t *testing.T, _ *world, j *judge, a, b, c *running) {
			all, stopped := []*running{a, b, c}, [3]chan struct{}{}
			heal := func(i int) {
				if stopped[i] != nil {
					close(stopped[i])
					stopped[i] = nil
				}
				r := all[i]
				r.set(func() { r.down, r.deaf, r.stale, r.stops, r.hangs = nil, false, 0, nil, "" })
			}
			for _, s := range steps {
				r := all[s.who]
				heal(s.who)
				r.set(func() {
					switch s.what {
					case 0:
						r.down = errAway
					case 1:
						r.deaf = true
					case 2:
						r.stops = make(chan struct{})
						stopped[s.who] = r.stops
					case 3:
						r.raft++
						r.stale = r.raft - 1
					case 4, 5, 6:
						r.hangs = []string{"renew", "first", "draw"}[s.what-4]
					}
				})
				time.Sleep(s.wait)
			}
			for i := range all {
				heal(i)
			}
			time.Sleep(15 * time.Second)
			synctest.Wait()
			if j.now() == nil {
				wrong = append(wrong, "no server leads")
			}
			wrong, j.wrong = append(wrong, j.wrong...), nil
		})
		if len(wrong) > 0 {
			rt.Fatal(fmt.Sprint(wrong))
		}
	})
}
