package proxy

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/golang-jwt/jwt/v5"

	"github.com/quotient-go/quotient/config"
)

// octets are bytes of a member of a JWK, the first of which is 1.
func octets(n int) string {
	return base64.RawURLEncoding.EncodeToString(slices.Repeat([]byte{1}, n))
}

// jwks is the text of a JWKS. Members that are empty are not there.
func jwks(keys ...jwk) string {
	text, err := json.Marshal(map[string][]jwk{"keys": keys}, json.OmitZeroStructFields(true))
	if err != nil {
		panic(err)
	}
	return string(text)
}

// jwkOf is the public part of a key that signs.
func jwkOf(key any, id string) jwk {
	text := base64.RawURLEncoding.EncodeToString
	switch k := key.(type) {
	case *rsa.PrivateKey:
		return jwk{Kty: "RSA", Kid: id, N: text(k.N.Bytes()), E: text(big.NewInt(int64(k.E)).Bytes())}
	case *ecdsa.PrivateKey:
		point, err := k.PublicKey.Bytes()
		if err != nil {
			panic(err)
		}
		half := (len(point) - 1) / 2
		return jwk{Kty: "EC", Kid: id, Crv: k.Params().Name, X: text(point[1 : 1+half]), Y: text(point[1+half:])}
	case ed25519.PrivateKey:
		return jwk{Kty: "OKP", Kid: id, Crv: "Ed25519", X: text(k.Public().(ed25519.PublicKey))}
	}
	return jwk{Kty: "oct", Kid: id, K: text(key.([]byte))}
}

// asking is a request with a token of the plan "paid". Without an id the token has no kid.
func asking(t testing.TB, method jwt.SigningMethod, key, id any) *http.Request {
	t.Helper()
	token := jwt.NewWithClaims(method, jwt.MapClaims{"plan": "paid"})
	if id != nil {
		token.Header["kid"] = id
	}
	text, err := token.SignedString(key)
	must(t, err)
	return &http.Request{Header: http.Header{"Authorization": {"Bearer " + text}}}
}

// TestTokensOfAJWKS: a token is verified by the keys of its kid and its algorithm, and by no other.
func TestTokensOfAJWKS(t *testing.T) {
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	curve := func(c elliptic.Curve) *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(c, rand.Reader)
		must(t, err)
		return k
	}
	e1, e2, e3, other := curve(elliptic.P256()), curve(elliptic.P384()), curve(elliptic.P521()), curve(elliptic.P256())
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	secret, short := bytes.Repeat([]byte("s"), 64), bytes.Repeat([]byte("t"), 32)
	only, enc, verify, sign := jwkOf(r, "only"), jwkOf(e1, "enc"), jwkOf(e1, "verify"), jwkOf(e1, "sign")
	only.Alg, enc.Use, verify.Use = "PS256", "enc", "sig"
	verify.Ops, sign.Ops = &[]string{"sign", "verify"}, &[]string{"sign"}
	file := filepath.Join(t.TempDir(), "keys.json")
	must(t, os.WriteFile(file, []byte(" \n"+jwks(jwkOf(r, "r"), jwkOf(e1, "e1"), jwkOf(e2, "e2"), jwkOf(e3, "e3"),
		jwkOf(ed, "ed"), jwkOf(secret, "oct"), jwkOf(short, "short"), jwkOf(other, "e1"), only, enc, verify, sign,
		jwk{Kty: "new", Kid: "r"}, jwkOf(curve(elliptic.P256()), ""))), 0o600))
	v, err := readVerification(config.JWT{KeyFile: file})
	must(t, err)
	text := []byte(jwkOf(r, "").N)
	modulus := r.N.Bytes()
	rs, es := jwt.SigningMethodRS256, jwt.SigningMethodES256
	for what, row := range map[string]struct {
		method  jwt.SigningMethod
		key, id any
		want    string
	}{
		"RS256": {rs, r, "r", "paid"}, "RS512": {jwt.SigningMethodRS512, r, "r", "paid"},
		"PS384": {jwt.SigningMethodPS384, r, "r", "paid"}, "ES256": {es, e1, "e1", "paid"},
		"ES384": {jwt.SigningMethodES384, e2, "e2", "paid"}, "ES512": {jwt.SigningMethodES512, e3, "e3", "paid"},
		"EdDSA": {jwt.SigningMethodEdDSA, ed, "ed", "paid"}, "HS256": {jwt.SigningMethodHS256, secret, "oct", "paid"},
		"HS384":                   {jwt.SigningMethodHS384, secret, "oct", "paid"},
		"HS512":                   {jwt.SigningMethodHS512, secret, "oct", "paid"},
		"another key of the kid":  {es, other, "e1", "paid"},
		"no kid":                  {es, other, nil, "paid"},
		"an empty kid":            {es, other, "", "paid"},
		"kid of another":          {es, e1, "e2", ""},
		"kid of another kind":     {es, e1, "r", ""},
		"unknown kid":             {es, e1, "x", ""},
		"kid is a number":         {es, e1, 1, ""},
		"kid is a list":           {rs, r, []any{nil}, ""},
		"the one alg":             {jwt.SigningMethodPS256, r, "only", "paid"},
		"another alg than said":   {rs, r, "only", ""},
		"a key of encryption":     {es, e1, "enc", ""},
		"a key that verifies":     {es, e1, "verify", "paid"},
		"a key that signs":        {es, e1, "sign", ""},
		"a short secret":          {jwt.SigningMethodHS256, short, "short", "paid"},
		"too short a secret":      {jwt.SigningMethodHS512, short, "short", ""},
		"none":                    {jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "r", ""},
		"modulus as a secret":     {jwt.SigningMethodHS256, modulus, "r", ""},
		"modulus, no kid":         {jwt.SigningMethodHS256, modulus, nil, ""},
		"member as a secret":      {jwt.SigningMethodHS256, text, "r", ""},
		"Ed25519 key as a secret": {jwt.SigningMethodHS256, []byte(ed.Public().(ed25519.PublicKey)), "ed", ""},
	} {
		want(t, "plan: "+what, v.plan("plan")(asking(t, row.method, row.key, row.id)), row.want)
	}
}

// TestKeysRotate: a set that has changed counts without a reload, once it was found twice. A bad one leaves the old
// keys in force, and the log has that once. A reload counts at once, also for rules that stay.
func TestKeysRotate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file, secrets := filepath.Join(t.TempDir(), "keys.json"), [][]byte{}
		for i := range 3 {
			secrets = append(secrets, bytes.Repeat([]byte{byte('a' + i)}, 32))
		}
		write := func(text string) { must(t, os.WriteFile(file, []byte(text), 0o600)) }
		set := func(i int) string { return jwks(jwkOf(secrets[i], fmt.Sprint(i))) }
		write(set(0))
		f, err := config.Parse("q.toml", fmt.Appendf(nil, "[proxy]\nupstreams = [\"http://h\"]\n"+
			"jwt.key-file = %q\n%s%s%s",
			file, loose, all, "key = \"claim:plan\"\n"))
		must(t, err)
		var log bytes.Buffer
		w := &world{t: t, proxy: New(nil, nil, slog.New(slog.NewTextHandler(&log, nil)))}
		w.proxy.now.Store(&table{}) // without a rule
		commit := func() {
			next, err := newTable(f)
			must(t, err)
			next.tokens.join(w.proxy.now.Load().tokens)
			w.proxy.now.Store(next)
		}
		commit()
		v := w.proxy.now.Load().tokens
		valid := func(what string, want int) {
			t.Helper()
			for i, secret := range secrets {
				is := v.plan("plan")(asking(t, jwt.SigningMethodHS256, secret, nil)) == "paid"
				if is != (i == want) {
					t.Errorf("%s: key %d verifies: %v, want key %d", what, i, is, want)
				}
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.proxy.Watch(ctx) }()
		pass := func(seconds time.Duration) { time.Sleep(seconds * time.Second); synctest.Wait() }
		pass(3)
		valid("at first", 0)
		write(set(1))
		pass(1)
		valid("seen once", 0)
		pass(1)
		valid("seen twice", 1)
		for _, bad := range []string{"{", `{"keys":[]}`, ""} {
			write(bad)
			pass(5)
			valid("bad", 1)
		}
		must(t, os.Remove(file))
		pass(5)
		valid("removed", 1)
		write(set(2))
		commit()
		valid("a reload", 2)
		pass(5)
		write(set(0))
		pass(2)
		valid("after a reload", 0)
		cancel()
		must(t, <-ended)
		want(t, "errors in the log", strings.Count(log.String(), "level=ERROR"), 4)
		want(t, "changes in the log", strings.Count(log.String(), "read again"), 2)
	})
}

// FuzzKeys: no file makes the parser panic, and all keys that it takes are strong, and have algorithms of their kind.
func FuzzKeys(f *testing.F) {
	r := jwk{Kty: "RSA", Kid: "a", Use: "sig", N: octets(256) + "AAAA", E: "AQAB"}
	for _, text := range []string{
		"", "{", `{"keys":[]}`, `{"keys":null}`, jwks(r), jwks(r, jwk{Kty: "oct", K: octets(64), Alg: "HS512"}),
		jwks(jwk{Kty: "OKP", Crv: "Ed25519", X: octets(32)}),
		jwks(jwk{Kty: "EC", Crv: "P-521", X: octets(66), Y: octets(66)}),
		"-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=" +
			"\n-----END PUBLIC KEY-----\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		keys, err := parseKeys(text)
		if err != nil {
			return
		}
		if len(keys) == 0 || len(keys) > maxKeys {
			t.Errorf("%d keys", len(keys))
		}
		for _, k := range keys {
			kind := ""
			switch key := k.key.(type) {
			case *rsa.PublicKey:
				if kind = "RP"; key.N.BitLen() < 2048 || key.E < 3 {
					t.Errorf("an RSA key of %d bits, %d", key.N.BitLen(), key.E)
				}
			case *ecdsa.PublicKey, ed25519.PublicKey:
				kind = "E"
			case []byte:
				if kind = "H"; len(key) < 32 {
					t.Errorf("a secret of %d bytes", len(key))
				}
			}
			wrong := func(method string) bool { return !strings.ContainsRune(kind, rune(method[0])) }
			if len(k.methods) == 0 || slices.ContainsFunc(k.methods, wrong) {
				t.Errorf("%T with %q", k.key, k.methods)
			}
		}
	})
}
