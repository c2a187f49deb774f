package httplimit

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// Fields names the header fields in which an upstream reports one of its quotas. The names may have any
// case. An empty name is a field that the upstream does not send.
//
// Limit, Remaining and Used hold decimal numbers; two of them give the third. The text after a comma or a
// semicolon is ignored ("100, 100;w=60" is 100). Numbers below 0 count as absent, and so does a limit of 0.
// Only the first line of a repeated field counts.
type Fields struct {
	// Unit is what the quota counts: "" for requests, or the Unit of a rate of the limit, such as "tokens".
	Unit string
	// Limit is the whole quota. Remaining is the rest of it.
	Limit, Remaining string
	// Used is the used part of it, also with the limit, as in "32/40".
	Used string
	// Reset is when the quota is renewed or full again. A number above 1e11 is milliseconds since 1970,
	// from 1e9 on seconds since 1970, and a smaller one seconds from now. A text may be a Go duration
	// (6m0s), a time of RFC 3339, with or without seconds, or an HTTP date. Times are relative to the
	// answer's Date if it has one. More than 31 days count as 31.
	Reset string
	// ResetAfter is the same in seconds from now. It takes precedence over Reset.
	ResetAfter string
}

// Profile describes how one upstream reports its limits: the statuses that refuse a request for the rate,
// and the fields that hold quotas. All profiles read 429 as policy.Throttled, 503 as policy.Unavailable,
// and Retry-After (see RetryAfter). They also read the fields RateLimit and RateLimit-Policy of the IETF's
// httpapi draft, versions 07 to 11, with the parameters r or a, and t or w.
//
// The zero value is ready and reads only these. A Profile is safe for use by many goroutines. Do not change
// or copy it once it is used.
type Profile struct {
	// Throttled are statuses that refuse a request for the rate, besides 429.
	Throttled []int
	// Suspect are statuses that refuse for the rate only with a Retry-After or with a spent quota. GitHub's
	// 403 is one.
	Suspect []int
	// Unavailable are statuses of an upstream that cannot serve now, besides 503.
	Unavailable []int
	// Quotas are the fields to read. If several count the same unit, the first one to bind is kept: the one
	// with the least Remaining/Limit. If these are equal, it is the one with the longest Reset, and then
	// the first in this list. The members of RateLimit count too, as if they were at the front of the list.
	// Units beyond the first policy.MaxQuotas are dropped.
	Quotas []Fields

	once sync.Once
	rows []Fields // Quotas with canonical names
}

// Feedback returns the feedback for a policy from an answer with this status and these fields. garbage is
// the number of its fields and parameters that could not be read. They are ignored, and the rest of the
// answer counts.
//
// A refusal's RetryAfter comes from Retry-After. Without that field it is the time until all spent quotas
// are renewed, those of RateLimit before all others. A time without a number of remaining requests counts
// if no quota is spent. RetryAfter is at most 24 hours. Answers that are no refusals have none.
//
// If an answer comes from a cache (Age above 0), only the status counts. A zero now means the present.
func (p *Profile) Feedback(status int, h http.Header, now time.Time) (f policy.Feedback, garbage int) {
	f.Outcome = p.outcome(status)
	if cached(h) {
		return f, 0
	}
	r := reader{header: h, now: now}
	r.read(p.canonical(), f.Outcome == policy.Throttled)
	f.Quotas = r.quotas
	suspect := f.Outcome == policy.Success && slices.Contains(p.Suspect, status)
	if f.Outcome == policy.Success && !suspect {
		return f, r.garbage
	}
	pause, said := r.retryAfter()
	if suspect && (said || r.spent) {
		f.Outcome = policy.Throttled
	}
	if !said && f.Outcome == policy.Throttled {
		pause = r.pause()
	}
	f.RetryAfter = pause
	return f, r.garbage
}

// outcome is what the status alone says.
func (p *Profile) outcome(status int) policy.Outcome {
	switch {
	case status == http.StatusTooManyRequests, slices.Contains(p.Throttled, status):
		return policy.Throttled
	case status == http.StatusServiceUnavailable, slices.Contains(p.Unavailable, status):
		return policy.Unavailable
	}
	return policy.Success
}

// canonical is p.Quotas with the names as net/http keeps them, so that a look-up costs no allocation.
func (p *Profile) canonical() []Fields {
	p.once.Do(func() {
		p.rows = slices.Clone(p.Quotas)
		for i := range p.rows {
			f := &p.rows[i]
			for _, name := range []*string{&f.Limit, &f.Remaining, &f.Used, &f.Reset, &f.ResetAfter} {
				*name = http.CanonicalHeaderKey(*name)
			}
		}
	})
	return p.rows
}

// ProfileFor returns the profile of the upstream with this host, in any spelling, with or without a port.
// It knows these hosts and their subdomains:
//
//	github.com, ghe.com                        403 may be a refusal
//	gitlab.com
//	discord.com, discordapp.com
//	reddit.com
//	openai.com, openai.azure.com               units "" and "tokens"
//	anthropic.com                              units "", "tokens", "input-tokens" and "output-tokens"; 529
//	atlassian.com, atlassian.net, bitbucket.org
//	myshopify.com
//	slack.com
//	stripe.com
//
// Every other host gets a profile that reads all the families of fields of the hosts above except
// Shopify's. It reads them also with the X-Rate-Limit spelling and for several windows
// (X-RateLimit-Remaining-Minute, X-RateLimit-Remaining-Tokens-Day). If a host of yours sends the fields of
// one of these hosts, set that host's profile by Transport.Profile.
func ProfileFor(host string) *Profile {
	return profileOf(canonicalHost(host))
}

// profileOf is ProfileFor for a host as canonicalHost spells it.
func profileOf(host string) *Profile {
	host, _, _ = strings.Cut(host, ":")
	for i := range vendors {
		name := vendors[i].host
		if strings.HasSuffix(host, name) && (len(host) == len(name) || host[len(host)-len(name)-1] == '.') {
			return vendors[i].profile
		}
	}
	return anyUpstream
}

// vendors are the upstreams that are known by their host.
var vendors = []struct {
	host    string
	profile *Profile
}{
	{"github.com", github}, {"ghe.com", github},
	{"gitlab.com", gitlab},
	{"discord.com", discord}, {"discordapp.com", discord},
	{"reddit.com", reddit},
	{"openai.com", openAI}, {"openai.azure.com", openAI},
	{"anthropic.com", anthropic},
	{"atlassian.com", atlassian}, {"atlassian.net", atlassian}, {"bitbucket.org", atlassian},
	{"myshopify.com", shopify},
	{"slack.com", retryAfterAlone}, {"stripe.com", retryAfterAlone},
}

// The profiles, each with the fields that its vendor is known for.
var (
	// A first limit is refused with 403 or 429 and nothing left, a secondary one with Retry-After.
	github = &Profile{Suspect: []int{403}, Quotas: []Fields{family("X-RateLimit")}}
	gitlab = &Profile{Quotas: []Fields{family("RateLimit")}} // Reset is epoch seconds
	// Reset is an instant with decimals; Reset-After does not depend on clocks.
	discord = &Profile{Quotas: []Fields{family("X-RateLimit")}}
	// Reset is seconds from now, and the limit is Used + Remaining.
	reddit = &Profile{Quotas: []Fields{family("X-RateLimit")}}
	// Reset is a Go duration; -1 and 0 stand for what is not known.
	openAI = &Profile{Quotas: []Fields{
		perUnit("", "requests"), perUnit("tokens", "tokens"),
		perUnit("tokens", "tokens_usage_based"), perUnit("tokens", "project-tokens"),
	}}
	// Reset is RFC 3339; 529 is an upstream that is overloaded.
	anthropic       = &Profile{Unavailable: []int{529}, Quotas: anthropicFields}
	atlassian       = &Profile{Quotas: []Fields{family("X-RateLimit")}} // Reset has no seconds
	shopify         = &Profile{Quotas: []Fields{{Used: "X-Shopify-Shop-Api-Call-Limit"}}}
	retryAfterAlone = &Profile{}
	anyUpstream     = &Profile{Quotas: everyField()}
)

// anthropicFields put the unit before what they say of it.
var anthropicFields = []Fields{
	unitFirst("", "requests"), unitFirst("tokens", "tokens"),
	unitFirst("input-tokens", "input-tokens"), unitFirst("output-tokens", "output-tokens"),
}

// everyField is what an upstream may send of which nothing is known.
func everyField() []Fields {
	all := []Fields{
		family("RateLimit"), family("X-RateLimit"), family("X-Rate-Limit"),
		perUnit("", "requests"), perUnit("tokens", "tokens"),
	}
	for _, window := range []string{"second", "minute", "hour", "day", "month"} { // as Kong names them
		all = append(all, perUnit("", window))
	}
	for _, window := range []string{"minute", "hour", "day"} { // as Cerebras names them
		all = append(all, perUnit("", "requests-"+window), perUnit("tokens", "tokens-"+window))
	}
	return append(all, anthropicFields...)
}

// family is one quota of requests under a prefix.
func family(prefix string) Fields {
	return Fields{
		Limit: prefix + "-Limit", Remaining: prefix + "-Remaining", Used: prefix + "-Used",
		Reset: prefix + "-Reset", ResetAfter: prefix + "-Reset-After",
	}
}

// perUnit is a quota as OpenAI names it.
func perUnit(unit, name string) Fields {
	return Fields{
		Unit: unit, Limit: "X-RateLimit-Limit-" + name,
		Remaining: "X-RateLimit-Remaining-" + name, Reset: "X-RateLimit-Reset-" + name,
	}
}

// unitFirst is a quota as Anthropic names it.
func unitFirst(unit, name string) Fields {
	prefix := "Anthropic-RateLimit-" + name
	return Fields{Unit: unit, Limit: prefix + "-Limit", Remaining: prefix + "-Remaining", Reset: prefix + "-Reset"}
}
