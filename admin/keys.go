package admin

import (
	"time"

	"github.com/quotient-go/quotient"
)

// Keys is the answer of GET /keys.
type Keys struct {
	Limiter string   `json:"limiter"`
	Keys    []KeyUse `json:"keys"` // the hottest first: most waiting, then most used up; or those with the most refusals
}

// KeyUse is the state of one key on this replica. KeyBase64 is as in OverrideState.
type KeyUse struct {
	Key           string    `json:"key"`
	KeyBase64     []byte    `json:"key_base64,omitempty"`
	Plan          string    `json:"plan"` // of the key; "" for the limiter's own limit
	Used          float64   `json:"used"` // 0 to 1: of the fullest of its rules
	Waiting       int       `json:"waiting"`
	InFlight      int       `json:"in_flight"`
	Tokens        []float64 `json:"tokens"` // events that each rate has left here; negative: owed
	Rate          float64   `json:"rate"`   // events a second, as the policy paces; 0 where none does
	Overridden    bool      `json:"overridden"`
	OverrideUntil time.Time `json:"override_until,omitzero"` // when its own limit ends; absent: never, or it has none
	Part          float64   `json:"part,omitempty"`          // of the limit: what this replica has in place of its share; absent: the share
	Learned       []Learned `json:"learned,omitempty"`       // by the policy, as in Explanation; absent without a policy that learns

	AdmittedLastMinute uint64 `json:"admitted_last_minute"` // calls: see quotient.KeyState
	RefusedLastMinute  uint64 `json:"refused_last_minute"`
}

// Explanation is the answer of GET /explain: the state of a key on this replica, and the answer to its next
// call. KeyBase64 is as in OverrideState.
type Explanation struct {
	Limiter       string            `json:"limiter"`
	Key           string            `json:"key"`
	KeyBase64     []byte            `json:"key_base64,omitempty"`
	Plan          string            `json:"plan"`       // of the key, or of the request; "": the limiter's own limit
	Remembered    bool              `json:"remembered"` // false: a key that would start fresh
	Overridden    bool              `json:"overridden"`
	OverrideUntil time.Time         `json:"override_until,omitzero"` // as in KeyUse
	Overflow      bool              `json:"overflow"`                // it shares a gate, since MaxKeys keys are busy
	DryRun        bool              `json:"dry_run"`
	Limit         LimitState        `json:"limit"` // of the key, over the fleet
	Pool          PoolState         `json:"pool"`
	Rules         []RuleExplanation `json:"rules"`
	InFlight      int               `json:"in_flight"`
	Waiting       int               `json:"waiting"`
	Next          Decision          `json:"next"`           // what the next call would get
	WaitSeconds   float64           `json:"wait_seconds"`   // until the next call's turn, as far as it is known
	Until         time.Time         `json:"until,omitzero"` // that instant; absent: now, or unknown
	Learned       []Learned         `json:"learned"`        // by the policy, one for each controller
	Text          string            `json:"text"`           // the same in a few lines of English

	AdmittedLastMinute uint64 `json:"admitted_last_minute"` // calls: see quotient.KeyState
	RefusedLastMinute  uint64 `json:"refused_last_minute"`
}

// RuleExplanation is the state of one rule of the limit for a key. Fields without a comment are as in RuleState.
type RuleExplanation struct {
	Name          string  `json:"name"`
	Unit          string  `json:"unit"`
	Limit         float64 `json:"limit"`
	Share         float64 `json:"share"`
	Burst         float64 `json:"burst"`
	Ceiling       float64 `json:"ceiling"`        // how far a policy may go: events a second, or slots
	Tokens        float64 `json:"tokens"`         // events, or slots, that this replica has left; negative: owed
	InFlight      float64 `json:"in_flight"`      // slots that the key holds here; 0 for a rate
	ResetsSeconds float64 `json:"resets_seconds"` // until the rule is as before its first use; 0 for slots
	Events        float64 `json:"events"`
	WindowSeconds float64 `json:"window_seconds"`
}

// Decision is what a call that does not wait would get.
type Decision struct {
	OK                bool    `json:"ok"`
	Reason            string  `json:"reason"` // "none" when OK
	Rule              string  `json:"rule"`   // the one that refuses
	Limit             float64 `json:"limit"`  // of that rule
	Share             float64 `json:"share"`
	RetryAfterSeconds float64 `json:"retry_after_seconds"` // 0: unknown
	Unit              string  `json:"unit"`                // of that rule
	Text              string  `json:"text"`                // the same in words
}

// Learned is the state of one controller of the policy. Pace, Share and Ceiling are in events a second, or in slots.
type Learned struct {
	Unit               string  `json:"unit"` // "" for requests, "in-flight" for slots
	Pace               float64 `json:"pace"`
	Used               float64 `json:"used"` // 0 to 1: of what the pace allows at once, or of its slots
	Share              float64 `json:"share"`
	Ceiling            float64 `json:"ceiling"`
	PausedForSeconds   float64 `json:"paused_for_seconds"`   // until an announced pause ends
	ForgottenInSeconds float64 `json:"forgotten_in_seconds"` // if no feedback comes; 0: nothing has been learned
}

func newKeys(limiter string, top []quotient.KeyState) Keys {
	keys := Keys{Limiter: limiter, Keys: make([]KeyUse, 0, len(top))}
	for _, k := range top {
		keys.Keys = append(keys.Keys, newKeyUse(k))
	}
	return keys
}

func newKeyUse(k quotient.KeyState) KeyUse {
	use := KeyUse{
		Key: k.Key, KeyBase64: inBase64(k.Key), Plan: k.Plan, Used: finite(k.Used), Waiting: k.Waiting, InFlight: k.InFlight,
		Tokens: make([]float64, 0, len(k.Rules)), Overridden: k.Overridden, OverrideUntil: k.Until, Part: finite(k.Part),
		AdmittedLastMinute: k.Admitted, RefusedLastMinute: k.Refused,
	}
	for _, r := range k.Rules {
		switch {
		case r.Window > 0:
			use.Tokens = append(use.Tokens, finite(r.Left))
		case isController(r):
			use.Learned = append(use.Learned, newLearned(r))
			if r.Unit == "" {
				use.Rate = finite(r.Pace)
			}
		}
	}
	return use
}

func newExplanation(limiter string, e quotient.Explanation, s quotient.Stats) Explanation {
	out := Explanation{
		Limiter: limiter, Key: e.Key, KeyBase64: inBase64(e.Key), Plan: e.Plan,
		Remembered: e.Remembered, Overridden: e.Overridden, OverrideUntil: e.Until, Overflow: e.Overflow, DryRun: moreOf(&s).DryRun,
		Limit: newLimitState(e.Limit), Pool: newPoolState(s.Pool), Rules: make([]RuleExplanation, 0, len(e.Rules)),
		InFlight: e.InFlight, Waiting: e.Waiting, Next: newDecision(e.Next), WaitSeconds: e.Next.RetryAfter.Seconds(),
		Learned: []Learned{}, Text: e.String(), AdmittedLastMinute: e.Admitted, RefusedLastMinute: e.Refused,
	}
	if e.Next.RetryAfter > 0 {
		out.Until = time.Now().Add(e.Next.RetryAfter)
	}
	for _, r := range e.Rules {
		if isController(r) {
			out.Learned = append(out.Learned, newLearned(r))
		} else {
			out.Rules = append(out.Rules, newRuleExplanation(r, e.InFlight))
		}
	}
	return out
}

func newLearned(r quotient.RuleState) Learned {
	return Learned{
		Unit: r.Unit, Pace: finite(r.Pace), Used: min(max(finite(1-r.Left/max(r.Burst, 1)), 0), 1), Share: finite(r.Share), Ceiling: finite(r.Limit),
		PausedForSeconds: r.Reset.Seconds(), ForgottenInSeconds: r.ForgottenIn.Seconds(),
	}
}

// newRuleExplanation is a rule of a key that holds so many slots.
func newRuleExplanation(r quotient.RuleState, inFlight int) RuleExplanation {
	s := newRuleState(r)
	x := RuleExplanation{
		Name: s.Name, Unit: s.Unit, Limit: s.Limit, Share: s.Share, Burst: s.Burst,
		Events: s.Events, WindowSeconds: s.WindowSeconds,
		Ceiling: s.Share, Tokens: finite(r.Left), ResetsSeconds: r.Reset.Seconds(),
	}
	if r.Window == 0 { // the slots
		x.InFlight = float64(inFlight)
	}
	return x
}

func newDecision(d quotient.Decision) Decision {
	return Decision{
		OK: d.OK, Reason: d.Reason.String(), Rule: d.Rule.Name, Unit: d.Unit, Limit: perSecond(d.Limit, d.Window),
		Share: perSecond(d.Share, d.Window), RetryAfterSeconds: d.RetryAfter.Seconds(), Text: d.String(),
	}
}
