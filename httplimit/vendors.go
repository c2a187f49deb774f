package httplimit

import "strings"

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
