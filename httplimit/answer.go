package httplimit

import (
	"bytes"
	"cmp"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// FeedbackOf is Feedback for a whole answer that has just come: Judge is asked too. It may replace the
// answer's body, as PeekBody does.
func (p *Profile) FeedbackOf(resp *http.Response) (f policy.Feedback, garbage int) {
	f, garbage = p.Feedback(resp.StatusCode, resp.Header, time.Time{})
	if p.Judge != nil && !cached(resp.Header) {
		if own, judged := p.Judge(resp); judged {
			own.RetryAfter = min(max(own.RetryAfter, 0), maxRetryAfter)
			return own, garbage
		}
	}
	return f, garbage
}

// PeekBody returns what the body of an answer starts with, up to n bytes and 64 KiB, for Profile.Judge. Whoever
// reads the body later gets these bytes too. PeekBody waits until so many bytes, the end or an error have come,
// as long as the request's context lasts. Without a body, and for 101 Switching Protocols, it returns
// nothing. A body that net/http has not decompressed is returned as it is.
func PeekBody(resp *http.Response, n int) []byte {
	if resp.Body == nil || resp.Body == http.NoBody || resp.StatusCode == http.StatusSwitchingProtocols {
		return nil
	}
	n = min(n, maxBuffer)
	text, err := io.ReadAll(io.LimitReader(resp.Body, int64(n)))
	if err == nil && len(text) < n {
		err = io.EOF
	}
	resp.Body = &replayed{bytes.NewReader(text), resp.Body, err}
	return text
}

// ifToldToWait is the outcome of an answer that demands a wait, if its status alone means nothing. 403 is
// GitHub's, 413 Rackspace's, 418 Binance's. A client that gets 404 or 409 with a wait is to repeat just that.
func ifToldToWait(status int) policy.Outcome {
	switch {
	case status == http.StatusForbidden, status == http.StatusRequestEntityTooLarge, status == http.StatusTeapot:
		return policy.Throttled
	case status >= http.StatusInternalServerError:
		return policy.Unavailable
	}
	return policy.Success
}

// throttlingCodes are the errors of AWS and Azure that refuse for the rate, as their SDKs have them. Those of
// AWS that ask for another request to end first are not among them.
var throttlingCodes = []string{
	"Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled", "RequestThrottledException",
	"TooManyRequests", "TooManyRequestsException", "RequestLimitExceeded", "LimitExceededException",
	"ProvisionedThroughputExceededException", "BandwidthLimitExceeded", "EC2ThrottledException", "SlowDown",
	"ServerBusy",
}

// namesThrottling reports whether a field says that an error is a refusal for the rate. AWS has a URL or the
// blame behind the code, and may have a name space before it.
func namesThrottling(h http.Header) bool {
	for _, name := range [...]string{"X-Amzn-Errortype", "X-Amzn-Query-Error", "X-Ms-Error-Code"} {
		if lines := h[name]; len(lines) > 0 {
			code := lines[0]
			if i := strings.IndexAny(code, ":;,"); i >= 0 {
				code = code[:i]
			}
			code = code[strings.LastIndexByte(code, '#')+1:]
			if slices.Contains(throttlingCodes, strings.Trim(code, " \t")) {
				return true
			}
		}
	}
	return len(h["X-Envoy-Ratelimited"]) > 0
}

// maxPeek is how much is read of the body of an error. The codes stand at its beginning, behind a sentence.
const maxPeek = 4096

// judgedByBody completes a profile whose upstream says in the bodies of answers with these statuses that it
// refuses, or for how long. 429 refuses without a word, and 200 with Retry-After. A body is waited for only if the
// head leaves something open: a policy should hear of a refusal soon. One that names no wait has the least one.
func judgedByBody(p *Profile, refusal, wait string, least time.Duration, statuses ...int) *Profile {
	refuses, waits := regexp.MustCompile(refusal), regexp.MustCompile(wait)
	p.Judge = func(resp *http.Response) (policy.Feedback, bool) {
		ok := resp.StatusCode == http.StatusOK
		if !slices.Contains(statuses, resp.StatusCode) || ok && len(resp.Header["Retry-After"]) == 0 {
			return policy.Feedback{}, false
		}
		head, _ := p.Feedback(resp.StatusCode, resp.Header, time.Time{})
		f, _ := p.Feedback(http.StatusTooManyRequests, resp.Header, time.Time{})
		if ok {
			demanded, _ := RetryAfter(resp.Header, time.Time{})
			return f, demanded > 0
		}
		refused := head.Outcome == policy.Throttled
		if refused && head.RetryAfter > 0 {
			return head, true
		}
		var text []byte
		if !refused || wait != "" {
			text = PeekBody(resp, maxPeek)
		}
		if !refused && !refuses.Match(text) {
			return policy.Feedback{}, false
		}
		if said := waits.FindSubmatch(text); len(said) > 1 {
			d, _ := new(reader).waitIn(string(said[1]), time.Second)
			f.RetryAfter = max(f.RetryAfter, d)
		}
		f.RetryAfter = cmp.Or(f.RetryAfter, least)
		return f, true
	}
	return p
}
