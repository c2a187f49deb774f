package httplimit

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strings"
)

// noCredential is the key of requests without a credential, or with several.
const noCredential = "(no credential)"

// credentialForm stands before the hash of a credential.
const credentialForm = "credential:"

// Credential returns a KeyFunc that limits by the secret in a field, such as "Authorization" or "X-API-Key".
// The key is CredentialKey of the value: the secret itself is in no error, log, metric or page. Requests
// without the field, with an empty one, or with several, of which it is not known which one counts, share the
// key "(no credential)". It costs one allocation.
//
// Use it behind something that has checked the credential, or a client has as many quotas as it can invent
// credentials.
//
// Credential panics as Header does for a name that no field can have, and for Cookie, which holds what its
// client likes beside the secret. For a session write a function that returns CredentialKey of that cookie.
func Credential(name string) KeyFunc {
	name = fieldName("Credential", name)
	mustBe(name != "Cookie", "Credential: a client can add what it likes to Cookie: "+
		"use CredentialKey of one cookie's value")
	return func(r *http.Request) string {
		if lines := r.Header[name]; len(lines) == 1 {
			return CredentialKey(lines[0])
		}
		return noCredential
	}
}

// CredentialKey returns the key by which Credential limits a value, for Override, Explain and Reset of a
// limiter, and for key functions that take the secret from elsewhere, such as a cookie. It is "credential:" and
// the first 32 hexadecimal digits of the SHA-256 of the value in one form, so that other spellings have no quota of
// their own:
//
//   - bytes at either end that are not printable ASCII are dropped;
//   - if there are several words, the first is a scheme: it is lowered, one blank and the second word follow,
//     and the rest is dropped, which no credential needs and some servers ignore;
//   - a user and password, after the scheme Basic, stand there decoded;
//   - of a JWT, which begins with "ey" and has three parts, the signature is dropped, of which servers accept many
//     spellings.
//
// "Bearer abc", "bearer abc" and "BEARER  abc" are one key, which `printf %s 'bearer abc' | sha256sum` prints too.
// All replicas have the same keys, so there is no salt: who sees a key can try what a guessable password would give.
// An empty value is "(no credential)".
func CredentialKey(value string) string {
	var room [512]byte
	text := appendCredential(room[:0], value)
	if len(text) == 0 {
		return noCredential
	}
	sum := sha256.Sum256(text)
	var key [len(credentialForm) + sha256.Size]byte
	copy(key[:], credentialForm)
	hex.Encode(key[len(credentialForm):], sum[:sha256.Size/2])
	return string(key[:])
}

// appendCredential appends the form that CredentialKey documents.
func appendCredential(to []byte, value string) []byte {
	value = strings.TrimFunc(value, func(c rune) bool { return c <= ' ' || c > '~' })
	token := value
	if i := strings.IndexAny(value, " \t"); i >= 0 {
		scheme := value[:i]
		token = strings.TrimLeft(value[i:], " \t")
		if i := strings.IndexAny(token, " \t"); i >= 0 {
			token = token[:i]
		}
		for i := range len(scheme) {
			c := scheme[i]
			if 'A' <= c && c <= 'Z' {
				c += 'a' - 'A'
			}
			to = append(to, c)
		}
		to = append(to, ' ')
		if string(to) == "basic " {
			return appendDecoded(to, token)
		}
	}
	if strings.HasPrefix(token, "ey") && strings.Count(token, ".") == 2 {
		token = token[:strings.LastIndexByte(token, '.')]
	}
	return append(to, token...)
}

// appendDecoded decodes Base64. Padding and bytes of no meaning are passed over, as the most lenient decoders do.
func appendDecoded(to []byte, text string) []byte {
	kept := make([]byte, 0, 512)
	for i := range len(text) {
		if c := text[i]; isBase64(c) {
			kept = append(kept, c)
		}
	}
	if len(kept)%4 == 1 {
		kept = kept[:len(kept)-1]
	}
	to, _ = base64.RawStdEncoding.AppendDecode(to, kept) // it holds nothing else
	return to
}

func isBase64(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '+' || c == '/'
}
