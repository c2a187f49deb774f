package httplimit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/tested"
	"github.com/quotient-go/quotient/policy"
)

// base is a RoundTripper made of a function.
type base func(*http.Request) (*http.Response, error)

func (b base) RoundTrip(r *http.Request) (*http.Response, error) { return b(r) }

// answers is a base that always answers so, with fields in pairs.
func answers(status int, b io.ReadCloser, pairs ...string) base {
	return func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: fields(pairs...), Body: b}, nil
	}
}

// noBase is a base that answers with the same response and a body.
type noBase struct{ body http.Response }

func (b *noBase) RoundTrip(*http.Request) (*http.Response, error) {
	resp := b.body
	return &resp, nil
}

func newNoBase() *noBase {
	return &noBase{http.Response{StatusCode: 200, Header: http.Header{}, Body: newBody("")}}
}

// roundTrip sends a request and closes the body of the answer.
func roundTrip(t testing.TB, rt http.RoundTripper, req *http.Request) {
	resp, err := rt.RoundTrip(req)
	tested.Must(t, err)
	_ = resp.Body.Close()
}

// request makes a request as a client sends it.
func request(t testing.TB, url string, b io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", url, b)
	tested.Must(t, err)
	return r
}

func trip(t testing.TB, rt http.RoundTripper) *http.Response {
	t.Helper()
	resp, err := rt.RoundTrip(request(t, "http://h/", nil))
	tested.Must(t, err)
	return resp
}

func TestPermitIsHeldUntilTheBodyEnds(t *testing.T) {
	broken := errors.New("broken")
	for name, tt := range map[string]struct {
		text io.Reader
		end  func(*testing.T, io.ReadCloser)
	}{
		"end":   {strings.NewReader("text"), func(t *testing.T, b io.ReadCloser) { readAll(t, b) }},
		"close": {strings.NewReader("text"), func(_ *testing.T, b io.ReadCloser) { _ = b.Close(); _ = b.Close() }},
		"end and close": {strings.NewReader("text"), func(t *testing.T, b io.ReadCloser) {
			readAll(t, b)
			_ = b.Close()
		}},
		"close in the middle": {strings.NewReader("text"), func(_ *testing.T, b io.ReadCloser) {
			_, _ = b.Read(make([]byte, 1))
			_ = b.Close()
			_, _ = b.Read(make([]byte, 1))
		}},
		"error": {io.MultiReader(strings.NewReader("text"), iotest.ErrReader(broken)),
			func(t *testing.T, b io.ReadCloser) {
				if _, err := io.ReadAll(b); !errors.Is(err, broken) {
					t.Errorf("error %v, want %v", err, broken)
				}
			}},
	} {
		t.Run(name, func(t *testing.T) {
			l, heard := learning(t)
			b := &body{Reader: tt.text}
			resp := trip(t, &Transport{Base: answers(200, b), Limiter: l})
			_, _ = resp.Body.Read(make([]byte, 2))
			inFlight(t, l, 1)
			heard.learned(t, gives(policy.Success, 0)) // when the head is there, and once
			tt.end(t, resp.Body)
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

// An error of the base, or no answer at all, gives the permit back.
func TestErrorOfTheBaseReleases(t *testing.T) {
	broken := errors.New("broken")
	for _, want := range []error{broken, nil} {
		l, heard := learning(t)
		tr := &Transport{Limiter: l, Base: base(func(*http.Request) (*http.Response, error) { return nil, want })}
		if resp, err := tr.RoundTrip(request(t, "http://h/", nil)); resp != nil || !errors.Is(err, want) {
			t.Errorf("%v, %v; want no response and %v", resp, err, want)
		}
		idle(t, l)
		heard.learned(t, gives(policy.Failed, 0))
	}
}

// Whatever panics, the permit is given back, the panic is the hook's, and what the caller never gets to see is
// closed: an answer behind it, or a request that was not sent.
func TestPanicsOfTransport(t *testing.T) {
	bug := base(func(*http.Request) (*http.Response, error) { panic("a base") })
	for want, tr := range map[string]*Transport{
		"a base":    {Base: bug},
		"a profile": {Profile: func(string) *Profile { panic("a profile") }},
		"touchy":    {Limiter: limiter(t, oneSlot, quotient.Policy(touchy{}))},
		"a key":     {Key: func(*http.Request) string { panic("a key") }},
		"a judge": {Profile: func(string) *Profile {
			return &Profile{Judge: func(r *http.Response) (policy.Feedback, bool) { PeekBody(r, 2); panic("a judge") }}
		}},
		"a priority": {Priority: func(*http.Request) quotient.Priority { panic("a priority") }},
		"a weight":   {Weight: func(*http.Request) int { panic("a weight") }},
		"a cost":     {Cost: map[string]func(*http.Request) int{"x": func(*http.Request) int { panic("a cost") }}},
		"a plan":     {Plan: func(*http.Request) string { panic("a plan") }},
	} {
		unsent := tr.Base == nil && tr.Limiter == nil && tr.Profile == nil
		for _, b := range []io.ReadCloser{newBody("text"), nil, http.NoBody} {
			l, heard := learning(t)
			rt := &Transport{Base: tr.Base, Limiter: tr.Limiter, Profile: tr.Profile, Key: tr.Key,
				Priority: tr.Priority, Weight: tr.Weight, Cost: tr.Cost, Plan: tr.Plan}
			if rt.Limiter == nil {
				rt.Limiter = l
			}
			if rt.Base == nil {
				rt.Base = answers(200, b)
			}
			asked := newBody("text")
			tested.Want[any](t, "the panic", panicOf(func() { _, _ = rt.RoundTrip(request(t, "http://h/", asked)) }), want)
			if answered, ok := b.(*body); ok && (answered.closed == 1) != (!unsent && want != "a base") {
				t.Errorf("%s: the answer's body was closed %d times", want, answered.closed)
			}
			tested.Want(t, fmt.Sprintf("%s: the request's body was closed", want), asked.closed == 1, unsent)
			idle(t, rt.Limiter)
			if rt.Limiter == l && !unsent {
				heard.learned(t, gives(policy.Failed, 0))
			}
		}
	}
}

func TestRefusedRequestsAreClosedAndNotSent(t *testing.T) {
	full := limiter(t, oneSlot, quotient.MaxWaiting(0, 0))
	full.TryAcquire("h")
	denies, empty := limiter(t, quotient.Limit{Deny: true}), limiter(t, oneSlot)
	for want, tr := range map[string]*Transport{ // by part of the error
		"refused: ":                      {Limiter: full},
		"refused: denied":                {Limiter: denies},
		"context canceled":               {Limiter: empty},
		"Transport.Limiter is nil":       {},
		`Transport.Cost[""]`:             {Limiter: empty, Cost: map[string]func(*http.Request) int{"": number("n")}},
		`Transport.Cost["bytes"]: want`:  {Limiter: empty, Cost: map[string]func(*http.Request) int{"bytes": nil}},
		`has counted "bytes"`:            {Limiter: empty, Cost: map[string]func(*http.Request) int{"bytes": number("n")}},
		"Transport.BodyTimeout is -1ns":  {Limiter: full, BodyTimeout: -1},
		"Transport.StreamLifetime is -1": {Limiter: full, StreamLifetime: -1},
	} {
		tr.Base = base(func(*http.Request) (*http.Response, error) { return nil, errors.New("sent") })
		ctx, cancel := context.WithCancel(t.Context())
		if tr.Limiter == empty && tr.Cost == nil {
			cancel()
		}
		b := newBody("text")
		for _, asked := range []io.Reader{b, nil} {
			resp, err := tr.RoundTrip(request(t, "http://h/", asked).WithContext(ctx))
			if resp != nil || !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("response %v, error %v; want none, and %q", resp, err, want)
			}
			if errors.Is(err, quotient.ErrLimited) != (tr.BodyTimeout == 0 && tr.StreamLifetime == 0 &&
				(tr.Limiter == full || tr.Limiter == denies)) {
				t.Errorf("%v is, or is not, a refusal of the limiter", err)
			}
		}
		cancel()
		tested.Want(t, fmt.Sprintf("%s: closings of the request's body", want), b.closed, 1)
	}
}

func TestTheRequestIsNotChanged(t *testing.T) {
	req := request(t, "http://h:80/a?b=c", strings.NewReader("text"))
	req.Header.Set("X", "y")
	before, url, header := *req, *req.URL, req.Header.Clone()
	tr := &Transport{Limiter: limiter(t, oneSlot), Base: base(func(r *http.Request) (*http.Response, error) {
		tested.Want(t, "the request that the base got", r, req)
		return &http.Response{Body: http.NoBody}, nil
	})}
	roundTrip(t, tr, req)
	if req.URL != before.URL || *req.URL != url || req.Body != before.Body || !reflect.DeepEqual(req.Header, header) {
		t.Errorf("the request was changed: %v", req)
	}
}

func TestKeyOfTransport(t *testing.T) {
	for want, key := range map[string]KeyFunc{"h": nil, "/a": Path()} {
		tr := &Transport{Key: key, Limiter: limiter(t, oneSlot), Base: newNoBase()}
		roundTrip(t, tr, request(t, "http://H.:80/a", nil))
		tested.Want(t, "key", onlyKey(t, tr.Limiter), want)
	}
}

// A body that is neither read nor closed gives its permit back in time.
func TestForgottenBodies(t *testing.T) {
	const kind, events = "Content-Type", "text/event-stream"
	stream := func(given time.Duration, status int, fields ...string) *Transport {
		return &Transport{BodyTimeout: time.Second, StreamLifetime: given,
			Base: answers(status, duplex{newBody("x"), io.Discard}, fields...)}
	}
	for name, tt := range map[string]struct {
		tr   *Transport
		want time.Duration
	}{
		"default": {&Transport{Base: answers(200, newBody("x"))}, 5 * time.Minute},
		"given":   {&Transport{BodyTimeout: time.Second, Base: answers(200, newBody("x"))}, time.Second},
		"no stream": {&Transport{StreamLifetime: time.Second, Base: answers(200, newBody("x"), kind, events+"s")},
			5 * time.Minute},
		"events":        {stream(0, 200, kind, events), time.Hour},
		"events, given": {stream(time.Minute, 200, kind, "Text/Event-Stream ; charset=utf-8"), time.Minute},
		"101":           {stream(0, 101), time.Hour},
		"101, given":    {stream(time.Minute, 101), time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := limiter(t, oneSlot)
			tt.tr.Limiter = l
			resp := trip(t, tt.tr)
			time.Sleep(tt.want - 1)
			inFlight(t, l, 1)
			time.Sleep(time.Nanosecond)
			permit, d := l.TryAcquire("h")
			if text := readAll(t, resp.Body); !d.OK || text != "x" {
				t.Errorf("%s: %v after %v, body %q; want a permit, and x: it stays readable", name, d, tt.want, text)
			}
			_ = resp.Body.Close()
			tested.Want(t, name+": in flight", l.Stats().InFlight, 1)
			permit.Release()
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
	tested.Want(t, "read", readAll(t, stream), "text")
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

func TestNilBaseIsTheDefaultTransport(t *testing.T) {
	tested.Want(t, "base", (&Transport{}).base(), http.DefaultTransport)
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
	tested.Want(t, "requests that reached the base", i.closed, 1)
	(&http.Client{Transport: &Transport{Base: answers(200, nil)}}).CloseIdleConnections()
}

// What an answer means depends on the host: a Transport asks its own function first, and then ProfileFor.
func TestTransportReportsQuotas(t *testing.T) {
	mine := &Profile{Throttled: []int{499}, Quotas: []Fields{family("mine")}}
	hosts := map[string]*Profile{"mine.example": mine, "git.example:8080": ProfileFor("github.com")}
	mineSays := []string{"Mine-Limit", "60", "Mine-Remaining", "12", "Mine-Reset", "30"}
	spent := []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "9"}
	success, throttled := policy.Success, policy.Throttled
	for _, tt := range []struct {
		url    string
		status int
		fields []string
		want   policy.Feedback
	}{
		{"http://h/", 403, spent, gives(success, 0)},
		{"http://API.GitHub.com/", 403, spent, gives(throttled, 9*time.Second)},
		{"http://git.example:8080/", 403, spent, gives(throttled, 9*time.Second)},
		{"http://git.example/", 403, spent, gives(success, 0)},
		{"http://h/", 503, []string{"Retry-After", "5"}, gives(policy.Unavailable, 5*time.Second)},
		{"http://MINE.example:80/", 200, mineSays,
			gives(success, 0, policy.Quota{Limit: 60, Remaining: 12, Reset: 30 * time.Second})},
		{"http://mine.example/", 499, nil, gives(throttled, 0)},
	} {
		for _, b := range []io.ReadCloser{newBody("text"), nil, http.NoBody} {
			l, heard := learning(t)
			tr := &Transport{Base: answers(tt.status, b, tt.fields...), Limiter: l}
			tr.Profile = func(host string) *Profile { return hosts[host] }
			resp, err := tr.RoundTrip(request(t, tt.url, nil))
			if err == nil && resp.Body != nil {
				err = resp.Body.Close()
			}
			if heard.learned(t, tt.want); tr.Garbage() != 0 || err != nil {
				t.Errorf("%s: garbage %d, error %v; want none", tt.url, tr.Garbage(), err)
			}
			idle(t, l)
		}
	}
}

// A profile's Judge goes before its other rules, sees the body, and leaves it to the caller. What it says is
// kept in bounds. It is not asked about an answer from a cache.
func TestJudge(t *testing.T) {
	const text, week = "THROTTLED, and more", 7 * 24 * time.Hour
	for _, tt := range []struct {
		age       string
		peek      int
		own, want policy.Feedback
		judged    bool
	}{
		{"0", 9, gives(policy.Throttled, time.Second), gives(policy.Throttled, time.Second), true},
		{"0", len(text) + 1, gives(policy.Throttled, week), gives(policy.Throttled, 24*time.Hour), true},
		{"0", 1, gives(policy.Unavailable, -1), gives(policy.Unavailable, 0), true},
		{"0", -1, gives(policy.Throttled, 1), gives(policy.Success, 0), false},
		{"1", 9, gives(policy.Throttled, 1), gives(policy.Success, 0), true},
	} {
		l, heard := learning(t)
		b, asked := newBody(text), 0
		p := &Profile{Judge: func(resp *http.Response) (policy.Feedback, bool) {
			asked++
			tested.Want(t, "the body starts with", string(PeekBody(resp, tt.peek)), text[:min(max(tt.peek, 0), len(text))])
			return tt.own, tt.judged
		}}
		tr := &Transport{Limiter: l, Base: answers(200, b, "Age", tt.age), Profile: func(string) *Profile { return p }}
		resp := trip(t, tr)
		tested.Want(t, "the caller reads", readAll(t, resp.Body), text)
		_ = resp.Body.Close()
		heard.learned(t, tt.want)
		idle(t, l)
		if b.closed != 1 || (asked == 1) != (tt.age == "0") {
			t.Errorf("closed %d times, asked %d times", b.closed, asked)
		}
	}
}

// A policy slows down for a refusal in whatever form it comes. The upstream admits 20 a second.
func TestEachFormOfRefusalSlowsDown(t *testing.T) {
	for host, no := range map[string]struct {
		status            int
		name, value, body string
	}{
		"api.example":        {400, "X-Amzn-Errortype", "ThrottlingException", ""},
		"ddb.amazonaws.com":  {400, "", "", `{"__type":"com.amazon#ThrottlingException"}`},
		"www.googleapis.com": {403, "", "", `{"reason": "userRateLimitExceeded"}`},
		"q.windows.example":  {503, "X-Ms-Error-Code", "ServerBusy", ""},
		"own.example":        {403, "Retry-After-Ms", "100", ""},
	} {
		bubble(t, host, func(t *testing.T) {
			most := quotient.Rates(quotient.PerSecond(1000))
			l := limiter(t, most, quotient.Policy(policy.Tracking{}), quotient.BeyondShare())
			served, refused, start := 0, 0, time.Now()
			tr := &Transport{Limiter: l, Base: base(func(r *http.Request) (*http.Response, error) {
				if float64(served) > 20*time.Since(start).Seconds() {
					refused++
					return answers(no.status, newBody(no.body), no.name, no.value)(r)
				}
				served++
				return newNoBase().RoundTrip(r)
			})}
			for time.Since(start) < time.Minute {
				roundTrip(t, tr, request(t, "http://"+host, nil))
			}
			if served < 900 || refused > served/10 {
				t.Errorf("%d served and %d refused in a minute, want 1,200 and few", served, refused)
			}
		})
	}
}

// What PeekBody has read comes again, before the rest or the error behind it. It holds 64 KiB at most, and
// takes no part of a connection.
func TestPeekBody(t *testing.T) {
	broken := errors.New("broken")
	for name, tt := range map[string]struct {
		status    int
		body      io.ReadCloser
		want, all string
		err       error
	}{
		"none":   {200, nil, "", "", nil},
		"NoBody": {200, http.NoBody, "", "", nil},
		"101":    {101, newBody("text"), "", "text", nil},
		"long":   {200, newBody(long + "more"), long[:maxBuffer], long + "more", nil},
		"slow":   {200, io.NopCloser(iotest.OneByteReader(strings.NewReader("text"))), "text", "text", nil},
		"broken": {200, io.NopCloser(io.MultiReader(strings.NewReader("text"), iotest.ErrReader(broken))),
			"text", "text", broken},
	} {
		resp := &http.Response{StatusCode: tt.status, Body: tt.body}
		if got := string(PeekBody(resp, len(long)*2)); got != tt.want {
			t.Errorf("%s: %d bytes, want %d", name, len(got), len(tt.want))
		}
		if tt.body == nil || tt.body == http.NoBody {
			tested.Want(t, name+": the body", resp.Body, tt.body)
			continue
		}
		if all, err := io.ReadAll(resp.Body); string(all) != tt.all || !errors.Is(err, tt.err) {
			t.Errorf("%s: then %d bytes and %v, want %d and %v", name, len(all), err, len(tt.all), tt.err)
		}
	}
}

// A body holds no permit for longer than BodyTimeout, also if it does not come, or late, while a Judge waits for it.
func TestJudgeThatWaits(t *testing.T) {
	for _, late := range []time.Duration{time.Minute, time.Second - 1} {
		synctest.Test(t, func(t *testing.T) {
			l, _ := learning(t)
			tr := &Transport{Limiter: l, BodyTimeout: time.Second, Base: answers(403, io.NopCloser(&slowBody{late}))}
			tr.Profile = func(string) *Profile { return github }
			time.AfterFunc(time.Second, func() { inFlight(t, l, 0) })
			resp := trip(t, tr)
			time.Sleep(time.Second)
			tested.Want(t, "the caller reads", readAll(t, resp.Body), "body")
		})
	}
}

// A refusal whose head says all is heard of at once: nothing is read of its body.
func TestHeadsThatSayAll(t *testing.T) {
	for host, said := range map[string]base{
		"api.github.com":     answers(429, &body{}), // a read would panic
		"github.com":         answers(403, &body{}, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "5"),
		"iam.amazonaws.com":  answers(400, &body{}, "X-Amzn-Errortype", "ThrottlingException"),
		"www.googleapis.com": answers(429, &body{}, "Retry-After", "5"),
		"api.telegram.org":   answers(429, &body{}, "Retry-After-Ms", "500"),
	} {
		resp, _ := said(nil)
		if f, _ := ProfileFor(host).FeedbackOf(resp); f.Outcome != policy.Throttled {
			t.Errorf("%s: %+v", host, f)
		}
	}
}

func TestTransportCountsGarbage(t *testing.T) {
	l, _ := learning(t)
	tr := &Transport{Base: answers(429, http.NoBody, "Retry-After", "soon", "X-RateLimit-Limit", "ten",
		"X-RateLimit-Remaining", "5"), Limiter: l}
	for i := range 3 {
		tested.Want(t, fmt.Sprintf("after %d answers: garbage", i), tr.Garbage(), uint64(2*i))
		trip(t, tr)
	}
	fixed := &Transport{Base: tr.Base, Limiter: limiter(t, oneSlot)}
	fixed.Profile = func(string) *Profile {
		t.Error("a profile for a policy that does not learn")
		return nil
	}
	trip(t, fixed)
	tested.Want(t, "garbage for a policy that does not learn", fixed.Garbage(), 0)
}

func TestTransportAllocatesLittle(t *testing.T) {
	l, bare, req := limiter(t, plenty), newNoBase(), request(t, "http://h/", nil)
	tr := &Transport{Base: bare, Limiter: l}
	without := testing.AllocsPerRun(1000, func() { roundTrip(t, bare, req) })
	with := testing.AllocsPerRun(1000, func() { roundTrip(t, tr, req) })
	if with-without > 4 {
		t.Errorf("%v allocations a request over the %v of the base, want at most 4", with-without, without)
	}
	idle(t, l)
}
