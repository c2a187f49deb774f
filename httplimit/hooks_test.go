package httplimit

import (
	"io"
	"net/http"
	"testing"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/policy"
)

// panicOf is what f panics with.
func panicOf(f func()) (value any) {
	defer func() { value = recover() }()
	f()
	return nil
}

// touchy is a policy whose controllers panic at feedback.
type touchy struct{}

func (touchy) New(uint64) policy.Controller { return touchy{} }

func (touchy) Next(sample policy.Sample, b policy.Bounds) policy.Pace {
	if sample.Outcome != policy.Unknown {
		panic("touchy")
	}
	return policy.Pace{Rate: min(b.Ceiling, 1e6)}
}

// The permit of an answer is given back when the caller never gets to see it, and the panic is the hook's.
func TestPanicAfterTheAnswerClosesIt(t *testing.T) {
	learner, heard := learning(t)
	for name, tt := range map[string]struct {
		limiter *quotient.Limiter
		profile func(string) *Profile
		want    string
	}{
		"profile":    {learner, func(string) *Profile { panic("a profile") }, "a profile"},
		"controller": {limiter(t, oneSlot, quotient.Policy(touchy{})), nil, "touchy"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBody("text")
			rt := &Transport{Base: answers(200, b), Limiter: tt.limiter, Profile: tt.profile}
			if got := panicOf(func() { _, _ = rt.RoundTrip(request(t, "http://h/", nil)) }); got != tt.want {
				t.Errorf("panic with %v, want %v", got, tt.want)
			}
			if b.closed != 1 {
				t.Errorf("the answer's body was closed %d times, want once", b.closed)
			}
			idle(t, tt.limiter)
		})
	}
	heard.learned(t, policy.Feedback{Outcome: policy.Failed})
}

// Answers without a body have none to close.
func TestPanicAfterAnAnswerWithoutABody(t *testing.T) {
	for _, b := range []io.ReadCloser{nil, http.NoBody} {
		l := limiter(t, oneSlot, quotient.Policy(touchy{}))
		got := panicOf(func() { trip(t, &Transport{Base: answers(200, b), Limiter: l}) })
		if got != "touchy" {
			t.Errorf("panic with %v, want that of the controller", got)
		}
		idle(t, l)
		rt := &Transport{Base: answers(200, b), Limiter: l,
			Profile: func(string) *Profile { panic("a profile") }}
		if got := panicOf(func() { trip(t, rt) }); got == nil {
			t.Error("no panic")
		}
		idle(t, l)
	}
}

// A request that was never sent is closed, also when that is a panic's doing.
func TestPanicBeforeTheAdmissionClosesTheRequest(t *testing.T) {
	for name, rt := range map[string]*Transport{
		"key":      {Key: func(*http.Request) string { panic("key") }},
		"priority": {Priority: func(*http.Request) quotient.Priority { panic("priority") }},
	} {
		rt.Limiter, rt.Base = limiter(t, oneSlot), answers(200, nil)
		b := newBody("text")
		if got := panicOf(func() { _, _ = rt.RoundTrip(request(t, "http://h/", b)) }); got != name ||
			b.closed != 1 {
			t.Errorf("%s: panic with %v, the request's body was closed %d times, want once", name,
				got, b.closed)
		}
		idle(t, rt.Limiter)
	}
}

// A controller that panics when the handler has returned does not keep the permit.
func TestPanicOfAControllerBehindTheHandler(t *testing.T) {
	l := limiter(t, oneSlot, quotient.Policy(touchy{}))
	if got := panicOf(func() { ask(Middleware(l, Path())(ok), get(t, "/")) }); got != "touchy" {
		t.Errorf("panic with %v, want that of the controller", got)
	}
	idle(t, l)
}
