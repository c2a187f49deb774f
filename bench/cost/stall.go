package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/pprof"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotient-go/quotient"
)

const (
	stallWaiters = 100_000
	stallRoom    = 1000      // bound on the keys, so low that quotient has one lock for all of them
	stallKeys    = 64        // probed in turn
	stallProbes  = 2_000_000 // room for the probes of one round
)

// stallFigure raises the limit of a key with a crowd of waiters. It watches calls for other keys under the
// same lock meanwhile: no call may hold a lock that others need for more than a millisecond.
//
// A call's wait for the lock comes from the runtime's mutex profile, which ends when the lock is let go. The
// whole call takes longer: a goroutine that had to wait runs again only behind those of the crowd that are
// ready before it. Every second probe goes to another limiter, as a control.
func stallFigure(c config) ([]table, error) {
	n := max(100, stallWaiters/c.scale)
	t := table{
		title: fmt.Sprintf("Calls for other keys while %d waiters are woken", n),
		note: "Milliseconds, medians of the rounds; quantiles are those of a call that arrives at a random moment between " +
			"the raise and the last waiter's return.",
		header: []string{"what", "p99", "p99.9", "max"},
	}
	var lock, whole, control waits
	var raise, all []float64
	for range c.rounds {
		s, err := stallRound(n)
		if err != nil {
			return nil, err
		}
		lock.add(s.lock)
		whole.add(s.whole)
		control.add(s.control)
		raise, all = append(raise, millis(s.raise)), append(all, millis(s.all))
	}
	t.note += fmt.Sprintf(" The raise took %s ms, the last waiter was back after %s ms.", number(middle(raise)), number(middle(all)))
	t.rows = append(t.rows, lock.row("wait for the lock"), whole.row("whole call"), control.row("whole call, another limiter"))
	t.verdicts = append(t.verdicts, verdict{"longest wait for the lock", middle(lock.most), 1, " ms"})
	return []table{t}, nil
}

// waits collects milliseconds, one of each a round.
type waits struct{ p99, p999, most []float64 }

func (w *waits) add(ds []time.Duration) {
	slices.Sort(ds)
	w.p99 = append(w.p99, millis(timeQuantile(ds, 0.01)))
	w.p999 = append(w.p999, millis(timeQuantile(ds, 0.001)))
	w.most = append(w.most, millis(ds[len(ds)-1]))
}

func (w *waits) row(name string) []string {
	row := []string{name}
	for _, v := range [][]float64{w.p99, w.p999, w.most} {
		row = append(row, fmt.Sprintf("%.3f", middle(v)))
	}
	return row
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// timeQuantile returns the wait that a call arriving at a random moment exceeds with probability beyond.
// A prober that is stuck sends no further probes, so counting its probes would hide the long waits; a wait
// of d stands for all arrivals within d instead. The waits are sorted, shortest first.
func timeQuantile(waits []time.Duration, beyond float64) time.Duration {
	total := time.Duration(0)
	for _, d := range waits {
		total += d
	}
	budget := beyond * float64(total)
	for i := len(waits) - 1; i > 0; i-- {
		longer := float64(len(waits) - i) // waits at least as long as this one
		step := longer * float64(waits[i]-waits[i-1])
		if step >= budget {
			return waits[i] - time.Duration(budget/longer)
		}
		budget -= step
	}
	return waits[0]
}

// stall is one round: what the probes waited, how long the raise took and when the last waiter was back.
type stall struct {
	lock, whole, control []time.Duration
	raise, all           time.Duration
}

func stallRound(n int) (stall, error) {
	l, err := quotient.New(quotient.Limit{InFlight: 1}, quotient.MaxKeys(stallRoom), quotient.MaxWaiting(n, n))
	if err != nil {
		return stall{}, err
	}
	other, err := quotient.New(quotient.Limit{InFlight: 1})
	if err != nil {
		return stall{}, err
	}
	key := makeKey("tenant-", 0)
	if _, d := l.TryAcquire(key); !d.OK {
		return stall{}, &quotient.LimitedError{Key: key, Decision: d}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var crowd sync.WaitGroup
	for range n {
		crowd.Go(func() { _, _ = l.Acquire(ctx, key) })
	}
	if err := until(n, func() bool { return l.Stats().Waiting == n }); err != nil {
		return stall{}, err
	}
	return raiseAndProbe(l, other, &crowd, n)
}

// raiseAndProbe lets the crowd go while a prober asks for other keys.
func raiseAndProbe(l, other *quotient.Limiter, crowd *sync.WaitGroup, n int) (stall, error) {
	defer runtime.SetMutexProfileFraction(runtime.SetMutexProfileFraction(1))
	p := newProber(l, other)
	go p.run()
	<-p.warm
	start, made := time.Now(), p.made.Load()
	err := l.SetLimit(quotient.Limit{InFlight: n + 1})
	raised := time.Now()
	crowd.Wait()
	end := time.Now()
	err = errors.Join(err, until(0, func() bool { return p.made.Load() >= made+4 })) // a small crowd is gone between two probes
	last := time.Now()
	p.stop.Store(true)
	<-p.done
	s := p.between(start, last)
	s.raise, s.all = raised.Sub(start), end.Sub(start)
	if st := l.Stats(); st.Waiting != 0 || st.InFlight != n+1 || st.Cancelled != 0 {
		err = errors.Join(err, fmt.Errorf("%d waiting, %d in flight, %d cancelled", st.Waiting, st.InFlight, st.Cancelled))
	}
	if len(s.whole) == 0 || len(s.control) == 0 || p.refused > 0 {
		err = errors.Join(err, fmt.Errorf("%d and %d probes, %d refused", len(s.whole), len(s.control), p.refused))
	}
	return s, err
}

// prober asks two limiters in turn and notes what each call took.
type prober struct {
	limiters [2]*quotient.Limiter
	keys     []string
	probes   []probe // even ones asked the first limiter
	profile  []runtime.BlockProfileRecord
	made     atomic.Int64 // probes so far
	refused  int
	stop     atomic.Bool
	warm     chan struct{}
	done     chan struct{}
}

// probe is one call: when, how long, and the part of it that was spent waiting for a lock.
type probe struct {
	from, to time.Time
	lock     time.Duration
}

func newProber(l, other *quotient.Limiter) *prober {
	return &prober{
		limiters: [2]*quotient.Limiter{l, other},
		keys:     makeKeys("probe-", stallKeys),
		probes:   make([]probe, 0, stallProbes),
		profile:  make([]runtime.BlockProfileRecord, 4096),
		warm:     make(chan struct{}),
		done:     make(chan struct{}),
	}
}

func (p *prober) run() {
	defer close(p.done)
	perSecond := cyclesPerSecond()
	before := p.contention()
	for i := 0; !p.stop.Load() && len(p.probes) < cap(p.probes); i++ {
		from := time.Now()
		permit, d := p.limiters[i%2].TryAcquire(p.keys[i/2%len(p.keys)])
		permit.Release()
		to := time.Now()
		if !d.OK {
			p.refused++
		}
		after := p.contention()
		p.probes = append(p.probes, probe{from, to, time.Duration(float64(after-before) / perSecond * 1e9)})
		before = after
		p.made.Add(1)
		if i == 4*len(p.keys) {
			close(p.warm)
		}
	}
}

// contention is how long all goroutines together have waited for mutexes so far, in processor cycles.
// The prober is nearly alone in waiting, so what is added during a probe is at least the probe's wait.
func (p *prober) contention() int64 {
	n, _ := runtime.MutexProfile(p.profile)
	total := int64(0)
	for _, r := range p.profile[:min(n, len(p.profile))] {
		total += r.Cycles
	}
	return total
}

// cyclesPerSecond reads the unit of the mutex profile from the head of its text form.
func cyclesPerSecond() float64 {
	var text bytes.Buffer
	perSecond := 0.0
	if err := pprof.Lookup("mutex").WriteTo(&text, 1); err != nil {
		panic(err)
	}
	if _, err := fmt.Fscanf(&text, "--- mutex:\ncycles/second=%g", &perSecond); err != nil {
		panic(err) // the runtime has changed the form
	}
	return perSecond
}

// between returns the calls that overlap the time from start to end.
func (p *prober) between(start, end time.Time) stall {
	var s stall
	for i, c := range p.probes {
		if c.to.Before(start) || c.from.After(end) {
			continue
		}
		if i%2 == 1 {
			s.control = append(s.control, c.to.Sub(c.from))
			continue
		}
		s.whole = append(s.whole, c.to.Sub(c.from))
		s.lock = append(s.lock, c.lock)
	}
	return s
}
