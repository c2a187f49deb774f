package ctl

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/admin"
	"github.com/quotient-go/quotient/admin/pods"
	"github.com/quotient-go/quotient/cmd/quotient/internal/cmdline"
	"github.com/quotient-go/quotient/internal/shown"
)

type topCmd struct {
	By string `enum:"refused,used" default:"refused" placeholder:"WHAT" help:"${help_ctl_by}"`
	N  int    `short:"n" name:"number" default:"20" placeholder:"N" help:"${help_ctl_n}"`
}

// Help shows an example.
func (topCmd) Help() string {
	return `Calls admitted and refused are those of the last minute, of all pods together. Pods count
them from a key's first refusal on. PODS is how many pods know the key, and USED what is
used up where that is most.

Examples:

    quotient ctl top
    quotient ctl top --by used -n 100 --limiter api --json`
}

// topKey is a key over all pods. KeyBase64 is as in admin.KeyUse.
type topKey struct {
	Limiter    string  `json:"limiter"`
	Key        string  `json:"key"`
	KeyBase64  []byte  `json:"key_base64,omitempty"`
	Plan       string  `json:"plan"`
	Admitted   uint64  `json:"admitted_last_minute"`
	Refused    uint64  `json:"refused_last_minute"`
	Used       float64 `json:"used"` // 0 to 1, where it is most
	Waiting    int     `json:"waiting"`
	Pods       int     `json:"pods"` // that know it
	Overridden bool    `json:"overridden"`
}

// Run prints the keys of all pods, each once.
func (c *topCmd) Run(ctx context.Context, ctl *Command, s cmdline.Streams) error {
	const mostKeys = 1000 // that a pod tells of
	if c.N < 1 || c.N > mostKeys {
		return cmdline.Usagef("--number is %d, want 1 to %d", c.N, mostKeys)
	}
	f, states, err := ctl.begin(ctx, s)
	if err != nil {
		return err
	}
	names, err := f.chosen(states)
	if err != nil {
		return err
	}
	// A key that is far down on each pod may be at the top of their sum.
	most := min(mostKeys, 10*c.N)
	answers := each(ctx, f, states, func(ctx context.Context, api *admin.Client, a seen) ([]admin.Keys, error) {
		return c.keys(ctx, api, a.Value, names, most)
	})
	complain(f, answers, "no answer from")
	top := c.merge(answers)
	if f.JSON {
		return f.printJSON(struct {
			Pods []podJSON `json:"pods"`
			Keys []topKey  `json:"keys"`
		}{newPods(answers, nil), top})
	}
	t := sheet{head: []string{"KEY", "LIMITER", "PLAN", "ADMITTED", "REFUSED", "USED", "WAITING", "PODS", "OWN LIMIT"}}
	for _, k := range top {
		t.add(k.Key, k.Limiter, k.Plan, number(k.Admitted), number(k.Refused), percent(k.Used), strconv.Itoa(k.Waiting),
			fmt.Sprintf("%d of %d", k.Pods, len(answers)), yes(k.Overridden))
	}
	return t.print(f.Out)
}

// keys asks a pod for the keys of some limiters.
func (c *topCmd) keys(
	ctx context.Context, api *admin.Client, s admin.State, names []string, most int,
) (all []admin.Keys, err error) {
	var order []admin.KeysOption
	if c.By == "refused" {
		order = []admin.KeysOption{admin.ByRefused()}
	}
	for _, name := range names {
		if s.Limiters[name].Keys == 0 {
			continue
		}
		keys, err := api.Keys(ctx, name, most, order...)
		if err != nil {
			return nil, err
		}
		all = append(all, keys)
	}
	return all, nil
}

// merge adds up what the pods say of each key.
func (c *topCmd) merge(answers []pods.Answer[[]admin.Keys]) []topKey {
	type name struct{ limiter, key string }
	all := make(map[name]*topKey)
	for _, a := range answers {
		for _, keys := range a.Value {
			for _, k := range keys.Keys {
				id := name{keys.Limiter, k.Key}
				if all[id] == nil {
					all[id] = &topKey{Limiter: keys.Limiter, Key: k.Key, KeyBase64: k.KeyBase64}
				}
				all[id].add(k)
			}
		}
	}
	top := slices.Collect(maps.Values(all))
	slices.SortFunc(top, func(a, b *topKey) int {
		refused := cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(b.Admitted, a.Admitted))
		used := cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.Used, a.Used))
		if c.By == "used" {
			refused, used = used, refused
		}
		return cmp.Or(refused, used, cmp.Compare(a.Limiter, b.Limiter), cmp.Compare(a.Key, b.Key))
	})
	sorted := make([]topKey, min(c.N, len(top)))
	for i := range sorted {
		sorted[i] = *top[i]
	}
	return sorted
}

func (k *topKey) add(u admin.KeyUse) {
	k.Plan = cmp.Or(k.Plan, u.Plan)
	k.Admitted += u.AdmittedLastMinute
	k.Refused += u.RefusedLastMinute
	k.Used = max(k.Used, u.Used)
	k.Waiting += u.Waiting
	k.Pods++
	k.Overridden = k.Overridden || u.Overridden
}

type explainCmd struct {
	Key string `arg:"" help:"The key, as the limiter has it."`
}

// Help shows an example.
func (explainCmd) Help() string {
	return `One row a pod: how many replicas it believes in, the limit of the key, the calls of the
last minute, and what its next call would get. What differs between pods has a star.

Example:

    quotient ctl explain /customers/7`
}

// Run prints a row for each pod.
func (c *explainCmd) Run(ctx context.Context, ctl *Command, s cmdline.Streams) error {
	f, states, err := ctl.begin(ctx, s)
	if err != nil {
		return err
	}
	limiter, err := f.one(states)
	if err != nil {
		return err
	}
	type explained struct {
		admin.Explanation
		now time.Time // by the pod's clock
	}
	explain := func(ctx context.Context, api *admin.Client, a seen) (explained, error) {
		e, err := api.Explain(ctx, limiter, c.Key)
		return explained{e, cmp.Or(a.Value.Time, time.Now())}, err
	}
	answers := each(ctx, f, states, explain)
	complain(f, answers, "no answer from")
	t := sheet{head: []string{
		"POD", "=REPLICAS", "=PLAN", "=OWN LIMIT", "ENDS IN", "=LIMIT", "ADMITTED", "REFUSED", "WAITING", "NEXT CALL",
	}}
	for _, a := range answers {
		if e := a.Value; a.Err == nil {
			plan, limit := e.Plan, limitOfState(e.Limit).String()
			if !e.Remembered && !e.Overridden { // its plan is that of a call, and none has come
				plan, limit = none, none
			}
			t.add(a.Name, strconv.Itoa(e.Pool.Replicas), plan, yes(e.Overridden), left(e.OverrideUntil, e.now), limit,
				number(e.AdmittedLastMinute), number(e.RefusedLastMinute), strconv.Itoa(e.Waiting), next(e.Next))
		}
	}
	if f.JSON {
		return f.printJSON(differing{newPods(answers, func(e explained) any { return e.Explanation }), t.differs()})
	}
	return t.printAll(f.Out)
}

// differing is what --json prints of explain and stats.
type differing struct {
	Pods    []podJSON `json:"pods"`
	Differs []string  `json:"differs"` // in words
}

type statsCmd struct{}

// Help shows an example.
func (statsCmd) Help() string {
	return `One row a pod, and one table a limiter. REPLICAS is what the pod believes, by a hint of that
age, SHARE its part of the first rule, and VERSION counts changes of its configuration.
What differs between pods has a star.

Example:

    quotient ctl stats --limiter api`
}

// Run prints a table for each limiter.
func (statsCmd) Run(ctx context.Context, ctl *Command, s cmdline.Streams) error {
	f, states, err := ctl.begin(ctx, s)
	if err != nil {
		return err
	}
	complain(f, states, "no answer from")
	names, err := f.chosen(states)
	if err != nil {
		return err
	}
	out := differing{Pods: newPods(states, func(s admin.State) any {
		if f.Limiter != "" {
			maps.DeleteFunc(s.Limiters, func(name string, _ admin.LimiterState) bool { return name != f.Limiter })
		}
		return s
	}), Differs: []string{}}
	for i, name := range names {
		t := statsOf(name, states)
		for _, line := range t.differs() {
			out.Differs = append(out.Differs, name+": "+line)
		}
		if f.JSON {
			continue
		}
		if len(names) > 1 {
			fmt.Fprintf(f.Out, "%slimiter %s\n", strings.Repeat("\n", min(1, i)), shown.Line(name))
		}
		if err := t.printAll(f.Out); err != nil {
			return err
		}
	}
	if f.JSON {
		return f.printJSON(out)
	}
	return nil
}

func statsOf(limiter string, states []seen) *sheet {
	t := &sheet{head: []string{
		"POD", "=REPLICAS", "SHARE", "=LIMIT", "=PLANS", "ADMITTED", "REFUSED", "WAITING", "HINT", "AGE", "VERSION",
	}}
	for _, a := range states {
		l, there := a.Value.Limiters[limiter]
		if a.Err != nil {
			continue
		}
		if !there {
			t.add(slices.Concat([]string{a.Name, "no such limiter"}, make([]string, len(t.head)-2))...)
			continue
		}
		refused := uint64(0)
		for _, n := range l.Refused {
			refused += n
		}
		t.add(a.Name, strconv.Itoa(l.Pool.Replicas), share(l.Rules), limitOfState(l.Limit).String(), plansOf(l.Plans),
			number(l.Admitted), number(refused), strconv.Itoa(l.Waiting), l.Pool.Source,
			seconds(l.Pool.AgeSeconds), number(l.Version))
	}
	return t
}

// share is what a pod has of the first rule, in words.
func share(rules []admin.RuleState) string {
	if len(rules) == 0 {
		return none
	}
	r := rules[0]
	per := 1.
	if r.WindowSeconds > 0 {
		per = r.WindowSeconds
	}
	return fmt.Sprintf("%.3g of %.6g", r.Share*per, r.Limit*per)
}

func plansOf(plans []admin.PlanState) string {
	parts := make([]string, len(plans))
	for i, p := range plans {
		parts[i] = p.Name + " " + limitOfState(p.Limit).String()
	}
	return strings.Join(parts, "; ")
}

// next is the answer to the next call, in words.
func next(d admin.Decision) string {
	if d.OK {
		return "admitted"
	}
	text := "refused: " + d.Reason
	if d.Rule != "" {
		text += " " + d.Rule
	}
	if d.RetryAfterSeconds > 0 {
		text += ", in " + seconds(d.RetryAfterSeconds)
	}
	return text
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }

func percent(part float64) string { return fmt.Sprintf("%.0f %%", 100*part) }

func yes(is bool) string { return map[bool]string{true: "yes", false: none}[is] }

// seconds is a time with three digits at most.
func seconds(n float64) string {
	const most = 1e9 // 31 years: a pod may say anything
	return cmdline.Short(time.Duration(max(-most, min(n, most)) * float64(time.Second)))
}

// left is how long it is until an instant, by the clock that it is of; "" for none.
func left(until, now time.Time) string {
	if until.IsZero() {
		return ""
	}
	return max(0, until.Sub(now)).Round(time.Second).String()
}

// limitOfState is a limit as a pod tells of it.
func limitOfState(s admin.LimitState) quotient.Limit {
	l := quotient.Limit{InFlight: s.InFlight, Deny: s.Denies}
	for _, r := range s.Rates {
		rate := quotient.Rate{
			Name: r.Name, Unit: r.Unit, Events: r.Events, Per: time.Duration(r.PerSeconds * float64(time.Second)),
			Burst: r.Burst, NoTurns: r.NoTurns, Zone: r.Zone,
		}
		for _, k := range kindsOf {
			if k.String() == r.Kind {
				rate.Kind = k
			}
		}
		l.Rates = append(l.Rates, rate)
	}
	return l
}
