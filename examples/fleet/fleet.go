package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http/httptest"
	"net/rpc"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/admin"
)

const (
	answerWithin = 15 * time.Second      // a process that starts, also on a busy machine, or that is asked
	lookEvery    = 10 * time.Millisecond // how often the fleet looks at its replicas
)

// A fleet is one run: the upstream, the replicas, and what happened. It is for one goroutine.
type fleet struct {
	plan     plan
	out      *screen
	up       *upstream
	url      string
	start    func(context.Context, assignment) (*process, error)
	all      []*process // every replica that ever was; their IDs count from 1
	phases   []phase
	begin    time.Duration
	platform platform      // how the replicas learn how many they are, in the act of division
	stood    time.Duration // the longest that this process, or a replica that it asked, stood still
	log      []arrival     // of the upstream, when the run is over
}

// A phase is a time in which the same replicas lived, under the same limit.
type phase struct {
	scene
	From, To time.Duration         // by the upstream's clock; to the next phase, or the end of the run
	Limit    float64               // requests a second
	Alive    []int                 // IDs
	of       string                // what began it: join, kill, or nothing that a replica has to notice
	said     time.Duration         // when the platform had made known who is alive
	knew     map[int]time.Duration // by ID, how long after From a replica had put that in force
}

// A moment is what happens a time after the last phase began.
type moment struct {
	after time.Duration
	do    func(context.Context) error // nil at the end
}

// newFleet is a fleet whose replicas are processes.
func newFleet(p plan, out *screen) *fleet {
	return &fleet{plan: p, out: out, up: newUpstream(p.Limit, p.Burst+p.Room, p.Tell), start: start}
}

// runFleet runs a script from start to end, on a platform and over a network.
func runFleet(ctx context.Context, p plan, out *screen, script func(*fleet) []moment) (_ *fleet, err error) {
	f := newFleet(p, out)
	if !p.adapts() {
		if f.platform, err = countings[p.Pool].start(f); err != nil {
			return nil, fmt.Errorf("-pool %s: %w", p.Pool, err)
		}
		defer func() { err = errors.Join(err, f.platform.close()) }()
	}
	srv := httptest.NewServer(f.up)
	defer srv.Close()
	f.url = srv.URL
	return f, f.run(ctx, script)
}

// run starts the replicas and goes through a script. In any case no replica is left afterwards.
func (f *fleet) run(ctx context.Context, script func(*fleet) []moment) error {
	defer func() {
		for _, p := range f.alive() {
			_ = p.end()
		}
	}()
	if err := f.startAll(ctx); err != nil {
		return err
	}
	return f.play(ctx, script(f))
}

// each does something with some processes at the same time.
func each(all []*process, do func(p *process) error) error {
	errs := make([]error, len(all))
	var doing sync.WaitGroup
	for i, p := range all {
		doing.Go(func() { errs[i] = do(p) })
	}
	doing.Wait()
	return errors.Join(errs...)
}

// play goes through a script, one line a second, until its end.
func (f *fleet) play(ctx context.Context, script []moment) error {
	for n := 1; ; {
		if err := f.look(ctx); err != nil {
			return err
		}
		n = f.catchUp(n)
		next := script[0]
		switch {
		case f.up.now() < f.last().From+next.after:
		case next.do != nil:
			if err := next.do(ctx); err != nil {
				return err
			}
			script = script[1:]
		default:
			f.last().To, f.log = f.up.now(), f.up.logged()
			time.Sleep(lookEvery)
			return f.look(ctx) // a replica that stood still has noticed it by now
		}
	}
}

// look asks all replicas how they are, and waits a little. It notes which pool size each has put in force, and says
// it when all know of a change.
func (f *fleet) look(ctx context.Context) error {
	began := time.Now()
	err := each(f.alive(), func(p *process) error { return p.look(f) })
	time.Sleep(lookEvery)
	f.stood = max(f.stood, time.Since(began)-lookEvery)
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	ph := f.last()
	knew := len(ph.knew)
	for _, p := range f.alive() {
		if _, knows := ph.knew[p.id]; !knows && p.state.Replicas == f.told(len(ph.Alive)) {
			ph.knew[p.id] = p.seen - ph.From
		}
	}
	if ph.of != "" && knew < len(ph.knew) && len(ph.knew) == len(ph.Alive) {
		f.out.noticed(f.up.now()-f.begin, *ph)
	}
	return err
}

func (f *fleet) last() *phase { return &f.phases[len(f.phases)-1] }

// catchUp prints the lines from the n-th on that are due, more than one after a replica was started, and returns the
// number of the next.
func (f *fleet) catchUp(n int) int {
	for passed := f.up.now() - f.begin; time.Duration(n)*time.Second <= passed; n++ {
		to := f.begin + time.Duration(n)*time.Second
		by := count(f.up.logged(), to-time.Second, to)
		var cells []cell
		for _, p := range f.all {
			cells = append(cells, cell{by[p.id], p.state.Waiting, !p.ended})
		}
		f.out.line(n, cells, f.last().Limit)
	}
	return n
}

// startAll starts the first replicas. The run begins when all of them are there, and know how many they are; only
// then they send: a service that starts is not ready before.
func (f *fleet) startAll(ctx context.Context) error {
	for range f.plan.Replicas {
		if _, err := f.startOne(ctx, f.plan.Replicas, false); err != nil {
			return err
		}
	}
	first := scene{Factor: 1}
	what := fmt.Sprintf("%d replicas know how many they are, from %s", len(f.all), f.platform.name)
	if f.plan.adapts() {
		first, what = f.plan.scenes()[0], f.plan.scenes()[0].Title
	}
	err := f.enter("", f.up.now(), first)
	if err == nil && !f.plan.adapts() {
		err = f.gather(ctx)
	}
	f.begin = f.up.now()
	f.last().From = f.begin
	f.out.happening(0, what, "")
	return errors.Join(err, each(f.all, func(p *process) error { return p.want(f.plan.Want) }))
}

// gather waits until the first replicas know of each other.
func (f *fleet) gather(ctx context.Context) error {
	for ph := f.last(); len(ph.knew) < len(ph.Alive); {
		if err := f.look(ctx); err != nil {
			return err
		}
		if f.up.now() > ph.From+answerWithin {
			return errors.New("the replicas did not find each other")
		}
	}
	return nil
}

// startOne starts the next replica as one of n. One that counts gets a configured size which is the same for all
// and counts only if the platform falls silent: as many as there will ever be.
func (f *fleet) startOne(ctx context.Context, n int, join bool) (*process, error) {
	a := assignment{
		ID: len(f.all) + 1, Upstream: f.url, Start: f.up.start, Limit: f.plan.Limit, Burst: f.plan.Burst,
		Replicas: f.told(n), Join: join, Pool: f.plan.Pool, At: f.platform.at, Policy: f.plan.Policy,
	}
	if countings[a.Pool].period > 0 {
		a.Replicas = f.plan.Replicas + 1
	}
	p, err := f.start(ctx, a)
	if err == nil {
		err = p.look(f) // it answers when it is ready
	}
	if err == nil {
		f.all = append(f.all, p)
	}
	return p, err
}

func (f *fleet) told(n int) int { return cmp.Or(f.plan.Believe, n) }

func (f *fleet) alive() []*process {
	return slices.DeleteFunc(slices.Clone(f.all), func(p *process) bool { return p.ended })
}

// enter ends the current phase and begins the next with those that are alive, and has the platform make them known.
func (f *fleet) enter(of string, at time.Duration, s scene) (err error) {
	if len(f.phases) > 0 {
		f.last().To = at
	}
	ph := phase{scene: s, From: at, To: time.Hour, Limit: s.Factor * f.plan.Limit, of: of}
	ph.knew = make(map[int]time.Duration)
	for _, p := range f.alive() {
		ph.Alive = append(ph.Alive, p.id)
	}
	ph.Title = cmp.Or(s.Title, fmt.Sprintf("%d replicas", len(ph.Alive)))
	if f.platform.say != nil {
		err = f.platform.say(ph.Alive)
	}
	ph.said = f.up.now()
	f.phases = append(f.phases, ph)
	return err
}

// division is the script in which one replica joins and one is killed.
func division(f *fleet) (script []moment) {
	p := f.plan
	if p.Join > 0 {
		script = append(script, moment{p.Join, f.join})
	}
	if p.Kill > 0 {
		script = append(script, moment{p.Kill - p.Join, f.killOne})
	}
	return append(script, moment{p.Duration - max(p.Join, p.Kill), nil})
}

// join starts one more replica, with an empty bucket. It sends requests while the others do not know of it yet:
// that is the growth that bound 3 allows for.
func (f *fleet) join(ctx context.Context) error {
	p, err := f.startOne(ctx, len(f.alive())+1, true)
	if err != nil {
		return err
	}
	f.out.happening(p.state.Born-f.begin, fmt.Sprintf("replica %d joins, its bucket empty", p.id), "")
	return errors.Join(p.want(f.plan.Want), f.enter("join", p.state.Born, scene{Factor: 1}))
}

// killOne kills the second replica, or the only one of the start.
func (f *fleet) killOne(context.Context) error {
	p := f.all[min(1, f.plan.Replicas-1)]
	_ = p.end()
	now := f.up.now()
	f.out.happening(now-f.begin, fmt.Sprintf("replica %d is killed (pid %d)", p.id, p.state.Pid), "")
	return f.enter("kill", now, scene{Factor: 1})
}

// late is how long it took until the last replica knew of the change; as long as the phase when one never did.
func (ph phase) late() (late time.Duration, all bool) {
	if len(ph.knew) < len(ph.Alive) {
		return ph.To - ph.From, false
	}
	return slices.Max(slices.Collect(maps.Values(ph.knew))), true
}

// A process is a replica, seen from its parent.
type process struct {
	id          int
	replica     *rpc.Client
	kill        context.CancelFunc // as a crash does
	wait        func() error       // until it has ended: no zombie stays; returns its last words
	ended       bool
	state       Report        // the last one, but with all overheads
	asked, seen time.Duration // when it was asked for, and was there
	steps       []step        // what its share was, and since when
}

// start runs this program again as a replica. The end of ctx kills it.
func start(ctx context.Context, a assignment) (*process, error) {
	ctx, kill := context.WithCancel(ctx)
	task, err := json.Marshal(a)
	exe, err2 := os.Executable()
	cmd := exec.CommandContext(ctx, exe, replicaArg, string(task))
	var words bytes.Buffer
	cmd.Stderr = &words
	stdin, err3 := cmd.StdinPipe()
	stdout, err4 := cmd.StdoutPipe()
	if err = cmp.Or(err, err2, err3, err4); err == nil {
		err = cmd.Start()
	}
	if err != nil {
		kill()
		return nil, err
	}
	wait := func() error { return fmt.Errorf("%v %s", cmd.Wait(), bytes.TrimSpace(words.Bytes())) }
	client := rpc.NewClient(pipe{stdout, stdin})
	return &process{id: a.ID, replica: client, kill: kill, wait: wait, steps: []step{{}}}, nil
}

// look asks the replica how it is. Whether a new pool size was put in force soon after the look before or just now
// is not known from outside, so the larger share counts.
func (p *process) look(f *fleet) error {
	asked := f.up.now()
	var now Report
	if err := p.call("Report", struct{}{}, &now); err != nil {
		return err
	}
	p.seen = f.up.now()
	if n := now.Replicas; n != p.state.Replicas {
		next := f.share(p.seen, n)
		if next.rate > p.steps[len(p.steps)-1].rate {
			next.from = p.asked
		}
		p.steps = append(p.steps, next)
	}
	now.Overheads = append(p.state.Overheads, now.Overheads...)
	p.state, p.asked = now, asked
	return nil
}

// share is what one of n replicas may do from an instant on: the quotient, and no bucket smaller than one request.
func (f *fleet) share(from time.Duration, n int) step {
	return step{from: from, rate: f.plan.Limit / float64(n), burst: max(1, float64(f.plan.Burst)/float64(n))}
}

func (p *process) want(rate float64) error { return p.call("Want", rate, &struct{}{}) }

// call calls the replica. It fails only when that has ended; one that does not answer in time is killed.
func (p *process) call(method string, arg, reply any) error {
	deaf := time.AfterFunc(answerWithin, p.kill)
	defer deaf.Stop()
	if p.replica.Call("replica."+method, arg, reply) == nil {
		return nil
	}
	return fmt.Errorf("replica %d ended by itself: %w", p.id, p.end())
}

// end kills the process, unless it has ended, and returns how it ended.
func (p *process) end() error {
	p.ended, p.state.Waiting = true, 0
	p.kill()
	return p.wait()
}

// tell sets the pool size at the replica's admin endpoint, as an operator does.
func (p *process) tell(replicas int) error {
	client, err := admin.NewClient(p.state.Admin)
	if err == nil {
		_, err = client.SetReplicas(context.Background(), "", quotient.Pool{Replicas: replicas}, 0)
	}
	if err != nil {
		return fmt.Errorf("telling replica %d: %w", p.id, err)
	}
	return nil
}
