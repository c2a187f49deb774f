// Package rls answers the questions of Envoy's rate limit service from limiters of a registry.
package rls

import (
	"github.com/goccy/go-yaml/ast"
	"github.com/quotient-go/quotient/config"
)

// Rules are those of the files that Read has read.
type Rules struct {
	// Fields are the RateLimit fields that answers carry, as config.Proxy.Fields has them: draft-11, x-ratelimit or
	// off. Empty is off. Set it before Service.Set.
	Fields string

	node ast.Node
}

// Read reads YAML files of the reference service.
func Read(paths []string) (*Rules, error) { return &Rules{}, nil }

// Limiters returns the limiters of the rules, by name.
func (r *Rules) Limiters(kind string) map[string]config.Limiter { return nil }
