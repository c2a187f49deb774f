package rls

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"slices"
	"strings"
	"sync"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/quotient-go/quotient"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// mostHits bounds the hits of a descriptor by what a call of a limiter may weigh: far above any limit.
const mostHits = min(1<<40, math.MaxInt)

// call is what one request needs while it is decided on.
type call struct {
	asks    []ask
	claims  []quotient.Claim
	of      []int // the asks of the claims
	permits quotient.Permits
	text    []byte
	room    []byte

	quotas, quotasOver int // in quota_mode, and those of them over their limits
	refused            bool
}

// ask is a descriptor of a request.
type ask struct {
	limiter *quotient.Limiter // nil where nothing counts
	rule    *rule             // nil without one in the files
	limit   *ratelimit.RateLimitResponse_RateLimit
	key     string
	hits    int
	look    bool // it has 0 hits, and asks for no more than where it stands
	stated  bool // its hits are its own, and not those of the request
	quota   bool
	over    bool

	options [3]quotient.CallOption
	states  []quotient.RuleState
	state   [1]quotient.RuleState
}

var calls = sync.Pool{New: func() any { return new(call) }}

func (c *call) free() {
	clear(c.asks)
	clear(c.claims)
	clear(c.permits)
	*c = call{asks: c.asks[:0], claims: c.claims[:0], of: c.of[:0], permits: c.permits[:0],
		text: c.text[:0], room: c.room[:0]}
	if const64K := 1 << 16; cap(c.text) < const64K && cap(c.room) < const64K {
		calls.Put(c)
	}
}

// read finds the limits of a request.
func (c *call) read(t *table, r *ratelimit.RateLimitRequest) error {
	c.asks = slices.Grow(c.asks, len(r.Descriptors))[:len(r.Descriptors)]
	domain := t.rules.domains[r.Domain]
	replaces := false
	for i, d := range r.Descriptors {
		a := &c.asks[i]
		if err := a.count(r, d); err != nil {
			return err
		}
		if domain == nil {
			continue
		}
		err := c.find(t, a, domain, d)
		if d.GetLimit() != nil && err == nil {
			err = c.own(t, a, r.Domain, d.Limit)
		}
		if err != nil {
			return err
		}
		replaces = replaces || a.rule != nil && len(a.rule.replaces) > 0
	}
	if replaces {
		c.replace()
	}
	for i := range c.asks {
		if a := &c.asks[i]; a.limiter != nil && a.quota {
			c.quotas++
		}
	}
	return nil
}

// count notes the hits of a descriptor.
func (a *ask) count(r *ratelimit.RateLimitRequest, d *common.RateLimitDescriptor) error {
	hits := uint64(max(1, r.HitsAddend))
	if own := d.GetHitsAddend(); own != nil {
		hits, a.stated = own.GetValue(), true
	}
	a.hits, a.look = int(max(1, min(hits, mostHits))), hits == 0
	switch n := len(d.GetEntries()); {
	case d.GetIsNegativeHits():
		return status.Error(codes.Unimplemented, "is_negative_hits: hits cannot be given back")
	case n > maxDepth:
		return status.Errorf(codes.InvalidArgument, "%d entries of a descriptor are more than %d", n, maxDepth)
	}
	return nil
}

// find looks the rule of a descriptor up: each entry is matched on its level, and the last one has the rule.
func (c *call) find(t *table, a *ask, at *node, d *common.RateLimitDescriptor) error {
	c.text = c.text[:0]
	if d.GetLimit() != nil { // which rules have no say in
		at = nil
	}
	for i, e := range d.GetEntries() {
		var pattern string
		if at != nil {
			at, pattern, c.room = at.child(e, c.room)
		}
		if at == nil && d.GetLimit() == nil {
			return nil
		}
		if i > 0 {
			c.text = append(c.text, '|')
		}
		if pattern == "" {
			pattern = e.GetValue()
		}
		c.text = append(escape(c.text, e.GetKey(), '='), '=')
		c.text = escape(c.text, pattern, '|')
	}
	if at == nil || at.rule == nil || len(d.GetEntries()) == 0 || d.GetLimit() != nil {
		return nil
	}
	a.rule, a.quota = at.rule, at.quota
	if a.rule.unlimited {
		return nil
	}
	a.limit = a.rule.limit
	return a.use(t.limiters[a.rule.index], a.rule.limiter, c.key())
}

// use has a descriptor count by a key of a limiter.
func (a *ask) use(l *quotient.Limiter, name, key string) error {
	if l == nil {
		return status.Errorf(codes.Internal, "there is no limiter %s", name)
	}
	a.limiter, a.key = l, key
	a.states = a.state[:0]
	a.options[0], a.options[1] = quotient.StateInto(&a.states), quotient.Weight(a.hits)
	return nil
}

// own has a descriptor count by the limit that it brings, apart from those of rules.
func (c *call) own(t *table, a *ask, domain string, l *common.RateLimitDescriptor_RateLimitOverride) error {
	limit := ownLimit{l.GetRequestsPerUnit(), ratelimit.RateLimitResponse_RateLimit_Unit(l.GetUnit())}
	c.room = append(append(escape(c.room[:0], domain, '|'), '|'), nameOf(limit.unit)...)
	c.room = append(append(c.room, '|'), c.text...)
	c.text = append(c.text[:0], c.room...)
	if err := a.use(t.own.limiter, ownLimiter, c.key()); err != nil {
		return err
	}
	plan, err := t.own.plan(limit)
	a.options[2], a.limit = quotient.Plan(plan), limitOf(limit.n, limit.unit, "")
	return err
}

// escape appends a text in which the signs between texts, of which the given one may be another, have a backslash.
func escape(b []byte, text string, sign byte) []byte {
	if strings.IndexByte(text, '|') < 0 && strings.IndexByte(text, '\\') < 0 && strings.IndexByte(text, sign) < 0 {
		return append(b, text...)
	}
	for i := range len(text) {
		if text[i] == '|' || text[i] == '\\' || text[i] == sign {
			b = append(b, '\\')
		}
		b = append(b, text[i])
	}
	return b
}

// key is the text of a descriptor. The end of a long one is a hash of the whole, so that keys are bounded and no two
// descriptors share one.
func (c *call) key() string {
	if len(c.text) <= maxKey {
		return string(c.text)
	}
	sum := sha256.Sum256(c.text)
	const digits = 2 * sha256.Size
	return string(hex.AppendEncode(c.text[:maxKey-digits:maxKey-digits], sum[:]))
}

// replace drops the rules that another one of the request replaces.
func (c *call) replace() {
	for i := range c.asks {
		a := &c.asks[i]
		if a.limiter == nil || a.rule == nil || a.rule.name == "" {
			continue
		}
		for j := range c.asks {
			if by := c.asks[j].rule; by != nil && slices.Contains(by.replaces, a.rule.name) {
				a.limiter, a.limit = nil, nil
			}
		}
	}
}

// decide takes the hits of all descriptors, but for those in quota_mode that are over their limits, or none.
func (c *call) decide() error {
	for i := range c.asks {
		if a := &c.asks[i]; a.limiter != nil && a.look {
			c.look(a)
		}
	}
	for taken := false; !taken && !c.refused; {
		var err error
		if taken, err = c.take(); err != nil {
			return err
		}
	}
	for i := range c.asks {
		if a := &c.asks[i]; c.refused && a.limiter != nil && !a.look && !a.over {
			c.look(a)
		}
	}
	for i := range c.asks {
		if a := &c.asks[i]; a.limiter != nil && a.stated && !a.look && (a.over || c.refused) {
			a.takeRest()
		}
	}
	return nil
}

// take takes the hits of the descriptors that are not over their limits yet, or notes one that is.
func (c *call) take() (taken bool, err error) {
	c.claims, c.of = c.claims[:0], c.of[:0]
	for i := range c.asks {
		if a := &c.asks[i]; a.limiter != nil && !a.look && !a.over {
			c.claims = append(c.claims, quotient.Claim{Limiter: a.limiter, Key: a.key, Options: a.options[:]})
			c.of = append(c.of, i)
		}
	}
	permits, i, no := quotient.TryAcquireAll(c.permits[:0], c.claims...)
	permits.Release()
	c.permits = permits
	switch {
	case i < 0:
		return true, nil
	case no.Reason == quotient.ReasonBadRequest:
		return false, status.Errorf(codes.Internal, "limiter: %v", no)
	}
	c.isOver(&c.asks[c.of[i]])
	return false, nil
}

// look notes where a key stands, and whether it has no room.
func (c *call) look(a *ask) {
	if d := a.limiter.Check(a.key, a.options[:]...); !d.OK && !a.limiter.DryRun() {
		c.isOver(a)
	}
}

// isOver notes a descriptor that is over its limit: those in quota_mode refuse a request only all together.
func (c *call) isOver(a *ask) {
	if a.over = true; a.quota {
		c.quotasOver++
	}
	c.refused = c.refused || !a.quota || c.quotasOver == c.quotas
}

// takeRest takes what is left, at most the hits that a descriptor states itself and that have not been taken: they have
// happened, since Envoy states the cost of an answer when it has been sent, whatever became of other descriptors.
func (a *ask) takeRest() {
	permit, _ := a.limiter.TryAcquireUpTo(a.key, a.hits, a.options[2])
	permit.Release()
	a.limiter.Check(a.key, a.options[0], a.options[2])
}
