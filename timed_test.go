package quotient

import (
	"errors"
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// hourly is a policy whose laws want to be asked again every second, whatever they hear. It allows one part more of the
// ceiling each time, and notes what it hears.
type hourly struct {
	parts  float64
	heard  *[]policy.Sample
	panics *bool
	bad    error
}

func (h hourly) New(uint64) policy.Law { return &hourlyLaw{hourly: h} }
func (h hourly) Validate() error       { return h.bad }

type hourlyLaw struct {
	hourly
	n float64
}

func (l *hourlyLaw) Next(s policy.Sample, b policy.Bounds) policy.Pace {
	if l.panics != nil && *l.panics {
		panic("broken")
	}
	if l.n++; l.heard != nil && s.Now > 0 {
		*l.heard = append(*l.heard, s)
	}
	return policy.Pace{
		Rate: b.Ceiling * min(1, l.n/l.parts), Saved: time.Second,
		Until: s.Now.Truncate(time.Second) + time.Second,
	}
}

// A law that says when its pace is out of date is started by the first ask, and asked again by the first ask after that,
// without any feedback; it hears what was taken and given back, and whether it has held anybody back.
func TestLawsAreAskedAgain(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		var heard []policy.Sample
		l := limiterOf(t, Limit{Rates: []Rate{{Events: 100, Per: time.Second, Burst: 100}}}, Policy(hourly{parts: 10, heard: &heard}, CeilingShare))
		time.Sleep(1500 * time.Millisecond)
		p := upTo(t, l, "k", 100, 10) // an untouched key has saved up a second's events at the start
		upTo(t, l, "k", 1, 0)
		correct(t, p, 4)
		p.Release()
		time.Sleep(400 * time.Millisecond)
		upTo(t, l, "k", 3, 3).Release()
		time.Sleep(200 * time.Millisecond) // 2.1 s
		l.Allow("k")
		at := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
		for i, want := range []policy.Sample{
			{Now: at(1.5), Sent: at(1.5)}, {Now: at(1.5), Sent: at(1.5)},
			{Now: at(2), Sent: at(2), Taken: 7, Paced: true},
		} {
			if i >= len(heard) || heard[i] != want {
				t.Fatalf("heard %+v, want %+v at %d", heard, want, i)
			}
		}
	})
}

// Who waits is let through by a pace that rises, though no feedback and nobody else comes.
func TestWaitersSeeAPaceThatRises(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{Rates: []Rate{{Events: 100, Per: time.Second, Burst: 100}}}, Policy(hourly{parts: 100}, CeilingShare))
		upTo(t, l, "k", 100, 1).Release()
		c := asking(t, l, "k", Weight(100)) // at 1/s it would take 99 s; at 3, 4, 5/s and so on it takes 12
		time.Sleep(20 * time.Second)
		if !c.ended() || c.err != nil || c.took > 15*time.Second {
			t.Errorf("ended %v, %v after %v", c.ended(), c.err, c.took)
		}
	})
}

// What such a law knows is forgotten like anything learned, so that the key can go; it begins anew afterwards.
func TestAskedLawsAreForgotten(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		l := limiterOf(t, Limit{Rates: []Rate{{Events: 100, Per: time.Second, Burst: 100}}}, Policy(hourly{parts: 10}, CeilingShare), MaxKeys(1))
		for range 20 {
			l.Allow("k")
			time.Sleep(time.Second)
		}
		rateOf := func() float64 {
			for _, ks := range l.Keys() {
				return ks.Rate
			}
			return 0
		}
		if got := rateOf(); got != 100 {
			t.Errorf("after 20 s the pace is %v, want the ceiling", got)
		}
		time.Sleep(forgetAfter)
		if got := rateOf(); got != 10 {
			t.Errorf("after ten minutes the pace is %v, want the start", got)
		}
		l.Allow("k")
		if got := rateOf(); got != 20 { // begun, and asked once more
			t.Errorf("a new life at %v", got)
		}
	})
}

// A law that panics when it is asked again is dropped: who asks has nothing to do with it, and no lock is kept.
func TestAskedLawThatPanics(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		panics := false
		l := limiterOf(t, Limit{Rates: []Rate{{Events: 10, Per: time.Second, Burst: 10}}}, Policy(hourly{parts: 1, panics: &panics}, CeilingShare))
		l.Allow("k")
		panics = true
		time.Sleep(2 * time.Second)
		for range 2 {
			if !l.Allow("k") {
				t.Error("refused")
			}
		}
	})
}

func TestPolicyIsValidated(t *testing.T) {
	bad := errors.New("hourly.bad: true")
	_, err := New(Limit{}, Policy(hourly{bad: bad}, CeilingShare))
	if !errors.Is(err, bad) {
		t.Errorf("got %v", err)
	}
	_, err = New(Limit{}, Policy(policy.Ramp{Start: 2}, CeilingShare))
	says(t, err, "quotient: Policy", "Ramp.Start", "2")
}
