package httplimit

import (
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quotient-go/quotient/internal/field"
	"github.com/quotient-go/quotient/internal/tested"
	"github.com/quotient-go/quotient/policy"
)

// addAll adds inputs of one string to a fuzz target.
func addAll(f *testing.F, inputs ...string) {
	for _, input := range inputs {
		f.Add(input)
	}
}

// FuzzCanonicalPath checks that the form is a fixed point, that it looks as Path documents, and that other
// spellings of a path lead to the same form.
func FuzzCanonicalPath(f *testing.F) {
	addAll(f, "", "/", "/a/b", "//a/./b/../", "/A;x/%61", "/a/..;/b", "/É/ß\xff", "*", ";", "/../..", "/a\\b",
		"/a/b/", "/İ/K/Σς", "/.../..a/.b", "/a\xc3/\x89", "/\ufffd", "/ /\t", "/a\x00b", "/;", "a/b")
	f.Fuzz(func(t *testing.T, p string) {
		want := CanonicalPath(p)
		tested.Want(t, fmt.Sprintf("%q, twice", p), CanonicalPath(want), want)
		if want[0] != '/' || strings.Contains(want, "//") || strings.ContainsAny(want, ";") ||
			len(want) > 1 && strings.HasSuffix(want, "/") {
			t.Fatalf("%q becomes %q, which is not canonical", p, want)
		}
		for segment := range strings.SplitSeq(want, "/") {
			if segment == "." || segment == ".." {
				t.Fatalf("%q becomes %q, with a dot segment", p, want)
			}
		}
		for _, v := range []string{"/" + p, p + "/", p + "/.", "/./" + p, p + "/x/..", p + ";v=1", "/../" + p,
			strings.ReplaceAll(p, "/", "//"), strings.ReplaceAll(p, "/", "/./")} {
			tested.Want(t, fmt.Sprintf("%q and its variant %q", p, v), CanonicalPath(v), want)
		}
		u, err := url.ParseRequestURI("/" + percent(p))
		tested.Must(t, err)
		tested.Want(t, fmt.Sprintf("%q becomes %q: percent-encoded", p, want), Path()(&http.Request{URL: u}), own(want))
	})
}

// FuzzRetryAfter compares numbers with exact arithmetic, in each field, and holds the range of everything else. A
// further line never makes the wait shorter.
func FuzzRetryAfter(f *testing.F) {
	const date = "Sun, 06 Nov 1994 08:49:37 GMT"
	for i, v := range slices.Sorted(maps.Keys(saidWaits)) {
		f.Add(uint8(0), v, date, "", "2")
		f.Add(uint8(i), v, "", "0", "soon")
	}
	f.Add(uint8(0), "1", "", "7", "")
	f.Add(uint8(7), "1", date, "-7", "9")
	f.Add(uint8(8), "soon", "tomorrow", "old", "-1")
	f.Fuzz(func(t *testing.T, field uint8, value, date, age, other string) {
		w := waits[int(field)%len(waits)]
		h := http.Header{w.name: {value}, "Date": {date}, "Age": {age}}
		d, ok := RetryAfter(h, time.Unix(784111777, 0))
		if d < 0 || d > maxRetryAfter || !ok && d != 0 {
			t.Fatalf("%q: %v, %v", value, d, ok)
		}
		h[w.name] = []string{other, value}
		if more, still := RetryAfter(h, time.Unix(784111777, 0)); more < d || ok && !still {
			t.Fatalf("%q: %v, and %v beside %q", value, d, more, other)
		}
		value = strings.Trim(value, " \t")
		if !ok || strings.Trim(value, "0123456789.") != "" {
			return
		}
		want, _ := new(big.Rat).SetString("0" + value)
		if w.unit == time.Second && want.Cmp(big.NewRat(firstInstant, 1)) >= 0 {
			return // an instant
		}
		want.Mul(want, big.NewRat(int64(w.unit), 1))
		if most := new(big.Rat).SetInt64(int64(maxRetryAfter)); want.Cmp(most) > 0 {
			want = most
		}
		over := new(big.Rat).Sub(new(big.Rat).SetInt64(int64(d)), want)
		if over.Sign() < 0 || over.Cmp(big.NewRat(1, 1)) >= 0 {
			t.Fatalf("%q: %v, which is %s ns too long", value, d, over.FloatString(12))
		}
	})
}

// FuzzForwardedFor checks that the header cannot move the key of a peer that is not trusted. The part left
// of the client's address, as that was written by the trusted proxy, cannot either.
func FuzzForwardedFor(f *testing.F) {
	addAll(f, "", "9.9.9.9", "6.6.6.6, 10.0.0.1", "unknown", "::ffff:10.0.0.1,", "[2001:db8::1]:80", "10.0.0.1", ",,,",
		"fe80::1%z", "[9.9.9.9", "09.9.9.9", "0x9.9.9.9", "9.9", ":80", `"9.9.9.9"`, " \t, 9.9.9.9 ,",
		"9.9.9.9, fd00::1", "\xff,9.9.9.9", "10.0.0.1,10.0.0.2")
	trusted := prefixes("10.0.0.0/8", "fd00::/8")
	key := ClientAddr(trusted...)
	f.Fuzz(func(t *testing.T, header string) {
		ask := func(peer string, lines ...string) string {
			return key(&http.Request{RemoteAddr: peer, Header: http.Header{"X-Forwarded-For": lines}})
		}
		if got := ask("203.0.113.9:1", header); got != "203.0.113.9" {
			t.Fatalf("a stranger's header %q moved its key to %q", header, got)
		}
		for _, got := range []string{
			ask("10.0.0.1:1", header+", 203.0.113.9"), ask("10.0.0.1:1", header, "203.0.113.9"),
			ask("[::ffff:10.0.0.1]:1", header, "::ffff:203.0.113.9,10.2.3.4"),
		} {
			tested.Want(t, fmt.Sprintf("the key of a client that wrote %q", header), got, "203.0.113.9")
		}
		got := ask("10.0.0.1:1", header)
		if joined := ask("10.0.0.1:1", strings.Split(header, ",")...); joined != got {
			t.Fatalf("%q as one line is %q, as many %q", header, got, joined)
		}
		if !isKeyOfAddr(got) {
			t.Fatalf("%q gives the key %q, which is no address", header, got)
		}
	})
}

// isKeyOfAddr reports whether key is an IPv4 address or an IPv6 /64, unmapped
// and without a zone.
func isKeyOfAddr(key string) bool {
	if addr, err := netip.ParseAddr(key); err == nil {
		return addr.Is4()
	}
	prefix, err := netip.ParsePrefix(key)
	return err == nil && prefix.Bits() == ipv6Bits && prefix == prefix.Masked() && !prefix.Addr().Is4In6()
}

// FuzzHost checks that the form is a fixed point, of bounded length, coarser for servers than for clients, and
// that no spelling of a host gives it another key.
func FuzzHost(f *testing.F) {
	addAll(f, "", "example.com", "Example.COM.:443", "h:8080", "h:08080", "[::1]:80", "::1", "a:80:80", "a..", "h::",
		"É\xff", "]:80", ".:80", ":0]:", "a:80.", ":A", "a:80x.", "\u212a", "\x00", "[fe80::1%25z]:80", "[.", "0::.",
		strings.Repeat("X", maxKey), long[:maxKey+1])
	key := Host()
	f.Fuzz(func(t *testing.T, h string) {
		ask := func(h string) string { return key(&http.Request{RequestURI: "/", Host: h}) }
		want := ask(h)
		if len(want) > maxKey {
			t.Fatalf("%q gives a key of %d bytes", h, len(want))
		}
		if strings.HasPrefix(want, "sha256:") {
			return // of what is too long; a hash has no spellings
		}
		tested.Want(t, fmt.Sprintf("%q, twice", h), ask(want), want)
		asked := key(&http.Request{URL: &url.URL{Host: h}})
		if got := ask(asked); got != want && !strings.HasPrefix(asked, "sha256:") {
			t.Fatalf("%q is %q to a server, and %q to a client, which is %q to a server", h, want, asked, got)
		}
		variants := []string{strings.ToLower(h)}
		lower, back := strings.ToLower(h), strings.ToLower(strings.ToUpper(h))
		if back == lower { // some letters do not come back
			variants = append(variants, strings.ToUpper(h))
		}
		if takesPort(want) {
			variants = append(variants, want+":80", want+":8443", want+":", want+":x")
		}
		if !strings.ContainsAny(want, ":]") {
			variants = append(variants, want+".", want+".:443")
		}
		for _, v := range variants {
			tested.Want(t, fmt.Sprintf("%q and its variant %q", h, v), ask(v), want)
		}
	})
}

// FuzzHeader checks that a key comes from the one field alone, is what stands there, has a bounded length,
// and is no other value's.
func FuzzHeader(f *testing.F) {
	for _, v := range []string{
		"", "token", "Token", " a ", "sha256:00", own(long), bound(long),
		strings.Repeat("x", maxKey), strings.Repeat("x", maxKey+1), "\x00\xff",
	} {
		f.Add(v, "other")
		f.Add(own(v), v)
		f.Add(hashed(v, ownHash), v)
	}
	f.Add("203.0.113.9", "10.0.0.1, 203.0.113.9")
	key := Header("x-TENANT")
	f.Fuzz(func(t *testing.T, value, other string) {
		got := key(&http.Request{Header: http.Header{"X-Tenant": {value}}})
		if len(got) > maxKey || got != value && len(value) <= maxKey && !strings.HasPrefix(value, "sha256:") {
			t.Fatalf("%q gives the key %q", value, got)
		}
		if missing := key(&http.Request{Header: http.Header{"X-Other": {value}}}); bound(got) != got || missing != "" {
			t.Fatalf("the key %q is hashed again, or that of no field is %q", got, missing)
		}
		noise := http.Header{"X-Tenant": {value, other}, "X-Tenant-2": {other}, "X-Forwarded-For": {other}}
		if again := key(&http.Request{Header: noise, RemoteAddr: other, Host: other}); again != got {
			t.Fatalf("%q gives the key %q, and %q beside %q", value, got, again, other)
		}
		hashes := []string{got, own(got), bound(value), hashed(other, ownHash), hashed(other, boundHash)}
		for _, other := range append(hashes, other) {
			if value != other && (own(other) == got || bound(other) == bound(value)) {
				t.Fatalf("%q and %q share a key", value, other)
			}
		}
	})
}

// FuzzCredential checks that a key shows nothing of the credential, and that other spellings do not change it.
func FuzzCredential(f *testing.F) {
	addAll(f, "", "Bearer abc", "Basic YW5uOnc=", "eyJ.eyJ.AA", "a\tb c", "\u00a0", "K\u212a \xff", "Basic \xff", "ey.. ")
	f.Fuzz(func(t *testing.T, value string) {
		want := CredentialKey(value)
		if want != noCredential && len(want) != len(credentialForm)+32 {
			t.Fatalf("%q gives the key %q", value, want)
		}
		variants := []string{" " + value + "\u00a0", value + "\x85\t"}
		if scheme, token, ok := strings.Cut(strings.Trim(value, " "), " "); ok && field.IsName(scheme) && isToken68(token) && token != "" {
			variants = append(variants, strings.ToUpper(scheme)+" \t"+token+" more", strings.ToLower(scheme)+" "+token)
		}
		for _, v := range variants {
			tested.Want(t, fmt.Sprintf("%q and its variant %q: the key", value, v), CredentialKey(v), want)
		}
	})
}

// lines is a header as lines of text, and back.
func lines(h http.Header) string {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(h)) {
		for _, value := range h[name] {
			text.WriteString(name + ": " + value + "\n")
		}
	}
	return text.String()
}

func headerOf(text string) http.Header {
	h := http.Header{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		h.Add(name, strings.Trim(value, " \t"))
	}
	return h
}

// sound fails unless feedback keeps what Profile.Feedback promises.
func sound(t *testing.T, f policy.Feedback) {
	t.Helper()
	if f.Outcome != policy.Success && f.Outcome != policy.Throttled && f.Outcome != policy.Unavailable {
		t.Fatalf("the outcome is %v", f.Outcome)
	}
	if f.RetryAfter < 0 || f.RetryAfter > maxRetryAfter || f.Outcome == policy.Success && f.RetryAfter != 0 {
		t.Fatalf("%v with a pause of %v", f.Outcome, f.RetryAfter)
	}
	units := map[string]bool{}
	for _, q := range f.Quotas {
		if q == (policy.Quota{}) {
			continue
		}
		if !q.Known() || q.Remaining > q.Limit || q.Limit > maxAmount || q.Reset < 0 || q.Reset > maxReset {
			t.Fatalf("the quota %+v", q)
		}
		if len(q.Unit) > maxUnit || units[q.Unit] {
			t.Fatalf("the unit %q, after %v", q.Unit, units)
		}
		units[q.Unit] = true
	}
}

// FuzzFeedback holds the ranges of what any answer means. It also checks that an answer means the same each
// time and beside other fields, and that one from a cache says nothing of its own.
func FuzzFeedback(f *testing.F) {
	for _, e := range zoo(f) {
		f.Add(e.host, e.status, lines(e.header), e.body)
	}
	for _, text := range []string{
		"Age: 7\nRetry-After: 5\n", "Date: \xff\nX-Ratelimit-Reset: 1795276830\n", "Ratelimit: \"a\\\"b\n",
		"Ratelimit: limit=(100 200), remaining=50, reset=5\n", "Ratelimit: (\"default\");r=50;t=30\n",
		"Ratelimit: limit=100\nRatelimit: remaining=50\n", "x-ratelimit-limit: 1\n: 5\nX-Ratelimit-Remaining:\n",
		"Retry-After: 9223372037\nX-Ratelimit-Limit: 99999999999999999999\nX-Ratelimit-Remaining: 0\n",
		"X-Ratelimit-Remaining: 0\nX-Ratelimit-Reset: Fri, 31 Dec 9999 23:59:59 GMT\n" +
			"Date: Mon, 01 Jan 0001 00:00:00 GMT\n",
	} {
		f.Add("h", 429, text, "")
		f.Add("telegram.org", 429, text, `"retry_after": 9223372037`)
	}
	f.Fuzz(func(t *testing.T, host string, status int, text, body string) {
		p, h := ProfileFor(host), headerOf(text)
		before := lines(h)
		got, garbage := p.Feedback(status, h, zooTime)
		sound(t, got)
		tested.Want(t, "the header", lines(h), before)
		if most := len(before); garbage < 0 || garbage > most {
			t.Fatalf("garbage %d in %d bytes", garbage, most)
		}
		h.Set("X-Other", "5")
		if again, n := p.Feedback(status, h, zooTime); again != got || n != garbage {
			t.Fatalf("%+v, garbage %d, and then %+v, garbage %d", got, garbage, again, n)
		}
		resp := &http.Response{StatusCode: status, Header: h, Body: newBody(body)}
		whole, n := p.FeedbackOf(resp)
		sound(t, whole)
		if left := readAll(t, resp.Body); left != body || n != garbage {
			t.Fatalf("the body became %q, garbage %d and then %d", left, garbage, n)
		}
		h.Set("Age", "1")
		stale, n := p.Feedback(status, h, zooTime)
		if n != 0 || stale != (policy.Feedback{Outcome: p.outcome(status)}) {
			t.Fatalf("from a cache: %+v, garbage %d", stale, n)
		}
	})
}
