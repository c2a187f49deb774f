package lease

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func heartbeat(r *http.Request) bool {
	return r.Method == http.MethodPut && strings.Count(r.URL.Path, "/") == 2
}

// A lease counts from when the request was sent: its answer may come late.
func TestClientCountsFromSending(t *testing.T) {
	inWorld(t, mutex("A"), func(t *testing.T, w *world) {
		c, start := w.client(), time.Now()
		c.random = func() float64 { return .5 } // heartbeats after 10 s
		l := locked(t, t.Context(), c, "A")
		w.net.between(func(r *http.Request) error {
			if heartbeat(r) {
				time.Sleep(4 * time.Second)
				go w.net.set("a", down) // once the answer has come
			}
			return nil
		})
		<-l.Lost()
		if got, want := time.Since(start), 37*time.Second; got != want {
			t.Errorf("lost after %v, want %v", got, want)
		}
	})
}

// A lock that an old server granted does not exist at the one that the peer was restored to meanwhile.
func TestClientGrantOfAnOldServer(t *testing.T) {
	config := mutex("A", "B")
	config.Semaphores["A"] = Semaphore{Max: 1, Level: 1}
	inWorld(t, config, func(t *testing.T, w *world) {
		c, s, late := w.client(), w.servers["a"], true
		outer := locked(t, t.Context(), c, "A")
		w.net.between(func(r *http.Request) error {
			if late && strings.HasSuffix(r.URL.Path, "/B") {
				late = false
				if err := s.Lead(ClockTokens(time.Now()), time.Time{}); err != nil {
					t.Error(err)
				}
				time.Sleep(15 * time.Second) // outer is restored
			}
			return nil
		})
		inner := locked(t, outer.Context(), c, "B")
		if tokens, _ := holders(t, s, "B"); len(tokens) != 1 || tokens[0] != inner.Token() {
			t.Errorf("B is held with %d, want %d", tokens, inner.Token())
		}
		if late || w.net.count("POST /restore") != 1 {
			t.Errorf("%d restores, want 1", w.net.count("POST /restore"))
		}
		unlock(t, inner)
		unlock(t, outer)
	})
}

// A Lock without contact for long must not return a lease that may have ended: it asks the server first.
func TestClientGrantWithoutContact(t *testing.T) {
	inWorld(t, mutex("A"), func(t *testing.T, w *world) {
		s := w.servers["a"]
		other, _, err := s.newPeer(time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		a := ask{peer: other, semaphore: "A", count: 1, expiresIn: unchanged}
		if _, err := s.acquire(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		var silent atomic.Bool
		silent.Store(true)
		w.net.between(func(r *http.Request) error {
			if silent.Load() && heartbeat(r) {
				return errDown
			}
			return nil
		})
		g := lockingOf(t.Context(), w.client(), "A")
		time.Sleep(time.Minute)
		if err := s.do(func(t *Table, now time.Time) error {
			return t.Release(other, "A", now)
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if g.ended() {
			t.Error("a lease without contact is given out")
		}
		silent.Store(false)
		<-g.done
		if g.err != nil || g.lease.Err() != nil {
			t.Fatal(g.err)
		}
		unlock(t, g.lease)
	})
}
