package judge

import (
	"iter"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/carry"
)

// The judge's reading of bound 14, for a fleet that counts together. It carries the replicas' reports, which
// come late, and knows nothing of what they say. Its law: once a replica has had more than its share of a
// window, all know of it. From then on none admits what the others, as far as their reports have come, have
// left no room for. Whatever a key comes under meanwhile, it has one count.

const (
	reported = 200 * time.Millisecond // the time from one turn to the next
	latest   = 700 * time.Millisecond // a report may be on its way
	newsAge  = 3 * time.Second
)

// line is a replica's end of a network: what it says of keys, and what it has heard of each replica, its own place
// included.
type line struct {
	own   map[string]carry.Terms
	heard []heard
	turn  func(carry.Sums)
	mail  []letter
	late  time.Duration
}

// heard is what a replica has said, as of an instant; the zero instant for nothing.
type heard struct {
	sent time.Time
	said map[string]carry.Terms
}

type letter struct {
	heard
	from int
	due  time.Time
}

func newLine(replicas int) *line {
	return &line{own: map[string]carry.Terms{}, heard: make([]heard, replicas)}
}

// takeTurn takes what is due out of the mail, unless it is lost there, and has replica id say what it has to.
func (n *line) takeTurn(id int, lost bool) heard {
	n.mail = slices.DeleteFunc(n.mail, func(m letter) bool {
		due := !m.due.After(time.Now())
		if due && !lost && m.sent.After(n.heard[m.from].sent) {
			n.heard[m.from] = m.heard
		}
		return due
	})
	n.heard[id].sent = time.Now()
	n.turn(n)
	return heard{time.Now(), maps.Clone(n.own)}
}

// Carry is carry.Carrier's.
func (s *source) Carry(_ string, turn func(carry.Sums)) (stop func(), err error) {
	s.line.turn = turn
	return func() { s.line.turn = nil }, nil
}

// window is one of a key under a counted rule.
type window struct {
	key   string
	rule  quotient.Rate // what tells it apart from others
	index int64
}

// ruleOf is a rate without what may change while the fleet counts on.
func ruleOf(r quotient.Rate) quotient.Rate {
	return quotient.Rate{Name: r.Name, Unit: r.Unit, Per: r.Per, Zone: r.Zone, Kind: quotient.CountedWindow}
}

func windowOf(key string, r quotient.Rate, at time.Time) window {
	return window{nameOf(key), ruleOf(r), indexOf(r, at)}
}

// in reports whether a limit has the window's rule, or keeps what there is.
func (x window) in(limit quotient.Limit) bool {
	return limit.Deny || slices.ContainsFunc(limit.Rates, func(r quotient.Rate) bool {
		return r.Kind == quotient.CountedWindow && ruleOf(r) == x.rule
	})
}

// attendance is what the judge knows of a replica in a window.
type attendance struct {
	took   []*taking
	turn   time.Time // the last in which it counted
	absent bool      // in some turn it did not, or its count was given up
}

// joinTogether has a replica take part in the exchange.
func (w *world) joinTogether(r *replica) {
	n := newLine(len(w.fleet))
	n.late = time.Duration(pick(w.T, 0, int(latest/time.Millisecond), "late")) * time.Millisecond
	r.source = following(r.l, n)
	r.attends = map[window]*attendance{}
}

// exchange has all replicas report.
func (w *world) exchange() {
	for i, r := range w.fleet {
		n := r.source.line
		said := n.takeTurn(i, false)
		w.attend(r)
		for j, o := range w.fleet {
			if j != i {
				o.source.line.mail = append(o.source.line.mail, letter{said, i, time.Now().Add(n.late)})
			}
		}
	}
}

// attend notes for which windows a replica has counted in this turn.
func (w *world) attend(r *replica) {
	for _, o := range w.fleet {
		for x := range o.attends {
			if x.index != indexOf(x.rule, time.Now()) {
				continue
			}
			if e, a := r.l.Explain(x.key), r.attendance(x); x.in(e.Limit) {
				a.turn = time.Now()
			} else if e.Remembered {
				a.absent = true
			}
		}
	}
}

func (r *replica) attendance(x window) *attendance {
	if r.attends[x] == nil {
		r.attends[x] = new(attendance)
	}
	return r.attends[x]
}

// giveUp notes that a replica may have given up its counts of a key, or of all where that is "", but for those
// of rules that the limit has.
func (r *replica) giveUp(key string, but quotient.Limit) {
	for x, a := range r.attends {
		a.absent = a.absent || (key == "" || x.key == key) && !x.in(but)
	}
}

// of is what was taken by an instant and not given back, and the largest part of it: a call may be larger than
// the share.
func (a *attendance) of(u int, by time.Time) (sum, large float64) {
	for _, t := range a.took {
		if !t.at.After(by) {
			sum, large = sum+t.net[u], max(large, t.net[u])
		}
	}
	return sum, large
}

// countedRight holds an admission against the law, and notes it.
func (w *world) countedRight(r *replica, key string, limit quotient.Limit, t *taking) {
	for _, rate := range limit.Rates {
		if rate.Kind != quotient.CountedWindow {
			continue
		}
		x, u := windowOf(key, rate, t.at), unitIndex(rate.Unit)
		mine := r.attendance(x)
		by, others, known := mine.turn.Add(-latest-reported), 0.0, false
		for _, o := range w.fleet {
			if a := o.attendance(x); o != r && !a.absent {
				n, large := a.of(u, by)
				others += n
				known = known || n-large > math.Ceil(rate.Events/float64(len(w.fleet)))
			}
		}
		own, _ := mine.of(u, t.at)
		if sum := own + t.net[u] + others; known && !mine.absent && t.net[u] > 0 && sum > rate.Events {
			w.broken("bound 14: replica %d %s: %v admitted beside %v, and the others had %v by %v, of %v: %+v",
				r.id, key, t.net[u], own, others, by.Format("04:05.000000000"), rate.Events, x)
		}
		mine.took = append(mine.took, t)
	}
}

// Say is carry.Sums'.
func (n *line) Say(key string, own carry.Terms) {
	if n.own[key] = own; own == (carry.Terms{}) {
		delete(n.own, key)
	}
}

// Keys is carry.Sums'.
func (n *line) Keys() iter.Seq[string] {
	all := maps.Clone(n.own)
	for _, h := range n.heard {
		maps.Copy(all, h.said)
	}
	return maps.Keys(all)
}

// Sum is carry.Sums'.
func (n *line) Sum(key string) (sum carry.Terms, age time.Duration) {
	sum = n.own[key]
	for _, h := range n.heard {
		for i, x := range h.said[key] {
			sum[i] += x
		}
		if age = max(age, time.Since(h.sent)); h.sent.IsZero() {
			age = math.MaxInt64
		}
	}
	return sum, age
}

// Bytes is carry.Sums'.
func (n *line) Bytes() (sent, received uint64) { return 0, 0 }
