// Package field knows names of HTTP fields: which can hold what a request is limited by.
package field

import (
	"net/textproto"
	"slices"
	"strings"
	"unicode/utf8"
)

// IsName reports whether a field may have this name (RFC 9110, 5.6.2).
func IsName(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(c rune) bool {
		return c > '~' || !isAlphanumeric(byte(c)) && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
	})
}

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// Apart reports whether net/http keeps a field elsewhere, so that no request has it among its others.
func Apart(name string) bool {
	switch textproto.CanonicalMIMEHeaderKey(name) {
	case "Host", "Content-Length", "Transfer-Encoding", "Trailer":
		return true
	}
	return false
}

// secrets are how the names of fields that hold secrets end, without marks.
var secrets = []string{
	"authorization", "auth", "bearer", "cookie", "credential", "credentials", "jwt", "jwtassertion", "oidcdata",
	"passwd", "password", "secret", "sessionid", "token",
	"accesskey", "apikey", "authkey", "privatekey", "secretkey", "subscriptionkey",
}

// Secret reports whether a field holds a secret, by its name: Authorization, X-API-Key.
func Secret(name string) bool {
	bare := strings.Map(func(c rune) rune {
		if c < utf8.RuneSelf && isAlphanumeric(byte(c)) {
			return c
		}
		return -1
	}, strings.ToLower(name))
	return slices.ContainsFunc(secrets, func(end string) bool { return strings.HasSuffix(bare, end) })
}

// Alike reports whether two names are one where a server makes variables of them, as CGI and its heirs do:
// letters in upper case, and all marks as "_".
func Alike(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		x, y := a[i], b[i]
		if isAlphanumeric(x) != isAlphanumeric(y) || isAlphanumeric(x) && x|0x20 != y|0x20 {
			return false
		}
	}
	return true
}
