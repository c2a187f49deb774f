package httplimit

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/policy"
)

// base is a RoundTripper made of a function.
type base func(*http.Request) (*http.Response, error)

func (b base) RoundTrip(r *http.Request) (*http.Response, error) { return b(r) }

// answers is a base that always answers so, with fields in pairs.
func answers(status int, b io.ReadCloser, fields ...string) base {
	return func(*http.Request) (*http.Response, error) {
		resp := &http.Response{StatusCode: status, Header: http.Header{}, Body: b}
		for i := 0; i < len(fields); i += 2 {
			resp.Header.Set(fields[i], fields[i+1])
		}
		return resp, nil
	}
}

// request makes a request as a client sends it.
func request(t testing.TB, url string, b io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", url, b)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func trip(t testing.TB, rt http.RoundTripper) *http.Response {
	t.Helper()
	resp, err := rt.RoundTrip(request(t, "http://h/", nil))
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func TestPermitIsHeldUntilTheBodyEnds(t *testing.T) {
	ends := map[string]func(*testing.T, io.ReadCloser){
		"end": func(t *testing.T, b io.ReadCloser) { readAll(t, b) },
		"close": func(_ *testing.T, b io.ReadCloser) {
			_ = b.Close()
			_ = b.Close()
		},
		"end and close": func(t *testing.T, b io.ReadCloser) {
			readAll(t, b)
			_ = b.Close()
		},
		"close in the middle": func(t *testing.T, b io.ReadCloser) {
			_, _ = b.Read(make([]byte, 1))
			_ = b.Close()
			_, _ = b.Read(make([]byte, 1))
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			l, heard := learning(t)
			b := newBody("text")
			resp := trip(t, &Transport{Base: answers(200, b), Limiter: l})
			inFlight(t, l, 1)
			_, _ = resp.Body.Read(make([]byte, 2))
			inFlight(t, l, 1)
			heard.learned(t, policy.Feedback{Outcome: policy.Success}) // when the head is there, and once
			end(t, resp.Body)
			idle(t, l)
			heard.learned(t)
			if strings.Contains(name, "close") != (b.closed > 0) {
				t.Errorf("the base's body was closed %d times", b.closed)
			}
		})
	}
}

// A body may be closed while it is being read.
func TestConcurrentEndsReleaseOnce(t *testing.T) {
	l, heard := learning(t)
	resp := trip(t, &Transport{Base: answers(200, io.NopCloser(iotest.ErrReader(io.EOF))), Limiter: l})
	var ends sync.WaitGroup
	for range 8 {
		ends.Go(func() { _ = resp.Body.Close() })
		ends.Go(func() { _, _ = resp.Body.Read(make([]byte, 1)) })
	}
	ends.Wait()
	idle(t, l)
	heard.learned(t, policy.Feedback{Outcome: policy.Success})
}

func TestErrorOfTheBodyReleases(t *testing.T) {
	l := limiter(t, oneSlot)
	broken := errors.New("broken")
	resp := trip(t, &Transport{Base: answers(200, &body{Reader: iotest.ErrReader(broken)}), Limiter: l})
	if _, err := io.ReadAll(resp.Body); !errors.Is(err, broken) {
		t.Errorf("error %v, want %v", err, broken)
	}
	idle(t, l)
}

func TestAnswersWithoutABodyReleaseAtOnce(t *testing.T) {
	for _, b := range []io.ReadCloser{nil, http.NoBody} {
		l, heard := learning(t)
		trip(t, &Transport{Base: answers(429, b, "Retry-After", "3"), Limiter: l})
		idle(t, l)
		heard.learned(t, policy.Feedback{Outcome: policy.Throttled, RetryAfter: 3 * time.Second})
	}
}

func TestAnswersAreFeedback(t *testing.T) {
	const date, later = "Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:47 GMT"
	tests := []struct {
		status int
		fields []string
		want   policy.Feedback
	}{
		{200, nil, policy.Feedback{Outcome: policy.Success}},
		{204, []string{"Retry-After", "5"}, policy.Feedback{Outcome: policy.Success}},
		{301, nil, policy.Feedback{Outcome: policy.Success}},
		{404, nil, policy.Feedback{Outcome: policy.Success}},
		{500, nil, policy.Feedback{Outcome: policy.Success}},
		{429, nil, policy.Feedback{Outcome: policy.Throttled}},
		{429, []string{"Retry-After", "5"},
			policy.Feedback{Outcome: policy.Throttled, RetryAfter: 5 * time.Second}},
		{429, []string{"Retry-After", later, "Date", date},
			policy.Feedback{Outcome: policy.Throttled, RetryAfter: 10 * time.Second}},
		{429, []string{"Retry-After", "9223372037"},
			policy.Feedback{Outcome: policy.Throttled, RetryAfter: 24 * time.Hour}},
		{429, []string{"Retry-After", "-5"}, policy.Feedback{Outcome: policy.Throttled}},
		{429, []string{"Retry-After", "5", "Age", "1"}, policy.Feedback{Outcome: policy.Throttled}},
		{503, []string{"Retry-After", "5"},
			policy.Feedback{Outcome: policy.Unavailable, RetryAfter: 5 * time.Second}},
	}
	for _, tt := range tests {
		l, heard := learning(t)
		resp := trip(t, &Transport{Base: answers(tt.status, newBody("text"), tt.fields...), Limiter: l})
		_ = resp.Body.Close()
		heard.learned(t, tt.want)
		idle(t, l)
	}
}

func TestErrorOfTheBaseReleases(t *testing.T) {
	l, heard := learning(t)
	broken := errors.New("broken")
	tr := &Transport{Limiter: l,
		Base: base(func(*http.Request) (*http.Response, error) { return nil, broken })}
	if resp, err := tr.RoundTrip(request(t, "http://h/", nil)); resp != nil || !errors.Is(err, broken) {
		t.Errorf("%v, %v; want no response and %v", resp, err, broken)
	}
	idle(t, l)
	heard.learned(t, policy.Feedback{Outcome: policy.Failed})
	tr.Base = base(func(*http.Request) (*http.Response, error) { return nil, nil })
	if resp, err := tr.RoundTrip(request(t, "http://h/", nil)); resp != nil || err != nil {
		t.Errorf("%v, %v; want what the base returned", resp, err)
	}
	idle(t, l)
}

func TestPanicOfTheBaseReleases(t *testing.T) {
	l := limiter(t, oneSlot)
	tr := &Transport{Limiter: l, Base: base(func(*http.Request) (*http.Response, error) { panic("a bug") })}
	func() {
		defer func() {
			if recover() != "a bug" {
				t.Error("the panic was swallowed")
			}
		}()
		_, _ = tr.RoundTrip(request(t, "http://h/", nil))
	}()
	idle(t, l)
}

func TestRefusedRequestsAreClosedAndNotSent(t *testing.T) {
	full := limiter(t, oneSlot, quotient.MaxWaiting(0, 0))
	full.TryAcquire("h")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	tests := []struct {
		name string
		tr   *Transport
		ctx  context.Context
		want string // part of the error
		is   error
	}{
		{"limited", &Transport{Limiter: full}, t.Context(), "", quotient.ErrLimited},
		{"denied", &Transport{Limiter: limiter(t, quotient.Limit{Deny: true})}, t.Context(), "",
			quotient.ErrLimited},
		{"context", &Transport{Limiter: limiter(t, oneSlot)}, ended, "", context.Canceled},
		{"nil limiter", &Transport{}, t.Context(), "Transport.Limiter is nil", nil},
		{"body time-out", &Transport{Limiter: full, BodyTimeout: -1}, t.Context(),
			"Transport.BodyTimeout is -1ns", nil},
		{"stream lifetime", &Transport{Limiter: full, StreamLifetime: -1}, t.Context(),
			"Transport.StreamLifetime is -1ns", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.tr.Base = base(func(*http.Request) (*http.Response, error) {
				t.Error("the request was sent")
				return nil, errors.New("sent")
			})
			b := newBody("text")
			resp, err := tt.tr.RoundTrip(request(t, "http://h/", b).WithContext(tt.ctx))
			if resp != nil || err == nil || !strings.Contains(err.Error(), tt.want) ||
				tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("response %v, error %v; want none, and %q %v", resp, err, tt.want, tt.is)
			}
			if b.closed != 1 {
				t.Errorf("the request's body was closed %d times, want once", b.closed)
			}
			if _, err := tt.tr.RoundTrip(request(t, "http://h/", nil).WithContext(tt.ctx)); err == nil {
				t.Error("a request without a body was not refused")
			}
		})
	}
}

func TestTheRequestIsNotChanged(t *testing.T) {
	req := request(t, "http://h:80/a?b=c", strings.NewReader("text"))
	req.Header.Set("X", "y")
	before, header := *req, maps.Clone(req.Header)
	tr := &Transport{Limiter: limiter(t, oneSlot), Base: base(func(r *http.Request) (*http.Response, error) {
		if r != req {
			t.Error("the base got another request")
		}
		return &http.Response{Body: http.NoBody}, nil
	})}
	if _, err := tr.RoundTrip(req); err != nil {
		t.Fatal(err)
	}
	if req.URL != before.URL || req.URL.String() != "http://h:80/a?b=c" || req.Body != before.Body ||
		!maps.EqualFunc(req.Header, header, func(a, b []string) bool { return a[0] == b[0] }) {
		t.Errorf("the request was changed: %v", req)
	}
}

func TestKeyOfTransport(t *testing.T) {
	for want, tr := range map[string]*Transport{
		"h":         {},
		"/a":        {Key: Path()},
		bound(long): {Key: func(*http.Request) string { return long }},
	} {
		tr.Limiter, tr.Base = limiter(t, oneSlot), answers(200, newBody("x"))
		resp, err := tr.RoundTrip(request(t, "http://H.:80/a", nil))
		if err != nil {
			t.Fatal(err)
		}
		for k := range tr.Limiter.Keys() {
			if k.Key != want {
				t.Errorf("key %q, want %q", k.Key, want)
			}
		}
		_ = resp.Body.Close()
	}
}

// A body that is neither read nor closed gives its permit back in time.
func TestForgottenBodies(t *testing.T) {
	stream := func(given time.Duration, status int, fields ...string) *Transport {
		return &Transport{BodyTimeout: time.Second, StreamLifetime: given,
			Base: answers(status, duplex{newBody("x"), io.Discard}, fields...)}
	}
	tests := []struct {
		name string
		tr   *Transport
		want time.Duration
	}{
		{"default", &Transport{Base: answers(200, newBody("x"))}, 5 * time.Minute},
		{"given", &Transport{BodyTimeout: time.Second, Base: answers(200, newBody("x"))}, time.Second},
		{"no stream", &Transport{StreamLifetime: time.Second,
			Base: answers(200, newBody("x"), "Content-Type", "text/event-streams")}, 5 * time.Minute},
		{"events", stream(0, 200, "Content-Type", "text/event-stream"), time.Hour},
		{"events, given", stream(time.Minute, 200, "Content-Type", "Text/Event-Stream ; charset=utf-8"),
			time.Minute},
		{"101", stream(0, 101), time.Hour},
		{"101, given", stream(time.Minute, 101), time.Minute},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tt.tr.Limiter = limiter(t, oneSlot)
				resp := trip(t, tt.tr)
				time.Sleep(tt.want - 1)
				inFlight(t, tt.tr.Limiter, 1)
				time.Sleep(time.Nanosecond)
				permit, d := tt.tr.Limiter.TryAcquire("h")
				if !d.OK {
					t.Errorf("the permit was not given back after %v", tt.want)
				}
				if text := readAll(t, resp.Body); text != "x" {
					t.Errorf("body %q, want x: it stays readable", text)
				}
				_ = resp.Body.Close()
				if got := tt.tr.Limiter.Stats().InFlight; got != 1 {
					t.Errorf("in flight %d, want 1: a late end took the slot of the next one", got)
				}
				permit.Release()
			})
		})
	}
}

// duplex is the body of 101.
type duplex struct {
	*body
	io.Writer
}

// half is one that can end its direction.
type half struct {
	duplex
	ended *bool
}

func (h half) CloseWrite() error { *h.ended = true; return nil }

func TestBodyOf101IsADuplex(t *testing.T) {
	l := limiter(t, oneSlot)
	var sent strings.Builder
	b := newBody("text")
	resp := trip(t, &Transport{Limiter: l, Base: answers(101, duplex{b, &sent})})
	stream := resp.Body.(io.ReadWriteCloser)
	if text := readAll(t, stream); text != "text" {
		t.Errorf("read %q, want text", text)
	}
	inFlight(t, l, 1) // there may be more to write
	if _, err := io.WriteString(stream, "more"); err != nil || sent.String() != "more" {
		t.Errorf("wrote %q, %v", sent.String(), err)
	}
	if _, has := stream.(closeWriter); has {
		t.Error("a stream without CloseWrite got one")
	}
	_ = stream.Close()
	_ = stream.Close()
	idle(t, l)

	ended := false
	resp = trip(t, &Transport{Limiter: l, Base: answers(101, half{duplex{b, &sent}, &ended})})
	if err := resp.Body.(closeWriter).CloseWrite(); err != nil || !ended {
		t.Errorf("CloseWrite: %v, reached the stream: %v", err, ended)
	}
	_ = resp.Body.Close()
	idle(t, l)
}

func TestRequestsOfAClientWaitForTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &Transport{Base: answers(200, http.NoBody),
			Limiter: limiter(t, quotient.Rates(quotient.Every(time.Second)))}
		start := time.Now()
		for range 4 {
			trip(t, tr)
		}
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("four requests took %v, want 3s", took)
		}
	})
}

func TestNilBaseIsTheDefaultTransport(t *testing.T) {
	if got := (&Transport{}).base(); got != http.DefaultTransport {
		t.Errorf("base %v, want http.DefaultTransport", got)
	}
}

// idler counts CloseIdleConnections.
type idler struct {
	http.RoundTripper
	closed int
}

func (i *idler) CloseIdleConnections() { i.closed++ }

func TestCloseIdleConnections(t *testing.T) {
	i := &idler{}
	(&http.Client{Transport: &Transport{Base: i}}).CloseIdleConnections()
	if i.closed != 1 {
		t.Errorf("reached the base %d times, want once", i.closed)
	}
	(&http.Client{Transport: &Transport{Base: answers(200, nil)}}).CloseIdleConnections()
}
