package config

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/policy"
)

type held struct {
	limiter  *quotient.Limiter
	replicas int // that it was made with
}

// fixed returns the changes that a limiter in force cannot follow.
func (c *Config) fixed(old, f *File) error {
	r := f.report()
	check := func(path string, same bool) {
		if !same {
			r.hinted(path, "restart to change it", "it is fixed while the limiter is in force")
		}
	}
	kept := false
	for name, was := range old.Limiters {
		l, ok := f.Limiters[name]
		if !ok {
			continue
		}
		kept = true
		path := inner("limiters", name)
		check(inner(path, "max-keys"), l.MaxKeys == was.MaxKeys)
		check(inner(path, "queue"), l.Queue == was.Queue)
		check(inner(path, "queue-per-key"), l.QueuePerKey == was.QueuePerKey)
		check(inner(path, "policy"), l.Policy == was.Policy)
		check(inner(path, "ceiling"), l.BeyondShare == was.BeyondShare)
		check(inner(path, "longest-pause"), l.LongestPause == was.LongestPause)
		check(inner(path, "demand"), reflect.DeepEqual(l.Demand, was.Demand))
		if f.Pool.Source != "" {
			check("pool.replicas", f.Pool.Replicas == c.limiters[name].replicas)
		}
	}
	for _, l := range f.Limiters {
		if l.BeyondShare && old.Pool.counted() && !f.Pool.counted() {
			r.hinted("pool.replicas", "restart to do without a count", `it is missing beside ceiling = "limit"`)
		}
	}
	if kept {
		check("pool.hold-down", f.Pool.HoldDown == old.Pool.HoldDown)
		check("pool.max-age", f.Pool.MaxAge == old.Pool.MaxAge)
		check("pool.await", f.Pool.Await == old.Pool.Await)
	}
	return r.err()
}

// apply makes the limiters of a file, and brings those under it whose section has changed from the old one; nil is
// none. After an error all are as they were.
func (c *Config) apply(old, f *File) error {
	var undo []func()
	for _, name := range slices.Sorted(maps.Keys(f.Limiters)) {
		path, next := inner("limiters", name), f.Limiters[name]
		var err error
		if h, ok := c.limiters[name]; !ok {
			undo = append(undo, func() { c.remove(name) })
			err = c.make(f, name, next)
		} else if !sameSection(old.Limiters[name], next) {
			was := settingsOf(h.limiter)
			undo = append(undo, func() { f.bring(path, h.limiter, was) }) //nolint:errcheck // it was in force
			err = f.bring(path, h.limiter, next.settings())
		}
		if err != nil {
			for _, back := range slices.Backward(undo) {
				back()
			}
			return err
		}
	}
	return nil
}

func (c *Config) make(f *File, name string, next Limiter) error {
	path := inner("limiters", name)
	if _, taken := c.reg.Get(name); taken {
		return f.fault(path, "the registry has a limiter of that name that is not the file's")
	}
	l, err := c.reg.Limiter(name, next.Limit, slices.Concat(next.options(f.Pool), c.options)...)
	if err != nil {
		return f.fault(path, "%v", err)
	}
	c.limiters[name] = &held{l, f.Pool.Replicas}
	l.SetDryRun(next.DryRun)
	return f.each(inner(path, "overrides"), l.Override, nil, forGood(next.Overrides))
}

// remove takes a limiter of the file out of the registry.
func (c *Config) remove(name string) {
	if _, ours := c.limiters[name]; ours {
		delete(c.limiters, name)
		c.reg.Remove(name)
	}
}

func (l Limiter) options(p Pool) []quotient.Option {
	opts := []quotient.Option{
		quotient.MaxKeys(l.MaxKeys), quotient.MaxWaiting(l.QueuePerKey, l.Queue),
		quotient.HoldDown(p.HoldDown), quotient.HintMaxAge(p.MaxAge),
	}
	if len(l.Plans) > 0 {
		opts = append(opts, quotient.Plans(l.Plans))
	}
	if p.Replicas > 0 {
		opts = append(opts, quotient.StartPool(p.size()))
	}
	if p.Await {
		opts = append(opts, quotient.AwaitPool(p.MaxAge))
	}
	if l.Policy == policyTracking {
		opts = append(opts, quotient.Policy(policy.Tracking{Retry: policy.Retry{Longest: l.LongestPause}}))
	}
	if l.BeyondShare {
		opts = append(opts, quotient.BeyondShare())
	}
	if l.Demand != nil {
		opts = append(opts, quotient.Demand(l.Demand.Keys, l.Demand.MaxAge))
	}
	return opts
}

type limits = map[string]quotient.Limit

// ending are limits in force, some of which end.
type ending = map[string]quotient.KeyLimit

// settings are what a section sets of a limiter in force.
type settings struct {
	limit            quotient.Limit
	dryRun           bool
	plans, overrides ending
}

func (l Limiter) settings() settings {
	return settings{l.Limit, l.DryRun, forGood(l.Plans), forGood(l.Overrides)}
}

// forGood are the limits of a section.
func forGood(named limits) ending {
	all := make(ending)
	for name, limit := range named {
		all[name] = quotient.KeyLimit{Limit: limit}
	}
	return all
}

// settingsOf are those in force, whatever was changed by hand.
func settingsOf(l *quotient.Limiter) settings {
	now := l.Stats()
	return settings{now.Limit, l.DryRun(), plans(now), l.Overrides()}
}

// bring brings a limiter under settings, up to the first error.
func (f *File) bring(path string, l *quotient.Limiter, next settings) error {
	now := settingsOf(l)
	if !sameLimit(now.limit, next.limit) {
		if err := l.SetLimit(next.limit); err != nil {
			return f.fault(path, "%v", err)
		}
	}
	setPlan := func(name string, limit *quotient.Limit, _ time.Duration) error { return l.SetPlan(name, limit) }
	if err := f.each(inner(path, "plans"), setPlan, now.plans, next.plans); err != nil {
		return err
	}
	err := f.each(inner(path, "overrides"), l.Override, now.overrides, next.overrides)
	if err == nil && now.dryRun != next.dryRun { // last, since a dry run admits all, also of a file that is taken back
		l.SetDryRun(next.dryRun)
	}
	return err
}

// each brings named limits from one state to another: what goes makes room for what comes.
func (f *File) each(
	path string, set func(string, *quotient.Limit, time.Duration) error, from, to ending,
) error {
	names := unlike(from, to)
	for _, name := range names {
		if _, has := to[name]; !has {
			set(name, nil, 0) //nolint:errcheck // it is there
		}
	}
	for _, name := range names {
		if x, has := to[name]; has {
			ttl := time.Duration(0)
			if !x.Until.IsZero() {
				ttl = max(1, time.Until(x.Until)) // of what is taken back, and has ended meanwhile
			}
			if err := set(name, &x.Limit, ttl); err != nil {
				return f.fault(inner(path, name), "%v", err)
			}
		}
	}
	return nil
}

// unlike are the names under which two maps do not have the same limit until the same end.
func unlike(a, b ending) []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool {
		x, inA := a[name]
		y, inB := b[name]
		return inA == inB && sameLimit(x.Limit, y.Limit) && x.Until.Equal(y.Until)
	})
}

func plans(now quotient.Stats) ending {
	all := make(ending)
	for name, p := range now.Plans {
		all[name] = quotient.KeyLimit{Limit: p.Limit}
	}
	return all
}

func (f *File) fault(path, format string, args ...any) error {
	r := f.report()
	r.field(path, format, args...)
	return r.err()
}

// sameSection reports whether two sections of limiters are equal. An absent map equals an empty one.
func sameSection(a, b Limiter) bool {
	var d differ
	d.compare("", reflect.ValueOf(a), reflect.ValueOf(b))
	return len(d.found) == 0
}

func sameLimit(a, b quotient.Limit) bool {
	return a.InFlight == b.InFlight && a.Deny == b.Deny && slices.Equal(a.Rates, b.Rates)
}
