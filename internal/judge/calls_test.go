package judge

import (
	"slices"
	"time"

	"github.com/quotient-go/quotient"
)

// The judge's reading of who is refused: how the calls of each key and of each plan have ended, one by one.

// end is how a call has ended.
type end int

const (
	wasAdmitted end = iota
	wasSpared       // by a dry run
	wasRefused
	wasGivenUp // it may have been refused at the same instant
	wasInvalid
)

// ending is the end of a call. It counts at that instant, or before if a hook was slow.
type ending struct {
	at   time.Time
	how  end
	slow bool
}

// idleFor is how long a key must rest before it may be dropped, while there is room for all.
const idleFor = 8 * time.Second

// ends notes how a call has ended.
func (r *replica) ends(key string, how end, at time.Time, slow bool) {
	plan := planOf(key)
	if slow {
		at = time.Now() // at the latest
	}
	switch how {
	case wasAdmitted:
		r.counts.admitted++
	case wasSpared:
		r.counts.admitted++
		r.counts.dry++
	case wasRefused:
		r.counts.refused++
	case wasGivenUp:
		r.counts.cancelled++
	case wasInvalid:
		r.counts.refused++
		plan = ""
	}
	of := r.ofPlans[plan]
	of[how]++
	r.ofPlans[plan] = of
	if how != wasInvalid {
		r.endings[nameOf(key)] = append(r.endings[nameOf(key)], ending{at, how, slow})
	}
}

// refusedFor is the end of a call that was refused.
func refusedFor(d quotient.Decision) end {
	if d.Reason == quotient.ReasonBadRequest {
		return wasInvalid
	}
	return wasRefused
}

// lastMinute returns the least and the most that must be counted of a key. If it may have been dropped since, the least
// is nothing.
func (r *replica) lastMinute(key string, now time.Time) (least, most tally) {
	all, first := r.endings[key], time.Time{} // refusal that must be counted
	kept := r.conf.maxKeys >= r.w.keys && len(all) > 0 && now.Sub(all[len(all)-1].at) < idleFor
	from := len(all) // since when it cannot have been dropped
	for kept && from > 0 && (from == len(all) || all[from].at.Sub(all[from-1].at) < idleFor) {
		from--
	}
	for i, e := range all {
		refused := e.how == wasRefused || e.how == wasSpared || e.how == wasGivenUp
		if now.Sub(e.at) <= time.Minute {
			switch {
			case refused:
				most.refused++
			default:
				most.admitted++
			}
		}
		if !kept || i < from || e.slow || now.Sub(e.at) >= 50*time.Second {
			continue
		}
		switch {
		case refused:
			if least.refused++; first.IsZero() {
				first = e.at
			}
		case e.how == wasAdmitted && !first.IsZero() && e.at.After(first):
			least.admitted++
		}
	}
	return least, most
}

// whoIsRefusedIsRight holds what the limiter shows of calls against how they have ended.
func (r *replica) whoIsRefusedIsRight(s quotient.Stats) {
	if r.slow() || r.blurred {
		return
	}
	r.ofPlanIsRight("", s.PlanStats)
	for plan, x := range s.Plans {
		r.ofPlanIsRight(plan, x)
	}
	now, shown := time.Now(), map[string]quotient.KeyState{}
	for k := range r.l.Keys() {
		shown[k.Key] = k
	}
	for key := range r.endings {
		e := r.l.Explain(key)
		if k, ok := shown[key]; e.Remembered && (!ok || k.Admitted != e.Admitted || k.Refused != e.Refused) {
			r.w.broken("replica %d %s: Keys shows %d admitted and %d refused, Explain %d and %d", r.id, key,
				k.Admitted, k.Refused, e.Admitted, e.Refused)
		}
		least, most := r.lastMinute(key, now)
		if !e.Overflow && (e.Admitted < least.admitted || e.Admitted > most.admitted ||
			e.Refused < least.refused || e.Refused > most.refused || e.Refused == 0 && e.Admitted > 0) {
			r.w.broken("replica %d %s: %d admitted and %d refused in the last minute, want %+v to %+v", r.id, key,
				e.Admitted, e.Refused, least, most)
		}
	}
}

func (r *replica) ofPlanIsRight(plan string, x quotient.PlanStats) {
	of := r.ofPlans[plan]
	admitted, refused := of[wasAdmitted]+of[wasSpared], of[wasRefused]+of[wasInvalid]
	if x.Admitted != admitted || x.Refused < refused || x.Refused > refused+of[wasGivenUp] {
		r.w.broken("replica %d plan %q: %d admitted and %d refused, want %d and %d, or up to %d more", r.id, plan,
			x.Admitted, x.Refused, admitted, refused, of[wasGivenUp])
	}
}

// isForgiven forgets how the calls of a key have ended.
func (r *replica) isForgiven(key string) {
	r.endings[key] = slices.Delete(r.endings[key], 0, len(r.endings[key]))
}
