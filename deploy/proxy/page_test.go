package proxy

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/lease"
)

// The pages that these tests hold.
const (
	page     = "../../docs/proxy.md"
	filePage = "../../docs/file.md" // the reference of the file
)

// read returns the text of a file.
func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return string(text)
}

// blocks returns the fenced blocks of a page in a language, in order.
func blocks(t *testing.T, page, lang string) (found []string) {
	t.Helper()
	fence := regexp.MustCompile("(?ms)^ *```" + lang + "\n(.*?)^ *```$")
	for _, m := range fence.FindAllStringSubmatch(read(t, page), -1) {
		found = append(found, m[1])
	}
	if len(found) == 0 {
		t.Fatalf("%s has no block of %s", page, lang)
	}
	return found
}

// TestFilesOfThePages checks that each file on the pages is a whole one that is well, but for the broken one,
// whose errors TestCommandsOfThePages compares.
func TestFilesOfThePages(t *testing.T) {
	for _, text := range slices.Concat(
		blocks(t, page, "toml"), blocks(t, filePage, "toml"), blocks(t, leasesPage, "toml"),
	) {
		if strings.HasPrefix(text, "# broken.toml\n") {
			continue
		}
		f, err := config.ParseAny("quotient.toml", []byte(text))
		served := err == nil && (f.Proxy != nil || f.Leases != nil && len(f.Leases.Semaphores) > 0)
		if !served || len(f.Warnings) > 0 {
			t.Errorf("%v, %+v of\n%s", err, f, text)
		}
	}
}

// command is a line that a reader types, and what it prints as the page shows it.
type command struct{ line, answer string }

// commands returns the lines of a page that a reader types, in order.
func commands(t *testing.T, page string) (found []command) {
	t.Helper()
	text := strings.Join(blocks(t, page, "console"), "")
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", "")) {
		if typed, ok := strings.CutPrefix(strings.TrimLeft(line, " "), "$ "); ok {
			found = append(found, command{line: strings.TrimSpace(typed)})
		} else {
			found[len(found)-1].answer += line
		}
	}
	return found
}

// row is a row of one of the reference's tables of fields. A change of the field takes a reload, or a restart.
type row struct{ section, field, span, value, change string }

// at is the place of the field: "limiters.api.rates.events".
func (r row) at() string { return r.section + "." + r.field }

var (
	heading  = regexp.MustCompile("^### `\\[+([a-zA-Z.-]+)\\]+`$")
	fieldRow = regexp.MustCompile("^\\| `([a-z0-9-]+)` \\| ([^|]+) \\| ([^|]+) \\| (reload|restart) \\| [^|]+ \\|$")
)

// rows returns the rows of all tables of fields.
func rows(t *testing.T) []row {
	t.Helper()
	var found []row
	section := ""
	for line := range strings.Lines(read(t, filePage)) {
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

// spelt are fields of package config that a file spells in another way, or not at all.
var spelt = map[string][]string{
	"limiters.api.Limit":       {"rates", "inflight", "deny"},
	"limiters.api.Refuse":      {"mode"},
	"limiters.api.BeyondShare": {"ceiling"},
	"proxy.rules.Line":         nil,
	"proxy.rules.WeightBy":     nil,
}

// section is one table of a file.
type section struct {
	brackets string
	of       reflect.Type
}

func (s section) name() string { return strings.Trim(s.brackets, "[]") }

func (s section) plain() string { return strings.ReplaceAll(s.name(), "-", "") }

// sections are the tables of a file that have one on the page, in the order of a file, with their brackets and
// types.
var sections = []section{
	{"[pool]", reflect.TypeFor[config.Pool]()}, {"[limiters.api]", reflect.TypeFor[config.Limiter]()},
	{"[limiters.api.demand]", reflect.TypeFor[config.Demand]()},
	{"[[limiters.api.rates]]", reflect.TypeFor[quotient.Rate]()}, {"[proxy]", reflect.TypeFor[config.Proxy]()},
	{"[[proxy.rules]]", reflect.TypeFor[config.Rule]()}, {"[[proxy.rules.costs]]", reflect.TypeFor[config.Cost]()},
	{"[proxy.rules.refusal]", reflect.TypeFor[config.Refusal]()}, {"[proxy.cors]", reflect.TypeFor[config.CORS]()},
	{"[proxy.tls]", reflect.TypeFor[config.TLS]()},
	{"[proxy.upstream-tls]", reflect.TypeFor[config.UpstreamTLS]()},
	{"[proxy.jwt]", reflect.TypeFor[config.JWT]()}, {"[proxy.paths]", reflect.TypeFor[config.Paths]()},
	{"[proxy.health]", reflect.TypeFor[config.Health]()},
	{"[proxy.timeouts]", reflect.TypeFor[config.Timeouts]()}, {"[proxy.max]", reflect.TypeFor[config.Max]()},
	{"[proxy.admin]", reflect.TypeFor[config.Admin]()}, {"[proxy.log]", reflect.TypeFor[config.Log]()},
	{"[decide]", reflect.TypeFor[config.Decide]()},
	{"[leases]", reflect.TypeFor[config.Leases]()},
	{"[leases.semaphores.api]", reflect.TypeFor[lease.Semaphore]()},
	{"[leases.election]", reflect.TypeFor[config.Election]()},
}

// TestEveryFieldIsOnThePage compares the tables with the types of package config, in both directions and without
// hyphens.
func TestEveryFieldIsOnThePage(t *testing.T) {
	// older spellings, and fields of another table too
	want := []string{"limiters.api.rates.aligned", "limiters.api.rates.counted", "limiters.api.rates.paced"}
	lists := []string{"proxy.rules", "limiters.api.rates", "limiters.api.demand"}
	for _, s := range sections {
		for field := range s.of.Fields() {
			names, other := spelt[s.name()+"."+field.Name]
			if !other {
				names = []string{strings.ToLower(field.Name)}
			}
			for _, name := range names {
				at := s.plain() + "." + name
				table := slices.ContainsFunc(sections, func(s section) bool { return s.plain() == at })
				if field.IsExported() && (!table || slices.Contains(lists, at)) {
					want = append(want, at)
				}
			}
		}
	}
	var got []string
	for _, r := range rows(t) {
		got = append(got, strings.ReplaceAll(r.at(), "-", ""))
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the page has %d fields, package config %d; only on the page %q; only in config %q",
			len(got), len(want), without(got, want), without(want, got))
	}
}

// without returns what is in a and not in b.
func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}

// file is a configuration: the value of each field by its place.
type file map[string]string

// basis is a file that is well.
func basis() file {
	return file{
		"limiters.api.rates.events": "100", "limiters.api.rates.per": `"1s"`,
		"proxy.upstreams":     `["http://127.0.0.1:8080"]`,
		"proxy.rules.pattern": `"/v1/"`, "proxy.rules.limiter": `"api"`,
		"leases.semaphores.api.max": "1", "leases.election.endpoints": `["http://127.0.0.1:2379"]`,
	}
}

// tokens is a rule that costs some, and more.
func tokens(more file) file {
	f := file{
		"limiters.api.rates.burst": "1099511627776", "limiters.api.rates.unit": `"tokens"`,
		"proxy.rules.costs.unit": `"tokens"`, "proxy.rules.costs.default": "1",
	}
	maps.Copy(f, more)
	return f
}

// beside are values that a field needs beside it, or that must not be; "" leaves a field out.
var beside = map[string]file{
	"pool.ordinal":                 {"pool.replicas": "1000000"},
	"pool.weight":                  {"pool.replicas": "2000"},
	"pool.max-age":                 {"pool.source": `"env:"`, "pool.replicas": "3"},
	"pool.await":                   {"pool.source": `"env:"`, "pool.max-age": `"1m"`, "pool.replicas": "3"},
	"limiters.api.ceiling":         {"limiters.api.policy": `"tracking"`},
	"limiters.api.longest-pause":   {"limiters.api.policy": `"tracking"`},
	"limiters.api.demand.keys":     {"pool.source": `"gossip:"`, "limiters.api.demand.max-age": `"2s"`},
	"limiters.api.demand.max-age":  {"pool.source": `"gossip:"`, "limiters.api.demand.keys": "100"},
	"limiters.api.rates.counted":   {"limiters.api.rates.aligned": "true"},
	"limiters.api.deny":            {"limiters.api.rates.events": "", "limiters.api.rates.per": ""},
	"proxy.proxy-protocol":         {"proxy.trusted": `["10.0.0.0/8"]`},
	"proxy.tls.cert":               {"proxy.tls.key": `"key.pem"`},
	"proxy.tls.key":                {"proxy.tls.cert": `"cert.pem"`},
	"proxy.tls.client-ca":          {"proxy.tls.key": `"key.pem"`, "proxy.tls.cert": `"cert.pem"`},
	"proxy.jwt.key-file":           {"proxy.jwt.issuer": `"me"`},
	"proxy.jwt.issuer":             {"proxy.jwt.key-file": `"jwt.pem"`},
	"proxy.rules.weight":           {"limiters.api.rates.events": "1073741824"},
	"proxy.rules.costs.unit":       tokens(nil),
	"proxy.rules.costs.default":    tokens(nil),
	"proxy.rules.costs.request":    tokens(file{"proxy.trusted": `["10.0.0.0/8"]`}),
	"proxy.rules.costs.answer":     tokens(nil),
	"proxy.rules.costs.most":       tokens(file{"proxy.rules.costs.answer": `"header:X-Total"`}),
	"proxy.rules.refusal.status":   {"proxy.rules.refusal.body": `"no"`},
	"proxy.rules.refusal.body":     {"proxy.rules.refusal.status": "429"},
	"proxy.rules.refusal.type":     {"proxy.rules.refusal.body": `"no"`},
	"proxy.cors.origins":           {"proxy.cors.credentials": "false"},
	"proxy.cors.credentials":       {"proxy.cors.origins": `["https://app.example"]`},
	"proxy.cors.exempt-preflights": {"proxy.cors.origins": `["https://app.example"]`},
	"proxy.jwt.audience":           {"proxy.jwt.key-file": `"jwt.pem"`},
	"proxy.admin.listen":           {"proxy.admin.token-file": `"token"`},
	"proxy.admin.peers-tls":        {"proxy.admin.peers": `"dns:api:4041"`},

	"decide.grpc":            {"decide.max-hold": `"1m"`},
	"decide.http":            {"decide.max-hold": `"1m"`},
	"decide.profile":         {"decide.max-hold": `"1m"`},
	"decide.ratelimit-files": {"decide.max-hold": `"1m"`},
	"decide.ratelimit-kind":  {"decide.max-hold": `"1m"`},
	"decide.max-hold":        {"decide.profile": `"nginx"`},

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

// text is a file as it is written.
func (f file) text() string {
	var b strings.Builder
	for _, s := range sections {
		var lines []string
		for at, value := range f {
			if name, ok := strings.CutPrefix(at, s.name()+"."); ok && !strings.Contains(name, ".") && value != "" {
				lines = append(lines, name+" = "+value+"\n")
			}
		}
		if len(lines) > 0 || s.brackets == "[limiters.api]" {
			slices.Sort(lines)
			fmt.Fprintf(&b, "%s\n%s", s.brackets, strings.Join(lines, ""))
		}
		if s.brackets == "[[proxy.rules]]" && len(lines) > 0 { // one behind that which a test changes
			b.WriteString("[[proxy.rules]]\npattern = \"/\"\nlimiter = \"api\"\n")
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
		reflect.DeepEqual(a.Proxy, b.Proxy) && reflect.DeepEqual(a.Decide, b.Decide) &&
		reflect.DeepEqual(a.Leases, b.Leases)
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

// spans are values within ranges that are told in words, and beyond them.
var spans = map[string][][]string{
	"true, false": {{"true", "false"}, {`"yes"`, "1"}},
	"0s or more":  {{`"0s"`, `"10000h"`}, {`"-1s"`, "1"}},
	"above 0":     {{"1", "0.5"}, {"0", "-1", `"1"`}},
	"above 0s":    {{`"1s"`}, {`"0s"`, `"-1s"`, "1"}},
}

// ends returns values that a row allows, and values that it does not, as a file spells them.
func ends(r row) (good, bad []string) {
	switch low, high, two := strings.Cut(r.span, " to "); {
	case strings.HasPrefix(r.span, "`") && !strings.ContainsAny(r.span, ":NPK"):
		for choice := range strings.SplitSeq(r.span, ", ") {
			good = append(good, strconv.Quote(strings.Trim(choice, "`")))
		}
		return good, []string{`"another"`, "1"}
	case spans[r.span] != nil:
		return spans[r.span][0], spans[r.span][1]
	case strings.HasSuffix(r.span, " characters") && r.field != "unit": // a rate and a cost have the same
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
		quoted := func(d time.Duration) string { return strconv.Quote(d.String()) }
		return []string{quoted(a), quoted(((a + b) / 2).Truncate(time.Second)), quoted(b)},
			[]string{quoted(a - 1), quoted(b + 1), "1"}
	}
	return nil, nil
}

// long is a duration of the page.
func long(s string) time.Duration {
	if days, ok := strings.CutSuffix(s, " days"); ok {
		n, _ := strconv.Atoi(days)
		return time.Duration(n) * 24 * time.Hour
	}
	d, _ := time.ParseDuration(s)
	return d
}

// TestRestartsOfThePage checks that the page marks what a reload refuses, and nothing else, of [pool] and of
// limiters.
func TestRestartsOfThePage(t *testing.T) {
	tried := 0
	for _, r := range rows(t) {
		if r.section != "pool" && r.section != "limiters.api" {
			continue
		}
		good, _ := ends(r)
		none := []string{toml(r.value), `"0s"`, "0", `"8760h0m0s"`, "1073741824"}
		i := slices.IndexFunc(good, func(s string) bool { return !slices.Contains(none, s) })
		if i < 0 {
			continue
		}
		tried++
		says := r.change == "restart"
		err := reload(t, with(r.at(), ""), with(r.at(), good[i]))
		if (err != nil) != says || says && !strings.Contains(err.Error(), "restart") {
			t.Errorf("%s: the page says restart: %v; a reload: %v", r.at(), says, err)
		}
	}
	if least := 13; tried < least {
		t.Errorf("%d fields were changed, want %d at least", tried, least)
	}
}

// reload puts one file in force and then the other, and returns the error of that.
func reload(t *testing.T, before, after file) error {
	t.Helper()
	path := filepath.Join(t.TempDir(), "quotient.toml")
	must(t, os.WriteFile(path, []byte(before.text()), 0o600))
	f, err := config.Read(path)
	must(t, err)
	c, err := config.New(f, new(quotient.Registry))
	must(t, err)
	_, err = after.parse()
	must(t, err)
	must(t, os.WriteFile(path, []byte(after.text()), 0o600))
	return c.Reload()
}

// folder is a directory with the files that the pages' commands name: the first, and the broken one.
func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "quotient.toml"), []byte(blocks(t, page, "toml")[0]), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "broken.toml"), []byte(blocks(t, filePage, "toml")[0]), 0o600))
	return dir
}

// run runs the program with arguments, and returns what it prints.
func run(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary(t), args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestCommandsOfThePages checks that the program takes each command of the pages, of the command's README, and of the
// files beside it. Nothing is started: flags are printed as a file, or the file that they name is checked. Pods are
// none that answer.
func TestCommandsOfThePages(t *testing.T) {
	dir, seen := folder(t), 0
	for page, dir := range map[string]string{page: dir, filePage: dir, "../../cmd/quotient/README.md": dir,
		besidePage: besideFolder, "../../docs/ratelimit.md": besideFolder} {
		for _, c := range commands(t, page) {
			// A server of leases would start.
			if args, ours := strings.CutPrefix(c.line, "quotient "); ours && !strings.HasPrefix(args, "leases") {
				seen++
				checkCommand(t, dir, strings.Fields(strings.ReplaceAll(args, "'", "")), c.answer)
			}
		}
	}
	if least := 17; seen < least {
		t.Errorf("%d commands, want %d at least", seen, least)
	}
	checkCommand(t, ".", []string{"proxy", "--config", "quotient.toml"}, "")
	for dir := range variants {
		file := filepath.Join(dir, "quotient.toml")
		if _, err := os.Stat(file); err != nil {
			file = "kustomize/base/quotient.toml"
		}
		checkCommand(t, ".", []string{"check", "--no-files", file}, "")
	}
}

// checkCommand runs one command, or what stands for it, and compares what it prints with what the page shows.
func checkCommand(t *testing.T, dir string, args []string, want string) {
	t.Helper()
	shown, starts := strings.Join(args, " "), args[0] == "proxy" || args[0] == "decide"
	switch {
	case starts && args[1] == "--config":
		args = []string{"check", "--no-files", args[2]}
	case starts && !strings.Contains(shown, "--print-config"):
		args = append([]string{args[0], "--print-config"}, args[1:]...)
	case args[0] == "ctl": // what it asks is pods of the reader
		args[1+slices.Index(args, "--pods")] = "http://" + free(t)
		if out, err := run(t, dir, args...); err == nil || !strings.Contains(out, "no pod answers") {
			t.Errorf("quotient %s: %v: %s", shown, err, out)
		}
		return
	}
	out, err := run(t, dir, args...)
	if broken := strings.Contains(shown, "broken"); (err != nil) != broken {
		t.Errorf("quotient %s: %v: %s", shown, err, out)
		return
	}
	if starts && args[0] != "check" {
		if _, err := config.Parse("printed", []byte(out)); err != nil {
			t.Errorf("quotient %s: %v in\n%s", shown, err, out)
		}
	}
	// The program may name a file by its whole path.
	if got := strings.ReplaceAll(out, dir+"/", ""); want != "" && got != want {
		t.Errorf("quotient %s prints\n%s\nthe page has\n%s", shown, got, want)
	}
}

// free returns an address on which nothing listens.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return l.Addr().String()
}

// start starts the program and waits until it is ready.
func start(t *testing.T, admin string, args ...string) {
	t.Helper()
	cmd := exec.Command(binary(t), args...)
	var log bytes.Buffer
	cmd.Stderr = &log
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		err := cmd.Wait()
		if err != nil || t.Failed() || !strings.Contains(log.String(), "overhead of requests") {
			t.Errorf("it ended with %v, and logged: %s", err, log.String())
		}
	})
	ready(t, "http://"+admin)
}

// client has connections that no test leaves behind.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}

// ready waits until a server is.
func ready(t *testing.T, url string) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for ; time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		resp, err := client.Get(url + "/ready")
		if err == nil {
			_ = resp.Body.Close()
		}
		if err == nil && resp.StatusCode == http.StatusOK {
			return
		}
	}
	t.Fatal("it is not ready after 20 s")
}

// TestTour plays the first limit of the page: its command, what its curl prints, and the refusal, but for its
// times.
func TestTour(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed: the tour is not played (apt-get install curl)")
	}
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer upstream.Close()
	listen, admin := free(t), free(t)
	if !strings.Contains(read(t, page), "$ quotient proxy --rpm 5 --refuse localhost:8080\n") {
		t.Error("the page begins with another command")
	}
	start(t, admin, "proxy", "--rpm", "5", "--refuse", "--listen", listen, "--admin", admin, upstream.URL)
	for _, c := range commands(t, page) {
		if !strings.HasPrefix(c.line, "curl ") {
			continue
		}
		line := strings.ReplaceAll(c.line, "localhost:4040", listen)
		if got := within1Minute(t, line); squeeze(got) != squeeze(c.answer) {
			t.Errorf("%s prints\n%s\nthe page has\n%s", line, got, c.answer)
		}
	}
	var got string
	for range 12 { // a minute of the clock may begin meanwhile
		if status, text := get(t, "http://"+listen+"/hello"); status == http.StatusTooManyRequests {
			got = text
			break
		}
	}
	seconds := regexp.MustCompile(`\d+( seconds?|})`)
	documents := blocks(t, filePage, "json") // the last one is that of a refusal
	refusal := documents[len(documents)-1]
	spaces := regexp.MustCompile(`\s+("|})|(:) `)
	want := spaces.ReplaceAllString(refusal, "$1$2")
	plain := func(s string) string { return strings.TrimSpace(seconds.ReplaceAllString(s, "n")) }
	if plain(got) != plain(want) {
		t.Errorf("refused with\n%s\nthe page has\n%s", plain(got), plain(want))
	}
}

// get returns the status and the body of an answer.
func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	resp, err := client.Get(url)
	must(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp.StatusCode, string(text)
}

// squeeze is text with one space where there are several: uniq has its own columns.
func squeeze(s string) string { return regexp.MustCompile(`[ \t]+`).ReplaceAllString(s, " ") }

// within1Minute runs a line of the shell, again if a minute of the clock began meanwhile.
func within1Minute(t *testing.T, line string) string {
	t.Helper()
	for range 3 {
		minute := time.Now().Truncate(time.Minute)
		out, err := exec.CommandContext(t.Context(), "sh", "-c", line).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if time.Now().Truncate(time.Minute).Equal(minute) {
			return string(out)
		}
	}
	t.Fatal("a minute of the clock began during each of three attempts")
	return ""
}
