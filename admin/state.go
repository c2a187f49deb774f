package admin

import (
	"maps"
	"math"
	"runtime"
	"runtime/debug"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/inside"
)

// State is the answer of GET /state and of every PUT. The JSON names of it and of its parts are a promise: they are
// added to, never changed. Rates and shares are in events a second, durations in seconds; no number is NaN or infinite.
type State struct {
	Time     time.Time               `json:"time"`          // of the answer
	May      []string                `json:"may,omitempty"` // of the caller: "read", "write"; not in GET /events
	Process  Process                 `json:"process"`
	Limiters map[string]LimiterState `json:"limiters"` // those that were asked for, by name

	File   *FileState `json:"file,omitempty"`   // of GET /events, and GET /state of all; absent without option File
	Tables []Table    `json:"tables,omitempty"` // the same, of Tables
	Leases bool       `json:"leases,omitempty"` // there is a lease service for GET /leases: see WithLeases
	Peers  bool       `json:"peers,omitempty"`  // there is a list of pods for GET /peers: see WithPeers

	History *History `json:"history,omitempty"` // of GET /state?history=1
}

// Process describes the process of the limiters.
type Process struct {
	Replica string    `json:"replica"` // its name: see the option Replica
	Started time.Time `json:"started"`
	Go      string    `json:"go"`      // version of Go
	Version string    `json:"version"` // of the main module; "(devel)" or "" when it was not built from a version
}

// LimiterState is the state of one limiter. See quotient.Stats for what is counted.
type LimiterState struct {
	Limit          LimitState        `json:"limit"` // over the fleet
	Rules          []RuleState       `json:"rules"` // of the limit, with this replica's share
	Plans          []PlanState       `json:"plans"` // by name
	Pool           PoolState         `json:"pool"`
	Keys           int               `json:"keys"` // remembered
	MaxKeys        int               `json:"max_keys"`
	Waiting        int               `json:"waiting"`
	InFlight       int               `json:"in_flight"`
	Admitted       uint64            `json:"admitted"`
	Refused        map[string]uint64 `json:"refused"` // by reason
	Waited         uint64            `json:"waited"`
	Cancelled      uint64            `json:"cancelled"`
	Evicted        uint64            `json:"evicted"`
	Overflowed     uint64            `json:"overflowed"`
	DoubleReleases uint64            `json:"double_releases"`
	Reclaimed      uint64            `json:"reclaimed"`
	Throttled      uint64            `json:"throttled"`
	Learns         bool              `json:"learns"` // the policy learns from the upstream's answers

	ETag           string            `json:"etag"`             // for If-Match: of the configuration, not of counters
	Version        uint64            `json:"version"`          // counts changes of configuration, and resets of keys
	DryRun         bool              `json:"dry_run"`          // everything is admitted
	DryRunAdmitted map[string]uint64 `json:"dry_run_admitted"` // calls that only a dry run admitted, by reason
	Expired        uint64            `json:"expired"`          // turns that expired
	OverrideCount  int               `json:"override_count"`
	Overrides      []OverrideState   `json:"overrides"`     // the first 1,000 by key
	Was            *OverrideState    `json:"was,omitempty"` // by PUT /override: what the key had; absent: nothing

	OwnAdmitted uint64 `json:"own_admitted"` // calls that named no plan: see quotient.PlanStats
	OwnRefused  uint64 `json:"own_refused"`

	Demand *DemandState `json:"demand,omitempty"` // absent while the source carries no reports between replicas
	Fleet  *FleetState  `json:"fleet,omitempty"`  // the same
}

// OverrideState is a key with a limit of its own. Over HTTP, if a key is not UTF-8, Key has replacement characters and
// KeyBase64 is the key itself. Otherwise KeyBase64 is nil. A Client always returns the key itself in Key.
type OverrideState struct {
	Key       string      `json:"key"`
	KeyBase64 []byte      `json:"key_base64,omitempty"`
	Limit     LimitState  `json:"limit"`          // over the fleet
	Until     time.Time   `json:"until,omitzero"` // when it ends; absent: it is for good
	Then      *LimitState `json:"then,omitempty"` // the key's own limit after that; absent: none
}

// inBase64 is what stands in an answer as "key_base64" beside a key: nothing when JSON can carry it.
func inBase64(key string) []byte {
	if utf8.ValidString(key) {
		return nil
	}
	return []byte(key)
}

// LimitState is a limit over the fleet.
type LimitState struct {
	Rates    []RateState `json:"rates"`
	InFlight int         `json:"in_flight"` // slots; 0 for no such bound
	Denies   bool        `json:"denies"`    // everything is refused

	Unlimited bool `json:"unlimited,omitempty"` // there is no rate, no in_flight, and nothing is denied
}

// RateState is one rate of a limit.
type RateState struct {
	Name       string  `json:"name"`
	Unit       string  `json:"unit"` // "" for requests
	Events     float64 `json:"events"`
	PerSeconds float64 `json:"per_seconds"`
	Burst      int     `json:"burst"` // 0 for Events; 1 if paced
	Kind       string  `json:"kind"`  // bucket, paced, window or counted-window; the next two are for old clients
	Aligned    bool    `json:"aligned"`
	Counted    bool    `json:"counted"` // the fleet's count decides
	NoTurns    bool    `json:"no_turns"`
	Zone       string  `json:"zone,omitempty"` // by which the days of a window begin; absent: UTC
}

// RuleState is one rule of the limit with the part of it that this replica enforces.
type RuleState struct {
	Name  string  `json:"name"`
	Unit  string  `json:"unit"`
	Limit float64 `json:"limit"` // events a second, or slots, over the fleet
	Share float64 `json:"share"` // the same, here
	Burst float64 `json:"burst"` // events, here; 0 for windows and slots

	Events        float64 `json:"events"`         // of a rate, over the fleet in each window; 0 for slots
	WindowSeconds float64 `json:"window_seconds"` // of a rate; 0 for slots
}

// PoolState is the pool in force and its origin.
type PoolState struct {
	Replicas   int       `json:"replicas"` // each by its weight
	Weight     int       `json:"weight"`   // the number of them that this one counts as, 1 or more
	Ordinal    int       `json:"ordinal"`  // 0 for unknown
	Fixed      bool      `json:"fixed"`
	Source     string    `json:"source"`      // configured, set, followed or awaited
	AgeSeconds float64   `json:"age_seconds"` // since the last usable report or PUT; 0 when there was none
	Reports    uint64    `json:"reports"`     // of the source: usable ones
	Errors     uint64    `json:"errors"`      // its failures
	Rejected   uint64    `json:"rejected"`    // pools out of range
	LastError  string    `json:"last_error"`
	Until      time.Time `json:"until,omitzero"` // when the size that an operator set ends; absent: never
}

// PlanState is a plan of a limiter, as in quotient.PlanStats.
type PlanState struct {
	Name         string      `json:"name"`
	Limit        LimitState  `json:"limit"`    // over the fleet
	Rules        []RuleState `json:"rules"`    // of the limit, with this replica's share
	Admitted     uint64      `json:"admitted"` // calls that named the plan
	RefusedCalls uint64      `json:"refused_calls"`
}

var started = time.Now()

func (h *handler) newState(limiters map[string]*quotient.Limiter) State {
	s := State{
		Time: time.Now(), Process: Process{Replica: h.replica, Started: started, Go: runtime.Version()},
		Leases: h.leases != nil, Peers: h.peers != nil, Limiters: make(map[string]LimiterState, len(limiters)),
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		s.Process.Version = info.Main.Version
	}
	for name, l := range limiters {
		s.Limiters[name] = h.stateOfLimiter(name, l)
	}
	return s
}

// stateOfLimiter reads the overrides last: a change in between makes the tag older than they are, and a write
// that relies on it fails.
func (h *handler) stateOfLimiter(name string, l *quotient.Limiter) LimiterState {
	s := newLimiterState(l.Stats())
	s.ETag = h.etag(name, l, s.Version)
	s.Overrides, s.OverrideCount = h.seen.overridesOf(l, s.Version)
	return s
}

var moreOf = inside.MoreOf.(func(*quotient.Stats) *inside.More)

func newLimiterState(s quotient.Stats) LimiterState {
	l := LimiterState{
		Limit: newLimitState(s.Limit), Rules: newRuleStates(s.Rules), Plans: newPlanStates(s.Plans),
		Pool: newPoolState(s.Pool),
		Keys: s.Keys, MaxKeys: s.MaxKeys, Waiting: s.Waiting, InFlight: s.InFlight,
		Admitted: s.Admitted, Refused: byName(s.Refused), Waited: s.Waited,
		Cancelled: s.Cancelled, Evicted: s.Evicted, Overflowed: s.Overflowed,
		DoubleReleases: s.DoubleReleases, Reclaimed: s.Reclaimed, Throttled: s.Throttled, Learns: moreOf(&s).Learns,
		Version: s.Version, DryRun: moreOf(&s).DryRun, DryRunAdmitted: byName(s.DryRunAdmitted), Expired: s.Expired,
		OverrideCount: s.Overrides, Overrides: []OverrideState{},
		OwnAdmitted: s.PlanStats.Admitted, OwnRefused: s.PlanStats.Refused,
	}
	l.addDemand(s)
	return l
}

func newLimitState(limit quotient.Limit) LimitState {
	rates := make([]RateState, 0, len(limit.Rates))
	for _, r := range limit.Rates {
		burst := r.Burst
		if r.Kind == quotient.Paced {
			burst = 1 // which is how one says so to those who do not know of the kind
		}
		rates = append(rates, RateState{
			Name: r.Name, Unit: r.Unit, Events: finite(r.Events), PerSeconds: r.Per.Seconds(), Burst: burst,
			Kind: r.Kind.String(), Aligned: r.Kind == quotient.Window || r.Kind == quotient.CountedWindow,
			Counted: r.Kind == quotient.CountedWindow, NoTurns: r.NoTurns, Zone: r.Zone,
		})
	}
	return LimitState{
		Rates: rates, InFlight: limit.InFlight, Denies: limit.Deny,
		Unlimited: len(rates) == 0 && limit.InFlight == 0 && !limit.Deny,
	}
}

// newRuleStates leaves out the controllers of a policy.
func newRuleStates(rules []quotient.RuleState) []RuleState {
	states := make([]RuleState, 0, len(rules))
	for _, r := range rules {
		if !isController(r) {
			states = append(states, newRuleState(r))
		}
	}
	return states
}

// isController reports whether a rule is a controller of the policy, and not of the limit.
func isController(r quotient.RuleState) bool { return r.Pace > 0 }

func newRuleState(r quotient.RuleState) RuleState {
	x := RuleState{
		Name: r.Name, Unit: r.Unit, Limit: perSecond(r.Limit, r.Window), Share: perSecond(r.Share, r.Window),
		Burst: finite(r.Burst), WindowSeconds: r.Window.Seconds(),
	}
	if r.Window > 0 {
		x.Events = finite(r.Limit)
	}
	return x
}

// perSecond is events in each window as events a second. Slots, and what a controller allows, have no
// window, and stay as they are.
func perSecond(n float64, window time.Duration) float64 {
	if window > 0 {
		n /= window.Seconds()
	}
	return finite(n)
}

func newPoolState(p quotient.PoolStats) PoolState {
	return PoolState{
		Replicas: p.Replicas, Weight: max(1, p.Weight), Ordinal: p.Ordinal, Fixed: p.Fixed,
		Source: p.Source, AgeSeconds: p.Age.Seconds(),
		Reports: p.Reports, Errors: p.Errors, Rejected: p.Rejected, LastError: p.LastError, Until: p.Until,
	}
}

func byName(counts map[quotient.Reason]uint64) map[string]uint64 {
	named := make(map[string]uint64, len(counts))
	for reason, n := range counts {
		named[reason.String()] = n
	}
	return named
}

// finite makes any number one that JSON can carry: no number is 0, and infinity the largest one.
func finite(x float64) float64 {
	if math.IsNaN(x) {
		return 0
	}
	return max(-math.MaxFloat64, min(x, math.MaxFloat64))
}

func newPlanStates(plans map[string]quotient.PlanStats) []PlanState {
	states := make([]PlanState, 0, len(plans))
	for _, name := range slices.Sorted(maps.Keys(plans)) {
		p := plans[name]
		states = append(states, PlanState{name, newLimitState(p.Limit), newRuleStates(p.Rules), p.Admitted, p.Refused})
	}
	return states
}

// DemandState is the state of the reports between replicas on the limiter's keys: see quotient.Demand.
type DemandState struct {
	Keys  int `json:"keys"`  // that any replica reports
	Named int `json:"named"` // of these, reported by this replica
	Lent  int `json:"lent"`  // of these, those of which this replica has more than its share

	AgeSeconds    float64 `json:"age_seconds"`     // of the oldest reports; 0 while some is missing
	Missing       bool    `json:"missing"`         // a replica is not known to have reported
	MaxAgeSeconds float64 `json:"max_age_seconds"` // the shares hold while reports are older
	Fresh         bool    `json:"fresh"`           // no reports are missing or older; else the shares hold

	// Bytes of the source that carries the reports, since it was made, for all limiters of the process.
	SentBytes     uint64 `json:"sent_bytes"`
	ReceivedBytes uint64 `json:"received_bytes"`
}

// FleetState is what the limiters of this name have done together, each since it was made. The numbers fall
// when a replica goes.
type FleetState struct {
	Replicas int    `json:"replicas"` // whose numbers are included, each by its weight
	Admitted uint64 `json:"admitted"`
	Refused  uint64 `json:"refused"`
	Waiting  int    `json:"waiting"`
	InFlight int    `json:"in_flight"`

	AgeSeconds float64 `json:"age_seconds"` // of the oldest number; 0 while some is missing
	Missing    bool    `json:"missing"`     // the numbers are not of all replicas
}

// addDemand adds what is carried between the replicas, if anything is.
func (l *LimiterState) addDemand(s quotient.Stats) {
	d, f := moreOf(&s).Demand, s.Fleet
	if d.MaxAge == 0 {
		return
	}
	l.Demand = &DemandState{
		Keys: d.Keys, Named: d.Named, Lent: d.Lent, MaxAgeSeconds: d.MaxAge.Seconds(),
		Fresh: max(d.Age, f.Age) <= d.MaxAge, SentBytes: d.Sent, ReceivedBytes: d.Received,
	}
	l.Demand.AgeSeconds, l.Demand.Missing = newAge(max(d.Age, f.Age))
	l.Fleet = &FleetState{
		Replicas: f.Replicas, Admitted: f.Admitted, Refused: f.Refused, Waiting: f.Waiting, InFlight: f.InFlight,
	}
	l.Fleet.AgeSeconds, l.Fleet.Missing = newAge(f.Age)
}

// newAge is an age as JSON has it.
func newAge(age time.Duration) (seconds float64, missing bool) {
	if age == math.MaxInt64 {
		return 0, true
	}
	return age.Seconds(), false
}
