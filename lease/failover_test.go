package lease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-go/quotient/internal/tested"
)

// pair makes the world two servers, of which a leads.
func (w *world) pair() (a, b *Server) {
	a, b = w.servers["a"], w.start("b", ServerOptions{StandBy: true})
	b.StandBy("http://a")
	return a, b
}

// moveTo makes a server lead, with tokens of its own, and the other one its stand-by.
func (w *world) moveTo(from, to string, n uint64) {
	w.servers[from].StandBy("http://" + to)
	must(w.t, w.servers[to].Lead(Tokens{Next: n << 40, End: (n + 1) << 40}, time.Time{}))
}

// A client finds the leader from any server, and goes on with the next leader after a failover.
func TestClientFailover(t *testing.T) {
	config := settings(t, "A=1 grace=10s")
	for _, urls := range [][]string{{"http://a", "http://b/"}, {"http://b", "http://a"}, {"http://b"}} {
		inWorld(t, config, func(t *testing.T, w *world) {
			w.pair()
			w.moveTo("b", "a", 1<<21)
			c := w.client()
			c.URLs = urls
			l := locked(t, t.Context(), c, "A")
			wait := lockingOf(t.Context(), c, "A", 1)
			for i := range uint64(4) {
				from, to := "a", "b"
				if i%2 == 1 {
					from, to = to, from
				}
				w.moveTo(from, to, 1<<21+1+i)
				time.Sleep(config.Grace + time.Minute)
			}
			if lost(l) || wait.ended() {
				t.Fatal(l.Err(), wait.err)
			}
			unlock(t, l)
			if !wait.ended() || wait.err != nil || wait.got.Token() <= l.Token() {
				t.Fatal(wait.err)
			}
			unlock(t, wait.got)
			idle(t, w.servers["a"])
		})
	}
}

// All but the last one of many servers hang. A heartbeat tries them all before the lease ends.
func TestClientFindsTheLastServer(t *testing.T) {
	inWorld(t, mutex("A"), func(t *testing.T, w *world) {
		c := w.client()
		c.URLs = nil
		for i := range maxURLs - 1 {
			host := fmt.Sprint("a", i)
			w.net.hosts[host] = w.servers["a"]
			c.URLs = append(c.URLs, "http://"+host)
		}
		c.URLs = append(c.URLs, "http://a")
		l := locked(t, t.Context(), c, "A")
		for i := range maxURLs - 1 {
			w.net.set(fmt.Sprint("a", i), frozen)
		}
		time.Sleep(time.Minute)
		if lost(l) {
			t.Error(l.Err())
		}
		unlock(t, l)
	})
}

// The leader dies, and no server names the new one.
func TestClientFailoverOfADeadLeader(t *testing.T) {
	config := settings(t, "A=1 grace=30s")
	for _, f := range []fault{down, frozen} {
		inWorld(t, config, func(t *testing.T, w *world) {
			_, b := w.pair()
			time.Sleep(config.Grace)
			c := w.client()
			c.URLs = []string{"http://a", "http://b"}
			l := locked(t, t.Context(), c, "A")
			w.net.set("a", f)
			b.StandBy("")
			time.Sleep(5 * time.Second) // the election
			must(t, b.Lead(Tokens{Next: 1 << 62, End: 1<<62 + 1000}, time.Time{}))
			if wait := lockingOf(t.Context(), c, "A", 1); wait.ended() {
				t.Error("locked twice")
			} else {
				time.Sleep(time.Hour)
				if lost(l) || wait.ended() {
					t.Errorf("fault %d: the lease has %v, the one that waits %v", f, l.Err(), wait.err)
				}
				unlock(t, l)
				<-wait.done
				unlock(t, wait.got)
			}
			idle(t, b)
		})
	}
}

// A server that comes late is waited for, while ctx lasts; then the error says what was wrong.
func TestClientNoServer(t *testing.T) {
	inWorld(t, mutex("A"), func(t *testing.T, w *world) {
		w.net.set("a", down)
		g := lockingOf(t.Context(), w.client(), "A", 1)
		time.Sleep(time.Minute)
		w.net.set("a", works)
		time.Sleep(8 * time.Second) // the longest pause
		if !g.ended() || g.err != nil {
			t.Fatal(g.err)
		}
		unlock(t, g.got)
		w.servers["a"].StandBy("")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := w.client().Lock(ctx, "A", 1)
		var answer *AnswerError
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &answer) ||
			answer.Status != http.StatusServiceUnavailable {
			t.Error(err)
		}
	})
}

// Unlock waits for the server at most Timeout; a lock that it cannot give back ends by itself.
func TestClientUnlockWithoutServer(t *testing.T) {
	for _, f := range []fault{down, frozen} {
		inWorld(t, mutex("A"), func(t *testing.T, w *world) {
			c := w.client()
			l := locked(t, t.Context(), c, "A")
			w.net.set("a", f)
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			tested.Is(t, "Unlock", l.Unlock(ended), context.Canceled)
			start := time.Now()
			if err := l.Unlock(t.Context()); err == nil || time.Since(start) > DefaultTimeout+time.Second {
				t.Errorf("%v after %v", err, time.Since(start))
			}
			w.net.set("a", works)
			again := locked(t, t.Context(), c, "A")
			if d := time.Since(start); d > DefaultExpiresIn {
				t.Errorf("the lock ended after %v, want %v", d, DefaultExpiresIn)
			}
			unlock(t, again)
		})
	}
}

// Unlock under an ended context gives the lock back all the same.
func TestClientUnlockInTheBackground(t *testing.T) {
	inWorld(t, mutex("A"), func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(t.Context())
		l := locked(t, ctx, w.client(), "A")
		cancel()
		if l.Err() != nil || lost(l) {
			t.Error("the end of a context is no loss")
		}
		_ = l.Unlock(ctx)
		idle(t, w.servers["a"])
	})
}

// TestPropertyClientsNeverHoldTwice plays clients that lock, hold and unlock. Servers restart and fail over,
// operators break locks, and each client's network fails in its own ways. With a grace time, no more than
// the maximum is held at any instant, by what the clients themselves believe. A client that is cut off loses
// its leases before the server lets another one have them.
func TestPropertyClientsNeverHoldTwice(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		script, wrong := drawClientScript(rt), []string(nil)
		synctest.Test(t, func(t *testing.T) { wrong = script.run(t) })
		for _, w := range wrong {
			rt.Error(w)
		}
	})
}

// clientScript is what happens in a play. It is drawn before, because rapid does not know bubbles.
type clientScript struct {
	grace, expiresIn time.Duration
	seeds            []uint64 // of each client
	acts             []clientAct
}

type clientAct struct {
	what, client int
	server       string
	fault        fault
	election     time.Duration
	pause        time.Duration
}

func drawClientScript(rt *rapid.T) (s clientScript) {
	seconds := func(least, most int, label string) time.Duration {
		return time.Duration(rapid.IntRange(least*1000, most*1000).Draw(rt, label)) * time.Millisecond
	}
	s.grace, s.expiresIn = seconds(5, 40, "grace"), seconds(2, 60, "expires in")
	s.seeds = rapid.SliceOfN(rapid.Uint64(), 2, 6).Draw(rt, "seeds")
	for range rapid.IntRange(1, 40).Draw(rt, "acts") {
		s.acts = append(s.acts, clientAct{
			what:     rapid.IntRange(0, 9).Draw(rt, "what"),
			client:   rapid.IntRange(0, len(s.seeds)-1).Draw(rt, "client"),
			server:   rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "server"),
			fault:    rapid.SampledFrom([]fault{works, works, slow, down, mute, frozen}).Draw(rt, "fault"),
			election: seconds(0, 5, "election"), pause: seconds(0, 8, "pause"),
		})
	}
	return s
}

func (s clientScript) run(t *testing.T) []string {
	p := newClientPlay(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i, c := range p.clients {
		all.Go(func() { p.work(ctx, c, rand.New(rand.NewPCG(s.seeds[i], uint64(i)))) })
	}
	for _, act := range s.acts {
		p.act(act)
		time.Sleep(act.pause)
		p.check()
	}
	p.cutForGood()
	cancel()
	all.Wait()
	p.recovers()
	return p.wrong
}

// clientPlay is clients, each with a network of its own to two servers of which one leads.
type clientPlay struct {
	world   *world
	leader  string
	tokens  uint64
	clients []*Client
	max     map[string]int64

	mu     sync.Mutex
	held   []*Lease // what clients believe
	broken map[uint64]bool
	wrong  []string
}

func newClientPlay(t *testing.T, s clientScript) *clientPlay {
	p := &clientPlay{
		leader: "a", tokens: 1 << 21, broken: make(map[uint64]bool),
		max: map[string]int64{"one": 1, "three": 3, "low": 2},
	}
	c := settings(t, "one=1/2 three=3/2 low=2")
	c.Grace = s.grace
	p.world = newWorld(t, c)
	_, b := p.world.pair()
	b.StandBy("") // a redirect would lead around the cuts
	p.lead("a")
	for i := range s.seeds {
		c := &Client{
			HTTP: &http.Client{Transport: p.world.net}, ExpiresIn: s.expiresIn,
			random: func() float64 { return .1 * float64(i) },
		}
		for _, name := range []string{"a", "b"} {
			way := fmt.Sprint(i, name)
			p.world.net.hosts[way] = p.world.servers[name]
			c.URLs = append(c.URLs, "http://"+way)
		}
		p.clients = append(p.clients, c)
	}
	return p
}

// lead makes a server the only one that leads. It knows no peer.
func (p *clientPlay) lead(name string) {
	p.world.servers[p.leader].StandBy("")
	p.tokens++
	p.leader = name
	must(p.world.t, p.world.servers[name].Lead(Tokens{p.tokens << 40, (p.tokens + 1) << 40}, time.Time{}))
}

func (p *clientPlay) act(act clientAct) {
	switch act.what {
	case 0:
		p.lead(p.leader) // a restart
	case 1:
		p.world.servers[p.leader].StandBy("")
		time.Sleep(act.election)
		p.lead(map[string]string{"a": "b", "b": "a"}[p.leader])
	case 2:
		p.breaks()
	default:
		p.world.net.set(fmt.Sprint(act.client, act.server), act.fault)
	}
}

// breaks is an operator who breaks locks. A client's belief about them afterwards does not count.
func (p *clientPlay) breaks() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range p.max {
		held, _, _ := p.world.servers[p.leader].Locks(name, 1)
		for _, l := range held {
			p.broken[l.Token] = true
			_, _ = p.world.servers[p.leader].Break(l.Peer, name, l.Token)
		}
	}
	p.held = slices.DeleteFunc(p.held, func(l *Lease) bool { return p.broken[l.Token()] })
}

func (p *clientPlay) work(ctx context.Context, c *Client, random *rand.Rand) {
	pause := func(most int) { time.Sleep(time.Duration(random.IntN(most*1000)) * time.Millisecond) }
	names := []string{"one", "three", "low"}
	for ctx.Err() == nil {
		outer := p.lock(ctx, c, names[random.IntN(3)], random)
		if outer == nil {
			continue
		}
		pause(20)
		for range random.IntN(4) {
			if inner := p.lock(outer.Context(), c, "low", random); inner != nil {
				pause(20)
				p.unlock(ctx, inner)
			}
		}
		pause(10)
		p.unlock(ctx, outer)
	}
}

func (p *clientPlay) lock(ctx context.Context, c *Client, name string, random *rand.Rand) *Lease {
	wait, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(time.Duration(1+random.IntN(60))*time.Second, cancel)
	l, err := c.Lock(wait, name, 1+random.Int64N(p.max[name]))
	if timer.Stop(); err != nil {
		cancel()
		if wait.Err() == nil && ctx.Err() == nil {
			time.Sleep(time.Second) // a LevelError
		}
		return nil
	}
	p.mu.Lock()
	if !p.broken[l.Token()] {
		p.held = append(p.held, l)
	}
	p.mu.Unlock()
	p.check()
	return l
}

func (p *clientPlay) unlock(ctx context.Context, l *Lease) {
	p.mu.Lock()
	p.held = slices.DeleteFunc(p.held, func(o *Lease) bool { return o == l })
	p.mu.Unlock()
	_ = l.Unlock(ctx)
}

// check compares what the clients believe with the maxima.
func (p *clientPlay) check() {
	p.mu.Lock()
	defer p.mu.Unlock()
	sums := make(map[string]int64)
	for _, l := range p.held {
		if l.Err() == nil {
			sums[l.name] += l.count
		}
	}
	for name, sum := range sums {
		if sum > p.max[name] {
			p.wrong = append(p.wrong, fmt.Sprintf("%d of %q are held, at most %d may", sum, name, p.max[name]))
		}
	}
}

// cutForGood cuts all networks: every lease must be lost, before the server's time is over.
func (p *clientPlay) cutForGood() {
	for i := range p.clients {
		p.world.net.set(fmt.Sprint(i, "a"), down)
		p.world.net.set(fmt.Sprint(i, "b"), down)
	}
	holds := func() []*Lease {
		p.mu.Lock()
		defer p.mu.Unlock()
		return slices.Clone(p.held)
	}
	held := holds()
	time.Sleep(min(p.clients[0].expiresIn(), p.world.config.Grace))
	for _, l := range held {
		if slices.Contains(holds(), l) && !lost(l) {
			p.wrong = append(p.wrong, "a client that is cut off does not notice")
		}
	}
}

// recovers fails unless a client of a sound network gets every lock once all others are gone.
func (p *clientPlay) recovers() {
	time.Sleep(time.Minute + p.world.config.Grace)
	c := p.world.client()
	c.URLs = append(c.URLs, "http://b")
	for name, most := range p.max {
		l, err := c.Lock(p.world.t.Context(), name, most)
		if err == nil {
			err = l.Unlock(p.world.t.Context())
		}
		if err != nil {
			p.wrong = append(p.wrong, err.Error())
		}
	}
}
