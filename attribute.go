package quotient

import (
	"time"

	"github.com/quotient-go/quotient/policy"
)

// What feedback says to which law. An upstream says "429" and not what of: requests, tokens or
// slots. See docs/decisions/0020.

// accused is the law that a refusal is handed to, of those that the request has taken something of: the one whose quota, as
// far as quotas are told, is the nearest to its end; else the one that last held asks back, since it was probing; else that of
// requests. A law that the request has taken nothing of could not hold the next one back.
func (l *learned) accused(f *policy.Feedback, h *holding, laws []lawSetting) int {
	who, least := -1, 0.0
	for i := range laws {
		q := laws[i].quota(f)
		if q == nil || !h.took(laws[i].id) {
			continue
		}
		if left := q.Remaining / q.Limit; who < 0 || left < least {
			who, least = i, left
		}
	}
	if who < 0 && h.took(laws[l.last].id) {
		return l.last
	}
	who = max(who, 0)
	return who
}

// quota is what feedback tells about the quota of what the law governs; nil when it tells nothing.
func (ls *lawSetting) quota(f *policy.Feedback) *policy.Quota {
	if ls.id == slotsID {
		return nil
	}
	for i := range f.Quotas {
		if q := &f.Quotas[i]; q.Limit > 0 && q.Unit == ls.unit && q.Known() {
			return q
		}
	}
	return nil
}

// cost is what the permit took of what a law governs, by its id: events, or the seconds that it held its slots.
func (h *holding) cost(id int, at time.Duration) float64 {
	switch id {
	case 0:
		return float64(h.weight)
	case slotsID:
		return h.heldFor(at) * float64(h.weight)
	}
	return float64(h.costs[id-1])
}

// heldFor is for how many seconds the permit has been out.
func (h *holding) heldFor(at time.Duration) float64 {
	return float64(at-h.since) / float64(time.Second)
}

// took tells whether the permit has taken anything of what a law governs, by its id.
func (h *holding) took(id int) bool {
	return id == 0 || id == slotsID || h.costs[id-1] > 0
}
