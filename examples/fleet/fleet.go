package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/admin"
)

// Time limits.
const (
	patience    = 500 * time.Millisecond // a request waits for its turn, then its replica gives it up
	startWithin = 15 * time.Second       // a process that starts, also on a busy machine
	stopWithin  = 3 * time.Second        // a process whose input has ended
	tellWithin  = 5 * time.Second        // an answer of an admin endpoint
)

// A fleet is one run: the upstream, the replicas, and what happened. Only the goroutine of runFleet uses it; the
// processes and the upstream have locks of their own.
type fleet struct {
	plan     plan
	out      *screen
	up       *upstream
	url      string
	all      []*process // every replica that ever was; their IDs count from 1
	phases   []phase
	growth   growth
	most     int // largest pool size
	begin    time.Duration
	behind   time.Duration // how much later than planned all that is still to come happens
	platform *platform     // what the replicas count themselves with; nil when they get the size
	stood    time.Duration // the longest that this process stood still; known when the run is over
}

// A phase is a time in which the same replicas lived, under the same limit.
type phase struct {
	From, To time.Duration // by the upstream's clock; to the next phase, or the end of the run
	Limit    float64       // requests a second
	Alive    []int         // IDs
	of       string        // what began it: join, kill, or nothing that a replica has to notice
	said     time.Duration // when the platform had made known who is alive
	shown    bool          // that all have noticed
}

// A moment is an instant of a run, counted from its begin, and what happens at it.
type moment struct {
	at time.Duration
	do func(context.Context) error
}

// runFleet runs a script from start to end. In any case no process of it is left afterwards.
func runFleet(ctx context.Context, p plan, out *screen, script func(*fleet) []moment) (_ *fleet, err error) {
	f := &fleet{plan: p, out: out, up: newUpstream(p.Limit, p.Burst+p.Room, p.Tell), most: p.Replicas}
	if how, counts := countings[p.Pool]; counts {
		if f.platform, err = how.start(); err != nil {
			return nil, fmt.Errorf("-pool %s: %w", p.Pool, err)
		}
		defer func() { err = errors.Join(err, f.platform.close()) }()
	}
	srv := httptest.NewServer(f.up)
	defer srv.Close()
	f.url = srv.URL + "/"
	watched, unwatch := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { watchStalls(watched, func(stall time.Duration) { f.stood = max(f.stood, stall) }) })
	defer func() {
		unwatch()
		watching.Wait()
		for _, p := range f.alive() {
			watching.Go(p.stop)
		}
		watching.Wait()
	}()
	if err := f.startAll(ctx); err != nil {
		return nil, err
	}
	return f, f.play(ctx, script(f))
}

func each(all []*process, do func(i int, p *process) error) error {
	errs := make([]error, len(all))
	var doing sync.WaitGroup
	for i, p := range all {
		doing.Go(func() { errs[i] = do(i, p) })
	}
	doing.Wait()
	return errors.Join(errs...)
}

// play goes through a script, one line a second. At the last moment, the end, nothing more happens.
func (f *fleet) play(ctx context.Context, script []moment) error {
	for n := 1; ; {
		time.Sleep(watchEvery)
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		n = f.catchUp(n)
		f.showNotice(f.last())
		if err := f.check(); err != nil {
			return err
		}
		switch next := script[0]; {
		case f.until(next) > 0:
			continue
		case next.do == nil:
			f.last().To = f.up.now()
			return nil
		default:
			if err := next.do(ctx); err != nil {
				return err
			}
			script = script[1:]
		}
	}
}

func (f *fleet) until(m moment) time.Duration { return f.begin + f.behind + m.at - f.up.now() }

func (f *fleet) last() *phase { return &f.phases[len(f.phases)-1] }

// catchUp prints the lines from the n-th on that are due, more than one after a replica was started, and returns the
// number of the next.
func (f *fleet) catchUp(n int) int {
	for passed := min(f.up.now()-f.begin, f.plan.Duration+f.behind); time.Duration(n)*time.Second <= passed; n++ {
		to := f.begin + time.Duration(n)*time.Second
		by := count(f.up.logged(), to-time.Second, to)
		var cells []cell
		for _, p := range f.all {
			c := cell{second: by[p.id], Alive: !p.ending}
			if c.Alive {
				c.Waiting = p.reported().Waiting
			}
			cells = append(cells, c)
		}
		f.out.line(n, cells, f.last().Limit)
	}
	return n
}

// startAll starts the first replicas. The run begins when all of them are there; those that count know of each
// other then, and only then send: a service that starts is not ready before.
func (f *fleet) startAll(ctx context.Context) error {
	for ordinal := range f.plan.Replicas {
		if _, err := f.startOne(ctx, f.plan.Replicas, ordinal+1, false); err != nil {
			return err
		}
	}
	err := f.enter("", f.up.now(), f.plan.Limit)
	if f.platform != nil && err == nil {
		err = f.gather(ctx)
	}
	f.begin = f.up.now()
	f.phases[0].From = f.begin
	return errors.Join(err, each(f.all, func(_ int, p *process) error { return p.order(f.plan.Want) }))
}

// startOne starts the next replica as one of n. One that counts gets a configured size which is the same for all
// and counts only if the platform falls silent: as many as there will ever be.
func (f *fleet) startOne(ctx context.Context, n, ordinal int, join bool) (*process, error) {
	told := f.announced(n)
	a := assignment{
		ID: len(f.all) + 1, Upstream: f.url, Start: f.up.start,
		Limit: f.plan.Limit, Burst: f.plan.Burst, Replicas: told, Ordinal: min(ordinal, told), Join: join,
		Policy: f.plan.ctrl,
	}
	if f.platform != nil {
		a.Pool, a.At, a.Replicas, a.Ordinal = f.plan.Pool, f.platform.at, f.plan.Replicas+1, 0
	}
	p, err := start(ctx, a)
	if err != nil {
		return nil, err
	}
	p.steps = []step{f.share(0, n)}
	f.all = append(f.all, p)
	if join {
		err = p.order(f.plan.Want)
	}
	return p, err
}

func (f *fleet) announced(n int) int { return cmp.Or(f.plan.Believe, n) }

// share is what one of n replicas may do from an instant on: the quotient, and no bucket smaller than one request.
func (f *fleet) share(from time.Duration, n int) step {
	return step{from: from, rate: f.plan.Limit / float64(n), burst: max(1, float64(f.plan.Burst)/float64(n))}
}

// changed is the step of a replica that was not yet one of n at one instant, and was at another. In between it is
// not known from outside, so the larger share counts.
func (f *fleet) changed(steps []step, n int, after, by time.Duration) step {
	next := f.share(by, n)
	if next.rate > steps[len(steps)-1].rate {
		next.from = after
	}
	return next
}

func (f *fleet) alive() []*process {
	return slices.DeleteFunc(slices.Clone(f.all), func(p *process) bool { return p.ending })
}

func (f *fleet) check() error {
	return each(f.alive(), func(_ int, p *process) error { return p.ended() })
}

// enter ends the current phase and begins the next with those that are alive, and has the platform make them known.
func (f *fleet) enter(of string, at time.Duration, limit float64) (err error) {
	if len(f.phases) > 0 {
		f.last().To = at
	}
	next := phase{From: at, To: time.Hour, Limit: limit, of: of, said: at} // no run is as long
	for _, p := range f.alive() {
		next.Alive = append(next.Alive, p.id)
	}
	if f.platform != nil && f.platform.say != nil {
		err = f.platform.say(next.Alive)
		next.said = f.up.now()
	}
	f.phases = append(f.phases, next)
	return err
}

// division is the script in which one replica joins and one is killed.
func division(f *fleet) []moment {
	script := []moment{{f.plan.Join, f.join}, {f.plan.Kill, f.killOne}, {f.plan.Duration, nil}}
	return slices.DeleteFunc(script, func(m moment) bool { return m.at == 0 })
}

// join starts one more replica, with an empty bucket. It sends requests while the others do not know of it yet:
// that is the growth that bound 3 allows for.
func (f *fleet) join(ctx context.Context) error {
	f.most = len(f.alive()) + 1
	p, err := f.startOne(ctx, f.most, f.most, true)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("replica %d joins, its bucket empty", p.id)
	return f.happens(ctx, "join", what, f.plan.Join, p.reported().Born)
}

// grown is what it may cost that the last of n replicas knew of a new one only a time after it was born (bound 3).
func (f *fleet) grown(born, late time.Duration, n int) growth {
	return growth{from: born, to: born + late, extra: f.plan.Limit * late.Seconds() * (float64(n)/float64(n-1) - 1)}
}

// killOne kills the second replica, or the only one of the start.
func (f *fleet) killOne(ctx context.Context) error {
	victim := f.all[min(1, f.plan.Replicas-1)]
	victim.kill()
	what := fmt.Sprintf("replica %d is killed (pid %d)", victim.id, victim.cmd.Process.Pid)
	return f.happens(ctx, "kill", what, f.plan.Kill, f.up.now())
}

// happens begins the phase after a change, shows it and notifies the replicas. Where they count, what is still to
// come keeps its distance instead: a replica that starts slowly is noticed no sooner.
func (f *fleet) happens(ctx context.Context, of, what string, planned, at time.Duration) error {
	if err := f.enter(of, at, f.plan.Limit); err != nil {
		return err
	}
	if f.platform != nil {
		f.behind = max(0, at-f.begin-planned)
		f.out.happening(at-f.begin, what, "; no replica is notified")
		return nil
	}
	alive, n := f.alive(), len(f.last().Alive)
	told, delays := f.announced(n), make([]time.Duration, n)
	err := each(alive, func(i int, p *process) error {
		asked := f.up.now()
		err := p.tell(ctx, told, min(i+1, told))
		known := f.up.now()
		delays[i] = known - at
		p.steps = append(p.steps, f.changed(p.steps, n, asked, known))
		return err
	})
	if of == "join" {
		f.growth = f.grown(at, slices.Max(delays), n)
	}
	f.out.event(at-f.begin, what, "notified", f.last().Alive, delays)
	return err
}

// A process is a replica, seen from its parent.
type process struct {
	id     int
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	done   chan struct{} // closed when the process has ended, for whatever cause, and was waited for
	err    error         // how it ended, once done is closed
	steps  []step        // what its share was, and since when
	ending bool          // its end was ordered: owned by the fleet

	mu    sync.Mutex
	state message // the last one
}

// start runs this program again as a replica, and waits until it is ready.
func start(ctx context.Context, a assignment) (*process, error) {
	exe, err := os.Executable()
	p := &process{id: a.ID, cmd: exec.Command(exe, replicaArg), done: make(chan struct{})}
	var said bytes.Buffer
	p.cmd.Stderr, p.cmd.WaitDelay = &said, time.Second
	stdin, err2 := p.cmd.StdinPipe()
	stdout, err3 := p.cmd.StdoutPipe()
	if err := cmp.Or(err, err2, err3); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	p.stdin = stdin
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = p.cmd.Process.Kill() })() // which ends the words
	_ = p.order(a)                                                      // a process that does not read it has ended
	words := json.NewDecoder(stdout)
	err = words.Decode(&p.state)
	go p.attend(words, &said)
	if err == nil {
		return p, nil
	}
	<-p.done
	if ctx.Err() != nil {
		return nil, fmt.Errorf("replica %d did not start: %w", p.id, ctx.Err())
	}
	return nil, p.ended()
}

// attend reads what the replica says until it ends, and then waits for it: no zombie stays.
func (p *process) attend(words *json.Decoder, said *bytes.Buffer) {
	for {
		var m message
		if words.Decode(&m) != nil {
			break // the end, or a line cut off by it
		}
		p.mu.Lock()
		p.state = m
		p.mu.Unlock()
	}
	p.err = p.cmd.Wait()
	if said.Len() > 0 {
		p.err = fmt.Errorf("%v: %s", p.err, bytes.TrimSpace(said.Bytes()))
	}
	close(p.done)
}

func (p *process) reported() message {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// ended is the error of a replica that ended although it was not ordered to; nil while it lives.
func (p *process) ended() error {
	select {
	case <-p.done:
		return fmt.Errorf("replica %d ended by itself: %v", p.id, p.err)
	default:
		return nil
	}
}

// kill ends the process without a word, as a crash does, and waits for its end. It may have ended already.
func (p *process) kill() {
	p.ending = true
	_ = p.cmd.Process.Kill()
	<-p.done
}

// stop ends the process in order: its input ends, it sends its last report. One that does not listen is killed.
func (p *process) stop() {
	p.ending = true
	_ = p.stdin.Close() // the process may have ended already
	deaf := time.AfterFunc(stopWithin, func() { _ = p.cmd.Process.Kill() })
	<-p.done
	deaf.Stop()
}

func (p *process) order(o any) error {
	if err := json.NewEncoder(p.stdin).Encode(o); err != nil {
		return fmt.Errorf("replica %d: %w", p.id, err)
	}
	return nil
}

// operator takes a new connection each time: a replica closes an idle one after a while, and a request that meets
// that end is lost.
var operator = &http.Client{Timeout: tellWithin, Transport: &http.Transport{DisableKeepAlives: true}}

func (p *process) tell(ctx context.Context, replicas, ordinal int) error {
	client, err := admin.NewClient(p.reported().Admin, admin.HTTPClient(operator))
	if err == nil {
		_, err = client.SetReplicas(ctx, "", quotient.Pool{Replicas: replicas, Ordinal: ordinal}, 0)
	}
	if err != nil {
		return fmt.Errorf("telling replica %d: %w", p.id, err)
	}
	return nil
}
