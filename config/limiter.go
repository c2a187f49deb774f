package config

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/kinds"
	"github.com/quotient-go/quotient/lease"
)

// Bounds and defaults of limiters.
const (
	maxLimiters  = 1000
	maxPlans     = 64
	maxRates     = 16
	maxOverrides = 1000
	maxKeys      = 1 << 30
	maxQueue     = 1 << 30
	longestName  = 64   // of a limiter, a plan, a rate, a unit, in bytes
	longestKey   = 4096 // of an override, in bytes
)

// The policies, as a file spells them.
const (
	policyFixed    = "fixed"
	policyTracking = "tracking"
)

// read reads the tables of a file.
func (f *File) read(v value) {
	v.table(fields{
		"pool": func(v value) { v.table(fieldsOf(&f.Pool, nil)) },
		"limiters": func(v value) {
			v.each(func(name string, of value) {
				l := Limiter{QueuePerKey: 10_000, Queue: 100_000, MaxKeys: 1 << 16, Policy: policyFixed}
				l.read(of)
				f.Limiters[name] = l
			})
		},
		"proxy": func(v value) {
			f.Proxy = defaultProxy()
			v.table(fieldsOf(f.Proxy, fields{"rules": func(v value) { v.list(maxRules, f.Proxy.readRule) }}))
		},
		"decide": func(v value) {
			f.Decide = defaultDecide()
			v.table(fieldsOf(f.Decide, nil))
		},
		"leases": func(v value) {
			f.Leases = defaultLeases()
			f.Leases.read(v)
		},
	})
	if f.Decide != nil && f.Proxy == nil {
		f.Proxy = defaultProxy()
	}
}

func (l *Limiter) read(v value) {
	known := limitFields(&l.Limit)
	maps.Copy(known, fieldsOf(l, fields{
		"plans":     func(v value) { l.Plans = readLimits(v) },
		"overrides": func(v value) { l.Overrides = readLimits(v) },
		"mode":      either(&l.Refuse, "wait", "refuse"),
		"ceiling":   either(&l.BeyondShare, "share", "limit"),
		"demand": func(v value) {
			l.Demand = &Demand{Keys: 100, MaxAge: 2 * time.Second}
			v.table(fieldsOf(l.Demand, nil))
		},
		"limit": nil, "refuse": nil, "beyond-share": nil,
	}))
	v.table(known)
}

func limitFields(l *quotient.Limit) fields {
	return fieldsOf(l, fields{"rates": func(v value) {
		v.list(maxRates, func(v value) {
			rate := readRate(v)
			name := nameOf(rate.Per)
			taken := func(r quotient.Rate) bool { return r.Name == name && r.Unit == rate.Unit }
			if !v.has("name") && !slices.ContainsFunc(l.Rates, taken) {
				rate.Name = name
			}
			l.Rates = append(l.Rates, rate)
		})
	}})
}

func unlimited(l quotient.Limit) bool { return sameLimit(l, quotient.Limit{}) }

// nameOf is the name of a rate that has none, by its period: minute, 10s.
func nameOf(per time.Duration) string {
	switch per {
	case time.Second:
		return "second"
	case time.Minute:
		return "minute"
	case time.Hour:
		return "hour"
	case 24 * time.Hour:
		return "day"
	}
	return per.String()
}

func readLimits(v value) map[string]quotient.Limit {
	limits := make(map[string]quotient.Limit)
	v.each(func(name string, of value) {
		var l quotient.Limit
		of.table(limitFields(&l))
		all, ok := of.is.(map[string]any)
		if _, meant := all["in-flight"]; ok && !meant && unlimited(l) {
			of.r.hinted(of.path, "add rates, in-flight or deny; in-flight = 0 is no limit", "it limits nothing")
		}
		limits[name] = l
	})
	if len(limits) == 0 {
		return nil
	}
	return limits
}

func readRate(v value) (rate quotient.Rate) {
	kind, older := "", make(map[string]bool)
	known := fields{"kind": func(v value) {
		text(&kind)(v)
		if _, ok := v.is.(string); ok {
			oneOf(v.r, v.path, kind, kinds.Names...)
		}
	}}
	for _, name := range kinds.Older {
		known[name] = func(v value) {
			var is bool
			holds(&is, "true or false")(v)
			older[name] = is
		}
	}
	v.table(fieldsOf(&rate, known))
	for _, name := range []string{"events", "per"} {
		if _, ok := v.is.(map[string]any); ok && !v.has(name) {
			v.r.field(inner(v.path, name), "it is missing")
		}
	}
	if slices.Contains(kinds.Names, kind) || !v.has("kind") {
		if field, fault := kinds.Set(&rate, kind, older); field != "" {
			v.r.field(inner(v.path, field), "%s", fault)
		}
	}
	month, _ := lease.ParseDuration("1M")
	year, _ := lease.ParseDuration("1y")
	windowed := rate.Kind == quotient.Window || rate.Kind == quotient.CountedWindow
	if windowed && rate.Per > 0 && (rate.Per%month == 0 || rate.Per%year == 0) {
		v.r.hinted(inner(v.path, "per"), `as "30d"`,
			"%v on a %v: months and years are not all as long", rate.Per, rate.Kind)
	}
	return rate
}

// isName reports whether a limiter or a plan may have the name.
func isName(name string) bool {
	return name != "" && len(name) <= longestName && isOf(name, "._-") && name == strings.ToLower(name)
}

const namesAre = "1 to 64 of a-z, 0-9, '.', '_' and '-'"

func (f *File) checkLimiters(r *report) {
	switch n := len(f.Limiters); {
	case n == 0 && (f.Leases != nil && f.Proxy == nil || f.Decide != nil && len(f.Decide.RateLimitFiles) > 0):
	case n == 0:
		r.hinted("limiters", "add a section [limiters.NAME]", "none is given")
	case n > maxLimiters:
		r.field("limiters", "%d are more than %d", n, maxLimiters)
		return
	}
	for name, l := range f.Limiters {
		path := inner("limiters", name)
		if !isName(name) {
			r.add(r.places.key(path), path, "", "the name %s is not %s", clip(name), namesAre)
		}
		l.check(r, path)
		d, at := l.Demand, inner(path, "demand")
		if d == nil {
			continue
		}
		const maxSpoken = 10_000 // keys that a replica may name
		between(r, inner(at, "keys"), d.Keys, 1, maxSpoken)
		between(r, inner(at, "max-age"), d.MaxAge, time.Millisecond, longest)
		if f.Pool.Source == "" {
			r.hinted(at, "such as gossip", "it needs a pool.source that carries reports between replicas")
		}
	}
}

func (l Limiter) check(r *report, path string) {
	checkLimit(r, path, l.Limit)
	between(r, inner(path, "queue-per-key"), l.QueuePerKey, 0, maxQueue)
	between(r, inner(path, "queue"), l.Queue, 0, maxQueue)
	between(r, inner(path, "max-keys"), l.MaxKeys, 1, maxKeys)
	oneOf(r, inner(path, "policy"), l.Policy, policyFixed, policyTracking)
	switch at := inner(path, "max-wait"); {
	case l.MaxWait < 0:
		r.field(at, "%v is below 0", l.MaxWait)
	case l.MaxWait > 0 && l.Refuse:
		r.field(at, `%v beside mode = "refuse": nothing waits`, l.MaxWait)
	}
	between(r, inner(path, "longest-pause"), l.LongestPause, 0, time.Hour)
	for name, set := range map[string]bool{"ceiling": l.BeyondShare, "longest-pause": l.LongestPause > 0} {
		if set && l.Policy == policyFixed {
			r.hinted(inner(path, name), `set policy = "tracking"`, "it is set beside a policy that learns nothing")
		}
	}
	nothing := l.Policy == policyFixed
	l.limits(path, func(_ string, limit quotient.Limit) { nothing = nothing && unlimited(limit) })
	if nothing {
		r.hinted(path, "add rates, in-flight or deny", "it limits nothing")
	}
	checkNamed(r, inner(path, "plans"), l.Plans, maxPlans, "", func(at, name string) {
		if !isName(name) {
			r.add(r.places.key(at), at, "", "the name %s is not %s", clip(name), namesAre)
		}
	})
	most, why := min(maxOverrides, max(1, l.MaxKeys/2)), ": at most 1,000, and half of max-keys"
	checkNamed(r, inner(path, "overrides"), l.Overrides, most, why, func(at, key string) {
		if len(key) > longestKey {
			r.add(r.places.key(at), at, "", "a key of %d bytes is longer than %d", len(key), longestKey)
		}
	})
	l.checkUnits(r, path)
}

// checkNamed notes too many limits, and what is wrong with each and, by check, with its name.
func checkNamed(r *report, path string, all limits, most int, why string, check func(at, name string)) {
	if len(all) > most {
		r.field(path, "%d are more than %d%s", len(all), most, why)
		return
	}
	for name, limit := range all {
		at := inner(path, name)
		check(at, name)
		checkLimit(r, at, limit)
	}
}

// limits calls see with each limit of a limiter, with its path below that of the limiter.
func (l Limiter) limits(path string, see func(path string, limit quotient.Limit)) {
	see(path, l.Limit)
	for _, name := range slices.Sorted(maps.Keys(l.Plans)) {
		see(inner(inner(path, "plans"), name), l.Plans[name])
	}
	for _, key := range slices.Sorted(maps.Keys(l.Overrides)) {
		see(inner(inner(path, "overrides"), key), l.Overrides[key])
	}
}

// maxUnits is how many units besides requests a limiter can count at a time.
const maxUnits = 3

// checkUnits notes the units that a limiter cannot count besides others.
func (l Limiter) checkUnits(r *report, path string) {
	var seen []string
	l.limits(path, func(at string, limit quotient.Limit) {
		for i, rate := range limit.Rates {
			if rate.Unit == "" || slices.Contains(seen, rate.Unit) {
				continue
			}
			if len(seen) == maxUnits {
				r.field(inner(element(inner(at, "rates"), i), "unit"),
					"%s is one more than the %d units that a limiter can count: %q",
					clip(rate.Unit), maxUnits, seen)
				continue
			}
			seen = append(seen, rate.Unit)
		}
	})
}

func checkLimit(r *report, path string, limit quotient.Limit) {
	before := len(r.errs)
	for i, rate := range limit.Rates {
		at := element(inner(path, "rates"), i)
		for field, s := range map[string]string{"name": rate.Name, "unit": rate.Unit} {
			if err := isLabel(s); err != nil {
				r.field(inner(at, field), "%s is %v", clip(s), err)
			}
		}
		if rate.Per <= 0 {
			r.field(inner(at, "per"), "%v is not above 0", rate.Per)
			rate.Per = time.Second
		}
		invalid(r, at, quotient.Rates(rate).Validate())
	}
	if len(r.errs) == before {
		invalid(r, path, limit.Validate())
	}
}

// isLabel returns what is wrong with the name of a rate or a unit, which goes into header fields and labels.
func isLabel(s string) error {
	if len(s) > longestName {
		return fmt.Errorf("longer than %d bytes", longestName)
	}
	if strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c > '~' }) {
		return errors.New("not of printable ASCII")
	}
	return nil
}

// fault takes an error of quotient.Limit.Validate apart: the fields, and what is wrong.
var fault = regexp.MustCompile(`^quotient: Limit\.(?:Rates\[(\d+)\]\.)?([A-Za-z]+): (?s:(.*))$`)

// invalid notes an error of Validate at the place of the field that it names. Path is that of the limit, or
// of the one rate in it.
func invalid(r *report, path string, err error) {
	if err == nil {
		return
	}
	m := fault.FindStringSubmatch(err.Error())
	if m == nil {
		r.field(path, "%v", err)
		return
	}
	if m[1] != "" && !strings.HasSuffix(path, "]") {
		path = inner(path, "rates") + "[" + m[1] + "]"
	}
	r.field(inner(path, kebab(m[2])), "%s", strings.ReplaceAll(m[3], "Rates[", "rates["))
}

// longest bounds each duration, far below the longest time.Duration, so that sums of them are one too.
const longest = 365 * 24 * time.Hour
