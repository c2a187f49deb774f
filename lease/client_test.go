package lease

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient/internal/tested"
)

func TestClientLocks(t *testing.T) {
	inWorld(t, mutex("A"), func(t *testing.T, w *world) {
		c := w.client()
		first := locked(t, t.Context(), c, "A")
		second := lockingOf(t.Context(), c, "A", 1)
		time.Sleep(time.Minute)
		if second.ended() || first.Err() != nil {
			t.Fatalf("the second has %v, the first %v", second.got, first.Err())
		}
		unlock(t, first)
		if !second.ended() || second.err != nil {
			t.Fatal(second.err)
		}
		if first.Token() == 0 || second.got.Token() <= first.Token() {
			t.Errorf("tokens %d and %d, want the second above the first", first.Token(), second.got.Token())
		}
		if first.Context().Err() == nil || lost(first) || first.Err() != nil {
			t.Errorf("after Unlock: %v, %v", first.Context().Err(), first.Err())
		}
		unlock(t, second.got)
		unlock(t, second.got)
		tested.Want(t, "peers left", w.servers["a"].Stats().Peers, 0)
	})
}

// A lease without a heartbeat costs three requests; one with costs one about every ten seconds.
func TestClientRequests(t *testing.T) {
	inWorld(t, mutex("A"), func(t *testing.T, w *world) {
		l := locked(t, t.Context(), w.client(), "A")
		unlock(t, l)
		tested.Want(t, "requests", w.net.count(""), 3)
		l = locked(t, t.Context(), w.client(), "A")
		time.Sleep(time.Hour)
		unlock(t, l)
		if n := w.net.count("PUT") - 2; n < 327 || n > 400 {
			t.Errorf("%d heartbeats an hour, want 327 to 400", n)
		}
	})
}

func TestClientRestores(t *testing.T) {
	config := settings(t, "A=1 B=5/1 C=1 grace=30s")
	inWorld(t, config, func(t *testing.T, w *world) {
		time.Sleep(config.Grace)
		c := w.client()
		outer, err := c.Lock(t.Context(), "B", 3)
		must(t, err)
		inner := locked(t, outer.Context(), c, "A")
		waiter := lockingOf(t.Context(), c, "A", 1)
		for range 3 {
			s := w.start("a", ServerOptions{})
			time.Sleep(config.Grace)
			heldBy(t, s, "A", inner, 1)
			heldBy(t, s, "B", outer, 0)
		}
		tested.Want(t, "restores", w.net.count("POST /restore"), 6)
		if lost(inner) || lost(outer) || waiter.ended() || outer.Count() != 3 {
			t.Error("a restart loses or grants something")
		}
		unlock(t, inner)
		unlock(t, outer)
		if !waiter.ended() || waiter.err != nil {
			t.Fatal(waiter.err)
		}
		unlock(t, waiter.got)
	})
}

// A client without contact gives up before the server does, also where the server's grace time is shorter.
func TestClientGivesUpFirst(t *testing.T) {
	for _, row := range []struct{ grace, want time.Duration }{
		{0, 27 * time.Second}, {10 * time.Second, 9 * time.Second}, {time.Hour, 27 * time.Second},
	} {
		for _, f := range []fault{down, mute, frozen} {
			config := Config{Semaphores: mutex("A").Semaphores, Grace: row.grace}
			inWorld(t, config, func(t *testing.T, w *world) {
				time.Sleep(row.grace)
				l := locked(t, t.Context(), w.client(), "A")
				start := time.Now()
				w.net.set("a", f)
				<-l.Context().Done()
				tested.Want(t, fmt.Sprintf("grace %v, fault %d: gave up after", row.grace, f), time.Since(start), row.want)
				if err := l.Err(); !errors.Is(err, ErrLost) || !errors.Is(err, ErrCutOff) || !lost(l) {
					t.Error(err)
				}
				tested.Want(t, "cause", context.Cause(l.Context()), l.Err())
				tested.Is(t, "Unlock", l.Unlock(t.Context()), ErrCutOff)
			})
		}
	}
}

// An outage is one line at its first failure, and one with its length when a server answers again, however often the
// client has tried: for a lock that is held, and for one that is asked for.
func TestClientLogsAnOutageOnce(t *testing.T) {
	for name, holds := range map[string]bool{"a lock that is held": true, "a lock that is asked for": false} {
		inWorld(t, mutex("A"), func(t *testing.T, w *world) {
			var log bytes.Buffer
			c := w.client()
			c.Log = slog.New(slog.NewTextHandler(&log, nil))
			if holds {
				l := locked(t, t.Context(), c, "A")
				defer unlock(t, l)
			}
			tested.Want(t, name+": lines of a sound network", log.String(), "")
			w.net.set("a", down)
			if !holds {
				go func() { time.Sleep(20 * time.Second); w.net.set("a", works) }()
				defer unlock(t, locked(t, t.Context(), c, "A"))
			} else {
				time.Sleep(20 * time.Second)
				w.net.set("a", works)
			}
			time.Sleep(20 * time.Second)
			synctest.Wait()
			got := strings.Split(strings.TrimSpace(log.String()), "\n")
			if len(got) != 2 || !strings.Contains(got[0], `WARN msg="lease: requests to all servers fail, trying again" request="P`) ||
				!strings.Contains(got[1], `INFO msg="lease: a server answers again" failures=`) ||
				!strings.Contains(got[1], " lasted=") || strings.Contains(got[1], "failures=1 ") {
				t.Errorf("%s: logged\n%s", name, &log)
			}
		})
	}
}

// Unlock of a lost lease gives back what a server with a long ExpiresIn still keeps.
func TestClientUnlockAfterLoss(t *testing.T) {
	inWorld(t, settings(t, "A=1 grace=10s"), func(t *testing.T, w *world) {
		c := w.client()
		c.ExpiresIn = 12 * time.Hour
		l := locked(t, t.Context(), c, "A")
		w.net.set("a", down)
		<-l.Lost()
		w.net.set("a", works)
		time.Sleep(time.Minute)
		if tokens, _ := holders(t, w.servers["a"], "A"); len(tokens) != 1 {
			t.Error("a lost lease is given back before its holder has stopped")
		}
		for range 2 {
			tested.Is(t, "Unlock", l.Unlock(t.Context()), ErrLost)
		}
		if tokens, _ := holders(t, w.servers["a"], "A"); len(tokens) != 0 {
			t.Error("Unlock leaves the lock with the server")
		}
	})
}

// A process that was stopped past its lease must see it at once, before any timer has fired, and must not restore it.
func TestClientAfterAStop(t *testing.T) {
	stop := func(l *Lease) {
		l.session.mu.Lock()
		defer l.session.mu.Unlock()
		l.session.renewed = time.Now().Add(-27 * time.Second)
	}
	inWorld(t, mutex("A"), func(t *testing.T, w *world) {
		l := locked(t, t.Context(), w.client(), "A")
		stop(l)
		tested.Is(t, "right after a stop", l.Err(), ErrCutOff)
	})
	inWorld(t, mutex("A"), func(t *testing.T, w *world) {
		l := locked(t, t.Context(), w.client(), "A")
		w.start("a", ServerOptions{})
		stop(l)
		l.session.beat()
		if !lost(l) || !errors.Is(l.Err(), ErrCutOff) || w.net.count("POST /restore") != 0 {
			t.Errorf("%v, %d restores", l.Err(), w.net.count("POST /restore"))
		}
	})
	inWorld(t, settings(t, "A=1/1 B=1"), func(t *testing.T, w *world) {
		c, s := w.client(), w.servers["a"]
		l := locked(t, t.Context(), c, "A")
		stop(l)
		if _, err := c.Lock(l.Context(), "B", 1); !errors.Is(err, ErrCutOff) {
			t.Errorf("a nested Lock after a stop: %v", err)
		}
		if n, _ := holders(t, s, "B"); len(n) != 0 {
			t.Error("B is held")
		}
	})
}

func TestClientBroken(t *testing.T) {
	config := mutex("A", "in the way/ü")
	config.Semaphores["A"] = Semaphore{Max: 1, Level: 1}
	inWorld(t, config, func(t *testing.T, w *world) {
		c, s := w.client(), w.servers["a"]
		outer := locked(t, t.Context(), c, "A")
		inner := locked(t, outer.Context(), c, "in the way/ü")
		_, err := s.Break(inner.session.id, inner.Name(), inner.Token())
		must(t, err)
		time.Sleep(11 * time.Second)
		if !lost(inner) || !errors.Is(inner.Err(), ErrBroken) || !errors.Is(inner.Err(), ErrLost) {
			t.Error(inner.Err())
		}
		if lost(outer) {
			t.Error(outer.Err())
		}
		again := locked(t, outer.Context(), c, inner.Name())
		tested.Is(t, "Unlock", inner.Unlock(t.Context()), ErrBroken)
		time.Sleep(time.Minute)
		tested.Not(t, lost(again), "a lock that was broken once is lost again")
		unlock(t, again)
		_, err = s.Break(outer.session.id, "A", outer.Token())
		must(t, err)
		<-outer.Lost()
		idle(t, s) // also without Unlock
	})
}

func TestClientRestoreRefused(t *testing.T) {
	inWorld(t, mutex("A"), func(t *testing.T, w *world) {
		l := locked(t, t.Context(), w.client(), "A")
		w.config = mutex("B")
		w.start("a", ServerOptions{})
		<-l.Lost()
		tested.Is(t, "the end", l.Err(), ErrLost)
		tested.Is(t, "the end", l.Err(), ErrUnknownSemaphore)
	})
}

// A wait that is cancelled gives its place back, so that those behind move up.
func TestClientCancelledWait(t *testing.T) {
	inWorld(t, Config{Semaphores: map[string]Semaphore{"A": {Max: 2}}}, func(t *testing.T, w *world) {
		c, s := w.client(), w.servers["a"]
		l := locked(t, t.Context(), c, "A")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		large := lockingOf(ctx, c, "A", 2)
		small := lockingOf(t.Context(), c, "A", 1)
		time.Sleep(time.Minute - 1)
		if _, pending := holders(t, s, "A"); pending != 2 || small.ended() {
			t.Errorf("%d wait, want 2", pending)
		}
		<-large.done
		if !errors.Is(large.err, context.DeadlineExceeded) || large.got != nil {
			t.Error(large.err)
		}
		if !small.ended() || small.err != nil {
			t.Fatal("the place of a cancelled wait stays taken")
		}
		unlock(t, small.got)
		unlock(t, l)
		idle(t, s)
	})
}

// The same under a lease whose peer stays.
func TestClientCancelledNestedWait(t *testing.T) {
	for _, f := range []fault{works, mute, down, frozen} {
		inWorld(t, settings(t, "A=1/1 B=1"), func(t *testing.T, w *world) {
			c, s := w.client(), w.servers["a"]
			outer := locked(t, t.Context(), c, "A")
			other := locked(t, t.Context(), c, "B")
			wait := lockingOf(outer.Context(), c, "B", 1)
			if _, err := c.Lock(outer.Context(), "B", 1); !errors.Is(err, ErrAlreadyPending) {
				t.Error(err)
			}
			if _, err := c.Lock(outer.Context(), "A", 1); !errors.Is(err, ErrAlreadyHeld) {
				t.Error(err)
			}
			w.net.set("a", f)
			wait.cancel()
			synctest.Wait()
			time.Sleep(5 * time.Second)
			w.net.set("a", works)
			time.Sleep(11 * time.Second)
			if _, pending := holders(t, s, "B"); pending != 0 {
				t.Errorf("fault %d: the place of a cancelled wait stays taken", f)
			}
			if lost(outer) || lost(other) {
				t.Error(outer.Err(), other.Err())
			}
			unlock(t, other)
			unlock(t, locked(t, outer.Context(), c, "B"))
			unlock(t, outer)
			idle(t, s)
		})
	}
}

func TestClientErrors(t *testing.T) {
	inWorld(t, settings(t, "A=2/1 low=1"), func(t *testing.T, w *world) {
		c := w.client()
		l := locked(t, t.Context(), c, "low")
		for _, row := range []struct {
			ctx   context.Context
			name  string
			count int64
			want  error
		}{
			{t.Context(), "B", 1, ErrUnknownSemaphore},
			{t.Context(), "", 1, ErrUnknownSemaphore},
			{t.Context(), "A", 3, &NeverError{3, 2}},
			{t.Context(), "A", -1, &CountError{-1}},
			{l.Context(), "A", 1, &LevelError{0, 1}},
		} {
			if _, err := c.Lock(row.ctx, row.name, row.count); !reflect.DeepEqual(errors.Unwrap(err), row.want) {
				t.Errorf("%d of %q: %v, want %v", row.count, row.name, err, row.want)
			}
		}
		unlock(t, l)
		if _, err := c.Lock(l.Context(), "A", 1); !errors.Is(err, errUnlocked) {
			t.Error(err)
		}
		unlock(t, locked(t, context.WithoutCancel(l.Context()), c, "A")) // a peer of its own
		idle(t, w.servers["a"])
	})
}

// Every text of an error comes back as the error.
func TestClientTextError(t *testing.T) {
	for _, want := range []error{
		ErrUnknownPeer, ErrUnknownSemaphore, ErrAlreadyPending, ErrRestoreChanges, ErrNotHeld,
		ErrTooManyLocks, &CountError{-7},
		&NeverError{5, 4}, &LevelError{3, 1 << 31}, &GrowError{1, 2}, &TokenError{1 << 63},
	} {
		if got := wireError(statusOf(want), want.Error()); !reflect.DeepEqual(got, want) {
			t.Errorf("%v comes back as %#v", want, got)
		}
	}
	for _, text := range []string{
		"", "Unknown peers", "Lock count must be a positive number. Found: x.", "Token 1 was never given. No",
	} {
		if got := textError(text); got != nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

// A server's answer is never more than an error.
func FuzzClientAnswer(f *testing.F) {
	f.Add(400, "Unknown peer", "30000ms", "7", "a%20b")
	f.Add(409, (&LevelError{0, 1}).Error(), "5m", "", "%")
	f.Add(409, (&NeverError{2, 1}).Error(), "1h 30m", "0", "..")
	f.Add(400, "Token 18446744073709551616 was never given.", "292years", "+1", "%zz")
	f.Add(503, "\xff", "-1s", "18446744073709551616", "")
	f.Fuzz(func(t *testing.T, status int, text, grace, token, broken string) {
		err := wireError(status, text)
		if answer := (*AnswerError)(nil); errors.As(err, &answer) {
			tested.Not(t, len(answer.Text) > maxErrorText, "%d bytes are shown", len(answer.Text))
		} else if strings.TrimSpace(text) != err.Error() || temporary(err) {
			t.Errorf("%q is %v", text, err)
		}
		a := reply{header: http.Header{
			"Lease-Grace":   {grace},
			"Fencing-Token": {token},
			"Lease-Broken":  {broken},
		}}
		if a.grace() < 0 || len(a.broken()) > 1 || a.token() > 0 && a.header.Get("Fencing-Token") == "" {
			t.Errorf("grace %v, broken %q, token %d", a.grace(), a.broken(), a.token())
		}
	})
}

func TestClientFields(t *testing.T) {
	for _, row := range []struct {
		c    *Client
		want string
	}{
		{&Client{}, "Client.URLs has 0"},
		{&Client{URLs: make([]string, 17)}, "Client.URLs has 17"},
		{&Client{URLs: []string{"http://a", "a:8000"}}, "Client.URLs[1]"},
		{&Client{URLs: []string{"http://a/?x=1"}}, "Client.URLs[0]"},
		{&Client{URLs: []string{"http://a\n"}}, "Client.URLs[0]"},
		{&Client{URLs: []string{"http://a"}, ExpiresIn: time.Millisecond},
			"Client.ExpiresIn is 1ms, want 100ms"},
		{&Client{URLs: []string{"http://a"}, BlockFor: -1}, "Client.BlockFor is -1ns"},
		{&Client{URLs: []string{"http://a"}, Timeout: 2 * time.Hour}, "Client.Timeout is 2h0m0s"},
	} {
		_, err := row.c.Lock(t.Context(), "A", 1)
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%v, want one that says %q", err, row.want)
		}
	}
}

// A client reads 64 KiB of an answer, and shows 200 bytes of it.
func TestClientBoundsAnswers(t *testing.T) {
	read := 0
	huge := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		for range 1000 {
			n, _ := w.Write(make([]byte, 4096))
			read += n
		}
	})
	srv := httptest.NewServer(huge)
	defer srv.Close()
	c := &Client{URLs: []string{srv.URL}, HTTP: srv.Client()}
	_, err := c.Lock(t.Context(), "A", 1)
	var answer *AnswerError
	if !errors.As(err, &answer) || answer.Status != 404 || len(answer.Text) != 200 {
		t.Error(err)
	}
}

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
	inWorld(t, settings(t, "A=1/1 B=1"), func(t *testing.T, w *world) {
		c, s, late := w.client(), w.servers["a"], true
		outer := locked(t, t.Context(), c, "A")
		w.net.between(func(r *http.Request) error {
			if late && strings.HasSuffix(r.URL.Path, "/B") {
				late = false
				must(t, s.Lead(ClockTokens(time.Now()), time.Time{}))
				time.Sleep(15 * time.Second) // outer is restored
			}
			return nil
		})
		inner := locked(t, outer.Context(), c, "B")
		heldBy(t, s, "B", inner, 0)
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
		withPeers(t, s)
		takes(t, s, 1, "A", 1)
		var silent atomic.Bool
		silent.Store(true)
		w.net.between(func(r *http.Request) error {
			if silent.Load() && heartbeat(r) {
				return errDown
			}
			return nil
		})
		g := lockingOf(t.Context(), w.client(), "A", 1)
		time.Sleep(time.Minute)
		giveBack(t, s, 1, "A")
		time.Sleep(10 * time.Second)
		tested.Not(t, g.ended(), "a lease without contact is given out")
		silent.Store(false)
		<-g.done
		if g.err != nil || g.got.Err() != nil {
			t.Fatal(g.err)
		}
		unlock(t, g.got)
	})
}

// through puts f before the server a. It answers itself where it returns true.
func (w *world) through(f func(out http.ResponseWriter, r *http.Request) bool) {
	handler := http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if !f(out, r) {
			w.servers["a"].ServeHTTP(out, r)
		}
	})
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	w.net.hosts["a"] = &struct{ http.Handler }{handler} // a pointer, which is compared
}

// behindAProxy puts something before the server a that answers requests for a part of a path with 200.
func (w *world) behindAProxy(part, body string) {
	w.through(func(out http.ResponseWriter, r *http.Request) bool {
		its := strings.Contains(r.URL.Path, part)
		if its {
			_, _ = io.WriteString(out, body)
		}
		return its
	})
}

const loginPage = "<html>Please log in.</html>"

// A 200 that is not the server's grants nothing: a proxy may send one, for all requests.
func TestClientAnotherAnswer(t *testing.T) {
	for body, part := range map[string]string{"42": "/A", "true": "/A", "": "/A", loginPage: "/new_peer"} {
		inWorld(t, mutex("A"), func(t *testing.T, w *world) {
			w.behindAProxy(part, body)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := w.client().Lock(ctx, "A", 1)
			synctest.Wait() // the peer is removed
			if odd := (*AnswerError)(nil); !errors.As(err, &odd) || *odd != (AnswerError{http.StatusOK, body}) {
				t.Errorf("%q: %v", body, err)
			}
		})
	}
}

// A heartbeat and a restore that something else answers with 200 are no contact.
func TestClientAnotherAnswerToHeartbeats(t *testing.T) {
	for _, path := range []string{"/peers/", "/restore"} {
		inWorld(t, mutex("A"), func(t *testing.T, w *world) {
			l := locked(t, t.Context(), w.client(), "A")
			w.start("a", ServerOptions{}) // which knows nothing
			w.behindAProxy(path, loginPage)
			time.Sleep(time.Minute)
			tested.Is(t, path, l.Err(), ErrCutOff)
		})
	}
}

// A grace time that is too short to hold anything makes no storm of requests.
func TestClientShortGrace(t *testing.T) {
	config := settings(t, "A=1 grace=1ms")
	inWorld(t, config, func(t *testing.T, w *world) {
		time.Sleep(config.Grace)
		withPeers(t, w.servers["a"])
		takes(t, w.servers["a"], 1, "A", 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := w.client().Lock(ctx, "A", 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		synctest.Wait() // the peer is removed
		if n := w.net.count("PUT"); n > 50 {
			t.Errorf("%d requests in a second, want at most 50", n)
		}
	})
}

// The published server knows neither tokens nor a grace time.
func TestClientOfAPlainServer(t *testing.T) {
	inWorld(t, mutex("A"), func(t *testing.T, w *world) {
		var restored atomic.Value
		w.through(func(out http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/restore" {
				body, _ := io.ReadAll(r.Body)
				restored.Store(string(body))
				_, _ = io.WriteString(out, "Ok")
				return true
			}
			rec := httptest.NewRecorder()
			w.servers["a"].ServeHTTP(rec, r)
			out.WriteHeader(rec.Code)
			_, _ = out.Write(rec.Body.Bytes())
			return true
		})
		l := locked(t, t.Context(), w.client(), "A")
		must(t, w.servers["a"].Lead(ClockTokens(time.Now()), time.Time{}))
		time.Sleep(12 * time.Second)
		text, _ := restored.Load().(string)
		if !strings.Contains(text, `"acquired":{"A":1}`) || strings.Contains(text, "tokens") {
			t.Errorf("restored with %q", text)
		}
		if lost(l) || l.Token() != 0 {
			t.Error(l.Err(), l.Token())
		}
		_ = l.Unlock(t.Context())
	})
}

// Names go through the path and come back: they may hold anything.
func TestClientNames(t *testing.T) {
	names := []string{"/&", "a b", "%2F", "..", ".", "is_acquired", "ü?x=1#y", "\x00"}
	inWorld(t, mutex(names...), func(t *testing.T, w *world) {
		for _, name := range names {
			l := locked(t, t.Context(), w.client(), name)
			heldBy(t, w.servers["a"], name, l, 0)
			unlock(t, l)
		}
	})
}

// fault is what a loopback does to requests.
type fault int

const (
	works  fault = iota
	down         // the connection is refused
	mute         // the request arrives, its answer is lost
	frozen       // the request neither arrives nor fails
	slow         // the request arrives late, also if its sender has left, and its answer arrives later still
)

const slowness = 2 * time.Second

var errDown = errors.New("connection refused")

// loopback is a network without sockets: servers by host name. It works in a bubble.
type loopback struct {
	mu       sync.Mutex
	hosts    map[string]http.Handler
	faults   map[string]fault
	requests []string                    // method and path of those that arrived
	served   func(r *http.Request) error // nil: called between a request and its answer
}

func (n *loopback) RoundTrip(r *http.Request) (*http.Response, error) {
	n.mu.Lock()
	h, f := n.hosts[r.URL.Host], n.faults[r.URL.Host]
	if f == works || f == mute || f == slow {
		n.requests = append(n.requests, r.Method+" "+r.URL.Path)
	}
	n.mu.Unlock()
	switch {
	case f == down || h == nil:
		return nil, errDown
	case f == frozen:
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	w, done := httptest.NewRecorder(), make(chan struct{})
	go func() {
		defer close(done)
		if f == slow {
			time.Sleep(slowness)
			defer time.Sleep(slowness)
		}
		h.ServeHTTP(w, r)
	}()
	select {
	case <-done:
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	n.mu.Lock()
	served := n.served
	n.mu.Unlock()
	if served != nil {
		if err := served(r); err != nil {
			return nil, err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.faults[r.URL.Host]
	if f == mute || now != works && now != slow || n.hosts[r.URL.Host] != h {
		return nil, errDown // cut while the request was there
	}
	res := w.Result()
	res.Request = r
	return res, nil
}

// between makes f be called between a request and its answer.
func (n *loopback) between(f func(r *http.Request) error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.served = f
}

func (n *loopback) set(host string, f fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults[host] = f
}

// count returns how many requests began so.
func (n *loopback) count(prefix string) (c int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range n.requests {
		if strings.HasPrefix(r, prefix) {
			c++
		}
	}
	return c
}

// world is servers and a network.
type world struct {
	t       testing.TB
	config  Config
	net     *loopback
	servers map[string]*Server
}

// newWorld has one server, called a, with these semaphores.
func newWorld(t testing.TB, c Config) *world {
	t.Helper()
	w := &world{t: t, config: c, servers: make(map[string]*Server)}
	w.net = &loopback{hosts: make(map[string]http.Handler), faults: make(map[string]fault)}
	w.start("a", ServerOptions{})
	t.Cleanup(func() {
		for _, s := range w.servers {
			s.Close()
		}
	})
	return w
}

func (w *world) start(name string, o ServerOptions) *Server {
	w.t.Helper()
	s, err := NewServer(w.config, o)
	must(w.t, err)
	old := w.servers[name]
	w.servers[name] = s
	w.net.mu.Lock()
	w.net.hosts[name] = s
	w.net.mu.Unlock()
	if old != nil {
		old.Close()
	}
	return s
}

func (w *world) client() *Client {
	return &Client{URLs: []string{"http://a"}, HTTP: &http.Client{Transport: w.net}}
}

func inWorld(t *testing.T, c Config, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newWorld(t, c)) })
}

// mutex is a configuration of semaphores of 1.
func mutex(names ...string) Config {
	c := Config{Semaphores: make(map[string]Semaphore)}
	for _, name := range names {
		c.Semaphores[name] = Semaphore{Max: 1}
	}
	return c
}

// locked returns a Lease that must be there at once.
func locked(t testing.TB, ctx context.Context, c *Client, name string) *Lease {
	t.Helper()
	l, err := c.Lock(ctx, name, 1)
	must(t, err)
	return l
}

func unlock(t testing.TB, l *Lease) {
	t.Helper()
	tested.Want(t, "Unlock", l.Unlock(context.Background()), nil)
}

func lockingOf(ctx context.Context, c *Client, name string, count int64) *going[*Lease] {
	return goes(ctx, func(ctx context.Context) (*Lease, error) { return c.Lock(ctx, name, count) })
}

func lost(l *Lease) bool { return closed(l.Lost()) }

// closed reports whether a channel is, once all goroutines wait.
func closed(c <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// holders returns the tokens of those that hold a semaphore at a server, and how many wait.
func holders(t testing.TB, s *Server, name string) (tokens []uint64, pending int) {
	t.Helper()
	held, waiting, err := s.Locks(name, 1000)
	must(t, err)
	for _, l := range held {
		tokens = append(tokens, l.Token)
	}
	slices.Sort(tokens)
	return tokens, len(waiting)
}

// heldBy fails unless only this Lease has the semaphore, and so many wait for it.
func heldBy(t testing.TB, s *Server, name string, l *Lease, wait int) {
	t.Helper()
	if tokens, pending := holders(t, s, name); !slices.Equal(tokens, []uint64{l.Token()}) || pending != wait {
		t.Errorf("%q is held with %d and %d wait, want %d and %d", name, tokens, pending, l.Token(), wait)
	}
}

// idle fails unless the server knows no peer.
func idle(t testing.TB, s *Server) {
	t.Helper()
	time.Sleep(DefaultTimeout) // what is given back in the background
	tested.Want(t, "peers that the server knows", s.Stats().Peers, 0)
}
