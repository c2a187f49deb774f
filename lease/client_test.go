package lease

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestClientLocks(t *testing.T) {
	inWorld(t, mutex("A"), func(t *testing.T, w *world) {
		c := w.client()
		first := locked(t, t.Context(), c, "A")
		second := lockingOf(t.Context(), c, "A")
		time.Sleep(time.Minute)
		if second.ended() || first.Err() != nil {
			t.Fatalf("the second has %v, the first %v", second.lease, first.Err())
		}
		unlock(t, first)
		if !second.ended() || second.err != nil {
			t.Fatal(second.err)
		}
		if first.Token() == 0 || second.lease.Token() <= first.Token() {
			t.Errorf("tokens %d and %d, want the second above the first", first.Token(), second.lease.Token())
		}
		if first.Context().Err() == nil || lost(first) || first.Err() != nil {
			t.Errorf("after Unlock: %v, %v", first.Context().Err(), first.Err())
		}
		unlock(t, second.lease)
		unlock(t, second.lease)
		if n := w.servers["a"].Stats().Peers; n != 0 {
			t.Errorf("%d peers are left", n)
		}
	})
}

// A lease without a heartbeat costs three requests; one with costs one about every ten seconds.
func TestClientRequests(t *testing.T) {
	inWorld(t, mutex("A"), func(t *testing.T, w *world) {
		l := locked(t, t.Context(), w.client(), "A")
		unlock(t, l)
		if n := w.net.count(""); n != 3 {
			t.Errorf("%d requests, want 3: %q", n, w.net.requests)
		}
		l = locked(t, t.Context(), w.client(), "A")
		time.Sleep(time.Hour)
		unlock(t, l)
		if n := w.net.count("PUT") - 2; n < 327 || n > 400 {
			t.Errorf("%d heartbeats an hour, want 327 to 400", n)
		}
	})
}

func TestClientRestores(t *testing.T) {
	config := mutex("A", "C")
	config.Semaphores["B"] = Semaphore{Max: 5, Level: 1}
	config.Grace = 30 * time.Second
	inWorld(t, config, func(t *testing.T, w *world) {
		time.Sleep(config.Grace)
		c := w.client()
		outer, err := c.Lock(t.Context(), "B", 3)
		if err != nil {
			t.Fatal(err)
		}
		inner := locked(t, outer.Context(), c, "A")
		waiter := lockingOf(t.Context(), c, "A")
		for range 3 {
			s := w.start("a", ServerOptions{})
			time.Sleep(config.Grace)
			if tokens, pending := holders(t, s, "A"); len(tokens) != 1 || tokens[0] != inner.Token() ||
				pending != 1 {
				t.Errorf("A is held with %d and %d wait, want %d and 1", tokens, pending, inner.Token())
			}
			if n, _ := holders(t, s, "B"); len(n) != 1 || n[0] != outer.Token() {
				t.Errorf("B is held with %d, want %d", n, outer.Token())
			}
		}
		if n := w.net.count("POST /restore"); n != 6 {
			t.Errorf("%d restores, want one for each peer and restart", n)
		}
		if lost(inner) || lost(outer) || waiter.ended() {
			t.Error("a restart loses or grants something")
		}
		unlock(t, inner)
		unlock(t, outer)
		if !waiter.ended() || waiter.err != nil {
			t.Fatal(waiter.err)
		}
		unlock(t, waiter.lease)
	})
}

// A client without contact gives up before the server does, also where the server's grace time is shorter.
func TestClientGivesUpFirst(t *testing.T) {
	for _, row := range []struct{ grace, want time.Duration }{
		{0, 27 * time.Second}, {10 * time.Second, 9 * time.Second}, {time.Hour, 27 * time.Second},
	} {
		for _, f := range []fault{down, mute, frozen} {
			config := mutex("A")
			config.Grace = row.grace
			inWorld(t, config, func(t *testing.T, w *world) {
				time.Sleep(row.grace)
				l := locked(t, t.Context(), w.client(), "A")
				start := time.Now()
				w.net.set("a", f)
				<-l.Context().Done()
				if got := time.Since(start); got != row.want {
					t.Errorf("grace %v, fault %d: gave up after %v, want %v", row.grace, f, got, row.want)
				}
				if err := l.Err(); !errors.Is(err, ErrLost) || !errors.Is(err, ErrCutOff) || !lost(l) {
					t.Error(err)
				}
				if context.Cause(l.Context()) != l.Err() {
					t.Errorf("cause %v, want %v", context.Cause(l.Context()), l.Err())
				}
				if err := l.Unlock(t.Context()); !errors.Is(err, ErrCutOff) {
					t.Error(err)
				}
			})
		}
	}
}

// Unlock of a lost lease gives back what a server with a long ExpiresIn still keeps.
func TestClientUnlockAfterLoss(t *testing.T) {
	config := mutex("A")
	config.Grace = 10 * time.Second
	inWorld(t, config, func(t *testing.T, w *world) {
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
			if err := l.Unlock(t.Context()); !errors.Is(err, ErrLost) {
				t.Error(err)
			}
		}
		if tokens, _ := holders(t, w.servers["a"], "A"); len(tokens) != 0 {
			t.Error("Unlock leaves the lock with the server")
		}
	})
}

// A process that was stopped past its lease must see it at once, and must not restore it.
func TestClientAfterAStop(t *testing.T) {
	stop := func(l *Lease) {
		l.session.mu.Lock()
		defer l.session.mu.Unlock()
		l.session.renewed = time.Now().Add(-27 * time.Second)
	}
	inWorld(t, mutex("A"), func(t *testing.T, w *world) {
		l := locked(t, t.Context(), w.client(), "A")
		stop(l)
		if err := l.Err(); !errors.Is(err, ErrCutOff) || !lost(l) {
			t.Error(err)
		}
	})
	inWorld(t, mutex("A"), func(t *testing.T, w *world) {
		l := locked(t, t.Context(), w.client(), "A")
		w.start("a", ServerOptions{})
		stop(l)
		l.session.beat()
		if !lost(l) || w.net.count("POST /restore") != 0 {
			t.Errorf("%v, %d restores", l.Err(), w.net.count("POST /restore"))
		}
	})
	inWorld(t, mutex("A", "B"), func(t *testing.T, w *world) {
		w.config.Semaphores["A"] = Semaphore{Max: 1, Level: 1}
		s := w.start("a", ServerOptions{})
		c := w.client()
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
		if _, err := s.Break(inner.session.id, inner.Name(), inner.Token()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(11 * time.Second)
		if !lost(inner) || !errors.Is(inner.Err(), ErrBroken) || !errors.Is(inner.Err(), ErrLost) {
			t.Error(inner.Err())
		}
		if lost(outer) {
			t.Error(outer.Err())
		}
		again := locked(t, outer.Context(), c, inner.Name())
		if err := inner.Unlock(t.Context()); !errors.Is(err, ErrBroken) {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if lost(again) {
			t.Error("a lock that was broken once is lost again")
		}
		unlock(t, again)
		if _, err := s.Break(outer.session.id, "A", outer.Token()); err != nil {
			t.Fatal(err)
		}
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
		if err := l.Err(); !errors.Is(err, ErrLost) || !errors.Is(err, ErrUnknownSemaphore) {
			t.Error(err)
		}
	})
}

// A wait that is cancelled gives its place back, so that those behind move up.
func TestClientCancelledWait(t *testing.T) {
	inWorld(t, Config{Semaphores: map[string]Semaphore{"A": {Max: 2}}}, func(t *testing.T, w *world) {
		c, s := w.client(), w.servers["a"]
		l := locked(t, t.Context(), c, "A")
		large := &locking{done: make(chan struct{})}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() {
			defer close(large.done)
			large.lease, large.err = c.Lock(ctx, "A", 2)
		}()
		synctest.Wait()
		small := lockingOf(t.Context(), c, "A")
		time.Sleep(time.Minute - 1)
		if _, pending := holders(t, s, "A"); pending != 2 || small.ended() {
			t.Errorf("%d wait, want 2", pending)
		}
		<-large.done
		if !errors.Is(large.err, context.DeadlineExceeded) || large.lease != nil {
			t.Error(large.err)
		}
		if !small.ended() || small.err != nil {
			t.Fatal("the place of a cancelled wait stays taken")
		}
		unlock(t, small.lease)
		unlock(t, l)
		idle(t, s)
	})
}

// The same under a lease whose peer stays.
func TestClientCancelledNestedWait(t *testing.T) {
	config := mutex("A", "B")
	config.Semaphores["A"] = Semaphore{Max: 1, Level: 1}
	for _, f := range []fault{works, mute, down, frozen} {
		inWorld(t, config, func(t *testing.T, w *world) {
			c, s := w.client(), w.servers["a"]
			outer := locked(t, t.Context(), c, "A")
			other := locked(t, t.Context(), c, "B")
			wait := lockingOf(outer.Context(), c, "B")
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
	config := mutex("low")
	config.Semaphores["A"] = Semaphore{Max: 2, Level: 1}
	inWorld(t, config, func(t *testing.T, w *world) {
		c := w.client()
		l := locked(t, t.Context(), c, "low")
		level, never, count := &LevelError{}, &NeverError{}, &CountError{}
		if _, err := c.Lock(t.Context(), "B", 1); !errors.Is(err, ErrUnknownSemaphore) {
			t.Error(err)
		}
		if _, err := c.Lock(t.Context(), "", 1); !errors.Is(err, ErrUnknownSemaphore) {
			t.Error(err)
		}
		if _, err := c.Lock(t.Context(), "A", 3); !errors.As(err, &never) || *never != (NeverError{3, 2}) {
			t.Error(err)
		}
		if _, err := c.Lock(t.Context(), "A", -1); !errors.As(err, &count) || count.Count != -1 {
			t.Error(err)
		}
		if _, err := c.Lock(l.Context(), "A", 1); !errors.As(err, &level) || *level != (LevelError{0, 1}) {
			t.Error(err)
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
	f.Add(503, "\xff", "-1s", "18446744073709551616", "")
	f.Fuzz(func(t *testing.T, status int, text, grace, token, broken string) {
		err := wireError(status, text)
		if answer := (*AnswerError)(nil); errors.As(err, &answer) {
			if len(answer.Text) > maxErrorText {
				t.Errorf("%d bytes are shown", len(answer.Text))
			}
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
