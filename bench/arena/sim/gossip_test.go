package sim

import (
	"reflect"
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// listener is a controller that always wants ten, and keeps the reports.
type listener struct {
	news  policy.Fleet
	given int // times that it was complete
	lost  int // times that it ended
}

func (l *listener) New(uint64) policy.Controller { return l }

func (l *listener) Next(_ policy.Sample, b policy.Bounds) policy.Pace {
	switch {
	case b.Fleet != nil:
		l.given++
	case l.news.Weight > 0:
		l.lost++
	}
	if l.news = (policy.Fleet{}); b.Fleet != nil {
		l.news = *b.Fleet
	}
	return policy.Pace{Rate: 10}
}

func (l *listener) Report(time.Duration) policy.Report {
	return policy.Report{Wanting: true, Rate: 10, Refused: 1}
}

// listen plays a scenario and returns what the listeners know at its end.
func listen(t *testing.T, name string, g *Gossip) (all []*listener) {
	t.Helper()
	for _, s := range append(Given(), Own()...) {
		if s.Name != name {
			continue
		}
		c := Contender{Gossip: g, Policy: func(*Scenario) policy.Policy {
			all = append(all, &listener{})
			return all[len(all)-1]
		}}
		Play(s, TokenBucket, NoFields, c, 1, 0)
		return all
	}
	t.Fatalf("no scenario %s", name)
	return nil
}

// All reports are summed exactly, by each, though one packet of twenty is lost.
func TestGossipSums(t *testing.T) {
	for name, n := range map[string]float64{"S1": 10, "S6": 50, "S3": 20} {
		all := listen(t, name, Gossiping())
		if len(all) != int(n) {
			t.Errorf("%s: %d controllers", name, len(all))
		}
		for i, l := range all {
			want := policy.Fleet{Weight: n, Wanting: n, Rate: 10 * n, Refused: n, Limit: l.news.Limit}
			if l.news != want {
				t.Errorf("%s: replica %d knows %+v at the end, want %+v", name, i, l.news, want)
			}
		}
	}
}

// When gossip stops, the reports end once and for good.
func TestGossipStops(t *testing.T) {
	g := Gossiping()
	g.Stops = 2 * time.Minute
	for i, l := range listen(t, "S1", g) {
		if l.given == 0 || l.lost != 1 || l.news != (policy.Fleet{}) {
			t.Errorf("replica %d had news %d times, lost it %d times, and has %+v", i, l.given,
				l.lost, l.news)
		}
	}
}

// Gossip draws nothing from the stream of the run: a controller that ignores it plays as without.
func TestGossipIsApart(t *testing.T) {
	deaf := Contender{Policy: func(*Scenario) policy.Policy { return policy.AIMD{} }}
	gossips := deaf
	gossips.Gossip = Gossiping()
	for _, s := range Given()[:2] {
		a, b := Play(s, GCRA, AllFields, deaf, 3, 0), Play(s, GCRA, AllFields, gossips, 3, 0)
		if !reflect.DeepEqual(a, b) {
			t.Errorf("%s: another run: score %.3f and %.3f", s.Name, a.Score(), b.Score())
		}
	}
}
