package httplimit

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/policy"
)

func TestEachShapeHasExactlyItsAbilities(t *testing.T) {
	if len(shapes) != 16 {
		t.Fatalf("%d shapes, want one for each set of four abilities", len(shapes))
	}
	for bits, shape := range shapes {
		if got := abilities(shape(&tracker{})); got != bits {
			t.Errorf("shape %04b has the abilities %04b", bits, got)
		}
	}
}

// The wrapper can do what the writer under it can, for every kind of writer.
func TestWrapperHasTheAbilitiesOfItsWriter(t *testing.T) {
	for bits, shape := range shapes {
		inner := shape(&tracker{inner: httptest.NewRecorder()})
		if got := abilities(wrap(&tracker{inner: inner})); got != bits {
			t.Errorf("over a writer with %04b the wrapper has %04b", bits, got)
		}
	}
}

func TestWriterIsPassedThroughUnwrapped(t *testing.T) {
	var got http.ResponseWriter
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { got = w })
	w := httptest.NewRecorder()
	Middleware(limiter(t, oneSlot), Path())(next).ServeHTTP(w, get(t, "/"))
	if got != http.ResponseWriter(w) {
		t.Errorf("the handler got a %T, want the server's own writer", got)
	}
	learner, _ := learning(t)
	Middleware(learner, Path())(next).ServeHTTP(w, get(t, "/"))
	unwrapped := got.(interface{ Unwrap() http.ResponseWriter }).Unwrap()
	if unwrapped != http.ResponseWriter(w) {
		t.Errorf("Unwrap leads to a %T, want the server's own writer", unwrapped)
	}
}

// full is a writer that can do everything and writes down what was called.
type full struct {
	*httptest.ResponseRecorder
	calls []string
	err   error
	conn  net.Conn
}

func (f *full) FlushError() error { f.calls = append(f.calls, "flush"); return f.err }
func (f *full) Push(string, *http.PushOptions) error {
	f.calls = append(f.calls, "push")
	return f.err
}
func (f *full) ReadFrom(r io.Reader) (int64, error) {
	f.calls = append(f.calls, "readfrom")
	return io.Copy(f.ResponseRecorder, r)
}
func (f *full) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	f.calls = append(f.calls, "hijack")
	return f.conn, nil, f.err
}
func (f *full) SetReadDeadline(time.Time) error { f.calls = append(f.calls, "deadline"); return nil }

func TestWrapperPassesCallsOn(t *testing.T) {
	broken := errors.New("broken")
	inner := &full{ResponseRecorder: httptest.NewRecorder(), err: broken}
	l, heard := learning(t)
	h := Middleware(l, Path())(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if n, err := w.(io.ReaderFrom).ReadFrom(strings.NewReader("text")); n != 4 || err != nil {
			t.Errorf("ReadFrom: %d, %v", n, err)
		}
		w.WriteHeader(http.StatusTooManyRequests) // too late
		w.(http.Flusher).Flush()
		control := http.NewResponseController(w)
		for name, err := range map[string]error{
			"Flush": control.Flush(), "Push": w.(http.Pusher).Push("/", nil),
			"Hijack": second(control.Hijack()),
		} {
			if !errors.Is(err, broken) {
				t.Errorf("%s: error %v, want that of the writer", name, err)
			}
		}
		if err := control.SetReadDeadline(time.Now()); err != nil {
			t.Errorf("SetReadDeadline: %v", err)
		}
		w.Header().Set("Trailer", "x")
	}))
	h.ServeHTTP(inner, get(t, "/"))
	if got := strings.Join(inner.calls, " "); strings.Count(got, "flush") != 2 ||
		!strings.Contains(got, "push") || !strings.Contains(got, "hijack") ||
		!strings.Contains(got, "deadline") {
		t.Errorf("the writer was called for %q", got)
	}
	if inner.Body.String() != "text" || inner.Header().Get("Trailer") != "x" {
		t.Errorf("body %q, header %v", inner.Body, inner.Header())
	}
	heard.learned(t, policy.Feedback{Outcome: policy.Success})
	idle(t, l) // the hijack failed: nothing holds the permit
}

func second(_ net.Conn, _ *bufio.ReadWriter, err error) error { return err }

// onlyUnwrap is a writer of a logging middleware as they are common today.
type onlyUnwrap struct{ http.ResponseWriter }

func (o onlyUnwrap) Unwrap() http.ResponseWriter { return o.ResponseWriter }

// upgrade asks to change to another protocol.
func upgrade(t testing.TB) *http.Request {
	r := get(t, "/")
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "echo")
	return r
}

func TestHijackedConnectionHoldsItsPermit(t *testing.T) {
	learner, _ := learning(t)
	for name, l := range map[string]*quotient.Limiter{"fixed": limiter(t, oneSlot), "learning": learner} {
		for _, deep := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				here, there := net.Pipe()
				defer there.Close()
				var w http.ResponseWriter = &full{ResponseRecorder: httptest.NewRecorder(), conn: here}
				if deep {
					w = onlyUnwrap{onlyUnwrap{w}}
				}
				var taken net.Conn
				Middleware(l, Path())(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					taken, _, _ = http.NewResponseController(w).Hijack()
				})).ServeHTTP(w, upgrade(t))
				inFlight(t, l, 1)
				if taken.(interface{ NetConn() net.Conn }).NetConn() != here {
					t.Error("NetConn is not the connection")
				}
				for range 2 {
					_ = taken.Close()
				}
				idle(t, l)
			})
		}
	}
}

// The shim for deep hijacks leads on to the writers below, and does not hide
// that there is none.
func TestUnwrapEndsSomewhere(t *testing.T) {
	l := limiter(t, oneSlot)
	h := Middleware(l, Path())(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		control := http.NewResponseController(w)
		if err := control.EnableFullDuplex(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("EnableFullDuplex: %v, want not supported", err)
		}
		if _, _, err := control.Hijack(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("Hijack: %v, want not supported", err)
		}
	}))
	h.ServeHTTP(onlyUnwrap{httptest.NewRecorder()}, upgrade(t))
	idle(t, l)
	h = Middleware(l, Path())(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := http.NewResponseController(w).SetReadDeadline(time.Now()); err != nil {
			t.Errorf("SetReadDeadline: %v", err)
		}
	}))
	h.ServeHTTP(onlyUnwrap{&full{ResponseRecorder: httptest.NewRecorder()}}, upgrade(t))
	idle(t, l)
}

func TestHijackedConnectionLosesItsPermitAfterStreamLifetime(t *testing.T) {
	for _, opts := range [][]Option{nil, {StreamLifetime(time.Minute)}} {
		synctest.Test(t, func(t *testing.T) {
			lifetime := defaultStreamLifetime
			if opts != nil {
				lifetime = time.Minute
			}
			l := limiter(t, oneSlot)
			here, there := net.Pipe()
			defer there.Close()
			var taken net.Conn
			Middleware(l, Path(), opts...)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				taken, _, _ = w.(http.Hijacker).Hijack()
			})).ServeHTTP(&full{ResponseRecorder: httptest.NewRecorder(), conn: here}, upgrade(t))
			time.Sleep(lifetime - 1)
			if _, d := l.TryAcquire("/"); d.OK {
				t.Errorf("the permit was given back before %v", lifetime)
			}
			time.Sleep(time.Nanosecond)
			permit, d := l.TryAcquire("/")
			if !d.OK {
				t.Errorf("the permit was not given back after %v", lifetime)
			}
			_ = taken.Close()
			if got := l.Stats().InFlight; got != 1 {
				t.Errorf("in flight %d, want 1: closing late took the slot of the next one", got)
			}
			permit.Release()
		})
	}
}

func TestHeldConnKeepsCloseWrite(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	if _, has := holdConn(here, admission{}).(closeWriter); has {
		t.Error("a connection without CloseWrite got one")
	}
	half := &halfCloser{Conn: here}
	if err := holdConn(half, admission{}).(closeWriter).CloseWrite(); err != nil || half.closed != 1 {
		t.Errorf("CloseWrite: %v, called %d times", err, half.closed)
	}
	_ = here.Close()
}

type halfCloser struct {
	net.Conn
	closed int
}

func (h *halfCloser) CloseWrite() error { h.closed++; return nil }
