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
// Use it behind something that has checked the credential, or a client has as many quotas as it can invent credentials.
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

// CredentialKey returns the key by which Credential limits a value, for Override, Explain and Reset of a limiter, and
// for key functions that take the secret from elsewhere, such as a cookie. It is "credential:" and the first 32
// hexadecimal digits of the SHA-256 of the value in one form, so that other spellings have no quota of their own:
//
//   - bytes that are not printable ASCII divide words;
//   - if there are several words, the first is a scheme: it is lowered, one blank and the second word follow,
//     and the rest is dropped, which some servers ignore;
//   - a user and password, after the scheme Basic, stand there decoded;
//   - of a JWT, which begins with "ey" and has three parts, the signature is dropped, of which servers accept many
//     spellings.
//
// "Bearer abc", "bearer abc" and "BEARER  abc" are one key, which `printf %s 'bearer abc' | sha256sum` prints too.
// All replicas have the same keys, so there is no salt: who sees a key can try what a guessable password would give.
// "(no credential)" is the key of an empty value, of Base64 that is wrong, and of schemes whose credential is a list
// of parameters, such as Digest and OAuth 1: a client can write those in many ways.
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
	value = strings.TrimFunc(value, isBlank)
	token := value
	if i := strings.IndexFunc(value, isBlank); i >= 0 {
		token = strings.TrimLeftFunc(value[i:], isBlank)
		if end := strings.IndexFunc(token, isBlank); end >= 0 {
			token = token[:end]
		}
		if !isToken68(token) {
			return nil
		}
		for _, c := range []byte(value[:i]) {
			if 'A' <= c && c <= 'Z' {
				c += 'a' - 'A'
			}
			to = append(to, c)
		}
		if to = append(to, ' '); string(to) == "basic " {
			to, err := base64.RawStdEncoding.AppendDecode(to, []byte(strings.TrimRight(token, "=")))
			if err != nil {
				return nil
			}
			return to
		}
	}
	if strings.HasPrefix(token, "ey") && strings.Count(token, ".") == 2 {
		token = token[:strings.LastIndexByte(token, '.')]
	}
	return append(to, token...)
}

func isBlank(c rune) bool { return c <= ' ' || c > '~' }

// isToken68 reports whether a word is the one token of a scheme (RFC 9110, 11.2), and no parameter.
func isToken68(word string) bool {
	return !strings.ContainsFunc(strings.TrimRight(word, "="), func(c rune) bool {
		alphanumeric := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		return !alphanumeric && !strings.ContainsRune("-._~+/", c)
	})
}
