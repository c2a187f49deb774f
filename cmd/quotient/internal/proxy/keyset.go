package proxy

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/golang-jwt/jwt/v5"

	"github.com/quotient-go/quotient/internal/files"
)

const (
	maxKeyFile  = 1 << 20     // bytes of the file of keys
	maxKeys     = 64          // in it: a token without kid is tried with each
	lookEvery   = time.Second // at the file
	leastRSA    = 2048        // bits
	mostRSA     = 16384
	leastSecret = 32 // bytes: as many as a SHA-256 has (RFC 7518, 3.2)
)

// keySet is what was made of a file of keys.
type keySet struct {
	sum  [sha256.Size]byte // of the text
	keys []tokenKey
}

// tokenKey verifies the tokens of some algorithms: no token chooses another.
type tokenKey struct {
	id      string // "": tokens of any kid may be of it
	methods []string
	key     any
}

// methods are all algorithms that a key may verify.
var methods = []string{
	"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "HS256", "HS384", "HS512",
}

func readKeys(ctx context.Context, file string) (*keySet, error) {
	text, _, err := files.Read(ctx, file, maxKeyFile)
	if err != nil {
		return nil, err
	}
	keys, err := parseKeys(text)
	if err != nil {
		err = fmt.Errorf("%s: %w", file, err)
	}
	return &keySet{sum: sha256.Sum256(text), keys: keys}, err
}

// of returns the keys that a token may be signed with.
func (s *keySet) of(token *jwt.Token) (any, error) {
	named, found := token.Header["kid"]
	id, ok := named.(string)
	if found && !ok {
		return nil, errors.New("kid is no text")
	}
	var fit jwt.VerificationKeySet
	for _, k := range s.keys {
		if (id == "" || k.id == "" || k.id == id) && slices.Contains(k.methods, token.Method.Alg()) {
			fit.Keys = append(fit.Keys, k.key)
		}
	}
	return fit, nil // the parser refuses one without keys
}

// parseKeys reads a JWKS (RFC 7517), or a public key.
func parseKeys(text []byte) ([]tokenKey, error) {
	if bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) {
		return parseJWKS(text)
	}
	key, err := parsePEM(text)
	if err != nil {
		return nil, err
	}
	with, err := methodsOf(key)
	return []tokenKey{{methods: with, key: key}}, err
}

func parsePEM(text []byte) (any, error) {
	block, _ := pem.Decode(text)
	switch {
	case block == nil:
		return nil, errors.New("there is no PEM block, and no JWKS")
	case block.Type == "PUBLIC KEY":
		return x509.ParsePKIXPublicKey(block.Bytes)
	case block.Type == "RSA PUBLIC KEY":
		return x509.ParsePKCS1PublicKey(block.Bytes)
	}
	return nil, fmt.Errorf("a block %q, want PUBLIC KEY", block.Type)
}

// methodsOf are the algorithms that go with a key.
func methodsOf(key any) ([]string, error) {
	switch k := key.(type) {
	case *rsa.PublicKey:
		if n := k.N.BitLen(); n < leastRSA || n > mostRSA {
			return nil, fmt.Errorf("an RSA key of %d bits, want %d to %d", n, leastRSA, mostRSA)
		}
		if k.E < 3 || k.E%2 == 0 {
			return nil, fmt.Errorf("an RSA key with the exponent %d", k.E)
		}
		return methods[:6], nil
	case *ecdsa.PublicKey:
		for i, curve := range curves {
			if k.Curve == curve.is {
				return methods[6+i : 7+i], nil
			}
		}
	case ed25519.PublicKey:
		return methods[9:10], nil
	case []byte:
		if len(k) < leastSecret {
			return nil, fmt.Errorf("a secret of %d bytes, want %d at least", len(k), leastSecret)
		}
		return methods[10:min(10+(len(k)-16)/16, len(methods))], nil // HS384 has 48 bytes, HS512 64
	}
	return nil, fmt.Errorf("a key of type %T cannot verify tokens", key)
}

// curves are in the order of their methods.
var curves = []struct {
	name string
	is   elliptic.Curve
}{{"P-256", elliptic.P256()}, {"P-384", elliptic.P384()}, {"P-521", elliptic.P521()}}

// jwk is one key of a JWKS. What else it may have decides nothing.
type jwk struct {
	Kty string    `json:"kty"`
	Use string    `json:"use"`
	Ops *[]string `json:"key_ops"`
	Alg string    `json:"alg"`
	Kid string    `json:"kid"`
	Crv string    `json:"crv"`
	N   string    `json:"n"`
	E   string    `json:"e"`
	X   string    `json:"x"`
	Y   string    `json:"y"`
	K   string    `json:"k"`
	D   string    `json:"d"`
}

// parseJWKS leaves out the keys that are not for signatures of tokens, as RFC 7517 asks for. Any other must be whole.
// Without one that is left the file cannot be meant.
func parseJWKS(text []byte) (all []tokenKey, err error) {
	var set struct {
		Keys []jwk `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, err
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("%d keys are more than %d", len(set.Keys), maxKeys)
	}
	for i, k := range set.Keys {
		key, err := k.read()
		if err != nil {
			return nil, fmt.Errorf("keys[%d], kid %.64q: %w", i, k.Kid, err)
		}
		if key.key != nil {
			all = append(all, key)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("there is no key in \"keys\" that verifies signatures")
	}
	return all, nil
}

// read makes a key of a JWK; none of one that is not for signatures of tokens.
func (k jwk) read() (tokenKey, error) {
	none := tokenKey{}
	known := k.Alg == "" || slices.Contains(methods, k.Alg)
	if !known || k.Use != "" && k.Use != "sig" || k.Ops != nil && !slices.Contains(*k.Ops, "verify") {
		return none, nil
	}
	key, err := k.key()
	if key == nil || err != nil {
		return none, err
	}
	if k.D != "" {
		return none, errors.New("it is a private key, want the public part alone")
	}
	with, err := methodsOf(key)
	switch {
	case err != nil:
		return none, err
	case k.Alg == "":
	case !slices.Contains(with, k.Alg):
		return none, fmt.Errorf("alg %s does not go with the key", k.Alg)
	default:
		with = []string{k.Alg}
	}
	return tokenKey{id: k.Kid, methods: with, key: key}, nil
}

// key is what the members of a kind hold; nil for a kind that is not known.
func (k jwk) key() (any, error) {
	var parts [2][]byte
	for i, text := range map[string][]string{"RSA": {k.N, k.E}, "EC": {k.X, k.Y}, "OKP": {k.X}, "oct": {k.K}}[k.Kty] {
		var err error
		if parts[i], err = base64.RawURLEncoding.Strict().DecodeString(text); err != nil || text == "" {
			return nil, errors.New("a member is missing, or not in base64url")
		}
	}
	first, second := parts[0], parts[1]
	switch k.Kty {
	case "RSA":
		if e := new(big.Int).SetBytes(second); e.BitLen() < 32 {
			return &rsa.PublicKey{N: new(big.Int).SetBytes(first), E: int(e.Int64())}, nil
		}
		return nil, errors.New("an RSA key with an exponent above 31 bits")
	case "EC":
		for _, curve := range curves {
			if size := (curve.is.Params().BitSize + 7) / 8; curve.name != k.Crv {
				continue
			} else if len(first) != size || len(second) != size {
				return nil, fmt.Errorf("a point of %s has twice %d bytes", k.Crv, size)
			}
			return ecdsa.ParseUncompressedPublicKey(curve.is, slices.Concat([]byte{4}, first, second))
		}
	case "OKP":
		if k.Crv == "Ed25519" && len(first) != ed25519.PublicKeySize {
			return nil, fmt.Errorf("a key of Ed25519 has %d bytes", ed25519.PublicKeySize)
		} else if k.Crv == "Ed25519" {
			return ed25519.PublicKey(first), nil
		}
	case "oct":
		return first, nil
	}
	return nil, nil
}

// rotation is what the looks at the file of keys have found.
type rotation struct {
	seen [sha256.Size]byte // by the last one
	said string            // the error that the log has
}

// Watch looks at the file of the keys of tokens until ctx ends, each second, and takes what it has found the same
// twice. While that is no file of keys, the old ones stay.
func (p *Proxy) Watch(ctx context.Context) error {
	every := time.NewTicker(lookEvery)
	defer every.Stop()
	for {
		select {
		case <-every.C:
			if t := p.now.Load(); t != nil && t.tokens != nil {
				p.look(ctx, t.tokens)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

func (p *Proxy) look(ctx context.Context, v *verification) {
	old, r := v.keys.Load(), &p.rotation
	next, err := readKeys(ctx, v.settings.KeyFile)
	if ctx.Err() != nil {
		return
	}
	if next != nil {
		before := r.seen
		r.seen = next.sum
		if next.sum == old.sum {
			r.said = ""
			return
		}
		if next.sum != before { // it may not be all there yet
			return
		}
	}
	if err != nil {
		if text := err.Error(); text != r.said {
			r.said = text
			p.log.Error("the keys of tokens stay as they were", "error", text)
		}
		return
	}
	if v.keys.CompareAndSwap(old, next) { // else a reload was faster
		r.said = ""
		p.log.Info("the keys of tokens were read again", "file", v.settings.KeyFile, "keys", len(next.keys))
	}
}
