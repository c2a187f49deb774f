package config

import (
	"strings"
)

const maxReplicas = 1_000_000

func (f *File) checkPool(r *report) {
	p := f.Pool
	least, heaviest, last := 0, 1000, maxReplicas
	if p.Source == "" {
		if r.places != nil && r.places.has("pool.replicas") { // none is a mistake, such as of a template
			least = 1
		}
		heaviest = min(heaviest, p.size().Replicas)
		last = max(p.size().Replicas-p.Weight+1, 0)
	}
	between(r, "pool.replicas", p.Replicas, least, maxReplicas)
	between(r, "pool.weight", p.Weight, 1, heaviest)
	between(r, "pool.ordinal", p.Ordinal, 0, last)
	between(r, "pool.hold-down", p.HoldDown, 0, longest)
	between(r, "pool.max-age", p.MaxAge, 0, longest)
	p.checkSource(r)
}

// counted reports whether somebody says how many replicas there are.
func (p Pool) counted() bool { return p.Replicas > 0 || p.Source != "" }

func (p Pool) checkSource(r *report) {
	switch scheme, arg, ok := strings.Cut(p.Source, ":"); {
	case p.Source == "":
		for name, set := range map[string]bool{"await": p.Await, "max-age": p.MaxAge > 0} {
			if set {
				r.field(inner("pool", name), "it needs a source")
			}
		}
		return
	case !ok:
		r.hinted("pool.source", `as "dns:NAME", "file:PATH" or "env:"`, "%s has no scheme", clip(p.Redacted()))
	case (scheme == "dns" || scheme == "file") && arg == "":
		r.field("pool.source", "%s has nothing behind the colon", clip(p.Source))
	}
	p.checkSecrets(r)
	if p.Weight != 1 {
		r.field("pool.weight", "%d beside a source, which reports the weight", p.Weight)
	}
	switch {
	case p.Await && p.MaxAge == 0:
		r.field("pool.await", "true without a max-age")
	case p.MaxAge > 0 && p.Replicas == 0 && !p.Await:
		r.hinted("pool.max-age", "add replicas, or await = true",
			"%v without replicas: there is nothing to fall back to", p.MaxAge)
	}
}

// Redacted returns Source for logs, without the text before an @, such as a password. A user with a reference in place
// of the password stays: redis://user:${REDIS_PASSWORD}@host.
func (p Pool) Redacted() string {
	if noSecret.MatchString(p.Source) {
		return p.Source
	}
	return redacted(p.Source)
}
