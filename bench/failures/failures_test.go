// Package failures measures what each failure of docs/failures.md costs: how much more a fleet admits than
// its limit, and how much less. Real limiters run in fake time, so that the figures are the same on every machine.
// A row fails that breaks its promise, or is not what the page says.
package failures

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/quotient-go/quotient"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	perSecond = 1000 // of most rows, over the fleet
	burst     = 100
	key       = "key"
	tick      = 10 * time.Millisecond // between two looks of a replica that always wants more
	sec       = time.Second
	minute    = time.Minute
)

var errGone = errors.New("no such host")

// rows are those of the page, by their first cells: each plays a failure, and says what of it counts.
var rows = []struct {
	name string
	play func(f *fleet) outcome
}{
	{"nothing fails", func(f *fleet) outcome { return f.start(4).over(4, "bound 2", 0, f.run(minute), minute) }},
	{"5 run, each counts 4, for a minute", func(f *fleet) outcome {
		f.start(4).run(sec)
		f.add(limit(), quotient.Replicas(4), quotient.StartEmpty())
		return f.over(5, "bound 3", late(minute, 4, 5), f.run(minute), minute)
	}},
	{"4 run, each counts 5", func(f *fleet) outcome {
		return f.start(5).warm(sec).over(4, "bound 2", 0, f.run(minute), minute)
	}},
	{"a fifth starts, counted 5 s late", func(f *fleet) outcome {
		f.start(4).run(sec)
		f.add(limit(), quotient.Replicas(5), quotient.StartEmpty()) // it knows, the others do not yet
		sent := f.run(5 * sec)
		for _, l := range f.members {
			if err := l.SetPool(quotient.Pool{Replicas: 5}, 0); err != nil {
				f.Fatal(err)
			}
		}
		return f.warm(minute).over(5, "bound 3", late(5*sec, 4, 5), sent, 5*sec)
	}},
	{"a fifth is announced 5 s early", func(f *fleet) outcome {
		sent := f.start(5).warm(sec).run(5 * sec) // all were informed before the new replica starts
		f.add(limit(), quotient.Replicas(5), quotient.StartEmpty())
		return f.warm(minute).over(5, "bound 2", 0, sent, 5*sec)
	}},
	{"one is killed", func(f *fleet) outcome {
		f.start(4).follow(f.members...).say(4).run(sec)
		sent := f.say(3).run(30*sec, f.members[:3]...)
		return f.warm(minute, f.members[:3]...).over(4, "bound 2", 0, sent, 30*sec)
	}},
	{"the fleet splits: 10 s after hold-down", func(f *fleet) outcome {
		f.start(4).follow(f.members...).say(4).run(sec)
		f.say(2).run(30 * sec) // each half sees itself
		return f.over(4, "bound 4", late(10*sec, 2, 4), f.run(10*sec), 10*sec)
	}},
	{"the source fails for ten minutes", func(f *fleet) outcome {
		// A larger configured pool falls at once: nothing has been followed before.
		f.start(9).follow(f.members...).say(4).run(sec)
		return f.say(errGone).over(4, "bound 2", 0, f.run(10*minute), 10*minute)
	}},
	{"... with `HintMaxAge`, and 5 configured", func(f *fleet) outcome {
		f.start(5, quotient.HintMaxAge(minute)).follow(f.members...).say(4).run(minute)
		return f.say(errGone).over(4, "bound 2", 0, f.run(minute), minute)
	}},
	{"the source never reports, under `AwaitPool`", func(f *fleet) outcome {
		f.start(4, quotient.AwaitPool(minute)).follow(f.members...).say(errGone)
		return f.over(4, "bound 2", 0, f.run(minute), minute)
	}},
	{"one is stopped for 20 s", func(f *fleet) outcome {
		sent := f.start(4).warm(sec).run(20*sec, f.members[:3]...)
		return f.warm(minute).over(4, "bound 2", 0, sent, 20*sec)
	}},
	{"one is stopped for 60 s, and dropped", func(f *fleet) outcome {
		// An expiry of 10 s and the hold-down pass; it goes on a second before the others learn of it.
		f.start(4).follow(f.members[:3]...).say(4).run(sec)
		sent := f.run(10*sec, f.members[:3]...)
		sent += f.say(3).run(30*sec, f.members[:3]...)
		f.warm(20*sec, f.members[:3]...).warm(sec).say(4).run(minute)
		return f.over(4, "bound 3", late(sec, 3, 4), sent, 40*sec)
	}},
	{"a key reaches one replica only", func(f *fleet) outcome {
		f.start(4).run(sec, f.members[0])
		return f.over(4, "bound 2", 0, f.run(minute, f.members[0]), minute)
	}},
	{"load is split 40:30:20:10", func(f *fleet) outcome {
		f.start(4).demand(sec, 400, 300, 200, 100)
		return f.over(4, "bound 2", 0, f.demand(minute, 400, 300, 200, 100), minute)
	}},
	{"60 restarts in a minute", func(f *fleet) outcome {
		return restarts(f).over(4, "B/N a restart", 60*burst/4, 60*perSecond, minute)
	}},
	{"... with `StartEmpty`", func(f *fleet) outcome {
		return restarts(f, quotient.StartEmpty()).over(4, "bound 2", 0, 60*perSecond, minute)
	}},
	{"a flood of keys: one in use", func(f *fleet) outcome { return attack(f, 0) }},
	{"a flood of keys: a new one", func(f *fleet) outcome { return attack(f, 1000) }}, // no room
	{"2 slots for 4 replicas", func(f *fleet) outcome {
		return work(f, 2, sec/10, 0, 0, "bound 5", quotient.Replicas(4))
	}},
	{"... with ordinals", func(f *fleet) outcome { return work(f, 2, sec/10, 0, 0, "bound 5") }},
	{"... with `AtLeastOne`", func(f *fleet) outcome {
		return work(f, 2, sec/10, 0, 2, "bound 5", quotient.Replicas(4), quotient.AtLeastOne())
	}},
	{"a limit of 1/s", func(f *fleet) outcome { // none has a bucket of less than one
		for range 4 {
			f.add(quotient.Rates(quotient.PerSecond(1)), quotient.Replicas(4))
		}
		first, sent := takeAll(f.members...), f.run(minute+tick) // the last look brings the last four
		return outcome{float64(first - 1), 3, "", "bound 2", float64(60-sent) / 60, minute}
	}},
	{"every 50th permit leaks", func(f *fleet) outcome {
		return work(f, 40, sec/10, 50, 0, "bound 5")
	}},
	{"... with a `MaxHold` of 1 s", func(f *fleet) outcome {
		return work(f, 40, sec/10, 50, 0, "bound 5", quotient.MaxHold(sec))
	}},
	{"work of 20 s, a `MaxHold` of 10 s", func(f *fleet) outcome {
		return work(f, 40, 20*sec, 0, 40, "slots x work/MaxHold", quotient.MaxHold(10*sec))
	}},
	{"one sends 1 s late", func(f *fleet) outcome { // no limiter can see it
		f.start(4).run(sec)
		kept := 0
		for range sec / tick {
			kept += takeAll(f.members[0])
			f.run(tick, f.members[1:]...)
		}
		f.sent[len(f.sent)-1] += kept
		return f.warm(sec).over(4, "R/N x delay", perSecond/4, perSecond, sec)
	}},
	{"a dry run at twice the limit, 10 s", func(f *fleet) outcome {
		f.start(4)
		for _, l := range f.members {
			l.SetDryRun(true)
		}
		return f.over(4, "nothing", 10_000, f.demand(10*sec, 500, 500, 500, 500), 10*sec)
	}},
}

// TestFailures holds every row to its promise, and the page to what is measured.
func TestFailures(t *testing.T) {
	page, err := os.ReadFile("../../docs/failures.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := row.play(&fleet{T: t})
				_, after, _ := strings.Cut(string(page), "\n| "+row.name+" |")
				line, _, _ := strings.Cut(after, "\n")
				if o.above > o.most || regexp.MustCompile(`(\d),(\d)`).ReplaceAllString(line, "$1$2") != o.String() {
					t.Errorf("measured%v, promised %.1f by %s, and the page says%s", o, o.most, o.promise, line)
				}
			})
		})
	}
}

// An outcome is what a failure costs.
type outcome struct {
	above, most float64 // the limit: measured, and what the promise allows
	unit        string  // of both, if it is not requests
	promise     string  // the bound, or what follows where there is none
	lost        float64 // the part of the limit that was not used …
	during      time.Duration
}

func (o outcome) String() string {
	lost := "none"
	if o.lost >= .0005 {
		lost = fmt.Sprintf("%.1f %% of %.0f s", 100*o.lost, o.during.Seconds())
	}
	return fmt.Sprintf(" %.0f%s | %s |", o.above, o.unit, lost)
}

// A fleet is some limiters, each of which stands for a process, and what they let through.
type fleet struct {
	*testing.T
	members []*quotient.Limiter
	says    []source
	sent    []int // by tick
}

func limit() quotient.Limit {
	return quotient.Rates(quotient.Rate{Name: "rate", Events: perSecond, Per: sec, Burst: burst})
}

// start makes four replicas that start together and believe the same.
func (f *fleet) start(believed int, opts ...quotient.Option) *fleet {
	for range 4 {
		f.add(limit(), append(opts, quotient.Replicas(believed))...)
	}
	return f
}

func (f *fleet) add(l quotient.Limit, opts ...quotient.Option) *quotient.Limiter {
	limiter, err := quotient.New(l, opts...)
	if err != nil {
		f.Fatal(err)
	}
	f.members = append(f.members, limiter)
	return limiter
}

// run lets replicas, all where none is named, take all they get for so long, and returns how many requests that was.
func (f *fleet) run(d time.Duration, who ...*quotient.Limiter) int {
	if who == nil {
		who = f.members
	}
	return f.looks(d, func() int { return takeAll(who...) })
}

func (f *fleet) looks(d time.Duration, take func() int) (sum int) {
	for range d / tick {
		n := take()
		f.sent, sum = append(f.sent, n), sum+n
		time.Sleep(tick)
	}
	return sum
}

func (f *fleet) warm(d time.Duration, who ...*quotient.Limiter) *fleet { f.run(d, who...); return f }

func takeAll(who ...*quotient.Limiter) (n int) {
	for _, l := range who {
		for l.Allow(key) {
			n++
		}
	}
	return n
}

// demand sends each replica requests at a rate of its own, per second.
func (f *fleet) demand(d time.Duration, perSecond ...float64) int {
	due := make([]float64, len(perSecond))
	return f.looks(d, func() (n int) {
		for i, rate := range perSecond {
			for due[i] += rate * tick.Seconds(); due[i] >= 1; due[i]-- {
				n += map[bool]int{true: 1}[f.members[i].Allow(key)]
			}
		}
		return n
	})
}

// follow lets replicas follow sources, and say lets all of these report the same: a number or an error.
func (f *fleet) follow(who ...*quotient.Limiter) *fleet {
	for _, l := range who {
		said := make(source)
		f.says = append(f.says, said)
		go func() { _ = l.Follow(f.Context(), said) }()
	}
	return f
}

func (f *fleet) say(what any) *fleet {
	for _, s := range f.says {
		s <- what
	}
	synctest.Wait()
	return f
}

type source chan any

// Watch reports what the row says.
func (s source) Watch(ctx context.Context, report func(quotient.Pool, error)) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case said := <-s:
			n, _ := said.(int)
			err, _ := said.(error)
			report(quotient.Pool{Replicas: n}, err)
		}
	}
}

// over is what n replicas have sent above the rate and the larger of burst and replicas in the worst of all windows, and
// how much of the limit they lost, of a time in which all wanted more.
func (f *fleet) over(n int, promise string, most float64, sent int, during time.Duration) outcome {
	worst, here := 0., 0.
	for _, sent := range f.sent {
		here = max(0, here-perSecond*tick.Seconds()) + float64(sent)
		worst = max(worst, here)
	}
	lost := 1 - float64(sent)/(perSecond*during.Seconds())
	return outcome{max(0, worst-float64(max(burst, n))), most, "", promise, lost, during}
}

// late is bound 3: what a growth of the pool that is seen so late lets through.
func late(d time.Duration, before, after float64) float64 {
	return perSecond * d.Seconds() * (after/before - 1)
}

// restarts replaces one replica each second, for a minute.
func restarts(f *fleet, starts ...quotient.Option) *fleet {
	f.start(4)
	for range 60 {
		f.run(sec)
		f.members = f.members[1:]
		f.add(limit(), append(starts, quotient.Replicas(4))...)
	}
	return f
}

// attack asks 20 new keys a millisecond of a limiter with room for a thousand, for three seconds, while one key is
// asked for all it gets since an instant: 10 at once, and 10 a second.
func attack(f *fleet, since int) outcome {
	l, n := f.add(quotient.Rates(quotient.Rate{Events: 10, Per: sec, Burst: 10}), quotient.MaxKeys(1000)), 0
	for ms := range 3001 {
		if ms >= since {
			n += takeAll(l)
		}
		for i := range 20 {
			l.Allow(strconv.Itoa(20*ms + i))
		}
		time.Sleep(time.Millisecond)
	}
	during := time.Duration(3000-since) * time.Millisecond
	may := 10 + 10*during.Seconds()
	return outcome{max(0, float64(n)-may), 0, "", "bounds 1 and 6", 1 - float64(n)/may, during}
}

// work lets four replicas, which are numbered where nothing else is said, share g slots for a minute. Each request holds
// one for a time; the work of every so many-th ends, and its permit is never released.
func work(f *fleet, g int, takes time.Duration, leaks int, most float64, promise string, opts ...quotient.Option) outcome {
	type request struct {
		permit quotient.Permit
		ends   time.Time
	}
	for i := range 4 {
		numbered := quotient.StartPool(quotient.Pool{Replicas: 4, Ordinal: i + 1, Fixed: true})
		f.add(quotient.Limit{InFlight: g}, append([]quotient.Option{numbered}, opts...)...)
	}
	var out []request
	n, worst, sum := 0, 0, 0
	for range minute / tick {
		out = slices.DeleteFunc(out, func(r request) bool {
			done := !time.Now().Before(r.ends)
			if done {
				r.permit.Release()
			}
			return done
		})
		for _, l := range f.members {
			for p, d := l.TryAcquire(key); d.OK; p, d = l.TryAcquire(key) {
				if n++; n%cmp.Or(leaks, n+1) == 0 {
					p = quotient.Permit{}
				}
				out = append(out, request{p, time.Now().Add(takes)})
			}
		}
		worst, sum = max(worst, len(out)), sum+len(out)
		time.Sleep(tick)
	}
	return outcome{float64(max(0, worst-g)), most, " slots", promise, 1 - float64(sum)/float64(minute/tick)/float64(g), minute}
}
