package lease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
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
	if err := w.servers[to].Lead(Tokens{Next: n << 40, End: (n + 1) << 40}, time.Time{}); err != nil {
		w.t.Fatal(err)
	}
}

// A client finds the leader from any server, and goes on with the next leader after a failover.
func TestClientFailover(t *testing.T) {
	config := mutex("A")
	config.Grace = 10 * time.Second
	for _, urls := range [][]string{{"http://a", "http://b/"}, {"http://b", "http://a"}, {"http://b"}} {
		inWorld(t, config, func(t *testing.T, w *world) {
			w.pair()
			w.moveTo("b", "a", 1<<21)
			c := w.client()
			c.URLs = urls
			l := locked(t, t.Context(), c, "A")
			wait := lockingOf(t.Context(), c, "A")
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
			if !wait.ended() || wait.err != nil || wait.lease.Token() <= l.Token() {
				t.Fatal(wait.err)
			}
			unlock(t, wait.lease)
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
	config := mutex("A")
	config.Grace = 30 * time.Second
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
			if err := b.Lead(Tokens{Next: 1 << 62, End: 1<<62 + 1000}, time.Time{}); err != nil {
				t.Fatal(err)
			}
			if wait := lockingOf(t.Context(), c, "A"); wait.ended() {
				t.Error("locked twice")
			} else {
				time.Sleep(time.Hour)
				if lost(l) || wait.ended() {
					t.Errorf("fault %d: the lease has %v, the one that waits %v", f, l.Err(), wait.err)
				}
				unlock(t, l)
				<-wait.done
				unlock(t, wait.lease)
			}
			idle(t, b)
		})
	}
}

// A server that comes late is waited for, while ctx lasts; then the error says what was wrong.
func TestClientNoServer(t *testing.T) {
	inWorld(t, mutex("A"), func(t *testing.T, w *world) {
		w.net.set("a", down)
		g := lockingOf(t.Context(), w.client(), "A")
		time.Sleep(time.Minute)
		w.net.set("a", works)
		time.Sleep(8 * time.Second) // the longest pause
		if !g.ended() || g.err != nil {
			t.Fatal(g.err)
		}
		unlock(t, g.lease)
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
			if err := l.Unlock(ended); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
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

// Hundreds of clients over restarts: never more than the maximum, and nothing stays.
func TestClientHundreds(t *testing.T) {
	config := Config{Semaphores: map[string]Semaphore{"A": {Max: 7}}, Grace: 15 * time.Second}
	inWorld(t, config, func(t *testing.T, w *world) {
		const clients = 300
		var all sync.WaitGroup
		var held, most, done atomic.Int64
		for i := range clients {
			all.Go(func() {
				random := rand.New(rand.NewPCG(uint64(i), 1))
				time.Sleep(time.Duration(random.IntN(1e9)))
				count := 1 + random.Int64N(3)
				l, err := w.client().Lock(t.Context(), "A", count)
				if err != nil {
					t.Error(err)
					return
				}
				n := held.Add(count)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				time.Sleep(time.Duration(random.IntN(20)) * time.Second)
				if err := l.Err(); err != nil {
					t.Error(err)
				}
				held.Add(-count)
				unlock(t, l)
				done.Add(1)
			})
		}
		for range 10 {
			time.Sleep(40 * time.Second)
			w.start("a", ServerOptions{})
		}
		all.Wait()
		if most.Load() > 7 || done.Load() != clients {
			t.Errorf("%d at once of 7, %d of %d done", most.Load(), done.Load(), clients)
		}
		idle(t, w.servers["a"])
		t.Log(fmt.Sprint("at most ", most.Load(), " at once"))
	})
}
