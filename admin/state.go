package admin

import (
	"log/slog"
	"net/http"

	"github.com/quotient-go/quotient"
)

// state is the JSON of quotient.Stats. Its field names are a promise: they are added to, never
// changed. Rates and shares are in events a second, durations in seconds.
type state struct {
	Limit          limitState        `json:"limit"`
	Rules          []ruleState       `json:"rules"`
	Pool           poolState         `json:"pool"`
	Keys           int               `json:"keys"`
	MaxKeys        int               `json:"max_keys"`
	Waiting        int               `json:"waiting"`
	InFlight       int               `json:"in_flight"`
	Admitted       uint64            `json:"admitted"`
	Refused        map[string]uint64 `json:"refused"`
	Waited         uint64            `json:"waited"`
	Cancelled      uint64            `json:"cancelled"`
	Evicted        uint64            `json:"evicted"`
	Overflowed     uint64            `json:"overflowed"`
	DoubleReleases uint64            `json:"double_releases"`
	Reclaimed      uint64            `json:"reclaimed"`
	Throttled      uint64            `json:"throttled"`
}

type limitState struct {
	Rates    []rateState `json:"rates"`
	InFlight int         `json:"in_flight"`
	Denies   bool        `json:"denies"` // everything is refused
}

type rateState struct {
	Name       string  `json:"name"`
	Unit       string  `json:"unit"`
	Events     float64 `json:"events"`
	PerSeconds float64 `json:"per_seconds"`
	Burst      int     `json:"burst"`
	Aligned    bool    `json:"aligned"`
}

type ruleState struct {
	Name  string  `json:"name"`
	Unit  string  `json:"unit"`
	Limit float64 `json:"limit"`
	Share float64 `json:"share"`
	Burst float64 `json:"burst"`
}

type poolState struct {
	Replicas   int     `json:"replicas"`
	Ordinal    int     `json:"ordinal"`
	Fixed      bool    `json:"fixed"`
	Source     string  `json:"source"`
	AgeSeconds float64 `json:"age_seconds"`
	Reports    uint64  `json:"reports"`
	Errors     uint64  `json:"errors"`
	Rejected   uint64  `json:"rejected"`
	LastError  string  `json:"last_error"`
}

func (h *handler) getState(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, "application/json", http.StatusOK, newState(h.limiter.Stats()))
}

func newState(s quotient.Stats) state {
	return state{
		Limit: newLimitState(s.Limit), Rules: newRuleStates(s.Rules), Pool: newPoolState(s.Pool),
		Keys: s.Keys, MaxKeys: s.MaxKeys, Waiting: s.Waiting, InFlight: s.InFlight,
		Admitted: s.Admitted, Refused: newRefused(s.Refused), Waited: s.Waited,
		Cancelled: s.Cancelled, Evicted: s.Evicted, Overflowed: s.Overflowed,
		DoubleReleases: s.DoubleReleases, Reclaimed: s.Reclaimed, Throttled: s.Throttled,
	}
}

func newLimitState(limit quotient.Limit) limitState {
	rates := make([]rateState, 0, len(limit.Rates))
	for _, r := range limit.Rates {
		rates = append(rates, rateState{
			Name: r.Name, Unit: r.Unit, Events: r.Events, PerSeconds: r.Per.Seconds(), Burst: r.Burst, Aligned: r.Aligned,
		})
	}
	return limitState{Rates: rates, InFlight: limit.InFlight, Denies: limit.Denies()}
}

func newRuleStates(rules []quotient.RuleStats) []ruleState {
	states := make([]ruleState, 0, len(rules))
	for _, r := range rules {
		states = append(states, ruleState(r))
	}
	return states
}

func newPoolState(p quotient.PoolStats) poolState {
	return poolState{
		Replicas: p.Replicas, Ordinal: p.Ordinal, Fixed: p.Fixed, Source: p.Source, AgeSeconds: p.Age.Seconds(),
		Reports: p.Reports, Errors: p.Errors, Rejected: p.Rejected, LastError: p.LastError,
	}
}

func newRefused(refused map[quotient.Reason]uint64) map[string]uint64 {
	counts := make(map[string]uint64, len(refused))
	for reason, n := range refused {
		counts[reason.String()] = n
	}
	return counts
}

// slogPool is one log attribute for a pool.
func slogPool(name string, p quotient.Pool) slog.Attr {
	return slog.Group(name, "replicas", p.Replicas, "ordinal", p.Ordinal, "fixed", p.Fixed)
}
