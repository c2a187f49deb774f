package rls

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/quotient-go/quotient"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Bounds of a request. Those of its texts are those of a message of gRPC, and no key is longer than maxKey.
const (
	maxDescriptors = 100
	maxKey         = 256 // bytes, of which the last are a hash where the descriptor is longer
	maxOwn         = 64  // limits that requests bring: as many as a limiter has plans
)

// Service is a ratelimit.RateLimitServiceServer. New makes it. All methods are safe for concurrent use.
type Service struct {
	ratelimit.UnimplementedRateLimitServiceServer
	reg   *quotient.Registry
	table atomic.Pointer[table]
}

// table are rules with their limiters.
type table struct {
	rules    *Rules
	limiters []*quotient.Limiter // by rule.index; nil for one that is not in the registry
	own      *ownLimits
}

// New returns a Service whose limiters are in the registry. Until Set it answers with an error.
func New(reg *quotient.Registry) *Service { return &Service{reg: reg} }

// Set has calls go by these rules from now on. Their limiters (Rules.Limiters) are in the registry by then: calls that
// need one that is not there get an error. The rules must not change any more.
func (s *Service) Set(r *Rules) {
	t := &table{rules: r, limiters: make([]*quotient.Limiter, len(r.named))}
	for name, of := range r.named {
		t.limiters[of.index], _ = s.reg.Get(name)
	}
	l, _ := s.reg.Get(ownLimiter)
	if old := s.table.Load(); old != nil && old.own.limiter == l && old.own.kind == r.kind {
		t.own = old.own
	} else {
		t.own = &ownLimits{limiter: l, kind: r.kind, plans: map[ownLimit]string{}}
	}
	s.table.Store(t)
}

// ShouldRateLimit takes the hits of all descriptors, or of none if one of them is over its limit. It never waits. The
// errors are those of the reference, and further ones for what exceeds a bound or cannot be kept.
func (s *Service) ShouldRateLimit(
	_ context.Context, r *ratelimit.RateLimitRequest,
) (*ratelimit.RateLimitResponse, error) {
	t := s.table.Load()
	switch n := len(r.GetDescriptors()); {
	case r.GetDomain() == "":
		return nil, status.Error(codes.Unknown, "rate limit domain must not be empty")
	case n == 0:
		return nil, status.Error(codes.Unknown, "rate limit descriptor list must not be empty")
	case t == nil:
		return nil, status.Error(codes.Unknown, "no rate limit configuration loaded")
	case n > maxDescriptors:
		return nil, status.Errorf(codes.InvalidArgument, "%d descriptors are more than %d", n, maxDescriptors)
	}
	c := calls.Get().(*call)
	defer c.free()
	if err := c.read(t, r); err != nil {
		return nil, err
	}
	if err := c.decide(); err != nil {
		return nil, err
	}
	return c.answer(t.rules.Fields), nil
}

// ownLimit is a limit that a request brings.
type ownLimit struct {
	n    uint32
	unit ratelimit.RateLimitResponse_RateLimit_Unit
}

// ownLimits are the plans of the limiter for limits that requests bring.
type ownLimits struct {
	limiter *quotient.Limiter
	kind    quotient.Kind
	mu      sync.RWMutex
	plans   map[ownLimit]string // at most maxOwn
}

// plan returns the plan of a limit, which is new at most maxOwn times.
func (o *ownLimits) plan(l ownLimit) (string, error) {
	o.mu.RLock()
	name, ok := o.plans[l]
	o.mu.RUnlock()
	if ok {
		return name, nil
	}
	if l.unit <= 0 || int(l.unit) >= len(periods) {
		return "", status.Errorf(codes.InvalidArgument, "limit: %d is no unit", l.unit)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if name, ok = o.plans[l]; ok { // another call was faster
		return name, nil
	}
	if len(o.plans) == maxOwn {
		return "", status.Errorf(codes.ResourceExhausted,
			"requests have brought %d distinct limits, and may bring no more", maxOwn)
	}
	name = fmt.Sprintf("%d-%s-%v", l.n, nameOf(l.unit), o.kind)
	limit := rateOf(limitOf(l.n, l.unit, ""), o.kind)
	if err := o.limiter.SetPlan(name, &limit); err != nil {
		return "", status.Errorf(codes.ResourceExhausted, "limit: %v", err)
	}
	o.plans[l] = name
	return name, nil
}
