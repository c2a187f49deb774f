package real

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/quotient-go/quotient/bench/arena/sim"
	"github.com/quotient-go/quotient/examples/fleet/upstream"
	"github.com/quotient-go/quotient/policy"
)

const (
	replicas  = 4
	limit     = 100 // requests a second, of the upstream
	want      = 2 * limit / replicas
	length    = 25 * time.Second
	warmUp    = 5 * time.Second // at the start, which is not counted
	tolerance = 0.03
	attempts  = 3
	disturbed = 50 * time.Millisecond // a replica that stood still for longer makes a run say little about the law
)

// An answer is one line of an upstream's log.
type answer struct {
	at     time.Duration // since the start of the run
	status int
}

// figures are what is compared.
type figures struct {
	Goodput float64 // served, as a part of the limit
	Refused float64 // of all requests
}

func (f figures) String() string {
	return fmt.Sprintf("goodput %.3f, 429s %.3f", f.Goodput, f.Refused)
}

func (f figures) near(g figures) bool {
	return math.Abs(f.Goodput-g.Goodput) <= tolerance && math.Abs(f.Refused-g.Refused) <= tolerance
}

// made makes the figures of so many requests after the warm-up.
func made(served, refused int) figures {
	return figures{
		Goodput: float64(served) / (limit * (length - warmUp).Seconds()),
		Refused: float64(refused) / float64(max(1, served+refused)),
	}
}

// server is an upstream that can be asked what it has answered since the start of a run.
type server struct {
	url     string
	answers func(begin time.Time) []answer
}

// A duel is one upstream, real and simulated.
type duel struct {
	name   string
	real   func(t *testing.T) server
	kind   sim.Kind
	fields sim.Fields
	known  int // what the replicas know of the pool; 0: nothing
}

var duels = []duel{
	{"nginx/hint", nginxServer, sim.GCRA, sim.NoFields, replicas},
	{"nginx/no hint", nginxServer, sim.GCRA, sim.NoFields, 0},
	{"fleet upstream/hint", fleetServer, sim.TokenBucket, sim.AllFields, replicas},
	{"fleet upstream/no hint", fleetServer, sim.TokenBucket, sim.AllFields, 0},
}

// nginxServer is limit_req with a burst of 10, as the simulated GCRA has at this limit.
func nginxServer(t *testing.T) server {
	n := startNginx(t, limit, limit/10)
	return server{n.url, func(begin time.Time) []answer { return n.answers(t, begin) }}
}

// fleetServer is the upstream of examples/fleet with a burst of one second, as the simulated token bucket has.
func fleetServer(t *testing.T) server {
	origin := time.Now()
	up := upstream.New(upstream.NewClock(), limit, limit, upstream.Fields)
	srv := httptest.NewServer(up)
	t.Cleanup(srv.Close)
	return server{srv.URL, func(begin time.Time) (all []answer) {
		for _, a := range up.Log() {
			status := http.StatusTooManyRequests
			if a.Accepted {
				status = http.StatusOK
			}
			all = append(all, answer{a.Arrived - begin.Sub(origin), status})
		}
		return all
	}}
}

// TestRealHTTPIsAsSimulated plays four replicas in processes of their own against real upstreams, and the same in the simulation.
func TestRealHTTPIsAsSimulated(t *testing.T) {
	for _, d := range duels {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			simulated, spread := d.simulate()
			for n := 1; ; n++ {
				got, stall := d.play(t)
				t.Logf("real: %v; simulated: %v (spread %v); a replica stood still for %v", got, simulated, spread, stall.Round(time.Millisecond))
				switch {
				case got.near(simulated):
					return
				case stall < disturbed || n == attempts:
					t.Fatalf("real: %v; simulated: %v; more than %v apart", got, simulated, tolerance)
				}
			}
		})
	}
}

// TestFigures: what is counted, and what is near enough.
func TestFigures(t *testing.T) {
	f := count(t, []answer{
		{0, 200}, {warmUp - 1, 429}, // the warm-up
		{warmUp, 200}, {warmUp, 200}, {length / 2, 200}, {length - 1, 429},
		{length, 200},
	})
	if f.Refused != 0.25 || math.Abs(f.Goodput-3./2000) > 1e-12 {
		t.Errorf("%+v", f)
	}
	for _, row := range []struct {
		f, g figures
		near bool
	}{
		{figures{0.97, 0.02}, figures{0.97, 0.02}, true},
		{figures{0.97, 0.02}, figures{0.995, 0.045}, true},
		{figures{0.97, 0.02}, figures{0.939, 0.02}, false},
		{figures{0.97, 0.02}, figures{0.97, 0.051}, false},
		{figures{math.NaN(), 0.02}, figures{0.97, 0.02}, false},
	} {
		if row.f.near(row.g) != row.near || row.g.near(row.f) != row.near {
			t.Errorf("%v and %v: near %v", row.f, row.g, !row.near)
		}
	}
}

// simulate is the mean over some seeds, and the standard deviation.
func (d duel) simulate() (mean, spread figures) {
	const seeds = 10
	var all [seeds]figures
	for seed := range seeds {
		all[seed] = d.simulateOnce(uint64(seed))
		mean.Goodput += all[seed].Goodput / seeds
		mean.Refused += all[seed].Refused / seeds
	}
	for _, f := range all {
		spread.Goodput += math.Pow(f.Goodput-mean.Goodput, 2) / seeds
		spread.Refused += math.Pow(f.Refused-mean.Refused, 2) / seeds
	}
	return mean, figures{math.Sqrt(spread.Goodput), math.Sqrt(spread.Refused)}
}

func (d duel) simulateOnce(seed uint64) figures {
	s := sim.Scenario{
		Name: d.name, Replicas: replicas, Length: length, Limit: limit,
		Demand: func(int, time.Duration) float64 { return want },
		Most:   func(int) float64 { return want },
		RTT:    func(int) (least, most time.Duration) { return 200 * time.Microsecond, time.Millisecond },
	}
	if d.known > 0 {
		s.Hints = []sim.Change{{At: 0, Value: limit / float64(d.known)}}
	}
	ours := sim.Contender{Name: "real", Policy: func(*sim.Scenario) policy.Policy { return law }}
	r := sim.Play(s, d.kind, d.fields, ours, seed, 0)
	served, sent := 0, 0
	for i := int(warmUp / time.Second); i < int(length/time.Second); i++ {
		served, sent = served+r.Served[i], sent+r.Sent[i]
	}
	return made(served, sent-served)
}

// play runs the replicas against the real upstream, and tells how long one of them stood still.
func (d duel) play(t *testing.T) (f figures, stall time.Duration) {
	t.Helper()
	srv := d.real(t)
	reports := make([]bytes.Buffer, replicas)
	running := make([]*process, replicas)
	for i := range running {
		running[i] = start(t, &reports[i], replicaArg)
	}
	begin := time.Now()
	for i, p := range running {
		a := assignment{ID: i + 1, URL: srv.url, Limit: limit, Replicas: d.known, Want: want, Life: 2 * length}
		if err := json.NewEncoder(p.in).Encode(a); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-time.After(length):
	case <-t.Context().Done():
	}
	all := srv.answers(begin)
	for i, p := range running {
		stall = max(stall, ended(t, p, &reports[i]))
	}
	return count(t, all), stall
}

// ended ends a replica and reads its report: how long it stood still.
func ended(t *testing.T, p *process, said *bytes.Buffer) time.Duration {
	t.Helper()
	if err := p.stop(); err != nil {
		t.Fatalf("a replica: %v", err)
	}
	var r report
	if err := json.Unmarshal(said.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if r.Failed > 0 {
		t.Fatalf("%d requests without an answer, the last: %s", r.Failed, r.LastError)
	}
	return r.Stall
}

// count makes figures of what was answered after the warm-up.
func count(t *testing.T, all []answer) figures {
	t.Helper()
	served, refused := 0, 0
	for _, a := range all {
		switch {
		case a.at < warmUp || a.at >= length:
		case a.status == http.StatusOK:
			served++
		case a.status == http.StatusTooManyRequests:
			refused++
		default:
			t.Fatalf("status %d after %v", a.status, a.at)
		}
	}
	return made(served, refused)
}
