package contenders

import (
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/quotient-go/quotient/policy"
)

// throttling is an error that the SDK takes for a refusal.
type throttling struct{}

func (throttling) Error() string     { return "slow down" }
func (throttling) ErrorCode() string { return "ThrottlingException" }

// client admits one request after the other.
type client interface {
	// acquire waits for the admission of one request and returns what its answer is reported to.
	acquire(t *testing.T) (answered func(throttled bool))
}

// sdk is the original. It is called every millisecond instead of being let sleep. A wait that it rounds to
// nothing makes it try again at the same instant, which on a clock that stands still is forever.
type sdk struct{ *retry.AdaptiveMode }

func newSDK() client {
	return sdk{retry.NewAdaptiveMode(func(o *retry.AdaptiveModeOptions) { o.FailOnNoAttemptTokens = true })}
}

func (c sdk) acquire(t *testing.T) func(bool) {
	release, err := c.GetAttemptToken(context.Background())
	for tries := 0; err != nil; tries++ {
		if tries > 10_000 { // the least rate is one in two seconds
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
		release, err = c.GetAttemptToken(context.Background())
	}
	return func(throttled bool) {
		if throttled {
			_ = release(throttling{})
		} else {
			_ = release(nil)
		}
	}
}

// mine is the controller behind a bucket of one second, as in the arena.
type mine struct {
	mu     sync.Mutex
	ctrl   policy.Controller
	begin  time.Time
	rate   float64
	tokens float64
	last   time.Duration
}

func newMine() *mine {
	m := &mine{ctrl: AWS{}.New(0), begin: time.Now()}
	m.next(policy.Sample{})
	return m
}

// next passes one sample to the controller, and puts its rate in force.
func (m *mine) next(s policy.Sample) {
	m.settle()
	s.Now = time.Since(m.begin)
	p := m.ctrl.Next(s, policy.Bounds{Ceiling: math.Inf(1)})
	m.rate = p.Rate
	m.tokens = min(m.tokens, max(1, m.rate))
	if p.NotBefore > s.Now {
		m.tokens, m.last = 1, p.NotBefore
	}
}

func (m *mine) settle() {
	now := max(m.last, time.Since(m.begin))
	m.tokens = min(max(1, m.rate), m.tokens+m.rate*(now-m.last).Seconds())
	m.last = now
}

func (m *mine) take() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.settle()
	if m.tokens < 1 {
		return false
	}
	m.tokens--
	return true
}

func (m *mine) acquire(*testing.T) func(bool) {
	for !m.take() {
		time.Sleep(time.Millisecond)
	}
	return func(throttled bool) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.next(policy.Sample{Outcome: map[bool]policy.Outcome{
			false: policy.Success,
			true:  policy.Throttled,
		}[throttled]})
	}
}

// story is what happens to the requests of a client that always has one more to send.
type story struct {
	name    string
	length  time.Duration
	between time.Duration // at least, between two requests
	// refuses returns what becomes of a request that reaches the upstream at t.
	refuses func() func(t time.Duration) bool
	// apart is how far five seconds may differ.
	apart float64
}

// fifty is the round trip; the odd part keeps answers apart from the admissions of the same millisecond.
const fifty = 50*time.Millisecond + 300*time.Microsecond

// play returns how many requests were admitted in each second.
func (s story) play(t *testing.T, newClient func() client) (bySecond []float64) {
	synctest.Test(t, func(t *testing.T) {
		bySecond = make([]float64, s.length/time.Second)
		begin, refuses, c := time.Now(), s.refuses(), newClient()
		var mu sync.Mutex // of the upstream
		for {
			answered := c.acquire(t)
			sent := time.Since(begin)
			if sent >= s.length {
				break
			}
			bySecond[sent/time.Second]++
			time.AfterFunc(fifty, func() {
				mu.Lock()
				refused := refuses(sent + fifty/2)
				mu.Unlock()
				answered(refused)
			})
			time.Sleep(s.between)
		}
		time.Sleep(2 * fifty)
	})
	return bySecond
}

func stories() []story {
	script := func(from ...time.Duration) func() func(time.Duration) bool {
		return func() func(time.Duration) bool {
			return func(t time.Duration) bool {
				for _, f := range from {
					if f <= t && t < f+200*time.Millisecond {
						return true
					}
				}
				return false
			}
		}
	}
	bucket := func(limits ...float64) func() func(time.Duration) bool {
		return func() func(time.Duration) bool {
			tokens, last := limits[0], time.Duration(0)
			return func(t time.Duration) bool {
				limit := limits[min(int(t/time.Minute), len(limits)-1)]
				tokens, last = min(limit, tokens+limit*(t-last).Seconds()), t
				if tokens < 1 {
					return true
				}
				tokens--
				return false
			}
		}
	}
	s := time.Second
	return []story{
		{"never refused", 20 * s, 5 * time.Millisecond, script(), 0},
		{"one refusal", 40 * s, 10 * time.Millisecond, script(5 * s), .01},
		{"refusals", 90 * s, 10 * time.Millisecond, script(5*s, 9*s, 11*s, 30*s, 31*s, 33*s, 70*s), .03},
		// Refused while the SDK's bucket is a sixth full, which the controller cannot say: a few requests,
		// once.
		{"early refusal", 60 * s, 10 * time.Millisecond, script(3 * s), .25},
		{"slow client", 60 * s, 700 * time.Millisecond, script(5*s, 21*s, 22*s, 40*s), .01},
		{"20/s, then 5/s, then 50/s", 180 * s, 4 * time.Millisecond, bucket(20, 5, 50), .05},
	}
}

// TestAWSIsTheSDK drives the real adaptive mode and the controller through the same stories, in fake time.
func TestAWSIsTheSDK(t *testing.T) {
	for _, s := range stories() {
		t.Run(s.name, func(t *testing.T) {
			theirs := s.play(t, newSDK)
			ours := s.play(t, func() client { return newMine() })
			a, b := total(theirs), total(ours)
			worst := 0.0
			for i := 1; i+6 <= len(ours); i++ {
				worst = max(worst, apart(theirs, total(ours[i:i+5]), i))
			}
			t.Logf("admitted: SDK %.0f, policy %.0f; five seconds differ by at most %.1f %%", a, b, worst*100)
			if math.Abs(a-b) > .01*a || worst > s.apart {
				t.Errorf("the controller is not the SDK's")
			}
		})
	}
}

// apart is by how much the requests of five seconds differ from the SDK's, which may be a second early or
// late. The curve ends in a cliff, and its time depends on single requests.
func apart(theirs []float64, y float64, i int) float64 {
	least := math.Inf(1)
	for _, from := range []int{i - 1, i, i + 1} {
		x := total(theirs[from : from+5])
		least = min(least, math.Abs(x-y)/max(x, y, 10))
	}
	return least
}

func total(list []float64) (sum float64) {
	for _, v := range list {
		sum += v
	}
	return sum
}
