package proxy

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/golang-jwt/jwt/v5"

	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/internal/files"
)

// maxKeyFile bounds the file of a public key, in bytes. One of RSA with 16,384 bits has about 3,000.
const maxKeyFile = 64 << 10

// maxPlan bounds the name of a plan, as the limiter does.
const maxPlan = 64

type verification struct {
	settings config.JWT
	text     string // of the key
	key      any
	parser   *jwt.Parser
}

func readVerification(c config.JWT) (*verification, error) {
	text, _, err := files.Read(context.Background(), c.KeyFile, maxKeyFile)
	if err != nil {
		return nil, err
	}
	key, methods, err := parseKey(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.KeyFile, err)
	}
	parser := jwt.NewParser(jwt.WithValidMethods(methods), jwt.WithStrictDecoding(), jwt.WithoutClaimsValidation())
	return &verification{settings: c, text: string(text), key: key, parser: parser}, nil
}

// parseKey reads a public key, and returns the algorithms that go with it: no token chooses another.
func parseKey(text []byte) (key any, methods []string, err error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, nil, errors.New("there is no PEM block")
	}
	switch block.Type {
	case "PUBLIC KEY":
		key, err = x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		key, err = x509.ParsePKCS1PublicKey(block.Bytes)
	default:
		return nil, nil, fmt.Errorf("a block %q, want PUBLIC KEY", block.Type)
	}
	if err != nil {
		return nil, nil, err
	}
	switch k := key.(type) {
	case *rsa.PublicKey:
		return key, []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}, nil
	case ed25519.PublicKey:
		return key, []string{"EdDSA"}, nil
	case *ecdsa.PublicKey:
		if method := ecdsaMethods[k.Curve]; method != "" {
			return key, []string{method}, nil
		}
	}
	return nil, nil, fmt.Errorf("a key of type %T cannot verify tokens", key)
}

var ecdsaMethods = map[elliptic.Curve]string{
	elliptic.P256(): "ES256", elliptic.P384(): "ES384", elliptic.P521(): "ES512",
}

// String is all that decides which tokens are valid.
func (v *verification) String() string { return fmt.Sprintf("%q %q", v.settings, v.text) }

// plan reads the plan of a request from a claim of its bearer token. A name that no plan has is none.
func (v *verification) plan(claim string) func(*http.Request) string {
	read := v.claim(claim)
	return func(r *http.Request) string {
		if plan := read(r); len(plan) <= maxPlan {
			return plan
		}
		return ""
	}
}

// claim reads a claim of a request's bearer token that is a text. Without a token that is valid now, and without the
// claim, it is "".
func (v *verification) claim(name string) func(*http.Request) string {
	return func(r *http.Request) string {
		lines := r.Header["Authorization"]
		if len(lines) != 1 { // which one the upstream reads is not known
			return ""
		}
		scheme, token, _ := strings.Cut(lines[0], " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return ""
		}
		claims := v.claims(strings.TrimSpace(token))
		text, _ := claims[name].(string)
		if !v.valid(claims, time.Now()) {
			return ""
		}
		return text
	}
}

// claims are those of a token that the key verifies; nil for any other. An extension that must be understood ("crit",
// RFC 7515) is refused: none is known here, and none takes effect by itself.
func (v *verification) claims(text string) jwt.MapClaims {
	var claims strictClaims
	token, err := v.parser.ParseWithClaims(text, &claims, func(*jwt.Token) (any, error) { return v.key, nil })
	if err != nil {
		return nil
	}
	_, critical := token.Header["crit"]
	if _, unencoded := token.Header["b64"]; critical || unencoded { // RFC 7797: b64 is nothing without crit
		return nil
	}
	return claims.MapClaims
}

// strictClaims are JSON in which no name comes twice: which one another reader takes is not known.
type strictClaims struct{ jwt.MapClaims }

// UnmarshalJSON reads the claims for the parser.
func (c *strictClaims) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, (*map[string]any)(&c.MapClaims))
}

// valid reports whether claims are of the issuer, for the audience, and in force. Times are compared as the numbers
// that they are in a token: any may be there, such as 0 or 1e300, and nothing but a number (RFC 7519).
func (v *verification) valid(claims jwt.MapClaims, now time.Time) bool {
	if v.settings.Issuer != "" && claims["iss"] != v.settings.Issuer {
		return false
	}
	if v.settings.Audience != "" {
		if all, err := claims.GetAudience(); err != nil || !slices.Contains(all, v.settings.Audience) {
			return false
		}
	}
	at := float64(now.UnixNano()) / 1e9
	exp, ok := instant(claims, "exp", math.Inf(1))
	nbf, ok2 := instant(claims, "nbf", math.Inf(-1))
	_, ok3 := instant(claims, "iat", 0)
	return ok && ok2 && ok3 && nbf <= at && at < exp
}

// instant is a time among claims, which must be a number where it is there.
func instant(claims jwt.MapClaims, name string, otherwise float64) (float64, bool) {
	is, found := claims[name]
	if !found {
		return otherwise, true
	}
	n, ok := is.(float64)
	return n, ok
}
