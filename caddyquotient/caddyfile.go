package caddyquotient

import (
	"strconv"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func init() {
	httpcaddyfile.RegisterHandlerDirective("quotient", directive)
	httpcaddyfile.RegisterDirectiveOrder("quotient", httpcaddyfile.After, "forward_auth")
}

// directive reads one directive of a Caddyfile, of which one alone may do without the name of a zone: two would share
// their counts unnoticed.
func directive(from httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	const seen = "http.handlers.quotient"
	h := new(Handler)
	if err := h.UnmarshalCaddyfile(from.Dispenser); err != nil || h.Zone != "" {
		return h, err
	}
	if from.State[seen] != nil {
		return h, from.Err("another quotient directive names no zone either: name them; those of one name share counts")
	}
	from.State[seen] = true
	return h, nil
}

// UnmarshalCaddyfile reads a directive: see the package. An error names the file and the line.
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if d.NextArg() {
		h.Zone = d.Val()
	}
	if d.NextArg() {
		return d.ArgErr()
	}
	seen := make(map[string]bool)
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		name := d.Val()
		if seen[name] && name != "rate" && name != "plan" {
			return d.Errf("%s: it is there twice", name)
		}
		seen[name] = true
		if err := h.unmarshal(d, name); err != nil {
			return err
		}
	}
	checked := *h // with defaults, which are not for the configuration
	if err := checked.check(); err != nil {
		return d.WrapErr(err)
	}
	return nil
}

// unmarshal reads one line of the directive.
func (h *Handler) unmarshal(d *caddyfile.Dispenser, name string) error {
	texts := map[string]*string{"key": &h.Key, "plan_by": &h.PlanBy, "pool": &h.Pool, "fields": &h.Fields}
	numbers := map[string]*int{
		"ipv6_prefix": &h.IPv6Prefix, "replicas": &h.Replicas, "max_keys": &h.MaxKeys, "status": &h.Status,
	}
	durations := map[string]*caddy.Duration{"wait": &h.Wait, "await_pool": &h.AwaitPool}
	switch {
	case name == "dry_run":
		h.DryRun = true
		return none(d)
	case name == "plan":
		return h.unmarshalPlan(d)
	case texts[name] != nil:
		return one(d, func(text string) error { *texts[name] = text; return nil })
	case numbers[name] != nil:
		return number(d, numbers[name])
	case durations[name] != nil:
		return one(d, func(text string) error {
			per, err := caddy.ParseDuration(text)
			if err != nil || per <= 0 {
				return d.Errf("%s: %q is not a duration above 0, such as 5s", name, text)
			}
			*durations[name] = caddy.Duration(per)
			return nil
		})
	}
	return h.Limit.unmarshal(d, name)
}

// unmarshalPlan reads the block of a plan.
func (h *Handler) unmarshalPlan(d *caddyfile.Dispenser) error {
	var plan Limit
	var name string
	if !d.Args(&name) {
		return d.ArgErr()
	}
	if _, there := h.Plans[name]; there {
		return d.Errf("plan %s: it is there twice", name)
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		if err := plan.unmarshal(d, d.Val()); err != nil {
			return err
		}
	}
	if h.Plans == nil {
		h.Plans = make(map[string]Limit)
	}
	h.Plans[name] = plan
	return nil
}

// unmarshal reads one line of a limit.
func (l *Limit) unmarshal(d *caddyfile.Dispenser, name string) error {
	switch name {
	case "rate":
		return l.unmarshalRate(d)
	case "in_flight":
		return number(d, &l.InFlight)
	case "deny":
		l.Deny = true
		return none(d)
	}
	return d.Errf("unknown option %s", name)
}

// unmarshalRate reads what stands behind rate.
func (l *Limit) unmarshalRate(d *caddyfile.Dispenser) error {
	if !d.NextArg() {
		return d.ArgErr()
	}
	rate, err := readRate(d.Val())
	if err != nil {
		return d.Errf("rate: %v", err)
	}
	for d.NextArg() {
		word := d.Val()
		switch _, kind := kinds[word]; {
		case kind && rate.Kind == "":
			rate.Kind = word
		case word == "burst" && rate.Burst == 0:
			if !d.NextArg() {
				return d.ArgErr()
			}
			if rate.Burst, err = strconv.Atoi(d.Val()); err != nil || rate.Burst < 1 {
				return d.Errf("rate: burst: %q is not a number above 0", d.Val())
			}
		case word == "name" && rate.Name == "":
			if !d.NextArg() {
				return d.ArgErr()
			}
			rate.Name = d.Val()
		default:
			return d.Errf("rate: %q is not bucket, paced, window, burst or name, or is there twice", word)
		}
	}
	l.Rates = append(l.Rates, rate)
	if _, err := l.limit(); err != nil {
		return d.Errf("rate: %v", err)
	}
	return nil
}

// none is an error if the line has an argument.
func none(d *caddyfile.Dispenser) error {
	if d.NextArg() {
		return d.ArgErr()
	}
	return nil
}

// one reads the one argument of a line.
func one(d *caddyfile.Dispenser, read func(text string) error) error {
	var text string
	if !d.AllArgs(&text) {
		return d.ArgErr()
	}
	return read(text)
}

// number reads a number above 0.
func number(d *caddyfile.Dispenser, into *int) error {
	name := d.Val()
	return one(d, func(text string) (err error) {
		if *into, err = strconv.Atoi(text); err != nil || *into < 1 {
			return d.Errf("%s: %q is not a number above 0", name, text)
		}
		return nil
	})
}

var _ caddyfile.Unmarshaler = (*Handler)(nil)
