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
	limit     = 100 // requests a second, of most upstreams
	length    = 50 * time.Second
	longer    = 80 * time.Second // where chance has a greater part
	warmUp    = 20 * time.Second // at the start, which is not counted
	tolerance = 0.03
	attempts  = 3
	// Jain's index is at least this: .9 where the replicas know their number. Elsewhere the simulation has
	// .73 in the worst of 20 seeds, and one replica that takes three quarters of all makes .43.
	equal, lucky = 0.9, 0.6
	// A replica that stood still for longer makes a run say little about the controller.
	disturbed = 50 * time.Millisecond
)

// figures are what is compared, but for fairness: where the controller is not always fair, chance decides.
type figures struct {
	Goodput float64 // served, as a part of the limit
	Refused float64 // of all requests
	Jain    float64 // Jain's index at the end: 1 if all replicas were served alike, a quarter if one got all
}

func (f figures) String() string {
	return fmt.Sprintf("goodput %.3f, refused %.3f, Jain %.3f", f.Goodput, f.Refused, f.Jain)
}

func (f figures) near(g figures) bool {
	return math.Abs(f.Goodput-g.Goodput) <= tolerance && math.Abs(f.Refused-g.Refused) <= tolerance
}

// A duel is one upstream, real and simulated, for four replicas that want twice its limit.
type duel struct {
	name   string
	real   func(t *testing.T, d duel) server
	kind   sim.Kind
	fields sim.Fields
	limit  int           // requests a second
	known  int           // what the replicas know of the pool; 0: nothing
	length time.Duration // of a run
	fair   float64       // the least of Jain's index at its end
}

// duels has the longest first.
var duels = []duel{
	{"nginx/wrong hint", nginxServer, sim.GCRA, sim.NoFields, limit, replicas / 2, 2 * time.Minute, lucky},
	{"HAProxy/hint", haproxyServer, sim.StickTable, sim.NoFields, limit, replicas, longer, equal},
	{"HAProxy/no hint", haproxyServer, sim.StickTable, sim.NoFields, limit, 0, longer, lucky},
	{"nginx/hint", nginxServer, sim.GCRA, sim.NoFields, limit, replicas, length, equal},
	{"nginx/no hint", nginxServer, sim.GCRA, sim.NoFields, limit, 0, length, lucky},
	{"GitHub/hint", githubServer, sim.GitHub, sim.AllFields, githubLimit, replicas, length, equal},
	{"GitHub/no hint", githubServer, sim.GitHub, sim.AllFields, githubLimit, 0, length, lucky},
	{"fleet upstream/hint", fleetServer, sim.TokenBucket, sim.AllFields, limit, replicas, length, equal},
	{"fleet upstream/no hint", fleetServer, sim.TokenBucket, sim.AllFields, limit, 0, length, lucky},
}

func (d duel) want() float64 { return float64(2*d.limit) / replicas }

// made makes the figures of so many requests after the warm-up.
func (d duel) made(served, refused int, jain float64) figures {
	return figures{
		Jain:    jain,
		Goodput: float64(served) / (float64(d.limit) * (d.length - warmUp).Seconds()),
		Refused: float64(refused) / float64(max(1, served+refused)),
	}
}

// fleetServer is the upstream of examples/fleet with a burst of one second, as the simulated token bucket
// has.
func fleetServer(t *testing.T, d duel) server {
	origin := time.Now()
	up := upstream.New(upstream.NewClock(), float64(d.limit), d.limit, upstream.Fields)
	srv := httptest.NewServer(up)
	t.Cleanup(srv.Close)
	return server{srv.URL, "", func(begin time.Time) (all []answer) {
		for _, a := range up.Log() {
			status := http.StatusTooManyRequests
			if a.Accepted {
				status = http.StatusOK
			}
			all = append(all, answer{a.Arrived - begin.Sub(origin), status, a.Replica})
		}
		return all
	}}
}

// TestRealHTTPIsAsSimulated plays four replicas in processes of their own against real upstreams, and the
// same in the simulation.
func TestRealHTTPIsAsSimulated(t *testing.T) {
	for _, d := range duels {
		t.Run(d.name, func(t *testing.T) {
			if underRace && d.length > length {
				t.Skip("more than a minute: not under the race detector, which plays the shorter ones")
			}
			t.Parallel()
			simulated, spread := d.simulate()
			for n := 1; ; n++ {
				all, stall := d.play(t)
				got := d.count(t, all)
				t.Logf("real: %v\nsimulated: %v (spread %v)\na replica stood still for %v",
					got, simulated, spread, stall.Round(time.Millisecond))
				switch {
				case got.near(simulated) && got.Jain >= d.fair:
					return
				case stall < disturbed || n == attempts:
					t.Fatalf("real: %v; simulated: %v; more than %v apart, or less fair than %v", got,
						simulated, tolerance, d.fair)
				}
			}
		})
	}
}

// TestFigures: what is counted, and what is near enough.
func TestFigures(t *testing.T) {
	d := duel{limit: 50, length: 2 * time.Minute}
	all := []answer{
		{0, 200, 1}, {warmUp - 1, 429, 1}, // the warm-up
		{warmUp, 200, 1}, {warmUp, 204, 2}, {d.length - fairFor, 200, 3},
		{d.length - 1, 429, 4}, {d.length - 1, 403, 4},
		{d.length, 200, 4},
	}
	if f := d.count(t, all); f.Refused != 0.4 ||
		math.Abs(f.Goodput-3./50/(d.length-warmUp).Seconds()) > 1e-12 {
		t.Errorf("%+v", f)
	}
	if j := d.jain(all); j != 1./replicas {
		t.Errorf("Jain's index %v, but one replica has all", j)
	}
	for _, row := range []struct {
		f, g figures
		near bool
	}{
		{figures{0.97, 0.02, 1}, figures{0.97, 0.02, 1}, true},
		{figures{0.97, 0.02, 1}, figures{0.995, 0.045, 0.5}, true},
		{figures{0.97, 0.02, 1}, figures{0.939, 0.02, 1}, false},
		{figures{0.97, 0.02, 1}, figures{0.97, 0.051, 1}, false},
		{figures{math.NaN(), 0.02, 1}, figures{0.97, 0.02, 1}, false},
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
		mean.Jain += all[seed].Jain / seeds
	}
	for _, f := range all {
		spread.Goodput += math.Pow(f.Goodput-mean.Goodput, 2) / seeds
		spread.Refused += math.Pow(f.Refused-mean.Refused, 2) / seeds
		spread.Jain += math.Pow(f.Jain-mean.Jain, 2) / seeds
	}
	return mean, figures{math.Sqrt(spread.Goodput), math.Sqrt(spread.Refused), math.Sqrt(spread.Jain)}
}

func (d duel) simulateOnce(seed uint64) figures {
	ours := sim.Contender{Name: "real", Policy: func(*sim.Scenario) policy.Policy { return ctrl }}
	r := sim.Play(d.scenario(), d.kind, d.fields, ours, seed, 0)
	served, sent := 0, 0
	for i := int(warmUp / time.Second); i < int(d.length/time.Second); i++ {
		served, sent = served+r.Served[i], sent+r.Sent[i]
	}
	return d.made(served, sent-served, r.Fair(d.length-fairFor, d.length))
}

// scenario is what the replicas find, for the simulation.
func (d duel) scenario() sim.Scenario {
	s := sim.Scenario{
		Name: d.name, Replicas: replicas, Length: d.length, Limit: float64(d.limit),
		Demand: func(int, time.Duration) float64 { return d.want() },
		Most:   func(int) float64 { return d.want() },
		RTT:    func(int) (least, most time.Duration) { return 200 * time.Microsecond, time.Millisecond },
	}
	if d.known > 0 {
		s.Hints = []sim.Change{{At: 0, Value: s.Limit / float64(d.known)}}
	}
	return s
}

// play runs the replicas against the real upstream. It returns what was answered, and how long one of them
// stood still.
func (d duel) play(t *testing.T) (all []answer, stall time.Duration) {
	t.Helper()
	srv := d.real(t, d)
	reports := make([]bytes.Buffer, replicas)
	running := make([]*process, replicas)
	for i := range running {
		running[i] = start(t, &reports[i], replicaArg)
	}
	begin := time.Now()
	for i, p := range running {
		a := assignment{
			ID: i + 1, URL: srv.url, Speaks: srv.speaks, Limit: float64(d.limit),
			Replicas: d.known, Want: d.want(), Life: 2 * d.length,
		}
		if err := json.NewEncoder(p.in).Encode(a); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-time.After(d.length):
	case <-t.Context().Done():
	}
	for i, p := range running {
		stall = max(stall, ended(t, p, &reports[i]))
	}
	return srv.answers(begin), stall
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
func (d duel) count(t *testing.T, all []answer) figures {
	t.Helper()
	served, refused := 0, 0
	for _, a := range all {
		switch {
		case a.at < warmUp || a.at >= d.length:
		case a.served():
			served++
		case a.status == http.StatusTooManyRequests, a.status == http.StatusForbidden:
			refused++
		default:
			t.Fatalf("status %d after %v", a.status, a.at)
		}
	}
	return d.made(served, refused, d.jain(all))
}

// fairFor is how long at the end of a run it is counted who got how much.
const fairFor = 30 * time.Second

// jain is Jain's index of fairness at the end of a run.
func (d duel) jain(all []answer) float64 {
	var by [replicas]float64
	for _, a := range all {
		if a.served() && d.length-fairFor <= a.at && a.at < d.length {
			by[a.who-1]++
		}
	}
	sum, squares := 0.0, 0.0
	for _, n := range by {
		sum, squares = sum+n, squares+n*n
	}
	return sum * sum / (replicas * max(1, squares))
}
