package config

import (
	"maps"
	"reflect"
	"slices"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/policy"
)

type held struct {
	limiter  *quotient.Limiter
	replicas int // that it was made with
}

// step is one change that a file makes, and what takes it back.
type step struct {
	do   func() error
	undo func()
}

// run does all steps. When one fails, those before it are undone, the last first.
func run(steps []step) error {
	for i, s := range steps {
		if err := s.do(); err != nil {
			for _, done := range slices.Backward(steps[:i]) {
				done.undo()
			}
			return err
		}
	}
	return nil
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
		check(inner(path, "demand"), reflect.DeepEqual(l.Demand, was.Demand))
		if f.Pool.Source != "" {
			check("pool.replicas", f.Pool.Replicas == c.limiters[name].replicas)
		}
	}
	if kept {
		check("pool.hold-down", f.Pool.HoldDown == old.Pool.HoldDown)
		check("pool.max-age", f.Pool.MaxAge == old.Pool.MaxAge)
		check("pool.await", f.Pool.Await == old.Pool.Await)
	}
	return r.err()
}

// steps are the changes of the limiters from one file to another; old is nil at first. A limiter whose
// section is the same is not touched.
func (c *Config) steps(old, f *File) (steps []step) {
	for _, name := range slices.Sorted(maps.Keys(f.Limiters)) {
		next := f.Limiters[name]
		if h, ok := c.limiters[name]; !ok {
			steps = append(steps, c.make(f, name, next))
		} else if !sameSection(old.Limiters[name], next) {
			steps = append(steps, c.set(f, name, h.limiter, next)...)
		}
	}
	return steps
}

func (c *Config) make(f *File, name string, next Limiter) step {
	path := inner("limiters", name)
	return step{
		do: func() error {
			if _, taken := c.reg.Get(name); taken {
				return f.fault(path, "the registry has a limiter of that name that is not the file's")
			}
			l, err := c.reg.Limiter(name, next.Limit, slices.Concat(next.options(f.Pool), c.options)...)
			if err != nil {
				return f.fault(path, "%v", err)
			}
			l.SetDryRun(next.DryRun)
			for _, key := range slices.Sorted(maps.Keys(next.Overrides)) {
				limit := next.Overrides[key]
				if err := l.Override(key, &limit); err != nil {
					c.reg.Remove(name)
					return f.fault(inner(inner(path, "overrides"), key), "%v", err)
				}
			}
			c.limiters[name] = &held{l, f.Pool.Replicas}
			return nil
		},
		undo: func() {
			delete(c.limiters, name)
			c.reg.Remove(name)
		},
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
		opts = append(opts, quotient.AwaitPool())
	}
	if l.Policy == policyTracking {
		opts = append(opts, quotient.Policy(policy.Tracking{}))
	}
	if l.BeyondShare {
		opts = append(opts, quotient.BeyondShare())
	}
	if l.Demand != nil {
		opts = append(opts, quotient.Demand(l.Demand.Keys, l.Demand.MaxAge))
	}
	return opts
}

// set is the steps that bring a limiter under a section that has changed, whatever was changed by hand.
func (c *Config) set(f *File, name string, l *quotient.Limiter, next Limiter) (steps []step) {
	path := inner("limiters", name)
	now := l.Stats()
	if !sameLimit(now.Limit, next.Limit) {
		steps = append(steps, f.step(path, func(limit *quotient.Limit) error { return l.SetLimit(*limit) },
			&now.Limit, &next.Limit))
	}
	steps = append(steps, f.each(inner(path, "plans"), l.SetPlan, plans(now), next.Plans)...)
	own := overrides(l, next.Overrides)
	steps = append(steps, f.each(inner(path, "overrides"), l.Override, own, next.Overrides)...)
	if now.DryRun != next.DryRun {
		steps = append(steps, step{
			do:   func() error { l.SetDryRun(next.DryRun); return nil },
			undo: func() { l.SetDryRun(now.DryRun) },
		})
	}
	return steps
}

type limits = map[string]quotient.Limit

// each is the steps that bring named limits from one state to another.
func (f *File) each(path string, set func(string, *quotient.Limit) error, from, to limits) (steps []step) {
	names := unlike(from, to)
	for _, removed := range []bool{true, false} { // what goes makes room for what comes
		for _, name := range names {
			was, had := from[name]
			will, has := to[name]
			if has != removed {
				one := func(limit *quotient.Limit) error { return set(name, limit) }
				steps = append(steps, f.step(inner(path, name), one, only(was, had), only(will, has)))
			}
		}
	}
	return steps
}

// step is a step that sets a limit. Nil means nothing to do.
func (f *File) step(path string, set func(*quotient.Limit) error, was, will *quotient.Limit) step {
	return step{
		do: func() error {
			if err := set(will); err != nil {
				return f.fault(path, "%v", err)
			}
			return nil
		},
		undo: func() { set(was) }, //nolint:errcheck // it was in force
	}
}

func only(limit quotient.Limit, ok bool) *quotient.Limit {
	if !ok {
		return nil
	}
	return &limit
}

// unlike are the names under which two maps do not have the same limit.
func unlike(a, b limits) []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool {
		x, inA := a[name]
		y, inB := b[name]
		return inA == inB && sameLimit(x, y)
	})
}

func plans(now quotient.Stats) limits {
	all := make(limits)
	for _, p := range now.Plans {
		all[p.Name] = p.Limit
	}
	return all
}

// overrides are the keys of a limiter that have a limit of their own. It asks for those that the file names,
// and looks for others only if there are any.
func overrides(l *quotient.Limiter, named limits) limits {
	found := make(limits)
	add := func(key string) {
		if e := l.Explain(key); e.Overridden {
			found[key] = e.Limit
		}
	}
	for key := range named {
		add(key)
	}
	if l.Stats().Overrides > len(found) {
		for k := range l.Keys() {
			if k.Overridden {
				add(k.Key)
			}
		}
	}
	return found
}

// sweep takes the limiters out of the registry that are not in the file any more.
func (c *Config) sweep(f *File) {
	for name := range c.limiters {
		if _, ok := f.Limiters[name]; !ok {
			delete(c.limiters, name)
			c.reg.Remove(name)
		}
	}
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
