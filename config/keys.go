package config

import (
	"cmp"
	"fmt"
	"iter"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/quotient-go/quotient/httplimit"
)

// CheckKey is an Error for a key that no request has by any rule of a limiter: a limit of its own would never count.
// Its hint has the key that seems to be meant. It is nil for a limiter that is not of the file or that
// Add has added, and without [proxy].
func (f *File) CheckKey(limiter, key string) error {
	if _, ours := f.Limiters[limiter]; !ours || f.Proxy == nil || slices.Contains(f.added, limiter) {
		return nil
	}
	if text, hint := f.keys().wrong(limiter, key); text != "" {
		return Error{Text: text, Hint: hint}
	}
	return nil
}

// checkKeys notes the overrides of keys that no request has.
func (k keys) checkKeys(r *report, path, limiter string) {
	for key := range k.f.Limiters[limiter].Overrides {
		if text, hint := k.wrong(limiter, key); text != "" {
			at := inner(path, key)
			r.add(r.places.key(at), at, hint, "%s", text)
		}
	}
}

// keys knows which keys the rules of a file make.
type keys struct {
	f   *File
	mux func() *http.ServeMux // of all patterns
}

func (f *File) keys() keys {
	return keys{f, sync.OnceValue(func() *http.ServeMux {
		mux := http.NewServeMux()
		for _, rule := range f.Proxy.Rules {
			if checkPattern(rule.Pattern) == nil {
				_ = register(mux, rule.Pattern) // what stands in its way is an error of the file
			}
		}
		return mux
	})}
}

// wrong says why no request has a key by any rule of a limiter, and what may be meant; "" for a key that one may have.
func (k keys) wrong(limiter, key string) (text, hint string) {
	var hints []string
	for rule := range k.f.rulesOf(limiter) {
		meant, ok := k.meant(rule, key)
		switch {
		case ok && meant == key:
			return "", ""
		case ok && hint == "":
			hint = fmt.Sprintf("did you mean %q?", meant)
		}
		if h := k.formOf(rule); !slices.Contains(hints, h) {
			hints = append(hints, h)
		}
	}
	return fmt.Sprintf("no request has the key %s by any rule of %s", clip(key), clip(limiter)),
		cmp.Or(hint, strings.Join(hints, "; "))
}

// rulesOf are the rules that ask a limiter, each with the key that it asks that one for.
func (f *File) rulesOf(limiter string) iter.Seq[Rule] {
	return func(yield func(Rule) bool) {
		for _, rule := range f.Proxy.Rules {
			for _, one := range rule.All() {
				rule.Key, rule.Or = one.Key, one.Or
				if one.Limiter == limiter && !yield(rule) {
					return
				}
			}
		}
	}
}

// formOf says what the keys of a rule look like.
func (k keys) formOf(rule Rule) string {
	switch {
	case rule.Or.Kind != "":
		return fmt.Sprintf("a key is as %q or %q", mark(rule.Key)+"|…", mark(rule.Or)+"|…")
	case len(rule.Key.And) > 0:
		return fmt.Sprintf("a key has %d parts with bars between them", len(rule.Key.Parts()))
	}
	switch rule.Key.Kind {
	case KeyPath:
		return "a path is in lower case, without a slash at the end, and the rule's pattern matches it"
	case KeyPattern, KeyConstant:
		return fmt.Sprintf("the key of the rule is %s", clip(cmp.Or(rule.Key.Arg, rule.Pattern)))
	case KeyClient:
		return fmt.Sprintf("a client is an address, of IPv6 its network of /%d: "+
			"a wider one is many keys, a narrower one part of one", k.f.Proxy.IPv6Prefix)
	case KeyHost:
		return "a host has no port and no wildcard"
	case KeyCredential, KeyCookie:
		return "a credential is its hash"
	}
	return "a key has at most 256 bytes, and no control bytes in a field"
}

// meant is the key that a rule makes of what a text seems to mean, which is the text itself if a request may have it.
func (k keys) meant(rule Rule, text string) (key string, ok bool) {
	first, second := rule.Key.Parts(), rule.Or.Parts()
	switch {
	case hash.MatchString(text) && (len(first) > 1 || rule.Or.Kind != ""):
		return text, true // of a key above 256 bytes
	case rule.Or.Kind == "" && len(first) == 1:
		key, ok = k.part(rule, first[0], text)
	case rule.Or.Kind == "":
		key, _, ok = k.joint(rule, first, text)
	default:
		of, parts, lacks := mark(rule.Key), first, false
		rest, found := strings.CutPrefix(text, of+"|")
		if as, is := strings.CutPrefix(text, mark(rule.Or)+"|"); is && !found {
			of, parts, rest, lacks = mark(rule.Or), second, as, true
		}
		var whole bool
		if key, whole, ok = k.joint(rule, parts, rest); !whole && !lacks {
			return "", false // another key counts for such a request
		}
		key = of + "|" + key
	}
	return key, ok && len(key) <= 256
}

// mark is what the keys of a rule with an alternative begin with.
func mark(of Key) string { return escapes.Replace(of.String()) }

var (
	escapes = strings.NewReplacer(`\`, `\\`, "|", `\|`)
	hash    = regexp.MustCompile(`\Asha256:(key:)?[0-9a-f]{64}\z`)
	digest  = regexp.MustCompile(`\Acredential:[0-9a-f]{32}\z`)
)

// joint is the key of several parts. It is whole unless a request with it lacks one of them.
func (k keys) joint(rule Rule, parts []Key, text string) (key string, whole, ok bool) {
	texts := barred(text)
	if len(texts) != len(parts) {
		return "", false, false
	}
	whole = true
	for i, part := range parts {
		is, ok := k.part(rule, part, texts[i])
		if !ok {
			return "", false, false
		}
		whole = whole && is != "" && is != noCredential
		texts[i] = escapes.Replace(is)
	}
	return strings.Join(texts, "|"), whole, true
}

// barred are the texts between the bars of a key.
func barred(text string) []string {
	all := []string{""}
	for i := 0; i < len(text); i++ {
		last := &all[len(all)-1]
		switch c := text[i]; {
		case c == '|':
			all = append(all, "")
		case c == '\\' && i+1 < len(text) && strings.IndexByte(`\|`, text[i+1]) >= 0:
			i++
			*last += text[i : i+1]
		default:
			*last += text[i : i+1]
		}
	}
	return all
}

const noCredential = "(no credential)"

// part is the key that one part makes.
func (k keys) part(rule Rule, part Key, text string) (key string, ok bool) {
	switch part.Kind {
	case KeyPath:
		return k.path(rule, text)
	case KeyPattern, KeyConstant:
		key := httplimit.Constant(cmp.Or(part.Arg, rule.Pattern))(nil)
		return key, key == text || didYouMean(text, []string{key}) != ""
	case KeyClient:
		return k.client(strings.TrimSpace(text))
	case KeyHost:
		return hostOf(rule, strings.TrimSpace(text))
	case KeyHeader:
		value := strings.Trim(text, " \t")
		control := func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }
		key := httplimit.Header("X-Key")(&http.Request{Header: http.Header{"X-Key": {value}}})
		return cmp.Or(hash.FindString(text), key), !strings.ContainsFunc(value, control)
	case KeyCredential, KeyCookie:
		lower := strings.ToLower(text)
		return lower, lower == noCredential || digest.MatchString(lower)
	}
	return text, true
}

// query is that of a URL whose path a key was to be.
var query = regexp.MustCompile(`\?[^/?]*=.*\z`)

// path is the key of a path that the rule matches. What looks like an escape or a query is taken for one: a path that
// has one when it is decoded is rare.
func (k keys) path(rule Rule, text string) (key string, ok bool) {
	switch {
	case hash.MatchString(text):
		return text, true
	case strings.Contains(text, "://"):
		return "", false
	}
	path := query.ReplaceAllString(text, "")
	if plain, err := url.PathUnescape(path); err == nil {
		path = plain
	}
	path = httplimit.CanonicalPath(path)
	return httplimit.Path()(&http.Request{URL: &url.URL{Path: path}}), k.reaches(rule, path)
}

// reaches reports whether the rule is that of a request for a canonical path. What the file says of other ways to read
// paths may find one by another path than the key's.
func (k keys) reaches(rule Rule, path string) bool {
	if checkPattern(rule.Pattern) != nil || k.f.Proxy.Paths != (Paths{}) {
		return true
	}
	method, host, _ := split(rule.Pattern)
	_, pattern := k.mux().Handler(&http.Request{
		Method: cmp.Or(method, "x"), Host: cmp.Or(host, "X"), URL: &url.URL{Path: path},
	})
	return pattern == rule.Pattern
}

// client is the key of a client's address, or of a network that has one key.
func (k keys) client(text string) (key string, ok bool) {
	bits := k.f.Proxy.IPv6Prefix
	of, err := httplimit.ClientAddrConfig{IPv6Bits: bits}.KeyFunc()
	if err != nil {
		return text, true // it is an error of the file
	}
	key = of(&http.Request{RemoteAddr: text})
	if p, err := netip.ParsePrefix(text); err == nil {
		p = unmapped(p)
		if most := map[bool]int{true: 32, false: bits}[p.Addr().Is4()]; p.Bits() < most {
			return "", false // many keys
		}
		key = of(&http.Request{RemoteAddr: p.Addr().String()})
	}
	const none = "(no address)"
	return key, key != none || text == none
}

// hostOf is the key of a host that the rule's pattern matches.
func hostOf(rule Rule, text string) (key string, ok bool) {
	if hash.MatchString(text) {
		return text, true
	}
	of := func(host string) string { return httplimit.Host()(&http.Request{RequestURI: "/", Host: host}) }
	key = of(text)
	if checkPattern(rule.Pattern) == nil {
		if _, host, _ := split(rule.Pattern); host != "" && of(host) != key {
			return "", false
		}
	}
	return key, isOf(text, "-._~!$&'()+,;=%[]:") // a server refuses all others, and * is no host
}
