package etcd

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/quotient-go/quotient/lease"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// must fails the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// judge sees what all servers of one election are asked to do. It finds two that lead at one instant, and
// tokens that go back.
type judge struct {
	mu      sync.Mutex // guards what follows
	servers []*judged
	newest  uint64   // all tokens so far are below
	leads   int      // calls of Lead
	wrong   []string // what must not be
	more    chan struct{}
}

// judged is one server.
type judged struct {
	*lease.Server
	j    *judge
	name string

	// guarded by j.mu
	leading bool
	until   time.Time
	leader  string // URL, on a stand-by
	unfit   error  // Lead fails by it
	left    uint64 // what TokensLeft returns; 0: as it is
}

func newJudge() *judge { return &judge{more: make(chan struct{}, 1)} }

// server returns one server more. Its URL is http://NAME.
func (j *judge) server(t testing.TB, name string) *judged {
	t.Helper()
	config := lease.Config{Semaphores: map[string]lease.Semaphore{"A": {Max: 1}}}
	s, err := lease.NewServer(config, lease.ServerOptions{StandBy: true})
	must(t, err)
	t.Cleanup(s.Close)
	d := &judged{Server: s, j: j, name: name}
	j.set(func() { j.servers = append(j.servers, d) })
	return d
}

// set calls f under the lock.
func (j *judge) set(f func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	f()
	select {
	case j.more <- struct{}{}:
	default:
	}
}

// alone notes it if d and another server lead.
func (j *judge) alone(d *judged) {
	for _, o := range j.servers {
		if o != d && o.leads() && d.leads() {
			j.wrong = append(j.wrong,
				fmt.Sprintf("%s leads, and %s for another %v", d.name, o.name, time.Until(o.until)))
		}
	}
}

func (j *judge) tokens(k lease.Tokens) {
	if k.Next < j.newest || k.Next < 1<<62 || k.End > lease.EndOfTokens || k.End != k.Next+1<<24 {
		j.wrong = append(j.wrong, fmt.Sprintf("tokens %d to %d after %d", k.Next, k.End, j.newest))
	}
	j.newest = max(j.newest, k.End)
}

// leads reports whether d leads now. The caller holds the lock.
func (d *judged) leads() bool { return d.leading && time.Now().Before(d.until) }

// ends returns until when d leads, and whether it does.
func (d *judged) ends() (until time.Time, leads bool) {
	d.j.mu.Lock()
	defer d.j.mu.Unlock()
	return d.until, d.leads()
}

func (d *judged) Lead(k lease.Tokens, until time.Time) (err error) {
	d.j.set(func() {
		if err = d.unfit; err != nil {
			return
		}
		d.leading, d.until, d.leader = true, until, ""
		d.j.alone(d)
		d.j.tokens(k)
		d.j.leads++
		err = d.Server.Lead(k, until)
	})
	return err
}

func (d *judged) Extend(until time.Time) (err error) {
	d.j.set(func() {
		if err = d.Server.Extend(until); err == nil {
			d.until = until
			d.j.alone(d)
		}
	})
	return err
}

func (d *judged) StandBy(leader string) {
	d.j.set(func() {
		d.leading, d.leader = false, leader
		d.Server.StandBy(leader)
	})
}

func (d *judged) AddTokens(k lease.Tokens) (err error) {
	d.j.set(func() {
		d.j.tokens(k)
		d.left = 0
		err = d.Server.AddTokens(k)
	})
	return err
}

func (d *judged) TokensLeft() (n uint64) {
	d.j.set(func() {
		if n = d.left; n == 0 {
			n = d.Server.TokensLeft()
		}
	})
	return n
}

// now returns the server that leads; nil: none does.
func (j *judge) now() (d *judged) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, o := range j.servers {
		if o.leads() {
			d = o
		}
	}
	return d
}

// follows reports whether d stands by and sends its clients to the leader.
func (j *judge) follows(d *judged, leader string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return !d.leads() && d.leader == leader
}

// verdict fails the test if anything was wrong.
func (j *judge) verdict(t testing.TB) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, w := range j.wrong {
		t.Error(w)
	}
}

// patience bounds every wait for an event of a real store.
const patience = 20 * time.Second

// wait waits until the condition holds. It looks at each call of a server, and now and then.
func (j *judge) wait(t testing.TB, what string, holds func() bool) {
	t.Helper()
	late := time.After(patience)
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for !holds() {
		select {
		case <-j.more:
		case <-look.C:
		case <-late:
			t.Fatalf("%s: not after %v", what, patience)
		}
	}
}
