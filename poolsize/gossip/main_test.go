package gossip

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quotient-go/quotient/internal/carry"
	"github.com/quotient-go/quotient/internal/tested"
	"github.com/quotient-go/quotient/poolsize/internal/watched"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == childArg {
		child(os.Args[2])
		return
	}
	flag.Set("test.parallel", "6") //nolint:errcheck // the flag exists; most tests wait for others
	goleak.VerifyTestMain(m)
}

// racing is set under the race detector, which costs too much for a test of what something costs.
var racing bool

// Times for tests with real sockets: short, and still not missed by chance on a busy machine.
const (
	interval = 20 * time.Millisecond
	rejoin   = 100 * time.Millisecond
	probe    = 100 * time.Millisecond
)

var must = tested.Must

// config is one of a replica at test speed, on a free port of loopback.
func config(name string, join ...string) Config {
	return Config{Name: name, Bind: "127.0.0.1:0", Join: join, Interval: interval, Rejoin: rejoin,
		Probe: probe}
}

func source(t watched.TB, c Config) *Source {
	t.Helper()
	s, err := New(c)
	must(t, err)
	return s
}

// replica is one that is watched.
type replica struct {
	*Source
	*watched.Log
}

// start watches a replica until the test ends.
func start(t watched.TB, c Config) *replica {
	t.Helper()
	return watchOf(t, source(t, c))
}

func watchOf(t watched.TB, s *Source) *replica {
	t.Helper()
	r := &replica{s, watched.Start(t, s.Watch)}
	r.Every = interval / 4
	return r
}

// says waits for an error with these words, the last one of all.
func (r *replica) says(words ...string) {
	r.Until(fmt.Sprintf("an error says %q", words), func() bool {
		err := r.LastErr()
		return err != nil && !slices.ContainsFunc(words, func(w string) bool {
			return !strings.Contains(err.Error(), w)
		})
	})
}

// complete waits until so many members are known, and the sums are complete.
func (r *replica) complete(members int) {
	r.Until("the sums are complete", func() bool { s := r.Stats(); return s.Members == members && s.Age < never })
}

// totals waits until a counter is n, and complete.
func (r *replica) totals(key string, n int64) {
	r.Until(fmt.Sprintf("%s counts %d", r.Stats().Name, n), func() bool {
		sum, age := r.Counters().Sum(key)
		return sum == n && age < never
	})
}

// address waits until a replica listens, and returns where.
func (r *replica) address() string {
	r.Until("it listens", func() bool { return r.Stats().Address != "" })
	return r.Stats().Address
}

// silent fails if a replica has reported a pool.
func (r *replica) silent(t testing.TB) {
	t.Helper()
	if pools, _ := r.Since(0); len(pools) > 0 {
		t.Errorf("it reports %v", pools)
	}
}

// childArg makes the test binary a process with replicas of its own. It does what the lines of its standard
// input say, and answers each with a line.
const childArg = "gossip-child"

// alone is the TB of a child, which says what fails and ends.
type alone struct{}

func (alone) Helper()        {}
func (alone) Cleanup(func()) {}
func (a alone) Errorf(format string, args ...any) {
	a.Fatalf(format, args...)
}
func (alone) Fatalf(format string, args ...any) {
	fmt.Printf(format+"\n", args...)
	os.Exit(1)
}

// fleetOf is the replicas of a child. Their names have a number behind.
type fleetOf struct {
	c   Config
	all []*replica
}

// child runs replicas with the Config in JSON that is its argument.
func child(argument string) {
	f := &fleetOf{}
	must(alone{}, json.Unmarshal([]byte(argument), &f.c))
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Println(f.obey(strings.Fields(in.Text())))
	}
}

func (f *fleetOf) obey(words []string) any {
	n, _ := strconv.Atoi(words[len(words)-1]) //nolint:errcheck // some end with no number
	switch words[0] {
	case "set":
		f.set(n)
		return n
	case "where":
		return f.all[0].address()
	case "until": // all members are known, and their sums complete
		f.all[0].complete(n)
		return n
	case "load":
		f.load(n)
		return n
	case "bytes": // of all, with the headers of UDP and IP
		var sum uint64
		for _, r := range f.all {
			s := r.Stats()
			sum += s.Sent + s.PacketsSent*28
		}
		return sum
	case "cpu": // nanoseconds
		var u syscall.Rusage
		syscall.Getrusage(syscall.RUSAGE_SELF, &u) //nolint:errcheck // it does not fail
		return u.Utime.Nano() + u.Stime.Nano()
	}
	return "what is " + words[0]
}

// set has the child run so many replicas, which all know each other when it returns.
func (f *fleetOf) set(n int) {
	for last := len(f.all) - 1; last >= n; last-- {
		f.all[last].Leave()
		f.all = f.all[:last]
	}
	for len(f.all) < n {
		one := f.c
		if one.Name = fmt.Sprintf("%s%d", f.c.Name, len(f.all)); len(f.all) > 0 {
			f.c.Bind = f.all[0].address() // also when the first one starts again
			one.Bind, one.Join = "127.0.0.1:0", append(f.c.Join, f.c.Bind)
		}
		f.all = append(f.all, start(alone{}, one))
	}
	for _, r := range f.all {
		r.Until("all know each other", func() bool { return r.Stats().Members >= n })
	}
}

// load has each replica say something else of so many keys in each interval, and look all sums up, as a
// limiter does.
func (f *fleetOf) load(keys int) {
	for i, r := range f.all {
		n := int64(0)
		_, err := r.Carry("load", func(s carry.Sums) {
			n++
			for k := range keys {
				key := fmt.Sprintf("customer-%04d", k)
				s.Say(key, carry.Terms{1, n % 1000 * 317, int64(i) % 2, n%7*1000 + int64(k), 1})
			}
			for key := range s.Keys() {
				s.Sum(key)
			}
		})
		must(alone{}, err)
	}
}

// process is a child that runs.
type process struct {
	*watched.Child
	t testing.TB
}

// startChild runs a child until the test ends.
func startChild(t testing.TB, c Config) *process {
	t.Helper()
	//lint:ignore SA1026 the Resolver of a child is nil
	argument, err := json.Marshal(c)
	must(t, err)
	return &process{watched.StartChild(t, childArg, string(argument)), t}
}

// tell writes a line to the child, answer reads its answer, and ask does both.
func (p *process) tell(format string, a ...any) {
	p.t.Helper()
	if _, err := fmt.Fprintf(p.In, format+"\n", a...); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) answer() string {
	p.t.Helper()
	if !p.Says.Scan() {
		p.t.Fatalf("the child has ended: %v", p.Says.Err())
	}
	return p.Says.Text()
}

func (p *process) ask(format string, a ...any) string {
	p.t.Helper()
	p.tell(format, a...)
	return p.answer()
}

// number is an answer that is a number.
func (p *process) number() int64 {
	p.t.Helper()
	text := p.answer()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		p.t.Fatalf("the child says %q", text)
	}
	return n
}

// does has the child make true what a line with a number at its end says.
func (p *process) does(what string, n int) {
	p.t.Helper()
	p.tell("%s %d", what, n)
	if got := p.number(); got != int64(n) {
		p.t.Fatalf("the child says %d", got)
	}
}
