package proxy

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/quotient-go/quotient/config"
)

// TestKeys: which requests share a quota of one.
func TestKeys(t *testing.T) {
	type ask []string // path and fields
	for _, row := range []struct {
		key           string
		first, second ask
		shared        bool
	}{
		{"path", ask{"/a"}, ask{"/a"}, true},
		{"path", ask{"/a"}, ask{"/b"}, false},
		{"pattern", ask{"/a"}, ask{"/b"}, true},
		{"client", ask{"/a"}, ask{"/b"}, true},
		{"client", ask{"/a", "X-Forwarded-For", "192.0.2.1"},
			ask{"/a", "X-Forwarded-For", "192.0.2.2"}, false},
		{"client", ask{"/a", "X-Forwarded-For", "192.0.2.1"},
			ask{"/a", "X-Forwarded-For", "192.0.2.7, ::ffff:192.0.2.1"}, true},
		{"client", ask{"/a", "X-Forwarded-For", "2001:db8::1"},
			ask{"/a", "X-Forwarded-For", "2001:db8::2"}, true},
		{"host", ask{"/a", "Host", "a.host"}, ask{"/a", "Host", "A.host.:80"}, true},
		{"host", ask{"/a", "Host", "a.host"}, ask{"/a", "Host", "b.host"}, false},
		{"header:X-API-Key", ask{"/a", "X-Api-Key", "1"}, ask{"/b", "X-Api-Key", "1"}, true},
		{"header:X-API-Key", ask{"/a", "X-Api-Key", "1"}, ask{"/a", "X-Api-Key", "2"}, false},
		{"constant:all", ask{"/a"}, ask{"/b", "Host", "b.host"}, true},
	} {
		w := newWorld(t, "[proxy]\nupstreams = [\"UPSTREAM\"]\ntrusted = [\"127.0.0.0/8\"]"+strict+all+
			fmt.Sprintf("key = %q\n", row.key), ok)
		resp, _ := w.get(row.first[0], row.first[1:]...)
		want(t, "status of the first", resp.StatusCode, 200)
		resp, _ = w.get(row.second[0], row.second[1:]...)
		want(t, fmt.Sprint(row.key, row.first, row.second, " share a quota"), resp.StatusCode == 429,
			row.shared)
	}
}

// TestClientIsNotBelieved: without trust the peer is the client, whatever it writes.
func TestClientIsNotBelieved(t *testing.T) {
	w := newWorld(t, strict+all+"key = \"client\"\n", ok)
	for i := range 3 {
		resp, _ := w.get("/", "X-Forwarded-For", fmt.Sprintf("192.0.2.%d", i))
		want(t, "refused", resp.StatusCode == 429, i > 0)
	}
}

const paid = `
[limiters.all.plans.paid]
rates = [{ name = "hour", events = 1000, per = "1h" }]
`

// TestPlanOfAHeader: a header names the plan only if a trusted peer has set it.
func TestPlanOfAHeader(t *testing.T) {
	for _, row := range []struct {
		trusted, plan string
		second        int
	}{
		{"127.0.0.0/8", "paid", 200}, {"127.0.0.0/8", "unknown", 429}, {"127.0.0.0/8", "", 429},
		{"10.0.0.0/8", "paid", 429},
	} {
		w := newWorld(t, fmt.Sprintf("[proxy]\nupstreams = [\"UPSTREAM\"]\ntrusted = [%q]\n", row.trusted)+
			strict+paid+all+
			"plan = \"header:X-Plan\"\n", ok)
		w.get("/", "X-Plan", row.plan)
		resp, _ := w.get("/", "X-Plan", row.plan)
		want(t, fmt.Sprintf("second of plan %q, %s is trusted,", row.plan, row.trusted), resp.StatusCode,
			row.second)
	}
}

// keyFile writes a public key.
func keyFile(t testing.TB, public crypto.PublicKey) string {
	t.Helper()
	text, err := x509.MarshalPKIXPublicKey(public)
	must(t, err)
	name := filepath.Join(t.TempDir(), "key.pem")
	must(t, os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: text}), 0o600))
	return name
}

// TestPlanOfAClaim: only a token that the key verifies, and that is valid now, names the plan.
func TestPlanOfAClaim(t *testing.T) {
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	name := keyFile(t, own.Public())
	text, err := os.ReadFile(name)
	must(t, err)
	v, err := readVerification(config.JWT{KeyFile: name, Issuer: "us", Audience: "api"})
	must(t, err)
	plan := v.plan("plan")
	now := time.Now()
	claims := func(change ...any) jwt.MapClaims {
		c := jwt.MapClaims{"plan": "paid", "iss": "us", "aud": "api", "exp": now.Add(time.Hour).Unix()}
		for i := 0; i < len(change); i += 2 {
			c[change[i].(string)] = change[i+1]
			if change[i+1] == nil {
				delete(c, change[i].(string))
			}
		}
		return c
	}
	sign := func(m jwt.SigningMethod, key any, c jwt.MapClaims) string {
		s, err := jwt.NewWithClaims(m, c).SignedString(key)
		must(t, err)
		return s
	}
	valid := sign(jwt.SigningMethodES256, own, claims())
	for what, row := range map[string]struct {
		lines []string
		want  string
	}{
		"valid":          {[]string{"Bearer " + valid}, "paid"},
		"lower case":     {[]string{"bearer  " + valid}, "paid"},
		"no token":       {nil, ""},
		"another scheme": {[]string{"Basic " + valid}, ""},
		"two lines":      {[]string{"Bearer " + valid, "Bearer " + valid}, ""},
		"another key":    {[]string{"Bearer " + sign(jwt.SigningMethodES256, other, claims())}, ""},
		"no algorithm": {[]string{"Bearer " +
			sign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, claims())}, ""},
		"key as a secret": {[]string{"Bearer " + sign(jwt.SigningMethodHS256, text, claims())}, ""},
		"expired": {[]string{"Bearer " +
			sign(jwt.SigningMethodES256, own, claims("exp", now.Add(-time.Minute).Unix()))}, ""},
		"not yet": {[]string{"Bearer " +
			sign(jwt.SigningMethodES256, own, claims("nbf", now.Add(time.Minute).Unix()))}, ""},
		"another issuer": {[]string{"Bearer " + sign(jwt.SigningMethodES256, own, claims("iss", "them"))},
			""},
		"another audience": {[]string{"Bearer " + sign(jwt.SigningMethodES256, own, claims("aud", "them"))},
			""},
		"no such claim": {[]string{"Bearer " + sign(jwt.SigningMethodES256, own, claims("plan", nil))}, ""},
		"claim is a number": {[]string{"Bearer " + sign(jwt.SigningMethodES256, own, claims("plan", 7))},
			""},
		"claim is very long": {[]string{"Bearer " +
			sign(jwt.SigningMethodES256, own, claims("plan", strings.Repeat("a", 65)))}, ""},
		"cut off": {[]string{"Bearer " + valid[:len(valid)-2]}, ""},
	} {
		r := &http.Request{Header: http.Header{"Authorization": row.lines}}
		want(t, "plan: "+what, plan(r), row.want)
	}
	w := newWorld(t, strict+paid+all+"plan = \"claim:plan\"\n"+
		fmt.Sprintf("[proxy.jwt]\nkey-file = %q\n", name), ok)
	for range 3 {
		resp, _ := w.get("/", "Authorization", "Bearer "+valid)
		want(t, "status", resp.StatusCode, 200)
	}
	w.get("/")
	resp, _ := w.get("/")
	want(t, "status without a token", resp.StatusCode, 429)
}

// TestKeyFiles: which keys verify tokens.
func TestKeyFiles(t *testing.T) {
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	e, _, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	for _, public := range []crypto.PublicKey{r.Public(), e} {
		_, err := readVerification(config.JWT{KeyFile: keyFile(t, public)})
		must(t, err)
	}
	dir := t.TempDir()
	for text, wanted := range map[string]string{
		"": "there is no PEM block",
		"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n": "want PUBLIC KEY",
		strings.Repeat("a", maxKeyFile+1):                                "longer than 65536 bytes",
	} {
		name := filepath.Join(dir, "key.pem")
		must(t, os.WriteFile(name, []byte(text), 0o600))
		if _, err := readVerification(config.JWT{KeyFile: name}); err == nil ||
			!strings.Contains(err.Error(), wanted) {
			t.Errorf("the error is %v, want one with %q", err, wanted)
		}
	}
	if _, err := readVerification(config.JWT{KeyFile: filepath.Join(dir, "none")}); err == nil {
		t.Error("a file that is not there was read")
	}
}

// BenchmarkClaim is what a bearer token costs.
func BenchmarkClaim(b *testing.B) {
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(b, err)
	v, err := readVerification(config.JWT{KeyFile: keyFile(b, own.Public())})
	must(b, err)
	token, err := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{"plan": "paid"}).SignedString(own)
	must(b, err)
	plan := v.plan("plan")
	r := &http.Request{Header: http.Header{"Authorization": {"Bearer " + token}}}
	b.ReportAllocs()
	for b.Loop() {
		if plan(r) != "paid" {
			b.Fatal("no plan")
		}
	}
}
