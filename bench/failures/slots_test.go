package failures

import (
	"testing"
	"time"

	"github.com/quotient-go/quotient"
)

// A work is requests that hold a slot for a time, on replicas that always want more.
type work struct {
	members []*quotient.Limiter
	takes   time.Duration
	leaks   int // every so many-th request is never released; 0: none
	n       int
	out     []request
}

type request struct {
	permit quotient.Permit
	ends   time.Time
	leaked bool // its work ends, its permit does not
}

// slots makes a fleet of four that shares so many slots.
func slots(t *testing.T, g int, pool func(i int) quotient.Pool, opts ...quotient.Option) []*quotient.Limiter {
	f := &fleet{t: t}
	for i := range 4 {
		f.add(quotient.Limit{InFlight: g},
			append([]quotient.Option{quotient.StartPool(pool(i + 1))}, opts...)...)
	}
	return f.members
}

func unnumbered(int) quotient.Pool { return replicas(4) }

func numbered(i int) quotient.Pool { return quotient.Pool{Replicas: 4, Ordinal: i, Fixed: true} }

// run works for so long. It returns how many requests were being worked on at the most, and how many on
// average.
func (w *work) run(d time.Duration) (most int, mean float64) {
	sum := 0
	for range d / tick {
		w.end()
		w.begin()
		most = max(most, len(w.out))
		sum += len(w.out)
		time.Sleep(tick)
	}
	return most, float64(sum) / float64(d/tick)
}

// begin takes all slots that there are.
func (w *work) begin() {
	for _, l := range w.members {
		for p, d := l.TryAcquire(key); d.OK; p, d = l.TryAcquire(key) {
			w.n++
			w.out = append(w.out, request{p, time.Now().Add(w.takes), w.leaks > 0 && w.n%w.leaks == 0})
		}
	}
}

// end takes what is done out.
func (w *work) end() {
	var on []request
	for _, r := range w.out {
		if time.Now().Before(r.ends) {
			on = append(on, r)
		} else if !r.leaked {
			r.permit.Release()
		}
	}
	w.out = on
}

// few shares two slots between four replicas.
func few(t *testing.T, pool func(int) quotient.Pool, opts ...quotient.Option) (over, lost float64) {
	w := work{members: slots(t, 2, pool, opts...), takes: 100 * time.Millisecond}
	most, mean := w.run(minute)
	return float64(max(0, most-2)), max(0, 1-mean/2)
}

func fewUnnumbered(t *testing.T) outcome {
	over, lost := few(t, unnumbered)
	return outcome{over: over, unit: "slots", promise: "5", lost: lost, during: minute}
}

func fewNumbered(t *testing.T) outcome {
	over, lost := few(t, numbered)
	return outcome{over: over, unit: "slots", promise: "5", lost: lost, during: minute}
}

func fewAtLeastOne(t *testing.T) outcome {
	over, lost := few(t, unnumbered, quotient.AtLeastOne())
	return outcome{over: over, most: 2, unit: "slots", promise: "5", lost: lost, during: minute}
}

// One event a second for four replicas: none has less than a bucket of one.
func slowRate(t *testing.T) outcome {
	f := &fleet{t: t}
	for range 4 {
		f.add(quotient.Rates(quotient.PerSecond(1)), quotient.StartPool(replicas(4)))
	}
	first := takeAll(f.members)
	sent := f.run(minute+tick, f.members...) // the last look brings the last four
	if sent > 60 {
		t.Errorf("%d in a minute", sent)
	}
	return outcome{over: max(0, float64(first-1)), most: 3, promise: "2", lost: max(0, 1-float64(sent)/60),
		during: minute}
}

// leaky loses every 50th permit of 40 slots, each of which is held for a tenth of a second.
func leaky(t *testing.T, opts ...quotient.Option) outcome {
	w := work{members: slots(t, 40, unnumbered, opts...), takes: 100 * time.Millisecond, leaks: 50}
	most, mean := w.run(minute)
	return outcome{over: float64(max(0, most-40)), unit: "slots", promise: "5", lost: 1 - mean/40,
		during: minute}
}

func leaks(t *testing.T) outcome { return leaky(t) }

func leaksReclaimed(t *testing.T) outcome { return leaky(t, quotient.MaxHold(time.Second)) }

// Work of 20 s under a MaxHold of 10 s: the permit comes back while the work goes on.
func holdTooShort(t *testing.T) outcome {
	w := work{members: slots(t, 40, unnumbered, quotient.MaxHold(10*time.Second)), takes: 20 * time.Second}
	most, mean := w.run(minute)
	return outcome{over: float64(max(0, most-40)), most: 40, unit: "slots", promise: "slots x work/MaxHold",
		lost: max(0, 1-mean/40), during: minute}
}
