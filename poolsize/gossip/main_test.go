package gossip

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == childArg {
		child(os.Args[2])
		return
	}
	goleak.VerifyTestMain(m)
}

// racing is set under the race detector, which costs too much for a test of what something costs.
var racing bool

// Times for tests with real sockets: short, and still not missed by chance on a busy machine.
const (
	interval = 20 * time.Millisecond
	rejoin   = 100 * time.Millisecond
	probe    = 100 * time.Millisecond
	// patience bounds every wait for an event.
	patience = 20 * time.Second
)

// must fails the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// config is one of a replica at test speed, on a free port of loopback.
func config(name string, join ...string) Config {
	return Config{Name: name, Bind: "127.0.0.1:0", Join: join, Interval: interval, Rejoin: rejoin,
		Probe: probe}
}

func source(t testing.TB, c Config) *Source {
	t.Helper()
	s, err := New(c)
	must(t, err)
	return s
}

// noted is one report.
type noted struct {
	pool quotient.Pool
	err  error
}

// watched is a Watch that runs.
type watched struct {
	*Source
	cancel context.CancelFunc
	ended  chan error

	mu   sync.Mutex // guards what follows
	all  []noted
	more chan struct{} // gets a value after each report
}

// start watches a replica until the test ends.
func start(t testing.TB, c Config) *watched {
	t.Helper()
	return watchOf(t, source(t, c))
}

func watchOf(t testing.TB, s *Source) *watched {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := &watched{Source: s, cancel: cancel, ended: make(chan error, 1), more: make(chan struct{}, 1)}
	go func() {
		w.ended <- s.Watch(ctx, w.report)
		close(w.ended)
	}()
	t.Cleanup(func() { w.leave(t) })
	return w
}

func (w *watched) report(p quotient.Pool, err error) {
	w.mu.Lock()
	w.all = append(w.all, noted{p, err})
	w.mu.Unlock()
	select {
	case w.more <- struct{}{}:
	default:
	}
}

// leave ends the Watch.
func (w *watched) leave(t testing.TB) {
	t.Helper()
	w.cancel()
	select {
	case err, first := <-w.ended:
		if first && err != context.Canceled {
			t.Errorf("Watch returned %v", err)
		}
	case <-time.After(patience):
		t.Error("Watch does not end")
	}
}

// since returns the reports from number n on: pools alone, or errors alone.
func (w *watched) since(n int) (pools []quotient.Pool, errs []error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.all[n:] {
		if r.err != nil {
			errs = append(errs, r.err)
		} else {
			pools = append(pools, r.pool)
		}
	}
	return pools, errs
}

// least and most are the smallest and the largest size of the pools from report n on.
func (w *watched) least(n int) int {
	least := largestPool
	pools, _ := w.since(n)
	for _, p := range pools {
		least = min(least, p.Replicas)
	}
	return least
}

func (w *watched) most(n int) (most int) {
	pools, _ := w.since(n)
	for _, p := range pools {
		most = max(most, p.Replicas)
	}
	return most
}

func (w *watched) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.all)
}

// last returns the last pool; the zero value at first.
func (w *watched) last() quotient.Pool {
	pools, _ := w.since(0)
	if len(pools) == 0 {
		return quotient.Pool{}
	}
	return pools[len(pools)-1]
}

// lastError returns the last error; nil at first.
func (w *watched) lastError() error {
	_, errs := w.since(0)
	if len(errs) == 0 {
		return nil
	}
	return errs[len(errs)-1]
}

// until waits until a condition holds.
func (w *watched) until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	timeout := time.After(patience)
	for !holds() {
		select {
		case <-w.more:
		case <-time.After(interval / 4):
		case <-timeout:
			t.Fatalf("%s: not after %v; %d reports; the last pool %+v, the last error %v",
				what, patience, w.count(), w.last(), w.lastError())
		}
	}
}

// wants waits for a pool of n in which this replica has an ordinal.
func (w *watched) wants(t testing.TB, n, ordinal int) {
	t.Helper()
	want := quotient.Pool{Replicas: n, Ordinal: ordinal}
	w.until(t, fmt.Sprintf("%d of %d", ordinal, n), func() bool { return w.last() == want })
}

// address waits until a replica listens, and returns where.
func (w *watched) address(t testing.TB) string {
	t.Helper()
	w.until(t, "it listens", func() bool { return w.Stats().Address != "" })
	return w.Stats().Address
}

// childArg makes the test binary a process with replicas of its own. It does what the lines of its standard
// input say, and answers each with a line.
const childArg = "gossip-child"

// replica is one that a child runs.
type replica struct {
	*Source
	end   context.CancelFunc
	ended chan struct{}
}

func run(c Config) (*replica, error) {
	s, err := New(c)
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(context.Background())
	r := &replica{s, end, make(chan struct{})}
	go func() {
		defer close(r.ended)
		s.Watch(ctx, func(quotient.Pool, error) {}) //nolint:errcheck // the context's end
	}()
	return r, nil
}

// where returns the address of a replica, when it listens.
func (r *replica) where() string {
	for r.Stats().Address == "" {
		time.Sleep(time.Millisecond)
	}
	return r.Stats().Address
}

// fields are those of a Config that a child gets.
type fields struct {
	Name, Bind, KeyFile     string
	Join                    []string
	Interval, Rejoin, Probe time.Duration
}

// child runs replicas with the fields in JSON that are its argument. Their names have a number behind.
func child(argument string) {
	var f fields
	if err := json.Unmarshal([]byte(argument), &f); err != nil {
		fmt.Println(err)
		return
	}
	c := Config{Name: f.Name, Bind: f.Bind, KeyFile: f.KeyFile, Join: f.Join, Interval: f.Interval,
		Rejoin: f.Rejoin, Probe: f.Probe}
	var all []*replica
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Println(obey(in.Text(), &c, &all))
	}
}

func obey(line string, c *Config, all *[]*replica) any {
	var verb, key string
	var n int64
	fmt.Sscan(line, &verb, &key, &n) //nolint:errcheck // some lines are shorter
	switch verb {
	case "set":
		fmt.Sscan(key, &n) //nolint:errcheck // the parent knows how
		return set(all, c, int(n))
	case "where":
		return (*all)[0].where()
	case "members":
		return (*all)[0].Stats().Members
	case "until": // all members are known, and their sums complete
		fmt.Sscan(key, &n) //nolint:errcheck // the parent knows how
		return (*all)[0].until(int(n))
	case "load":
		fmt.Sscan(key, &n) //nolint:errcheck // the parent knows how
		return load(*all, int(n))
	case "bytes": // of all, with the headers of UDP and IP
		var sum uint64
		for _, r := range *all {
			s := r.Stats()
			sum += s.Sent + s.PacketsSent*28
		}
		return sum
	case "cpu": // nanoseconds
		var u syscall.Rusage
		syscall.Getrusage(syscall.RUSAGE_SELF, &u) //nolint:errcheck // it does not fail
		return u.Utime.Nano() + u.Stime.Nano()
	case "add":
		at := time.Now().UnixNano()
		(*all)[0].Counters().Add(key, n)
		return at
	case "await":
		return await((*all)[0].Counters(), key, n)
	}
	return "what is " + line
}

// until returns when a replica knows so many members, and the sums are complete.
func (r *replica) until(members int) any {
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if s := r.Stats(); s.Members == members && s.Age < never {
			return members
		} else if time.Now().After(deadline) {
			return fmt.Sprintf("%+v", s)
		}
	}
}

// set has the child run so many replicas.
func set(all *[]*replica, c *Config, n int) any {
	for len(*all) > n {
		last := (*all)[len(*all)-1]
		last.end()
		<-last.ended
		*all = (*all)[:len(*all)-1]
	}
	for len(*all) < n {
		one := *c
		if one.Name = fmt.Sprintf("%s%d", c.Name, len(*all)); len(*all) > 0 {
			c.Bind = (*all)[0].where() // also when the first one starts again
			one.Bind, one.Join = "127.0.0.1:0", append(c.Join, c.Bind)
		}
		r, err := run(one)
		if err != nil {
			return err
		}
		*all = append(*all, r)
	}
	for _, r := range *all {
		for deadline := time.Now().Add(patience); r.Stats().Members < n; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				return fmt.Sprintf("%+v", r.Stats())
			}
		}
	}
	return n
}

// load has each replica say something else of so many keys in each interval, and look all sums up, as a
// limiter does.
func load(all []*replica, keys int) any {
	for i, r := range all {
		n := int64(0)
		_, err := r.Carry("load", func(s quotient.Sums) {
			n++
			for k := range keys {
				key := fmt.Sprintf("customer-%04d", k)
				s.Say(key, quotient.Terms{1, n % 1000 * 317, int64(i) % 2, n%7*1000 + int64(k), 1})
			}
			for key := range s.Keys() {
				s.Sum(key)
			}
		})
		if err != nil {
			return err
		}
	}
	return keys
}

// await returns when a sum is n and complete.
func await(c *Counters, key string, n int64) any {
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond / 2) {
		sum, age := c.Sum(key)
		if sum == n && age < math.MaxInt64 {
			return time.Now().UnixNano()
		}
		if time.Now().After(deadline) {
			return fmt.Sprintf("%d, %v old, is not %d", sum, age, n)
		}
	}
}

// process is a child that runs.
type process struct {
	*exec.Cmd
	in   io.WriteCloser
	says *bufio.Scanner
}

// startChild runs a child until the test ends.
func startChild(t testing.TB, c Config) *process {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	argument, err := json.Marshal(fields{c.Name, c.Bind, c.KeyFile, c.Join, c.Interval, c.Rejoin, c.Probe})
	must(t, err)
	p := &process{Cmd: exec.Command(exe, childArg, string(argument))}
	p.in, err = p.StdinPipe()
	must(t, err)
	out, err := p.StdoutPipe()
	must(t, err)
	must(t, p.Start())
	t.Cleanup(func() {
		p.in.Close() //nolint:errcheck // the child ends with it
		p.Wait()     //nolint:errcheck // some children are killed
	})
	p.says = bufio.NewScanner(out)
	return p
}

// tell writes a line to the child, and ask reads its answer too.
func (p *process) tell(t testing.TB, format string, a ...any) {
	t.Helper()
	_, err := fmt.Fprintf(p.in, format+"\n", a...)
	must(t, err)
}

func (p *process) answer(t testing.TB) string {
	t.Helper()
	if !p.says.Scan() {
		t.Fatalf("the child has ended: %v", p.says.Err())
	}
	return p.says.Text()
}

func (p *process) ask(t testing.TB, format string, a ...any) string {
	t.Helper()
	p.tell(t, format, a...)
	return p.answer(t)
}

// number is an answer that is a number.
func (p *process) number(t testing.TB) int64 {
	t.Helper()
	text := p.answer(t)
	var n int64
	if _, err := fmt.Sscan(text, &n); err != nil || fmt.Sprint(n) != text {
		t.Fatalf("the child says %q", text)
	}
	return n
}
