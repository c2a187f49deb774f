package config_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/internal/carried"
)

// gossips has a source gossip: that carries what replicas say.
func gossips() config.Option {
	return config.WithSources(config.Sources{"gossip": func(string) (quotient.Source, error) {
		return &carried.Source{Replicas: 4, Every: time.Second, Others: quotient.Terms{3, 700}}, nil
	}})
}

const lends = "[pool]\nsource = \"gossip:\"\nhold-down = \"0s\"\n[limiters.api]\nin-flight = 100\n"

// TestDemand: a limiter with demand has what the source carries, by default and as the file says.
func TestDemand(t *testing.T) {
	for text, maxAge := range map[string]time.Duration{
		"demand = {}":                   2 * time.Second,
		"demand = { max-age = \"5s\" }": 5 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			a := adjust(t, lends+text+"\n[limiters.plain]\nin-flight = 1\n", gossips())
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- a.Watch(ctx) }()
			synctest.Wait()
			for name, want := range map[string]time.Duration{"api": maxAge, "plain": 0} {
				l, _ := a.reg.Get(name)
				if s := l.Stats(); s.Demand.MaxAge != want || (s.Fleet.Admitted == 700) != (want > 0) {
					t.Errorf("%s: %+v, %+v", name, s.Demand, s.Fleet)
				}
			}
			cancel()
			<-done
		})
	}
}

// TestDemandWantsACarrier: a source that does not carry what replicas say is refused beside demand, at the
// start, later, and in a limiter that comes later.
func TestDemandWantsACarrier(t *testing.T) {
	const want = "limiters.api.demand: the pool.source does not carry what replicas say (such as gossip)"
	f, err := config.Parse("q.toml", []byte(strings.Replace(lends, "gossip:", "env:", 1)+"demand = {}\n"))
	must(t, err)
	if _, err := config.New(f, new(quotient.Registry)); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	synctest.Test(t, func(t *testing.T) {
		a := adjust(t, lends+"demand = {}\n", gossips())
		if err := a.change(t, strings.Replace(lends, "gossip:", "env:", 1)); err == nil ||
			!strings.HasSuffix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		must(t, a.change(t, lends))
	})
	s := start(t, base, gossips())
	late := strings.Replace(base, "[pool]", "[pool]\nsource = \"env:\"", 1)
	if err := s.change(t, late+"[limiters.late]\nin-flight = 1\ndemand = {}\n"); err == nil ||
		!strings.Contains(err.Error(), "limiters.late.demand") {
		t.Errorf("a limiter that comes late: %v", err)
	}
}

// TestDemandIsFixed: the demand of a limiter in force does not change.
func TestDemandIsFixed(t *testing.T) {
	gossip := strings.Replace(base, "[pool]", "[pool]\nsource = \"gossip:\"", 1)
	s := start(t, gossip+"demand = { keys = 5 }\n", gossips())
	for _, text := range []string{gossip, gossip + "demand = { keys = 6 }\n",
		gossip + "demand = { keys = 5, max-age = \"1s\" }\n"} {
		if err := s.change(t, text); err == nil ||
			!strings.HasSuffix(err.Error(),
				"limiters.other.demand: it is fixed while the limiter is in force (restart to change it)") {
			t.Errorf("%s: %v", text, err)
		}
	}
	must(t,
		s.change(t, gossip+"demand = { keys = 5 }\n[limiters.late]\nin-flight = 1\ndemand = { keys = 7 }\n"))
	if d := s.File().Limiters["late"].Demand; d == nil || d.Keys != 7 {
		t.Errorf("late: %+v", d)
	}
}
