package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/httplimit"
)

// A wire brings requests to the upstream in a millisecond.
type wire struct{ up *upstream }

func (w wire) RoundTrip(req *http.Request) (*http.Response, error) {
	time.Sleep(ms)
	rec := httptest.NewRecorder()
	w.up.ServeHTTP(rec, req)
	return rec.Result(), nil
}

// fake is a fleet whose replicas are goroutines, for a run that no machine has a part in.
func fake(p plan, out *screen) *fleet {
	f := newFleet(p, out)
	limiters := map[int]*quotient.Limiter{}
	f.start = func(ctx context.Context, a assignment) (*process, error) {
		r, err := newReplica(a)
		if err != nil {
			return nil, err
		}
		r.client.Transport.(*httplimit.Transport).Base.(*stamp).base = wire{f.up}
		limiters[a.ID] = r.limiter
		alive, kill := context.WithCancel(ctx)
		itsIn, orders := io.Pipe()
		reports, itsOut := io.Pipe()
		go r.answer(itsIn, itsOut)
		go r.load(alive)
		wait := func() error {
			time.Sleep(2 * ms) // what is on its way arrives
			return orders.Close()
		}
		return newProcess(a.ID, orders, reports, kill, wait), nil
	}
	f.tell = func(p *process, replicas int) error {
		return limiters[p.id].SetPool(quotient.Pool{Replicas: replicas}, 0)
	}
	return f
}

// TestAFleetHoldsItsLimit plays both acts, as they are and with what must break them. How much of the limit is used is
// judged in the division, where demand exceeds it all the time: nearly all of it, nearly nothing is refused, and all
// replicas are treated alike.
func TestAFleetHoldsItsLimit(t *testing.T) {
	for _, tt := range []struct {
		args string
		kept bool
		says []string
	}{
		{"-act division", true, []string{"replica 4 joins", "replica 2 is killed", "held    the fleet",
			"held    replica 4", "Every bound held."}},
		{"-act division -believe 2", false, []string{"BROKEN  the fleet", "A bound was BROKEN."}},
		{"-act adaptive", true, []string{"held    the limit halves", "held    429s", "  adaptive  The fleet followed. It used "}},
		{"-act adaptive -policy fixed", false, []string{"BROKEN  the limit halves", "BROKEN  the limit is back",
			"BROKEN  429s", "  adaptive  The fleet did NOT follow"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			p, err := parsePlan(strings.Fields(tt.args), io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			f := fake(p, newScreen(&out, p))
			if err := f.run(t.Context()); err != nil {
				t.Fatal(err)
			}
			kept, shown := f.verdict()
			if missing := lacks(out.String()+shown, tt.says...); kept != tt.kept || len(missing) > 0 {
				t.Errorf("%s: kept %v, no %q in\n%s", tt.args, kept, missing, out.String())
			}
			if !tt.kept || p.adapts() {
				return
			}
			for i, alive := range [][]int{{1, 2, 3}, {1, 2, 3, 4}, {1, 3, 4}} {
				r := measure(f.log, f.phases[i])
				if got := f.phases[i].Alive; !slices.Equal(got, alive) || r.Goodput < 0.95 || r.Rejected > 0.01 ||
					r.Fairness < 0.99 {
					t.Errorf("phase %d: %v, %+v", i, got, r)
				}
			}
		})
	}
}

// TestTheLargerShareCounts while a replica is told; and until all were told of a new one, all may send as before, once.
func TestTheLargerShareCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(plan{Limit: 120, Burst: 12, Replicas: 3}, newScreen(io.Discard, plan{}))
		f.tell = func(*process, int) error {
			time.Sleep(10 * ms)
			return nil
		}
		p := &process{id: 1, steps: []step{f.share(0, 3)}}
		f.all = []*process{p}
		for _, n := range []int{4, 2, 2} {
			f.phases = []phase{{Alive: make([]int, n)}}
			if err := f.tellAll(); err != nil {
				t.Fatal(err)
			}
		}
		want := []step{{0, 40, 4, 0}, {10 * ms, 30, 3, 0}, {10 * ms, 60, 6, 0}, {20 * ms, 60, 6, 0}}
		if !slices.Equal(p.steps, want) {
			t.Errorf("%+v, want %+v", p.steps, want)
		}
		f.phases = []phase{{Alive: []int{1, 2}}, {From: time.Second, Unknown: 400 * ms, Alive: []int{1, 2, 3}}}
		grown := budget{{0, 120, 12, 0}, {time.Second, 180, 12, 60}, {1400 * ms, 120, 12, 0}} // 120/s x (3/2 - 1)
		if got := f.budget(); !slices.Equal(got, grown) {
			t.Errorf("%+v, want %+v", got, grown)
		}
	})
}
