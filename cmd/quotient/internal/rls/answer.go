package rls

import (
	"math"
	"strconv"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/quotient-go/quotient"
	"google.golang.org/protobuf/types/known/durationpb"
)

// answer is a response in one piece. It is not used again, since gRPC does not say when it has been sent.
type answer struct {
	response ratelimit.RateLimitResponse
	room     [usual]descriptorStatus
	list     [usual]*ratelimit.RateLimitResponse_DescriptorStatus
}

// usual is up to how many descriptors an answer needs no second piece.
const usual = 2

type descriptorStatus struct {
	status ratelimit.RateLimitResponse_DescriptorStatus
	reset  durationpb.Duration
}

// answer makes the response of what was decided.
func (c *call) answer(fields string) *ratelimit.RateLimitResponse {
	all := new(answer)
	room, list := all.room[:], all.list[:]
	if n := len(c.asks); n > usual {
		room, list = make([]descriptorStatus, n), make([]*ratelimit.RateLimitResponse_DescriptorStatus, n)
	}
	r := &all.response
	r.OverallCode, r.Statuses = ratelimit.RateLimitResponse_OK, list[:len(c.asks)]
	if c.refused {
		r.OverallCode = ratelimit.RateLimitResponse_OVER_LIMIT
	}
	closest := -1
	for i := range c.asks {
		a, s := &c.asks[i], &room[i].status
		list[i], s.Code = s, ratelimit.RateLimitResponse_OK
		if a.over {
			s.Code = ratelimit.RateLimitResponse_OVER_LIMIT
		}
		switch {
		case a.limiter != nil:
			a.tell(s, &room[i].reset)
			least := closest < 0 || s.LimitRemaining < list[closest].LimitRemaining
			if s.CurrentLimit != nil && (a.over || !c.refused) && least {
				closest = i
			}
		case a.rule != nil && a.rule.unlimited:
			s.LimitRemaining = math.MaxUint32
		}
	}
	if closest >= 0 && fields != "" && fields != "off" {
		r.ResponseHeadersToAdd = fieldsOf(fields, list[closest], c.asks[closest].window())
	}
	return r
}

// tightest returns the rule of the limit in force with the least left; nil where the limit denies all.
func (a *ask) tightest() (least *quotient.RuleState) {
	for i := range a.states {
		if s := &a.states[i]; s.Window > 0 && (least == nil || s.Left < least.Left) {
			least = s
		}
	}
	return least
}

// window is that of the limit in force.
func (a *ask) window() time.Duration {
	if s := a.tightest(); s != nil {
		return s.Window
	}
	return periods[a.limit.Unit]
}

// tell says where a descriptor stands: by the limit in force, which an operator may have changed.
func (a *ask) tell(s *ratelimit.RateLimitResponse_DescriptorStatus, reset *durationpb.Duration) {
	at := a.tightest()
	if at == nil && !a.over && a.limit.RequestsPerUnit > 0 {
		s.LimitRemaining = math.MaxUint32 // an operator has taken the rates away
		return
	}
	s.CurrentLimit, s.DurationUntilReset = a.limit, reset
	if at == nil {
		per, now := int64(periods[a.limit.Unit]/time.Second), time.Now().Unix()
		if a.limit.Unit == ratelimit.RateLimitResponse_RateLimit_WEEK {
			now += 3 * 24 * 60 * 60 // weeks begin on Monday, and 1970 did on a Thursday
		}
		reset.Seconds = per - now%per
		return
	}
	s.LimitRemaining = uint32(min(max(at.Left, 0), math.MaxUint32))
	reset.Seconds = int64((at.Reset + time.Second - 1) / time.Second)
	if at.Limit != float64(a.limit.RequestsPerUnit) || at.Window != periods[a.limit.Unit] {
		unit := ratelimit.RateLimitResponse_RateLimit_UNKNOWN
		for u, per := range periods {
			if per == at.Window {
				unit = ratelimit.RateLimitResponse_RateLimit_Unit(u)
			}
		}
		s.CurrentLimit = limitOf(uint32(min(at.Limit, math.MaxUint32)), unit, a.limit.Name)
	}
}

// fieldsOf are the fields of a set for a descriptor.
func fieldsOf(
	set string, s *ratelimit.RateLimitResponse_DescriptorStatus, window time.Duration,
) []*core.HeaderValue {
	limit := strconv.FormatUint(uint64(s.CurrentLimit.RequestsPerUnit), 10)
	left := strconv.FormatUint(uint64(s.LimitRemaining), 10)
	reset := strconv.FormatInt(s.DurationUntilReset.Seconds, 10)
	if set == "x-ratelimit" {
		return []*core.HeaderValue{
			{Key: "x-ratelimit-limit", Value: limit}, {Key: "x-ratelimit-remaining", Value: left},
			{Key: "x-ratelimit-reset", Value: reset},
		}
	}
	name, seconds := `"`+nameOf(s.CurrentLimit.Unit)+`"`, int64((window+time.Second-1)/time.Second)
	return []*core.HeaderValue{
		{Key: "ratelimit-policy", Value: name + ";q=" + limit + ";w=" + strconv.FormatInt(seconds, 10)},
		{Key: "ratelimit", Value: name + ";r=" + left + ";t=" + reset},
	}
}
