package config

import (
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/quotient-go/quotient"
)

// clone is a copy of a file that shares nothing which a program may change.
func (f *File) clone() *File {
	c := *f
	c.Limiters = make(map[string]Limiter, len(f.Limiters))
	for name, l := range f.Limiters {
		l.Limit = cloneLimit(l.Limit)
		l.Plans, l.Overrides = cloneLimits(l.Plans), cloneLimits(l.Overrides)
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

// logChanges logs what is different in a file from the one before, one line for each thing.
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

// difference is a value that two files do not agree on; nil for none.
type difference struct {
	field    string
	old, new any
}

// differences lists what two files do not agree on, by field.
func differences(old, f *File) (all []difference) {
	was, is := make(map[string]any), make(map[string]any)
	flatten(was, "", reflect.ValueOf(*old))
	flatten(is, "", reflect.ValueOf(*f))
	for field, v := range was {
		if w := is[field]; w != v {
			all = append(all, difference{field, v, w})
		}
	}
	for field, v := range is {
		if _, ok := was[field]; !ok {
			all = append(all, difference{field, nil, v})
		}
	}
	slices.SortFunc(all, func(a, b difference) int { return strings.Compare(a.field, b.field) })
	return all
}

// flatten puts all values of v that are not zero into a map by their paths. What says itself what it is, such
// as a time, is one.
func flatten(into map[string]any, path string, v reflect.Value) {
	if v.IsZero() {
		return
	}
	switch x := v.Interface().(type) {
	case time.Duration, netip.Prefix:
		into[path] = fmt.Sprint(x)
		return
	case *url.URL:
		into[path] = x.String()
		return
	case Key:
		into[path] = strings.TrimSuffix(string(x.Kind)+":"+x.Arg, ":")
		return
	case Plan:
		into[path] = string(x.Kind) + ":" + x.Arg
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		flatten(into, path, v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && f.Name != "Line" && f.Name != "Path" || f.Type.Kind() == reflect.String && f.Name == "Path" && path != "" {
				at := inner(path, fieldName(f.Name))
				if f.Name == "Limit" {
					at = path
				}
				flatten(into, at, v.Field(i))
			}
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			flatten(into, inner(path, key.String()), v.MapIndex(key))
		}
		into[path] = v.Len()
	case reflect.Slice:
		for i := range v.Len() {
			flatten(into, element(path, i), v.Index(i))
		}
	default:
		into[path] = v.Interface()
	}
}

// fieldName is the name of a Go field as a file spells it.
func fieldName(name string) string {
	if name == "H2C" {
		return "h2c"
	}
	return kebab(name)
}

// differs lists what is not as the file says.
func (c *Config) differs(f *File) (all []string) {
	for _, name := range slices.Sorted(maps.Keys(f.Limiters)) {
		l, ok := c.reg.Get(name)
		if !ok {
			all = append(all, name+": it is gone")
			continue
		}
		if what := f.Limiters[name].differs(l); len(what) > 0 {
			all = append(all, name+": "+strings.Join(what, ", "))
		}
	}
	return all
}

// maxNamed bounds how many plans or overrides of a limiter are named.
const maxNamed = 10

// differs lists what of a limiter is not as its section says.
func (l Limiter) differs(in *quotient.Limiter) (what []string) {
	now := in.Stats()
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
