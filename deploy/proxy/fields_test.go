package proxy

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/lease"
)

// row is a row of one of the page's tables of fields.
type row struct{ section, field, span, value, text string }

// at is the place of the field: "limiters.api.rates.events".
func (r row) at() string { return r.section + "." + r.field }

var (
	heading  = regexp.MustCompile("^### `\\[+([a-zA-Z.-]+)\\]+`$")
	fieldRow = regexp.MustCompile("^\\| `([a-z0-9-]+)` \\| ([^|]+) \\| ([^|]+) \\| ([^|]+) \\|$")
)

// rows returns the rows of all tables of fields, of both pages.
func rows(t *testing.T) []row {
	t.Helper()
	var found []row
	section := ""
	for line := range strings.Lines(read(t, page) + "\n#\n" + read(t, leasesPage)) {
		line = strings.TrimSpace(line)
		if m := heading.FindStringSubmatch(line); m != nil {
			section = strings.Replace(m[1], "NAME", "api", 1)
		} else if strings.HasPrefix(line, "#") {
			section = ""
		} else if m := fieldRow.FindStringSubmatch(line); m != nil && section != "" {
			found = append(found, row{section, m[1], m[2], strings.Trim(m[3], "`"), m[4]})
		}
	}
	return found
}

// kebab is how a file spells the name of a field.
func kebab(name string) string {
	name = strings.NewReplacer(
		"JWT", "Jwt", "TLS", "Tls", "CA", "Ca", "H2C", "H2c", "URL", "Url", "TTL", "Ttl",
	).Replace(name)
	var b strings.Builder
	for i, c := range name {
		if unicode.IsUpper(c) && i > 0 {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(c))
	}
	return b.String()
}

// spelt are fields of package config that a file spells in another way, or not at all.
var spelt = map[string][]string{
	"limiters.api.Limit":       {"rates", "in-flight", "deny"},
	"limiters.api.Refuse":      {"mode"},
	"limiters.api.BeyondShare": {"ceiling"},
	"proxy.rules.Line":         nil,
}

// sections are the tables of a file that have one on the page, each with its type. Lists of tables are fields
// of another too.
var sections = map[string]reflect.Type{
	"pool": reflect.TypeFor[config.Pool](), "limiters.api": reflect.TypeFor[config.Limiter](),
	"limiters.api.demand": reflect.TypeFor[config.Demand](),
	"limiters.api.rates":  reflect.TypeFor[quotient.Rate](), "proxy": reflect.TypeFor[config.Proxy](),
	"proxy.rules": reflect.TypeFor[config.Rule](),
	"proxy.tls":   reflect.TypeFor[config.TLS](), "proxy.jwt": reflect.TypeFor[config.JWT](),
	"proxy.health": reflect.TypeFor[config.Health](), "proxy.timeouts": reflect.TypeFor[config.Timeouts](),
	"proxy.max": reflect.TypeFor[config.Max](), "proxy.admin": reflect.TypeFor[config.Admin](),
	"leases": reflect.TypeFor[config.Leases](), "leases.semaphores.api": reflect.TypeFor[lease.Semaphore](),
	"leases.election": reflect.TypeFor[config.Election](),
}

// TestEveryFieldIsOnThePage compares the tables with the types of package config, in both directions.
func TestEveryFieldIsOnThePage(t *testing.T) {
	var want []string
	lists := []string{"proxy.rules", "limiters.api.rates", "limiters.api.demand"}
	for section, of := range sections {
		for field := range of.Fields() {
			names, other := spelt[section+"."+field.Name]
			if !other {
				names = []string{kebab(field.Name)}
			}
			for _, name := range names {
				at := section + "." + name
				if field.IsExported() && (sections[at] == nil || slices.Contains(lists, at)) {
					want = append(want, at)
				}
			}
		}
	}
	want = append(want, "limiters.api.rates.paced") // a burst of 1
	var got []string
	for _, r := range rows(t) {
		got = append(got, r.at())
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the pages have %d fields, package config %d; only on a page %q; only in config %q",
			len(got), len(want), without(got, want), without(want, got))
	}
}

// without returns what is in a and not in b.
func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}

// file is a configuration: the value of each field by its place.
type file map[string]string

// order is how the sections of a file follow each other, with the brackets that they have.
var order = []string{
	"[pool]", "[limiters.api]", "[limiters.api.demand]", "[[limiters.api.rates]]", "[proxy]",
	"[[proxy.rules]]", "[proxy.tls]", "[proxy.jwt]",
	"[proxy.health]", "[proxy.timeouts]", "[proxy.max]", "[proxy.admin]",
	"[leases]", "[leases.semaphores.api]", "[leases.election]",
}

// basis is a file that is well.
func basis() file {
	return file{
		"limiters.api.rates.events": "100", "limiters.api.rates.per": `"1s"`,
		"proxy.upstreams":     `["http://127.0.0.1:8080"]`,
		"proxy.rules.pattern": `"/v1/"`, "proxy.rules.limiter": `"api"`,
		"leases.semaphores.api.max": "1", "leases.election.endpoints": `["http://127.0.0.1:2379"]`,
	}
}

// beside are values that a field needs beside it, or that must not be; "" leaves a field out.
var beside = map[string]file{
	"pool.ordinal":                {"pool.replicas": "1000000"},
	"pool.weight":                 {"pool.replicas": "2000"},
	"pool.max-age":                {"pool.source": `"env:"`, "pool.replicas": "3"},
	"pool.await":                  {"pool.source": `"env:"`, "pool.max-age": `"1m"`, "pool.replicas": "3"},
	"limiters.api.ceiling":        {"limiters.api.policy": `"tracking"`},
	"limiters.api.demand.keys":    {"pool.source": `"gossip:"`, "limiters.api.demand.max-age": `"2s"`},
	"limiters.api.demand.max-age": {"pool.source": `"gossip:"`, "limiters.api.demand.keys": "100"},
	"limiters.api.rates.counted":  {"limiters.api.rates.aligned": "true"},
	"limiters.api.deny":           {"limiters.api.rates.events": "", "limiters.api.rates.per": ""},
	"proxy.proxy-protocol":        {"proxy.trusted": `["10.0.0.0/8"]`},
	"proxy.tls.cert":              {"proxy.tls.key": `"key.pem"`},
	"proxy.tls.key":               {"proxy.tls.cert": `"cert.pem"`},
	"proxy.tls.client-ca":         {"proxy.tls.key": `"key.pem"`, "proxy.tls.cert": `"cert.pem"`},
	"proxy.jwt.key-file":          {"proxy.jwt.issuer": `"me"`},
	"proxy.jwt.issuer":            {"proxy.jwt.key-file": `"jwt.pem"`},
	"proxy.jwt.audience":          {"proxy.jwt.key-file": `"jwt.pem"`},
	"proxy.admin.listen":          {"proxy.admin.token-file": `"token"`},

	"leases.semaphores.api.max":     {"leases.semaphores.api.level": "0"},
	"leases.election.endpoints":     {"leases.election.name": `"leases"`},
	"leases.election.user":          {"leases.election.password-file": `"password"`},
	"leases.election.password-file": {"leases.election.user": `"quotient"`},
}

// with returns the file that is well, with a value and what it needs beside; "" leaves the field out.
func with(at, value string) file {
	f := basis()
	maps.Copy(f, beside[at])
	switch f[at] = value; {
	case at == "limiters.api.deny" && value != "true":
		f["limiters.api.in-flight"] = "1"
	case at == "proxy.rules.exempt" && value == "true":
		f["proxy.rules.limiter"] = ""
	case strings.HasPrefix(at, "leases.election.") && value == "":
		f["leases.election.user"], f["leases.election.password-file"] = "", ""
	case at == "proxy.rules":
		maps.DeleteFunc(f, func(name, _ string) bool { return strings.HasPrefix(name, at) })
	}
	return f
}

// lastRule stands behind the rule that a test changes.
const lastRule = "[[proxy.rules]]\npattern = \"/\"\nlimiter = \"api\"\n"

// text is a file as it is written.
func (f file) text() string {
	var b strings.Builder
	for _, brackets := range order {
		section := strings.Trim(brackets, "[]")
		var lines []string
		for at, value := range f {
			if name, ok := strings.CutPrefix(at, section+"."); ok && !strings.Contains(name, ".") &&
				value != "" {
				lines = append(lines, name+" = "+value+"\n")
			}
		}
		if len(lines) > 0 || brackets == "[limiters.api]" {
			slices.Sort(lines)
			fmt.Fprintf(&b, "%s\n%s", brackets, strings.Join(lines, ""))
		}
		if brackets == "[[proxy.rules]]" && len(lines) > 0 {
			b.WriteString(lastRule)
		}
	}
	return b.String()
}

// parse reads a file.
func (f file) parse() (*config.File, error) {
	got, err := config.Parse("file", []byte(f.text()))
	if err != nil {
		return nil, fmt.Errorf("%w, in\n%s", err, f.text())
	}
	return got, nil
}

// same reports whether two files say the same.
func same(a, b *config.File) bool {
	for _, f := range []*config.File{a, b} {
		for i := range f.Proxy.Rules {
			f.Proxy.Rules[i].Line = 0
		}
	}
	return reflect.DeepEqual(a.Pool, b.Pool) && reflect.DeepEqual(a.Limiters, b.Limiters) &&
		reflect.DeepEqual(a.Proxy, b.Proxy) && reflect.DeepEqual(a.Leases, b.Leases)
}

// toml spells a value of the page as a file does.
func toml(value string) string {
	value = strings.ReplaceAll(value, ",", "")
	if _, err := strconv.ParseFloat(value, 64); err == nil || value == "true" || value == "false" {
		return value
	}
	return strconv.Quote(value)
}

// TestDefaultsOfThePage checks that a field with the default of the page means the same as none. It also
// checks that what is required is.
func TestDefaultsOfThePage(t *testing.T) {
	for _, r := range rows(t) {
		bare, err := with(r.at(), "").parse()
		switch value := toml(r.value); {
		case r.value == "required":
			if err == nil {
				t.Errorf("%s is not required", r.at())
			}
		case err != nil:
			t.Errorf("%s is required: %v", r.at(), err)
		// no value spells it
		case slices.Contains([]string{"none", "requests", "from `per", "from `listen"}, r.value):
		default:
			if set, err := with(r.at(), value).parse(); err != nil || !same(bare, set) {
				t.Errorf("%s = %s is not the default: %v", r.at(), value, err)
			}
		}
	}
}

var numbers = regexp.MustCompile(`^([\d,]+) to ([\d,]+|.replicas.)$`)

// TestRangesOfThePage checks that both ends of a range are accepted, and each choice is. A field beyond them
// is refused by name.
func TestRangesOfThePage(t *testing.T) {
	checked := 0
	for _, r := range rows(t) {
		good, bad := ends(r)
		for _, value := range good {
			if _, err := with(r.at(), value).parse(); err != nil {
				t.Errorf("%s = %s: %v", r.at(), value, err)
			}
		}
		for _, value := range bad {
			if _, err := with(r.at(), value).parse(); err == nil || !strings.Contains(err.Error(), r.field) {
				t.Errorf("%s = %s: the error is %v", r.at(), value, err)
			}
		}
		checked += min(1, len(bad))
	}
	if least := 40; checked < least {
		t.Errorf("%d ranges were checked, want %d at least", checked, least)
	}
}

// ends returns values that a row allows, and values that it does not, as a file spells them.
func ends(r row) (good, bad []string) {
	switch low, high, two := strings.Cut(r.span, " to "); {
	case r.span == "true, false":
		return []string{"true", "false"}, []string{`"yes"`, "1"}
	case strings.HasPrefix(r.span, "`") && !strings.ContainsAny(r.span, ":NPK"):
		for choice := range strings.SplitSeq(r.span, ", ") {
			good = append(good, strconv.Quote(strings.Trim(choice, "`")))
		}
		return good, []string{`"another"`, "1"}
	case r.span == "0s or more":
		return []string{`"0s"`, `"10000h"`}, []string{`"-1s"`, "1"}
	case r.span == "above 0":
		return []string{"1", "0.5"}, []string{"0", "-1", `"1"`}
	case r.span == "above 0s":
		return []string{`"1s"`}, []string{`"0s"`, `"-1s"`, "1"}
	case strings.HasSuffix(r.span, " characters") && r.field != "unit": // the proxy counts requests alone
		n, _ := strconv.Atoi(strings.TrimSuffix(r.span, " characters"))
		longest := strings.Repeat("n", n)
		return []string{strconv.Quote(longest)}, []string{strconv.Quote(longest + "n"), "1"}
	case two && numbers.MatchString(r.span):
		a, _ := strconv.ParseInt(strings.ReplaceAll(low, ",", ""), 10, 64)
		b, err := strconv.ParseInt(strings.ReplaceAll(high, ",", ""), 10, 64)
		if err != nil {
			b = 1_000_000 // replicas
		}
		return []string{fmt.Sprint(a), fmt.Sprint(b)}, []string{fmt.Sprint(a - 1), fmt.Sprint(b + 1), `"1"`}
	case two:
		a, b := long(low), long(high)
		return []string{quoted(a), quoted(((a + b) / 2).Truncate(time.Second)), quoted(b)},
			[]string{quoted(a - 1), quoted(b + 1), "1"}
	}
	return nil, nil
}

func quoted(d time.Duration) string { return strconv.Quote(d.String()) }

// long is a duration of the page.
func long(s string) time.Duration {
	if days, ok := strings.CutSuffix(s, " days"); ok {
		n, _ := strconv.Atoi(days)
		return time.Duration(n) * 24 * time.Hour
	}
	d, _ := time.ParseDuration(s)
	return d
}
