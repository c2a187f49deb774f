package proxy

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/quotient-go/quotient/config"
)

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
	now, none := time.Now(), jwt.UnsafeAllowNoneSignatureType
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
	es256 := func(change ...any) []string {
		return []string{"Bearer " + sign(jwt.SigningMethodES256, own, claims(change...))}
	}
	token := es256()[0]
	// raw signs what no library writes.
	raw := func(header, body string) []string {
		text := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." +
			base64.RawURLEncoding.EncodeToString([]byte(body))
		signature, err := jwt.SigningMethodES256.Sign(text, own)
		must(t, err)
		return []string{"Bearer " + text + "." + base64.RawURLEncoding.EncodeToString(signature)}
	}
	const alg = `"alg":"ES256"`
	head := func(more string) []string {
		return raw("{"+alg+more+"}", `{"plan":"paid","iss":"us","aud":"api"}`)
	}
	body := func(more string) []string {
		return raw("{"+alg+"}", `{"plan":"paid","iss":"us","aud":"api"`+more+`}`)
	}
	for what, row := range map[string]struct {
		lines []string
		want  string
	}{
		"valid":              {[]string{token}, "paid"},
		"lower case":         {[]string{"bearer  " + token[7:]}, "paid"},
		"no token":           {nil, ""},
		"another scheme":     {[]string{"Basic " + token[7:]}, ""},
		"two lines":          {[]string{token, token}, ""},
		"another key":        {[]string{"Bearer " + sign(jwt.SigningMethodES256, other, claims())}, ""},
		"no algorithm":       {[]string{"Bearer " + sign(jwt.SigningMethodNone, none, claims())}, ""},
		"key as a secret":    {[]string{"Bearer " + sign(jwt.SigningMethodHS256, text, claims())}, ""},
		"expired":            {es256("exp", now.Add(-time.Minute).Unix()), ""},
		"not yet":            {es256("nbf", now.Add(time.Minute).Unix()), ""},
		"another issuer":     {es256("iss", "them"), ""},
		"another audience":   {es256("aud", "them"), ""},
		"no such claim":      {es256("plan", nil), ""},
		"claim is a number":  {es256("plan", 7), ""},
		"claim is very long": {es256("plan", strings.Repeat("a", 65)), ""},
		"cut off":            {[]string{token[:len(token)-2]}, ""},
		"one segment more":   {[]string{token + ".a"}, ""},
		"no segment":         {[]string{"Bearer x"}, ""},
		"bits after the end": {[]string{token[:len(token)-1] + string(token[len(token)-1]+1)}, ""},
		"no times":           {body(``), "paid"},
		"header only":        {head(`,"typ":"JWT","kid":"a","cty":"x"`), "paid"},
		"critical":           {head(`,"crit":["exp"]`), ""},
		"critical, empty":    {head(`,"crit":[]`), ""},
		"critical, null":     {head(`,"crit":null`), ""},
		"critical b64":       {head(`,"crit":["b64"],"b64":false`), ""},
		"b64":                {head(`,"b64":false`), ""},
		"algorithm twice":    {head(`,"alg":"none"`), ""},
		"algorithm in case":  {raw(`{"Alg":"ES256"}`, `{"plan":"paid","iss":"us","aud":"api"}`), ""},
		"algorithms":         {raw(`{"alg":["ES256"]}`, `{"plan":"paid","iss":"us","aud":"api"}`), ""},
		"header is null":     {raw(`null`, `{"plan":"paid","iss":"us","aud":"api"}`), ""},
		"no UTF-8":           {body(",\"x\":\"\xff\""), ""},
		"text after the end": {body(`}{"a":1`), ""},
		"exp 0":              {body(`,"exp":0`), ""},
		"exp -0":             {body(`,"exp":-0.0`), ""},
		"exp negative":       {body(`,"exp":-1e300`), ""},
		"exp huge":           {body(`,"exp":1e300`), "paid"},
		"exp beyond":         {body(`,"exp":1e999`), ""},
		"exp a fraction":     {body(`,"exp":4102444800.5`), "paid"},
		"exp text":           {body(`,"exp":"4102444800"`), ""},
		"exp null":           {body(`,"exp":null`), ""},
		"exp true":           {body(`,"exp":true`), ""},
		"exp twice":          {body(`,"exp":4102444800,"exp":4102444801`), ""},
		"nbf 0":              {body(`,"nbf":0`), "paid"},
		"nbf huge":           {body(`,"nbf":1e300`), ""},
		"nbf negative":       {body(`,"nbf":-1e300`), "paid"},
		"nbf text":           {body(`,"nbf":"0"`), ""},
		"nbf null":           {body(`,"nbf":null`), ""},
		"iat 0":              {body(`,"iat":0`), "paid"},
		"iat to come":        {body(`,"iat":4102444800`), "paid"},
		"iat text":           {body(`,"iat":"0"`), ""},
		"plan twice":         {body(`,"plan":"paid"`), ""},
		"audiences":          {es256("aud", []string{"them", "api"}), "paid"},
		"audience a number":  {es256("aud", []any{"api", 1}), ""},
		"issuers":            {es256("iss", []string{"us"}), ""},
		"no issuer":          {es256("iss", nil), ""},
		"no audience":        {es256("aud", nil), ""},
	} {
		r := &http.Request{Header: http.Header{"Authorization": row.lines}}
		want(t, "plan: "+what, plan(r), row.want)
	}
	w := newWorld(t, strict+paid+all+"plan = \"claim:plan\"\n"+
		fmt.Sprintf("[proxy.jwt]\nkey-file = %q\n", name), ok)
	for range 3 {
		resp, _ := w.get("/", "Authorization", token)
		want(t, "status", resp.StatusCode, 200)
	}
	w.get("/")
	resp, _ := w.get("/")
	want(t, "status without a token", resp.StatusCode, 429)
	resp, _ = w.get("/", "Authorization", token, "Authorization", token)
	want(t, "status with two tokens", resp.StatusCode, 400)
	w = newWorld(t, strict+all+"key = \"claim:plan\"\nor = \"client\"\n"+
		fmt.Sprintf("[proxy.jwt]\nkey-file = %q\n", name), ok)
	for i, row := range []struct {
		token  string
		status int
	}{
		{token, 200}, {token, 429}, {es256("plan", "127.0.0.1")[0], 200},
		{es256("plan", strings.Repeat("a", 300))[0], 200}, {"Bearer x", 200},
		{es256("exp", 0)[0], 429}, {es256("plan", "")[0], 429},
	} {
		resp, _ := w.get("/", "Authorization", row.token)
		want(t, fmt.Sprintf("status of claim %d", i), resp.StatusCode, row.status)
	}
	resp, _ = w.get("/", "Authorization", token, "Authorization", token)
	want(t, "status with two claims", resp.StatusCode, 400)
	for _, jwt := range []config.JWT{{Issuer: "us a", Audience: "b"}, {Issuer: "us", Audience: "a b"}} {
		jwt.KeyFile = name
		w.conf.File().Proxy.JWT = &jwt
		before := w.proxy.now.Load().routes["/"]
		w.reload(w.conf.File())
		want(t, "the rule stays with "+jwt.Issuer, w.proxy.now.Load().routes["/"] == before, false)
	}
}

// TestKeyFiles: which keys verify tokens.
func TestKeyFiles(t *testing.T) {
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	e, _, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	weak := keyFile(t, &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), 1023), E: 3})
	_, err = readVerification(config.JWT{KeyFile: weak})
	if err == nil || !strings.Contains(err.Error(), "of 1024 bits") {
		t.Errorf("the error of a weak key is %v", err)
	}
	for _, public := range []crypto.PublicKey{r.Public(), e} {
		_, err := readVerification(config.JWT{KeyFile: keyFile(t, public)})
		must(t, err)
	}
	dir := t.TempDir()
	for text, wanted := range map[string]string{
		"":             "there is no PEM block, and no JWKS",
		" {":           "unexpected EOF",
		"{}":           "there is no key",
		`{"keys":[]}`:  "there is no key",
		`{"keys":7}`:   "unmarshal JSON number",
		`{"keys":[]}x`: "invalid character",
		`{"keys":[` + strings.Repeat("{},", 64) + "{}]}":                     "65 keys are more than 64",
		`{"keys":[{"kty":"OKP","kid":"a","kid":"b"}]}`:                       `duplicate`,
		`{"keys":[{"kty":"OKP","kid":7}]}`:                                   "unmarshal JSON number",
		"{\"keys\":[{\"kty\":\"oct\",\"k\":\"\xff\"}]}":                      "invalid UTF-8",
		`{"keys":[{"kty":"RSA","kid":"a","n":"AQ"}]}`:                        `keys[0], kid "a": a member is missing`,
		`{"keys":[{"kty":"RSA","n":"AQ=","e":"AQAB"}]}`:                      "not in base64url",
		jwks(jwk{Kty: "RSA", N: octets(255), E: "AQAB"}):                     "an RSA key of 2033 bits, want 2048 to",
		jwks(jwk{Kty: "RSA", N: octets(2049), E: "AQAB"}):                    "bits, want 2048 to 16384",
		jwks(jwk{Kty: "RSA", N: octets(256) + "AAAA", E: "AQ"}):              "with the exponent 1",
		jwks(jwk{Kty: "RSA", N: octets(257), E: "Ag"}):                       "with the exponent 2",
		jwks(jwk{Kty: "EC", Crv: "P-256", X: octets(31), Y: octets(32)}):     "twice 32 bytes",
		jwks(jwk{Kty: "EC", Crv: "P-256", X: octets(32), Y: octets(32)}):     "point not on curve",
		jwks(jwk{Kty: "EC", Crv: "secp256k1", X: octets(32), Y: octets(32)}): "there is no key",
		jwks(jwk{Kty: "OKP", Crv: "Ed25519", X: octets(31)}):                 "has 32 bytes",
		jwks(jwk{Kty: "OKP", Crv: "X25519", X: octets(32)}):                  "there is no key",
		jwks(jwk{Kty: "OKP", Crv: "Ed25519", X: octets(32), D: octets(32)}):  "it is a private key",
		jwks(jwk{Kty: "oct", K: octets(31)}):                                 "a secret of 31 bytes, want 32",
		jwks(jwk{Kty: "oct", K: octets(47), Alg: "HS384"}):                   "alg HS384 does not go with the key",
		jwks(jwk{Kty: "oct", K: octets(47), Alg: "none"}):                    "there is no key",
		jwks(jwk{Kty: "oct", K: octets(47), Use: "enc"}):                     "there is no key",
		jwks(jwk{Kty: "oct", K: octets(47), Ops: &[]string{"sign"}}):         "there is no key",
		jwks(jwk{Kty: "AKP"}):                                                "there is no key",
		"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n":     "want PUBLIC KEY",
		strings.Repeat("a", maxKeyFile+1):                                    "larger than 1048576 bytes",
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
