package listen

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	most = 20
	kept = 8
)

// hall is a server's connections, in memory.
type hall struct {
	*Places
	t    *testing.T
	said []State
}

func newHall(t *testing.T, kept int, wait bool) *hall {
	h := &hall{Places: New(most), t: t}
	h.Kept, h.Wait = kept, wait
	h.Crowded = func(now State) { h.said = append(h.said, now) }
	return h
}

// come is a new connection that sends a request, and has its answer if it is to be idle. What was closed for
// it ends.
func (h *hall) come(known, idle bool) net.Conn {
	h.t.Helper()
	time.Sleep(time.Millisecond)
	conn, there := net.Pipe()
	h.t.Cleanup(func() { _ = conn.Close(); _ = there.Close() })
	entered := h.enter(conn)
	for conn, c := range h.open {
		if c.gone {
			h.Follow(conn, http.StateClosed)
		}
	}
	if !entered && !h.enter(conn) {
		h.t.Fatal("no place")
	}
	if h.Follow(conn, http.StateActive); known {
		h.welcome(conn)
	}
	if idle {
		h.Follow(conn, http.StateIdle)
	}
	return conn
}

func (h *hall) welcome(conn net.Conn) {
	r, _ := http.NewRequestWithContext(h.Remember(h.t.Context(), conn), http.MethodGet, "/", nil)
	Welcome(r)
}

func isOpen(conn net.Conn) bool { return conn.SetReadDeadline(time.Time{}) == nil }

// goes checks that a stranger who comes now gets the place of conn, and of no other.
func (h *hall) goes(conn net.Conn, what string) {
	h.t.Helper()
	before := h.State().Evicted
	h.come(false, false)
	if isOpen(conn) || h.State().Evicted != before+1 {
		h.t.Errorf("%s stays: %v, and %d were closed", what, isOpen(conn), h.State().Evicted-before)
	}
}

// TestWhoIsMissedLeast: the order in which connections are closed for others, and that known callers keep
// their places.
func TestWhoIsMissedLeast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t, kept, true)
		oldest := h.come(false, false)
		early, late := h.come(false, true), h.come(false, true)
		h.Follow(early, http.StateActive)
		h.Follow(early, http.StateIdle) // now it is idle for a shorter time
		for range most - kept - 3 {
			h.come(false, false)
		}
		h.goes(late, "the stranger that is idle for the longest time")
		h.goes(early, "the other idle one")
		h.goes(oldest, "the first of those that are at work")
		first := h.come(true, true) // drives a stranger out before it is known
		for range most {
			h.come(true, true)
		}
		if isOpen(first) || h.State().Known > most {
			t.Errorf("of %d known callers the first stays", h.State().Known)
		}
		for range 2 * most {
			h.come(false, false)
		}
		if n := h.State().Known; n != kept {
			t.Errorf("strangers leave %d places to known callers that are idle, want %d", n, kept)
		}
		for conn := range h.open {
			h.Follow(conn, http.StateClosed)
			h.Follow(conn, http.StateClosed) // is heard once
		}
		if now := h.State(); now.Open != 0 || now.Known != 0 || len(h.open) != 0 {
			t.Errorf("are left: %+v", now)
		}
		for i, now := range h.said {
			if i > 0 && now.Evicted < h.said[i-1].Evicted {
				t.Errorf("said %+v after %+v", now, h.said[i-1])
			}
		}
		if len(h.said) != 1 { // all of this took a tenth of a second
			t.Errorf("said %d times that it is crowded", len(h.said))
		}
	})
}

// TestWorkKeepsItsPlace: where nobody is a stranger, one without a request is closed for a new one, the one
// that has been so for the longest time; a connection at work never is.
func TestWorkKeepsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t, 0, false)
		silent, there := net.Pipe()
		defer there.Close()
		h.enter(silent) // and sends no head
		first := h.come(false, true)
		for range most - 2 {
			h.come(false, false)
		}
		h.goes(silent, "the silent one")
		h.goes(first, "the idle one")
		if h.enter(silent) {
			t.Error("one entered for one that is at work")
		}
		if now := h.State(); now != (State{Most: most, Open: most, Known: most, Evicted: 2, Refused: 1}) {
			t.Errorf("State() = %+v", now)
		}
		h.SetMost(2)
		n := 0
		for conn := range h.open {
			if n++; n <= most-1 {
				h.Follow(conn, http.StateIdle)
			}
		}
		h.come(false, false)
		if now := h.State(); now.Open != 2 || now.Evicted != 2+most-1 {
			t.Errorf("State() = %+v with room for 2", now)
		}
	})
}

// TestEnd: Wane closes what is idle, Clear all, and Empty says when nothing is left. Nobody comes in any more.
func TestEnd(t *testing.T) {
	h := newHall(t, 0, false)
	idle, works, upgraded := h.come(false, true), h.come(false, false), h.come(false, false)
	h.Follow(upgraded, http.StateHijacked)
	if now := h.State(); now.Open != 3 || now.Upgraded != 1 {
		t.Errorf("State() = %+v", now)
	}
	h.Wane()
	left := h.Empty()
	if isOpen(idle) || h.enter(idle) {
		t.Error("it stays, or another has come")
	}
	if h.Drop(works); h.State().Open != 1 {
		t.Errorf("State() = %+v", h.State())
	}
	select {
	case <-left:
		t.Error("one is left")
	default:
	}
	h.Clear()
	<-left
	<-h.Empty()
	if now := h.State(); now.Open != 0 || now.Upgraded != 0 {
		t.Errorf("State() = %+v", now)
	}
	h.Leave(upgraded)
	h.Leave(upgraded)
	Welcome(&http.Request{}) // of another server
}

// inner is a listener in memory.
type inner chan any

func (l inner) Accept() (net.Conn, error) {
	switch x := (<-l).(type) {
	case net.Conn:
		return x, nil
	case error:
		return nil, x
	}
	return nil, net.ErrClosed
}

func (l inner) Close() error   { close(l); return nil }
func (l inner) Addr() net.Addr { return &net.TCPAddr{} }

// accepting runs Accept until the listener is closed.
func accepting(h *hall) (in inner, l net.Listener, accepted chan net.Conn) {
	in, accepted = make(inner), make(chan net.Conn)
	l = h.Listener(in)
	go func() {
		defer close(accepted)
		for {
			switch conn, err := l.Accept(); err {
			case nil:
				accepted <- conn
			case net.ErrClosed:
				return
			}
		}
	}()
	return in, l, accepted
}

// dial is a connection that waits for Accept.
func (h *hall) dial(in inner) net.Conn {
	here, there := net.Pipe()
	h.t.Cleanup(func() { _ = here.Close(); _ = there.Close() })
	in <- tls.Server(there, nil) // as it is under a listener of crypto/tls
	return here
}

// TestFullOfKnownCallers: when all places have known callers that are at work the next one waits until one of
// them is idle or gone, and Close ends that wait.
func TestFullOfKnownCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t, kept, true)
		in, l, accepted := accepting(h)
		var conns []net.Conn
		enter := func() {
			conn := <-accepted
			conns = append(conns, conn)
			h.welcome(conn)
		}
		for range most {
			h.dial(in)
			enter()
		}
		waits := func() {
			t.Helper()
			synctest.Wait()
			select {
			case <-accepted:
				t.Error("one too many was accepted")
			default:
			}
		}
		h.dial(in)
		waits()
		h.Follow(conns[0], http.StateClosed)
		enter()
		h.dial(in)
		waits()
		h.Follow(conns[1], http.StateIdle) // it is closed for the one that waits
		waits()                            // until it has ended
		h.Follow(conns[1], http.StateClosed)
		enter()
		if isOpen(conns[1]) || h.State().Open != most {
			t.Errorf("open: %v, %+v", isOpen(conns[1]), h.State())
		}
		h.dial(in)
		waits()
		_ = l.Close()
		if _, more := <-accepted; more {
			t.Error("accepted after Close")
		}
	})
}

// TestAccept: without Wait, a connection for which there is no room is closed, and the next one is looked at.
// When the process has no more files, the one that is missed least is closed.
func TestAccept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t, 0, false)
		h.SetMost(1)
		in, l, accepted := accepting(h)
		h.dial(in)
		conn := <-accepted
		h.Follow(conn, http.StateActive)
		refused := h.dial(in)
		if _, err := refused.Read(make([]byte, 1)); err != io.EOF || h.State().Refused != 1 {
			t.Errorf("Read() = %v, %+v", err, h.State())
		}
		h.Follow(conn, http.StateIdle)
		for _, err := range []error{syscall.ENOENT, syscall.EMFILE} {
			in <- err
			synctest.Wait()
			if now := h.State(); (now.Evicted == 1) != (err == syscall.EMFILE) {
				t.Errorf("after %v: %+v", err, now)
			}
		}
		_ = l.Close()
		<-accepted
	})
}

// TestStrangerIsIdleForShort: a stranger that has its answer is closed after a while, unless it asks again.
// A known caller is not. For a stranger the kernel keeps little, and nothing after the end.
func TestStrangerIsIdleForShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t, kept, true)
		asks, silent, known := h.come(false, true), h.come(false, true), h.come(true, true)
		time.Sleep(StrangerIdle - time.Second)
		h.Follow(asks, http.StateActive)
		time.Sleep(time.Hour)
		for conn, open := range map[net.Conn]bool{asks: true, silent: false, known: true} {
			if isOpen(conn) != open {
				t.Errorf("open: %v, want %v", !open, open)
			}
		}
	})
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := newHall(t, kept, true)
	l = h.Listener(l)
	defer l.Close()
	there, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	h.Follow(conn, http.StateActive)
	_ = there.(*net.TCPConn).SetReadBuffer(4096)
	_ = conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	if n, err := conn.Write(make([]byte, 8<<20)); err == nil {
		t.Errorf("the kernel took %d bytes for one that does not read", n)
	}
	h.shed()
	if _, err := io.Copy(io.Discard, there); err == nil {
		t.Error("it read to the end what was to be dropped")
	}
}
