package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/quotient-go/quotient"
)

// clone is a copy of a file that shares nothing which a program may change.
func (f *File) clone() *File {
	c := *f
	unshare(reflect.ValueOf(&c).Elem())
	if c.Limiters == nil {
		c.Limiters = make(map[string]Limiter) // for Adjust
	}
	return &c
}

// unshare puts copies in the place of all that the exported fields of a value refer to.
func unshare(v reflect.Value) {
	switch c := reflect.New(v.Type()).Elem(); v.Kind() {
	case reflect.Struct:
		for field, of := range v.Fields() {
			if field.IsExported() {
				unshare(of)
			}
		}
	case reflect.Pointer:
		if !v.IsNil() {
			c.Set(reflect.New(v.Type().Elem()))
			c.Elem().Set(v.Elem())
			unshare(c.Elem())
			v.Set(c)
		}
	case reflect.Slice:
		for i := range v.Len() {
			c = reflect.Append(c, v.Index(i))
			unshare(c.Index(i))
		}
		v.Set(c)
	case reflect.Map:
		if !v.IsNil() {
			c.Set(reflect.MakeMap(v.Type()))
			for it := v.MapRange(); it.Next(); {
				of := reflect.New(v.Type().Elem()).Elem()
				of.Set(it.Value())
				unshare(of)
				c.SetMapIndex(it.Key(), of)
			}
			v.Set(c)
		}
	}
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
	d.compare("", reflect.ValueOf(*old), reflect.ValueOf(*f))
	for i, found := range d.found {
		if found.field == "pool.source" { // it may hold a password
			d.found[i].old, d.found[i].new = strconv.Quote(old.Pool.Redacted()), strconv.Quote(f.Pool.Redacted())
		}
	}
	slices.SortStableFunc(d.found, func(a, b difference) int { return strings.Compare(a.field, b.field) })
	return d.found
}

type differ struct{ found []difference }

// compare compares two values of the same type, of which one may be missing.
func (d *differ) compare(path string, a, b reflect.Value) {
	if !a.IsValid() || !b.IsValid() {
		d.found = append(d.found, difference{path, words(a), words(b)})
		return
	}
	switch _, whole := a.Interface().(fmt.Stringer); {
	case reflect.DeepEqual(a.Interface(), b.Interface()):
	case a.Kind() == reflect.Map:
		for _, key := range a.MapKeys() {
			d.compare(inner(path, key.String()), a.MapIndex(key), b.MapIndex(key))
		}
		for _, key := range b.MapKeys() {
			if !a.MapIndex(key).IsValid() {
				d.compare(inner(path, key.String()), reflect.Value{}, b.MapIndex(key))
			}
		}
	case a.Kind() == reflect.Slice:
		for i := range max(a.Len(), b.Len()) {
			d.compare(element(path, i), at(a, i), at(b, i))
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

func (d *differ) field(path string, f reflect.StructField, a, b reflect.Value) {
	switch {
	case !f.IsExported(), f.Name == "Line", path == "" && (f.Name == "Path" || f.Name == "Warnings"): // not of the text
	case f.Type == reflect.TypeFor[quotient.Limit](): // its fields stand in the limiter's table
		d.compare(path, a, b)
	case f.Name == "Refuse":
		if a.Bool() != b.Bool() {
			d.found = append(d.found, difference{inner(path, "mode"), modes[a.Bool()], modes[b.Bool()]})
		}
	default:
		d.compare(inner(path, kebab(f.Name)), a, b)
	}
}

var modes = map[bool]string{false: "wait", true: "refuse"}

// at is an element of a list; the zero Value for none.
func at(list reflect.Value, i int) reflect.Value {
	if i >= list.Len() {
		return reflect.Value{}
	}
	return list.Index(i)
}

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
		return shortened(x)
	case *Refusal:
		return fmt.Sprintf("%d: %s", x.Status, shortened(x.Body))
	}
	return fmt.Sprint(v.Interface())
}

// shortened is a text in quotes, and not one as long as a body may be.
func shortened(s string) string {
	const most = 1024
	if len(s) > most {
		return clip(s)
	}
	return strconv.Quote(s)
}

// compared is a limiter and a file that were compared. What they did not agree on holds until either changes.
type compared struct {
	limiter *quotient.Limiter
	file    *File
	version uint64
}

func (c *Config) differs(f *File) (all []string) {
	c.mu.Lock()
	before := c.compared
	c.mu.Unlock()
	now := make(map[compared]string, len(f.Limiters))
	for _, name := range slices.Sorted(maps.Keys(f.Limiters)) {
		l, ok := c.reg.Get(name)
		if !ok {
			all = append(all, name+": it is gone")
			continue
		}
		is := compared{l, f, l.Stats().Version}
		what, known := before[is]
		if !known {
			section := f.Limiters[name]
			if slices.Contains(f.added, name) { // the program may set plans of its own
				section.Plans = settingsOf(l).plans
			}
			what = strings.Join(section.differs(l, f.Pool), ", ")
		}
		if now[is] = what; what != "" {
			all = append(all, name+": "+what)
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
	now := settingsOf(in)
	if p.setByHand(in.Stats().Pool) {
		what = append(what, "pool")
	}
	if !sameLimit(now.limit, l.Limit) {
		what = append(what, "limit")
	}
	if now.dryRun != l.DryRun {
		what = append(what, "dry run")
	}
	what = append(what, named("plan", unlike(now.plans, l.Plans))...)
	keys := unlike(now.overrides, l.Overrides)
	for key, own := range in.Overrides() {
		if !own.Until.IsZero() {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return append(what, named("override", slices.Compact(keys))...)
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

func named(kind string, names []string) (what []string) {
	for _, name := range names[:min(len(names), maxNamed)] {
		what = append(what, kind+" "+name)
	}
	if more := len(names) - maxNamed; more > 0 {
		what = append(what, fmt.Sprintf("%d more of %ss", more, kind))
	}
	return what
}
