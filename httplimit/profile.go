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
	// Fills is true for a quota that comes back bit by bit, as a bucket does: Reset is when all of it is there again,
	// and the first of it is there after Reset/Limit, so that a refusal stops nobody until Reset.
	Fills bool
}

// Profile describes how one upstream reports its limits: the answers that refuse a request for the rate, and
// the fields that hold quotas. All profiles read
//
//   - 429 as policy.Throttled, and so 403, 413 and 418 that demand a wait (see RetryAfter);
//   - 400 and above as policy.Throttled if X-Amzn-Errortype, X-Amzn-Query-Error or X-Ms-Error-Code names a
//     throttling error (ThrottlingException, ServerBusy), or if X-Envoy-RateLimited is there;
//   - 503 as policy.Unavailable, and so 500 and above that demand a wait;
//   - the wait that these demand, and the fields RateLimit and RateLimit-Policy of the IETF's httpapi draft,
//     versions 07 to 11, with the parameters r or a, and t or w.
//
// The zero value is ready and reads only these. A Profile is safe for use by many goroutines. Do not change
// or copy it once it is used.
type Profile struct {
	// Throttled are statuses that refuse a request for the rate, besides 429.
	Throttled []int
	// Suspect are statuses that refuse for the rate only if they demand a wait, or with a spent quota.
	// GitHub's 403 is one.
	Suspect []int
	// Unavailable are statuses of an upstream that cannot serve now, besides 503.
	Unavailable []int
	// Quotas are the fields to read. If several count the same unit, the first one to bind is kept: the one
	// with the least Remaining/Limit. If these are equal, it is the one with the longest Reset, and then
	// the first in this list. The members of RateLimit count too, as if they were at the front of the list.
	// Units beyond the first policy.MaxQuotas are dropped.
	Quotas []Fields
	// Judge may look at the whole answer. If it returns true, its feedback counts in place of all that the fields above
	// say, with a RetryAfter within 0 and 24 hours. Feedback for another status is a good start: p.Feedback(429,
	// resp.Header, time.Time{}). With false the other fields of the profile judge. It is called by Transport, for a
	// policy that learns, and by FeedbackOf; not by Feedback, nor by Middleware, and not for an answer from a cache.
	//
	// It may read the body with PeekBody, and must leave it as it was. The request's caller waits meanwhile,
	// and its permit is held. So it must read few bytes, and only of answers that end soon: an error has its
	// reason in the first 4 KiB, and a stream may never have so many. It must not close the body, and not
	// keep the answer. It is called from many goroutines at a time. Should it panic, the answer is closed.
	Judge func(*http.Response) (policy.Feedback, bool)

	once sync.Once
	rows []Fields // Quotas with canonical names
}

// Feedback returns the feedback for a policy from an answer with this status and these fields. garbage is the number
// of its fields and parameters that could not be read. They are ignored, and the rest of the answer counts.
//
// A refusal's RetryAfter is that of the function RetryAfter. If that has none, it is the time until all spent
// quotas are renewed, or begin to be (Fields.Fills), those of RateLimit before all others. A time without a
// number of remaining requests counts if no quota is spent. RetryAfter is at most 24 hours. Answers that are
// no refusals have none.
//
// If an answer comes from a cache (Age above 0), only the status counts. A zero now means the present.
func (p *Profile) Feedback(status int, h http.Header, now time.Time) (f policy.Feedback, garbage int) {
	f.Outcome = p.outcome(status)
	if cached(h) {
		return f, 0
	}
	if f.Outcome != policy.Throttled && status >= http.StatusBadRequest && namesThrottling(h) {
		f.Outcome = policy.Throttled
	}
	r := reader{header: h, now: now}
	r.read(p.canonical(), f.Outcome == policy.Throttled)
	f.Quotas = r.quotas
	success := f.Outcome == policy.Success
	suspect, told := slices.Contains(p.Suspect, status), ifToldToWait(status)
	if success && !suspect && told == policy.Success {
		return f, r.garbage
	}
	pause, said := r.wait()
	switch {
	case success && suspect && (said || r.spent):
		f.Outcome = policy.Throttled
	case success && said:
		f.Outcome = told
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
//	github.com, ghe.com                        403 may be a refusal, by its body too; so may 200
//	gitlab.com
//	discord.com, discordapp.com
//	reddit.com
//	openai.com, openai.azure.com               units "" and "tokens"
//	anthropic.com                              units "", "tokens", "input-tokens" and "output-tokens"; 529
//	atlassian.com, atlassian.net, bitbucket.org
//	myshopify.com
//	slack.com
//	stripe.com
//	amazonaws.com, amazonaws.com.cn, api.aws   400 and 503 may be refusals by their body, as 509 is
//	googleapis.com                             403 may be a refusal by its body; retryDelay
//	telegram.org                               retry_after in the body
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
	{"discord.com", xRateLimit}, {"discordapp.com", xRateLimit},
	{"reddit.com", xRateLimit},
	{"openai.com", openAI}, {"openai.azure.com", openAI},
	{"anthropic.com", anthropic},
	{"atlassian.com", xRateLimit}, {"atlassian.net", xRateLimit}, {"bitbucket.org", xRateLimit},
	{"myshopify.com", shopify},
	{"slack.com", retryAfterAlone}, {"stripe.com", retryAfterAlone},
	{"amazonaws.com", aws}, {"amazonaws.com.cn", aws}, {"api.aws", aws},
	{"googleapis.com", google}, {"telegram.org", telegram},
}

// The profiles, each with the fields that its vendor is known for.
var (
	// A first limit is refused with 403 or 429 and nothing left, a secondary one with Retry-After, also with
	// 200, or with a sentence alone. Then a minute is to be waited.
	github = judgedByBody(&Profile{Suspect: []int{403}, Quotas: []Fields{family("X-RateLimit")}},
		`secondary rate limit|abuse detection`, ``, time.Minute, 200, 403, 429)
	gitlab = &Profile{Quotas: []Fields{family("RateLimit")}} // Reset is epoch seconds
	// Reset is an instant with decimals (Discord), seconds from now (Reddit), or has no seconds (Atlassian).
	xRateLimit = &Profile{Quotas: []Fields{family("X-RateLimit")}}
	// Reset is a Go duration; -1 and 0 stand for what is not known.
	openAI = &Profile{Quotas: []Fields{
		filled("", "requests"), filled("tokens", "tokens"),
		filled("tokens", "tokens_usage_based"), filled("tokens", "project-tokens"),
	}}
	// Reset is RFC 3339; 529 is an upstream that is overloaded.
	anthropic       = &Profile{Unavailable: []int{529}, Quotas: anthropicFields}
	shopify         = &Profile{Quotas: []Fields{{Used: "X-Shopify-Shop-Api-Call-Limit"}}}
	retryAfterAlone = &Profile{}
	anyUpstream     = &Profile{Quotas: everyField()}
	// DynamoDB and others name the error in JSON, EC2, S3, IAM and others in XML. Some hosts are a customer's.
	aws = judgedByBody(&Profile{Throttled: []int{509}, Quotas: everyField()},
		`(?:<Code>|"(?:__type|[Cc]ode)"\s*:\s*"(?:[^"#]*#)?)(?:`+strings.Join(throttlingCodes, "|")+`)[<"]`,
		``, 0, 400, 503)
	google = judgedByBody(&Profile{},
		`"(?:(?:user|sharing)?[rR]ateLimitExceeded|dailyLimitExceeded|quotaExceeded|RATE_LIMIT_EXCEEDED)"`,
		`"retryDelay"\s*:\s*"([0-9.]+s)"`, 0, 403, 429)
	telegram = judgedByBody(&Profile{}, ``, `"retry_after"\s*:\s*([0-9.]+)`, 0, 429)
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
		filled("", "requests"), filled("tokens", "tokens"),
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

// filled is a quota as OpenAI names it, whose reset is "the time until the rate limit resets to its initial state".
func filled(unit, name string) Fields {
	f := perUnit(unit, name)
	f.Fills = true
	return f
}

// perUnit is a quota named by what it counts.
func perUnit(unit, name string) Fields {
	return Fields{
		Unit: unit, Limit: "X-RateLimit-Limit-" + name,
		Remaining: "X-RateLimit-Remaining-" + name, Reset: "X-RateLimit-Reset-" + name,
	}
}

// unitFirst is a quota as Anthropic names it. Its reset is when it "will be fully replenished".
func unitFirst(unit, name string) Fields {
	prefix := "Anthropic-RateLimit-" + name
	return Fields{Unit: unit, Fills: true,
		Limit: prefix + "-Limit", Remaining: prefix + "-Remaining", Reset: prefix + "-Reset"}
}
