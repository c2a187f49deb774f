package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/admin"
)

// answerWithin is for a process that starts, also on a busy machine, or that is asked.
const answerWithin = 15 * time.Second

// A fleet is one run: the upstream, the replicas, and what happened. It is for one goroutine.
type fleet struct {
	plan   plan
	out    *screen
	up     *upstream
	url    string
	start  func(context.Context, assignment) (*process, error)
	tell   func(p *process, replicas int) error // sets the pool size of a replica
	all    []*process                           // every replica that ever was; their IDs count from 1
	phases []phase
	begin  time.Duration
	log    []arrival // of the upstream, when the run is over
}

// A phase is a time in which the same replicas lived, under the same limit.
type phase struct {
	scene
	From, To time.Duration // by the upstream's clock; to the next phase, or the end of the run
	Limit    float64       // requests a second
	Alive    []int         // IDs
	Unknown  time.Duration // for so long at its begin not all replicas knew of a new one
}

// A moment is what happens a time after the last phase began.
type moment struct {
	after time.Duration
	do    func(context.Context) error
}

// room is the burst that the upstream allows beyond the fleet's: requests that leave evenly may arrive together.
const room = 10

// newFleet is a fleet whose replicas are processes.
func newFleet(p plan, out *screen) *fleet {
	return &fleet{plan: p, out: out, up: newUpstream(p.Limit, p.Burst+room), start: start, tell: (*process).tell}
}

// run starts the replicas and goes through the script. In any case no replica is left afterwards.
func (f *fleet) run(ctx context.Context) error {
	defer func() {
		for _, p := range f.alive() {
			_ = p.end()
		}
	}()
	if err := f.startAll(ctx); err != nil {
		return err
	}
	if f.plan.adapts() {
		return f.play(ctx, f.adaptation())
	}
	return f.play(ctx, f.division())
}

// each does something with each process.
func each(all []*process, do func(p *process) error) (err error) {
	for _, p := range all {
		err = errors.Join(err, do(p))
	}
	return err
}

// play goes through a script, and prints a line a second. Lines that are late, as a replica was started meanwhile,
// are not lost.
func (f *fleet) play(ctx context.Context, script []moment) error {
	n := 1
	for _, next := range script {
		until := f.last().From + next.after
		for ; f.begin+time.Duration(n)*time.Second <= until; n++ {
			if err := f.look(ctx, f.begin+time.Duration(n)*time.Second); err != nil {
				return err
			}
			f.line(n)
		}
		if err := f.look(ctx, until); err != nil {
			return err
		}
		if err := next.do(ctx); err != nil {
			return err
		}
	}
	return nil
}

// look waits until an instant, and then asks all replicas how they are.
func (f *fleet) look(ctx context.Context, at time.Duration) error {
	select {
	case <-ctx.Done():
	case <-time.After(at - f.up.now()):
	}
	err := each(f.alive(), func(p *process) error { return p.order(0) })
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return err
}

func (f *fleet) last() *phase { return &f.phases[len(f.phases)-1] }

// line prints what happened in the n-th second.
func (f *fleet) line(n int) {
	to := f.begin + time.Duration(n)*time.Second
	by := count(f.up.logged(), to-time.Second, to)
	var cells []cell
	for _, p := range f.all {
		cells = append(cells, cell{by[p.id], p.state.Waiting, !p.ended})
	}
	f.out.line(n, cells, f.last().Limit)
}

// finish ends the run. A replica that stood still has noticed it a little later.
func (f *fleet) finish(ctx context.Context) error {
	now := f.up.now()
	f.last().To, f.log = now, f.up.logged()
	return f.look(ctx, now+2*wakeEvery)
}

// startAll starts the first replicas. The run begins when all of them are there; only then they send.
func (f *fleet) startAll(ctx context.Context) error {
	for range f.plan.Replicas {
		if _, err := f.startOne(ctx, f.plan.Replicas, false); err != nil {
			return err
		}
	}
	first := scene{Factor: 1}
	what := fmt.Sprintf("%d replicas know how many they are, from their configuration", len(f.all))
	if f.plan.adapts() {
		first, what = scenes[0], scenes[0].Title
	}
	f.begin = f.up.now()
	f.enter(f.begin, what, first)
	return each(f.all, func(p *process) error { return p.order(f.plan.Want) })
}

// startOne starts the next replica as one of n.
func (f *fleet) startOne(ctx context.Context, n int, join bool) (*process, error) {
	a := assignment{
		ID: len(f.all) + 1, Upstream: f.url, Start: f.up.start, Limit: f.plan.Limit, Burst: f.plan.Burst,
		Replicas: f.told(n), Join: join,
	}
	if f.plan.adapts() {
		a.Policy = f.plan.Policy
	}
	p, err := f.start(ctx, a)
	if err == nil {
		err = p.order(0) // it answers when it is ready
	}
	if err == nil {
		p.steps = []step{f.share(0, f.told(n))}
		f.all = append(f.all, p)
	}
	return p, err
}

func (f *fleet) told(n int) int { return cmp.Or(f.plan.Believe, n) }

func (f *fleet) alive() []*process {
	return slices.DeleteFunc(slices.Clone(f.all), func(p *process) bool { return p.ended })
}

// enter ends the current phase, begins the next with those that are alive, and prints why.
func (f *fleet) enter(at time.Duration, what string, s scene) {
	if len(f.phases) > 0 {
		f.last().To = at
	}
	ph := phase{scene: s, From: at, To: time.Hour, Limit: s.Factor * f.plan.Limit}
	for _, p := range f.alive() {
		ph.Alive = append(ph.Alive, p.id)
	}
	ph.Title = cmp.Or(s.Title, fmt.Sprintf("%d replicas", len(ph.Alive)))
	f.phases = append(f.phases, ph)
	f.out.happening(at-f.begin, what)
}

// division is the script in which one replica joins and one is killed.
func (f *fleet) division() []moment {
	quarter := f.plan.Duration / 4
	return []moment{{quarter, f.join}, {quarter, f.killOne}, {2 * quarter, f.finish}}
}

// join starts one more replica, with an empty bucket. It sends requests while the others do not know of it yet:
// that is the growth that bound 3 allows for.
func (f *fleet) join(ctx context.Context) error {
	p, err := f.startOne(ctx, len(f.alive())+1, true)
	if err != nil {
		return err
	}
	f.enter(p.state.Born, fmt.Sprintf("replica %d joins, its bucket empty", p.id), scene{Factor: 1})
	err = errors.Join(p.order(f.plan.Want), f.tellAll())
	f.last().Unknown = f.up.now() - p.state.Born
	return err
}

// killOne kills the second replica, or the only one of the start.
func (f *fleet) killOne(context.Context) error {
	p := f.all[min(1, f.plan.Replicas-1)]
	_ = p.end()
	f.enter(f.up.now(), fmt.Sprintf("replica %d is killed (pid %d)", p.id, p.state.Pid), scene{Factor: 1})
	return f.tellAll()
}

// tellAll tells the replicas how many they are, or what -believe says. When one of them puts that in force is not
// known from outside, so its larger share counts while it is told.
func (f *fleet) tellAll() error {
	n := f.told(len(f.last().Alive))
	err := each(f.alive(), func(p *process) error {
		next := f.share(f.up.now(), n)
		if err := f.tell(p, n); err != nil {
			return err
		}
		if next.rate < p.steps[len(p.steps)-1].rate {
			next.from = f.up.now()
		}
		p.steps = append(p.steps, next)
		return nil
	})
	if now := f.up.now(); err == nil {
		f.out.happening(now-f.begin, fmt.Sprintf("all know of that after %s", short(now-f.last().From)))
	}
	return err
}

// A process is a replica, seen from its parent.
type process struct {
	id      int
	orders  *json.Encoder
	reports *json.Decoder
	kill    context.CancelFunc // as a crash does
	wait    func() error       // until it has ended: no zombie stays; returns its last words
	ended   bool
	state   Report // the last one
	steps   []step // what its share was, and since when
}

func newProcess(id int, orders io.Writer, reports io.Reader, kill func(), wait func() error) *process {
	return &process{id: id, orders: json.NewEncoder(orders), reports: json.NewDecoder(reports), kill: kill, wait: wait}
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
	return newProcess(a.ID, stdin, stdout, kill, wait), nil
}

// order has the replica send so many requests a second from now on, or as many as before for 0, and takes its report.
// It fails only when the replica has ended; one that does not answer in time is killed.
func (p *process) order(want float64) error {
	deaf := time.AfterFunc(answerWithin, p.kill)
	defer deaf.Stop()
	var now Report
	if p.orders.Encode(want) != nil || p.reports.Decode(&now) != nil {
		return fmt.Errorf("replica %d ended by itself: %w", p.id, p.end())
	}
	p.state = now
	return nil
}

// share is what one of n replicas may do from an instant on: the quotient, and no bucket smaller than one request.
func (f *fleet) share(from time.Duration, n int) step {
	return step{from: from, rate: f.plan.Limit / float64(n), burst: max(1, float64(f.plan.Burst)/float64(n))}
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
