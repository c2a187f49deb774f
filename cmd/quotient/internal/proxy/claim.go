package proxy

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/golang-jwt/jwt/v5"

	"github.com/quotient-go/quotient/config"
)

// maxPlan bounds the name of a plan, as the limiter does.
const maxPlan = 64

// verification reads claims of tokens by the keys in force.
type verification struct {
	settings config.JWT
	keys     *atomic.Pointer[keySet]
}

func readVerification(c config.JWT) (*verification, error) {
	set, err := readKeys(context.Background(), c.KeyFile)
	if err != nil {
		return nil, err
	}
	v := &verification{settings: c, keys: new(atomic.Pointer[keySet])}
	v.keys.Store(set)
	return v, nil
}

// parser leaves to the keys which of the methods a token may have.
var parser = jwt.NewParser(jwt.WithValidMethods(methods), jwt.WithStrictDecoding(), jwt.WithoutClaimsValidation())

// String is all that decides which tokens are valid, but for the keys, which may change at any time.
func (v *verification) String() string { return fmt.Sprintf("%q", v.settings) }

// join takes the place of the verification before it. One with the same settings goes on with the keys that were read
// last, since routes that stay have it.
func (v *verification) join(old *verification) {
	if v != nil && old != nil && v.settings == old.settings {
		old.keys.Store(v.keys.Load())
		v.keys = old.keys
	}
}

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

// claims are those of a token that a key verifies; nil for any other. An extension that must be understood ("crit",
// RFC 7515) is refused: none is known here, and none takes effect by itself.
func (v *verification) claims(text string) jwt.MapClaims {
	var claims strictClaims
	token, err := parser.ParseWithClaims(text, &claims, v.keys.Load().of)
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
