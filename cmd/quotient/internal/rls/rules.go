// Package rls answers the questions of Envoy's rate limit service (envoy.service.ratelimit.v3) from limiters of a
// registry, by the YAML files of the reference service, github.com/envoyproxy/ratelimit. docs/ratelimit.md says what is
// the same and what differs.
//
// Each rule, which is a descriptor with a rate_limit that is not unlimited, is one limiter, and the key is the text of
// the descriptor that a request names: user=bob, or key_1=value_1|user=bob. One further limiter has the limits that
// requests bring themselves, as plans. A name that no limiter may have gets hyphens and a hash. A limiter remembers 256
// keys if requests do not choose them, and its number of keys is fixed until a restart. With share_threshold a key has
// the pattern in place of the value. current_limit is that in force, and as for an unlimited rule where an operator has
// taken its rates away.
package rls

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/config"
)

// Rules are those of the files that Read has read.
type Rules struct {
	// Fields are the fields that answers have Envoy add to a response, spelt as config.Proxy.Fields: draft-11,
	// x-ratelimit, or off, which the zero value is too. They are of the limit with the least left. Set it before
	// Service.Set.
	Fields string

	domains  map[string]*node
	named    map[string]*rule // by the name of the limiter
	warnings config.Errors
	kind     quotient.Kind // of the limits that requests bring
}

// node is a descriptor of a file, or a domain.
type node struct {
	composite string           // key_value, or the key alone
	children  map[string]*node // by composite
	wild      []*node          // those of children with a *, in the order of the file
	parts     [][]byte         // of composite, between the stars
	rule      *rule            // nil for none
	share     bool
	quota     bool
	open      bool // requests choose a text of its keys
}

// rule is a rate_limit.
type rule struct {
	path      string // as the reference's statistics name it
	index     int    // of its limiter
	limiter   string // its name; empty for one that is unlimited
	limit     *ratelimit.RateLimitResponse_RateLimit
	name      string
	replaces  []string
	unlimited bool
	shadow    bool
	open      bool
}

func limitOf(n uint32, unit ratelimit.RateLimitResponse_RateLimit_Unit, name string,
) *ratelimit.RateLimitResponse_RateLimit {
	return &ratelimit.RateLimitResponse_RateLimit{RequestsPerUnit: n, Unit: unit, Name: name}
}

// periods are how long the units are: as in the reference, a month has 30 days and a year 365.
var periods = [...]time.Duration{
	ratelimit.RateLimitResponse_RateLimit_SECOND: time.Second,
	ratelimit.RateLimitResponse_RateLimit_MINUTE: time.Minute,
	ratelimit.RateLimitResponse_RateLimit_HOUR:   time.Hour,
	ratelimit.RateLimitResponse_RateLimit_DAY:    24 * time.Hour,
	ratelimit.RateLimitResponse_RateLimit_WEEK:   7 * 24 * time.Hour,
	ratelimit.RateLimitResponse_RateLimit_MONTH:  30 * 24 * time.Hour,
	ratelimit.RateLimitResponse_RateLimit_YEAR:   365 * 24 * time.Hour,
}

// ownLimiter has the limits that requests bring.
const ownLimiter = "ratelimit-requests"

// How many keys limiters remember, which bounds what a stranger can have all of them hold.
const (
	allKeys  = 1 << 20 // of those whose keys requests choose, such as addresses or users, in equal parts
	mostKeys = 1 << 18 // of one of them
	someKeys = 1 << 12 // of one of them at least, however many they are
	fewKeys  = 1 << 8  // of one whose file has all its texts
)

// Warnings are settings of the files that have no effect here, in the order of the text.
func (r *Rules) Warnings() config.Errors { return slices.Clone(r.warnings) }

// Limiters returns the limiters of the rules by their names, whose rates are of a kind: window, counted-window or
// bucket, which admits a unit's requests at once and then fills in. Any other is a window. The limits that requests
// bring are of the kind of the latest call, so call it before Service.Set. A rule in shadow_mode is a dry run. One that
// allows 0 requests denies all.
//
// Those whose keys requests choose remember 1,048,576 keys in all, in equal parts of 4,096 to 262,144, and any other
// 256. One that the registry has keeps its number, which is fixed: so after changes of the files they may be more.
func (r *Rules) Limiters(kind string, in *quotient.Registry) map[string]config.Limiter {
	kinds := map[string]quotient.Kind{"counted-window": quotient.CountedWindow, "bucket": quotient.Bucket}
	is, ok := kinds[kind]
	if !ok {
		is = quotient.Window
	}
	r.kind = is
	open := 1
	for _, of := range r.named {
		if of.open {
			open++
		}
	}
	all := make(map[string]config.Limiter, len(r.named)+1)
	add := func(name string, limit quotient.Limit, shadow bool, keys int) {
		l := config.Limiter{Limit: limit, DryRun: shadow, Refuse: true, MaxKeys: keys, Policy: "fixed"}
		if is == quotient.CountedWindow {
			l.Demand = &config.Demand{Keys: 1000, MaxAge: 2 * time.Second}
		}
		all[name] = l
	}
	for name, of := range r.named {
		keys := fewKeys
		if of.open {
			keys = keysOf(name, open, in)
		}
		add(name, rateOf(of.limit, is), of.shadow, keys)
	}
	if len(r.domains) > 0 {
		add(ownLimiter, quotient.Limit{Deny: true}, false, keysOf(ownLimiter, open, in))
	}
	return all
}

// keysOf is how many keys one of so many limiters remembers: as many as before, if it is in force with its part.
func keysOf(name string, open int, in *quotient.Registry) int {
	if l, ok := in.Get(name); ok {
		if n := l.Stats().MaxKeys; n >= someKeys {
			return n
		}
	}
	return min(max(allKeys/open, someKeys), mostKeys)
}

// rateOf is a limit of the protocol as one of the library.
func rateOf(l *ratelimit.RateLimitResponse_RateLimit, kind quotient.Kind) quotient.Limit {
	if l.RequestsPerUnit == 0 {
		return quotient.Limit{Deny: true}
	}
	return quotient.Rates(quotient.Rate{
		Name: nameOf(l.Unit), Events: float64(l.RequestsPerUnit), Per: periods[l.Unit], Kind: kind,
	})
}

func nameOf(unit ratelimit.RateLimitResponse_RateLimit_Unit) string {
	return strings.ToLower(unit.String())
}

// limiterName is the path of a rule, if a limiter may have that name. Otherwise the letters that it may not have become
// hyphens, and some digits of a hash tell it from others that would be alike.
func limiterName(path string) string {
	const longest, digits = 64, 8
	clean := strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', strings.ContainsRune("._-", c):
			return c
		case c >= 'A' && c <= 'Z':
			return c - 'A' + 'a'
		}
		return '-'
	}, path)
	if clean == path && len(path) <= longest {
		return path
	}
	sum := sha256.Sum256([]byte(path))
	return clean[:min(len(clean), longest-digits-1)] + "-" + hex.EncodeToString(sum[:digits/2])
}

// child returns the descriptor that an entry of a request matches: the one with its value, or else the first wildcard
// of the file that its value is one of, or else the one without a value; nil for none. The pattern is that of a
// wildcard whose values count together, "" for any other. Used is room for the next call.
func (n *node) child(entry *common.RateLimitDescriptor_Entry, room []byte) (next *node, pattern string, used []byte) {
	used = append(append(append(room[:0], entry.GetKey()...), '_'), entry.GetValue()...)
	if next = n.children[string(used)]; next != nil {
		return next, "", used
	}
	for _, w := range n.wild {
		if !w.matches(used) {
			continue
		}
		if w.share {
			pattern = strings.TrimPrefix(strings.TrimPrefix(w.composite, entry.GetKey()), "_")
		}
		return w, pattern, used
	}
	return n.children[entry.GetKey()], "", used
}

// matches reports whether a wildcard stands for a composite. Each star stands for any text.
func (n *node) matches(composite []byte) bool {
	first, last := n.parts[0], n.parts[len(n.parts)-1]
	rest, ok := bytes.CutPrefix(composite, first)
	if !ok {
		return false
	}
	if rest, ok = bytes.CutSuffix(rest, last); !ok {
		return false
	}
	for _, part := range n.parts[1 : len(n.parts)-1] {
		if _, rest, ok = bytes.Cut(rest, part); !ok {
			return false
		}
	}
	return true
}
