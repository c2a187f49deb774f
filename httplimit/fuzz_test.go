package httplimit

import (
	"math/big"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"
)

// FuzzCanonicalPath holds that the form is a fixed point, that it looks as Path
// documents, and that other spellings of a path lead to the same form.
func FuzzCanonicalPath(f *testing.F) {
	for _, p := range []string{"", "/", "/a/b", "//a/./b/../", "/A;x/%61", "/a/..;/b", "/É/ß\xff", "*", ";"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p string) {
		want := canonicalPath(p)
		if again := canonicalPath(want); again != want {
			t.Fatalf("%q becomes %q becomes %q", p, want, again)
		}
		if want[0] != '/' || strings.Contains(want, "//") || strings.ContainsAny(want, ";") || len(want) > 1 && strings.HasSuffix(want, "/") {
			t.Fatalf("%q becomes %q, which is not canonical", p, want)
		}
		for segment := range strings.SplitSeq(want, "/") {
			if segment == "." || segment == ".." {
				t.Fatalf("%q becomes %q, with a dot segment", p, want)
			}
		}
		for _, v := range []string{"/" + p, p + "/", p + "/.", "/./" + p, p + "/x/..", p + ";v=1", "/../" + p, strings.ReplaceAll(p, "/", "//"), strings.ReplaceAll(p, "/", "/./")} {
			if got := canonicalPath(v); got != want {
				t.Fatalf("%q becomes %q, but its variant %q becomes %q", p, want, v, got)
			}
		}
		u, err := url.ParseRequestURI("/" + percent(p))
		if err != nil {
			t.Fatal(err)
		}
		if got := Path()(&http.Request{URL: u}); got != bound(want) {
			t.Fatalf("%q becomes %q, but percent-encoded %q", p, want, got)
		}
	})
}

// FuzzRetryAfter compares numbers with exact arithmetic, and holds the range of
// everything else.
func FuzzRetryAfter(f *testing.F) {
	const date = "Sun, 06 Nov 1994 08:49:37 GMT"
	for _, v := range []string{"", "0", "120", "2.5", "1.0000000001", "-1", "9223372037", "1e9", "Sun, 06 Nov 1994 08:51:07 GMT", "Fri, 31 Dec 9999 23:59:59 GMT", "soon"} {
		f.Add(v, date, "")
	}
	f.Add("1", "", "7")
	f.Fuzz(func(t *testing.T, value, date, age string) {
		h := http.Header{"Retry-After": {value}, "Date": {date}, "Age": {age}}
		d, ok := RetryAfter(h, time.Unix(784111777, 0))
		if d < 0 || d > maxRetryAfter || !ok && d != 0 {
			t.Fatalf("%q: %v, %v", value, d, ok)
		}
		value = strings.Trim(value, " \t")
		if !ok || strings.Trim(value, "0123456789.") != "" {
			return
		}
		want, _ := new(big.Rat).SetString("0" + value)
		want.Mul(want, big.NewRat(int64(time.Second), 1))
		if most := new(big.Rat).SetInt64(int64(maxRetryAfter)); want.Cmp(most) > 0 {
			want = most
		}
		over := new(big.Rat).Sub(new(big.Rat).SetInt64(int64(d)), want)
		if over.Sign() < 0 || over.Cmp(big.NewRat(1, 1)) >= 0 {
			t.Fatalf("%q: %v, which is %s ns too long", value, d, over.FloatString(12))
		}
	})
}

// FuzzForwardedFor holds that the header cannot move the key of a peer that is
// not trusted, and that what stands left of the client's address, as that was
// written by the trusted proxy, cannot either.
func FuzzForwardedFor(f *testing.F) {
	for _, v := range []string{"", "9.9.9.9", "6.6.6.6, 10.0.0.1", "unknown", "::ffff:10.0.0.1,", "[2001:db8::1]:80", "10.0.0.1", ",,,", "fe80::1%z"} {
		f.Add(v)
	}
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
			if got != "203.0.113.9" {
				t.Fatalf("a client wrote %q and got the key %q", header, got)
			}
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
	return err == nil && prefix.Bits() == clientBits && prefix == prefix.Masked() && !prefix.Addr().Is4In6()
}
