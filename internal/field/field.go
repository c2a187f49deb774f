// Package field knows names of HTTP fields: which can hold what a request is limited by.
package field

import (
	"net/textproto"
	"strings"
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

// secrets are parts of the names, without marks, of fields that hold secrets.
var secrets = []string{
	"authorization", "cookie", "token", "secret", "password", "apikey", "authkey", "accesskey", "subscriptionkey",
}

// Secret reports whether a field holds a secret, by its name: Authorization, X-API-Key.
func Secret(name string) bool {
	bare := strings.Map(func(c rune) rune {
		if strings.ContainsRune("-_.", c) {
			return -1
		}
		return c
	}, strings.ToLower(name))
	for _, part := range secrets {
		if strings.Contains(bare, part) {
			return true
		}
	}
	return false
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
