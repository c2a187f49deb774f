package config

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/quotient-go/quotient/internal/files"
)

// maxSecret bounds a secret, in bytes.
const maxSecret = 4 << 10

// reference stands for a secret in the userinfo of a source.
const reference = `\$\{(?:[A-Za-z_][A-Za-z0-9_]*|file:[^{}]+)\}`

var (
	references = regexp.MustCompile(reference)
	// noSecret is a source whose userinfo holds nothing but a name and references: it is shown as it is.
	noSecret = regexp.MustCompile(`^[^:/?#@$]+:(?://)?` +
		`(?:(?:` + reference + `|[^:/?#@$])*:)?(?:` + reference + `)+@[^@]*$`)
)

// checkSecrets notes references that are none, or are not in the userinfo. It quotes nothing of a source, since a
// literal secret may stand around them.
func (p Pool) checkSecrets(r *report) {
	const stands = "\x00" // for a reference, whose path may have any mark of a URL
	const place = "as redis://user:${NAME}@host"
	bare := references.ReplaceAllLiteralString(p.Source, stands)
	scheme, rest, _ := strings.Cut(bare, ":")
	host := rest[strings.LastIndexByte(rest, '@')+1:]
	switch {
	case strings.Contains(bare, "${"):
		r.hinted("pool.source", "as ${REDIS_PASSWORD} or ${file:/run/secrets/redis}; a ${ of a password is %24%7B",
			"a ${ begins neither ${NAME} nor ${file:PATH}")
	case bare == p.Source:
	case strings.Contains(scheme+host, stands) || strings.ContainsAny(userinfo(rest), "/?#"):
		r.hinted("pool.source", place, "a secret stands elsewhere than before the @ of a host")
	case scheme == "dns" || scheme == "file" || scheme == "env":
		r.hinted("pool.source", place, "%s: takes no secret", scheme)
	}
}

// expanded is the source of a file with the secrets that it refers to, so encoded that they stay in the userinfo.
func (c *Config) expanded(ctx context.Context, f *File) (string, error) {
	r, dir := f.report(), filepath.Dir(f.name)
	text := references.ReplaceAllStringFunc(f.Pool.Source, func(ref string) string {
		if c.noSecrets {
			return "secret"
		}
		value, hint, err := secret(ctx, behind(dir, "file:", ref[len("${"):len(ref)-len("}")]))
		if err != nil {
			r.hinted("pool.source", hint, "%v", err)
		}
		return strings.ReplaceAll(url.QueryEscape(value), "+", "%20")
	})
	return text, r.err()
}

// secret is what a reference stands for. Where there is nothing, hint says where it should be.
func secret(ctx context.Context, ref string) (value, hint string, err error) {
	from, isFile := strings.CutPrefix(ref, "file:")
	if isFile {
		var text []byte
		hint = "put the secret into " + from
		text, _, err = files.Read(ctx, from, maxSecret)
		value = strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	} else {
		var set bool
		hint = "set " + from
		if value, set = os.LookupEnv(from); !set {
			err = fmt.Errorf("the variable %s is not set", from)
		}
	}
	switch {
	case err != nil:
	case value == "":
		err = fmt.Errorf("%s is empty", from)
	case len(value) > maxSecret:
		err = fmt.Errorf("%s is larger than %d bytes", from, maxSecret)
	}
	return value, hint, err
}

// userinfo is what stands before the last @ behind the scheme, with that @; "" for nothing.
func userinfo(arg string) string {
	return strings.TrimPrefix(arg[:strings.LastIndexByte(arg, '@')+1], "//")
}
