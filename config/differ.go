package config

import (
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/quotient-go/quotient"
)

// clone is a copy of a file that shares nothing which a program may change.
func (f *File) clone() *File {
	c := *f
	c.Limiters = make(map[string]Limiter, len(f.Limiters))
	for name, l := range f.Limiters {
		l.Limit = cloneLimit(l.Limit)
		l.Plans, l.Overrides, l.Demand = cloneLimits(l.Plans), cloneLimits(l.Overrides), copied(l.Demand)
		c.Limiters[name] = l
	}
	if f.Proxy != nil {
		p := *f.Proxy
		p.Upstreams = make([]*url.URL, len(f.Proxy.Upstreams))
		for i, u := range f.Proxy.Upstreams {
			if u != nil {
				p.Upstreams[i] = new(*u)
			}
		}
		p.Rules, p.Trusted = slices.Clone(p.Rules), slices.Clone(p.Trusted)
		p.Admin.Hosts = slices.Clone(p.Admin.Hosts)
		p.TLS, p.JWT, p.Admin.TLS = copied(p.TLS), copied(p.JWT), copied(p.Admin.TLS)
		c.Proxy = &p
	}
	c.Leases, c.Warnings = f.Leases.clone(), slices.Clone(f.Warnings)
	return &c
}

func copied[T any](p *T) *T {
	if p == nil {
		return nil
	}
	return new(*p)
}

func cloneLimit(l quotient.Limit) quotient.Limit {
	l.Rates = slices.Clone(l.Rates)
	return l
}

func cloneLimits(all map[string]quotient.Limit) map[string]quotient.Limit {
	all = maps.Clone(all)
	for name, l := range all {
		all[name] = cloneLimit(l)
	}
	return all
}

// maxLines bounds how many changes of one reload are logged.
const maxLines = 100

// logChanges logs what is different in a file from the one before, one line for each field.
func (c *Config) logChanges(old, f *File) {
	if old == nil {
		return
	}
	changes := differences(old, f)
	for _, d := range changes[:min(len(changes), maxLines)] {
		c.log.Info("file changed", "field", d.field, "old", d.old, "new", d.new)
	}
	if n := len(changes) - maxLines; n > 0 {
		c.log.Info("file changed", "more", n)
	}
	c.log.Info("file in force", "path", c.path, "changes", len(changes))
}

// difference is a value that two files do not agree on, in words; "none" stands for an absent one.
type difference struct{ field, old, new string }

// differences lists what two files do not agree on, by field.
func differences(old, f *File) []difference {
	d := &differ{}
	d.compare("", reflect.ValueOf(old.bare()), reflect.ValueOf(f.bare()))
	for i, found := range d.found {
		if found.field == "pool.source" { // it may hold a password
			d.found[i].old, d.found[i].new = strconv.Quote(old.Pool.Redacted()), strconv.Quote(f.Pool.Redacted())
		}
	}
	slices.SortStableFunc(d.found, func(a, b difference) int { return strings.Compare(a.field, b.field) })
	return d.found
}

// bare is a file without its name and its lines.
func (f *File) bare() *File {
	c := f.clone()
	c.Path, c.Warnings = "", nil
	if c.Proxy != nil {
		for i := range c.Proxy.Rules {
			c.Proxy.Rules[i].Line = 0
		}
	}
	return c
}

// differ collects differences.
type differ struct{ found []difference }

// compare compares two values of the same type.
func (d *differ) compare(path string, a, b reflect.Value) {
	switch _, whole := a.Interface().(fmt.Stringer); {
	case reflect.DeepEqual(a.Interface(), b.Interface()):
	case a.Kind() == reflect.Map:
		for _, key := range a.MapKeys() {
			d.either(inner(path, key.String()), a.MapIndex(key), b.MapIndex(key))
		}
		for _, key := range b.MapKeys() {
			if !a.MapIndex(key).IsValid() {
				d.either(inner(path, key.String()), reflect.Value{}, b.MapIndex(key))
			}
		}
	case a.Kind() == reflect.Slice:
		for i := range max(a.Len(), b.Len()) {
			d.either(element(path, i), at(a, i), at(b, i))
		}
	case a.Kind() == reflect.Pointer && !a.IsNil() && !b.IsNil() && !whole:
		d.compare(path, a.Elem(), b.Elem())
	case a.Kind() == reflect.Struct && (!whole || a.Type() == reflect.TypeFor[quotient.Limit]()):
		for i := range a.NumField() {
			d.field(path, a.Type().Field(i), a.Field(i), b.Field(i))
		}
	default:
		d.found = append(d.found, difference{path, words(a), words(b)})
	}
}

// field compares two fields of a struct.
func (d *differ) field(path string, f reflect.StructField, a, b reflect.Value) {
	switch {
	case !f.IsExported():
	case f.Type == reflect.TypeFor[quotient.Limit](): // its fields stand in the limiter's table
		d.compare(path, a, b)
	case f.Name == "Refuse":
		if a.Bool() != b.Bool() {
			d.found = append(d.found, difference{inner(path, "mode"), mode(a.Bool()), mode(b.Bool())})
		}
	default:
		d.compare(inner(path, kebab(f.Name)), a, b)
	}
}

// mode is how a file spells Refuse.
func mode(refuse bool) string {
	if refuse {
		return "refuse"
	}
	return "wait"
}

// either compares two values of which one may be missing.
func (d *differ) either(path string, a, b reflect.Value) {
	if a.IsValid() && b.IsValid() {
		d.compare(path, a, b)
		return
	}
	d.found = append(d.found, difference{path, words(a), words(b)})
}

// at is an element of a list; the zero Value for none.
func at(list reflect.Value, i int) reflect.Value {
	if i >= list.Len() {
		return reflect.Value{}
	}
	return list.Index(i)
}

// words is a value for the log.
func words(v reflect.Value) string {
	if !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return "none"
	}
	switch x := v.Interface().(type) {
	case Limiter:
		return x.Limit.String()
	case quotient.Rate:
		return quotient.Limit{Rates: []quotient.Rate{x}}.String()
	case Rule:
		return strings.TrimSuffix(x.Pattern+": "+x.Limiter, ": ")
	case string:
		return strconv.Quote(x)
	}
	return fmt.Sprint(v.Interface())
}

// compared is what a limiter did not agree on with a file. It holds until either changes.
type compared struct {
	limiter *quotient.Limiter
	file    *File
	version uint64
	what    string
}

// differs lists the differences from the file.
func (c *Config) differs(f *File) (all []string) {
	c.mu.Lock()
	before := c.compared
	c.mu.Unlock()
	now := make(map[string]compared, len(f.Limiters))
	for _, name := range slices.Sorted(maps.Keys(f.Limiters)) {
		l, ok := c.reg.Get(name)
		if !ok {
			all = append(all, name+": it is gone")
			continue
		}
		is := before[name]
		if version := l.Stats().Version; is.limiter != l || is.file != f || is.version != version {
			is = compared{l, f, version, strings.Join(f.Limiters[name].differs(l, f.Pool), ", ")}
		}
		if now[name] = is; is.what != "" {
			all = append(all, name+": "+is.what)
		}
	}
	c.mu.Lock()
	c.compared = now
	c.mu.Unlock()
	return all
}

// maxNamed bounds how many plans or overrides of a limiter are named.
const maxNamed = 10

// differs lists what of a limiter is not as its section and that of the pool say.
func (l Limiter) differs(in *quotient.Limiter, p Pool) (what []string) {
	now := in.Stats()
	if p.setByHand(now.Pool) {
		what = append(what, "pool")
	}
	if !sameLimit(now.Limit, l.Limit) {
		what = append(what, "limit")
	}
	if now.DryRun != l.DryRun {
		what = append(what, "dry run")
	}
	plans := make(map[string]quotient.Limit)
	for _, p := range now.Plans {
		plans[p.Name] = p.Limit
	}
	what = append(what, named("plan", plans, l.Plans)...)
	return append(what, named("override", overrides(in, l.Overrides), l.Overrides)...)
}

// setByHand reports whether a pool in force is an operator's, and not that of the section or of its source.
func (p Pool) setByHand(now quotient.PoolStats) bool {
	if p.Source != "" {
		return now.Source == "set"
	}
	is, want := now.Pool, p.size()
	is.Weight, want.Weight = max(is.Weight, 1), max(want.Weight, 1)
	return is.Replicas != want.Replicas || is.Ordinal != want.Ordinal || is.Weight != want.Weight
}

// named lists the names under which two maps do not have the same limit.
func named(kind string, a, b map[string]quotient.Limit) (what []string) {
	more := 0
	for _, name := range slices.Sorted(maps.Keys(both(a, b))) {
		x, inA := a[name]
		y, inB := b[name]
		switch {
		case inA == inB && sameLimit(x, y):
		case len(what) < maxNamed:
			what = append(what, kind+" "+name)
		default:
			more++
		}
	}
	if more > 0 {
		what = append(what, fmt.Sprintf("%d more of %ss", more, kind))
	}
	return what
}
