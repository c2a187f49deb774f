package config

import (
	"maps"
	"math"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/quotient-go/quotient/lease"
)

// value is one value of a file, with its place.
type value struct {
	r    *report
	path string
	is   any
}

// fields are what a table may hold, each with what takes its value.
type fields map[string]func(value)

func (v value) kind() string {
	switch v.is.(type) {
	case string:
		return "text"
	case int64:
		return "a whole number"
	case float64:
		return "a number"
	case bool:
		return "true or false"
	case []any:
		return "a list"
	case map[string]any:
		return "a table"
	}
	return "a date or a time"
}

func (v value) wrong(want string) {
	v.r.field(v.path, "got %s, want %s", v.kind(), want)
}

// fieldsOf are the fields of a struct by their names in a file, and more, which go before; nil takes one out.
func fieldsOf(of any, more fields) fields {
	known := make(fields)
	for field, v := range reflect.ValueOf(of).Elem().Fields() {
		if field.IsExported() {
			known[kebab(field.Name)] = holding(v)
		}
	}
	maps.Copy(known, more)
	maps.DeleteFunc(known, func(_ string, take func(value)) bool { return take == nil })
	return known
}

// holding takes what a field of a struct holds; nil for a kind that no file has.
func holding(v reflect.Value) func(value) {
	switch into := v.Addr().Interface().(type) {
	case *string:
		return text(into)
	case *bool:
		return holds(into, "true or false")
	case *int:
		return whole(into)
	case *int64:
		return whole(into)
	case *float64:
		return number(into)
	case *time.Duration:
		return parsed(into, duration, `with a unit: "30s", "1h 30m", "1d"`)
	case *Header:
		return headerOf(into)
	case *[]string:
		return texts(maxTexts, func(_ value, s string) { *into = append(*into, s) })
	case *[]*url.URL:
		return texts(maxTexts, addURL(into))
	case *[]netip.Prefix:
		return texts(maxTrusted, addNetwork(into))
	}
	switch {
	case v.Kind() == reflect.Struct:
		return func(of value) { of.table(fieldsOf(v.Addr().Interface(), nil)) }
	case v.Kind() == reflect.Pointer && v.Type().Elem().Kind() == reflect.Struct:
		return func(of value) {
			v.Set(reflect.New(v.Type().Elem()))
			of.table(fieldsOf(v.Interface(), nil))
		}
	}
	return nil
}

// duration reads a time as Go writes it, "1.5h", or as lease.ParseDuration does, "1h 30m" or "2 days".
func duration(s string) (time.Duration, error) {
	if d, err := lease.ParseDuration(s); err == nil {
		return d, nil
	}
	return time.ParseDuration(s)
}

// table hands each value of a table to its field. An unknown key is an error.
func (v value) table(known fields) {
	v.each(func(name string, of value) {
		if take, ok := known[name]; ok {
			take(of)
			return
		}
		if v.r.lenient {
			v.r.warn(v.r.places.key(of.path), of.path, "unknown field: it has no effect")
			return
		}
		hint := didYouMean(name, slices.Collect(maps.Keys(known)))
		v.r.add(v.r.places.key(of.path), of.path, hint, "unknown field")
	})
}

func (v value) each(take func(name string, of value)) {
	all, ok := v.is.(map[string]any)
	if !ok {
		v.wrong("a table")
		return
	}
	for name, is := range all {
		take(name, value{v.r, inner(v.path, name), is})
	}
}

func (v value) has(name string) bool {
	all, _ := v.is.(map[string]any)
	_, ok := all[name]
	return ok
}

// list hands each element of a list to take, if there are not more than most.
func (v value) list(most int, take func(value)) {
	all, ok := v.is.([]any)
	switch {
	case !ok:
		v.wrong("a list")
		return
	case len(all) > most:
		v.r.field(v.path, "%d are more than %d", len(all), most)
		return
	}
	for i, is := range all {
		take(value{v.r, element(v.path, i), is})
	}
}

func text(into *string) func(value) { return holds(into, "text") }

// holds is a field of the kind that TOML has for a type.
func holds[T any](into *T, want string) func(value) {
	return func(v value) {
		is, ok := v.is.(T)
		if !ok {
			v.wrong(want)
			return
		}
		*into = is
	}
}

// texts is a field that holds a list of texts; take gets each with its place.
func texts(most int, take func(v value, s string)) func(value) {
	return func(v value) {
		v.list(most, func(v value) {
			s, ok := v.is.(string)
			if !ok {
				v.wrong("text")
			}
			take(v, s) // of what is no text too, so that each element has its place
		})
	}
}

func whole[T int | int64](into *T) func(value) {
	return func(v value) {
		n, ok := v.is.(int64)
		switch {
		case !ok:
			v.wrong("a whole number")
		case int64(T(n)) != n:
			v.r.field(v.path, "%d is too large", n)
		default:
			*into = T(n)
		}
	}
}

func number(into *float64) func(value) {
	return func(v value) {
		switch n := v.is.(type) {
		case int64:
			*into = float64(n)
		case float64:
			*into = n
		default:
			*into = math.NaN()
			v.wrong("a number")
		}
	}
}

// parsed is a field that holds a time in words which parse reads.
func parsed(into *time.Duration, parse func(string) (time.Duration, error), hint string) func(value) {
	return func(v value) {
		s, ok := v.is.(string)
		if !ok {
			v.r.hinted(v.path, "in quotes, "+hint, "got %s, want a duration", v.kind())
			return
		}
		d, err := parse(s)
		if err != nil {
			v.r.hinted(v.path, hint, "%s is no duration", clip(s))
			return
		}
		*into = d
	}
}

// either is a field that holds one of two words, and whether that is the second.
func either(into *bool, no, yes string) func(value) {
	return func(v value) {
		s, ok := v.is.(string)
		if !ok {
			v.wrong("text")
			return
		}
		oneOf(v.r, v.path, s, no, yes)
		*into = s == yes
	}
}

// addNetwork adds a network, or an address, to a list.
func addNetwork(to *[]netip.Prefix) func(value, string) {
	return func(v value, s string) {
		p, err := netip.ParsePrefix(s)
		if a, notAddress := netip.ParseAddr(s); notAddress == nil && a.Zone() == "" {
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		switch _, ok := v.is.(string); {
		case ok && err != nil:
			v.r.hinted(v.path, `as "10.0.0.0/8" or "192.0.2.1"`, "%s is no network", clip(s))
		case ok:
			*to = append(*to, unmapped(p))
		}
	}
}

// unmapped is a network without the mapping of IPv4 into IPv6.
func unmapped(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p
}

// redacted is a text that may be meant as a URL, without what stands before an @, such as a password.
func redacted(s string) string {
	at := strings.LastIndexByte(s, '@')
	if at < 0 {
		return s
	}
	scheme, rest, ok := strings.Cut(s[:at], ":")
	switch {
	case !ok:
		scheme = ""
	case strings.HasPrefix(rest, "//"):
		scheme += "://"
	default:
		scheme += ":"
	}
	return scheme + "…" + s[at:]
}

// addURL adds a URL to a list, nil for a text that is none.
func addURL(to *[]*url.URL) func(value, string) {
	return func(v value, s string) {
		u, err := url.Parse(s)
		if err != nil {
			v.r.hinted(v.path, `as "http://127.0.0.1:8080"`, "%s is no URL", clip(redacted(s)))
		}
		if u != nil && u.Scheme == "unix" {
			u.OmitHost = u.Host == "" // unix:///a is unix:/a
		}
		*to = append(*to, u)
	}
}
