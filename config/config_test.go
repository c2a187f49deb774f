package config_test

import (
	"bytes"
	"errors"
	"fmt"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/policy"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type fataler interface {
	Helper()
	Fatal(...any)
}

func must(t fataler, err error) {
	if t.Helper(); err != nil {
		t.Fatal(err)
	}
}

func fails(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("the error is %v, want %s", err, text)
	}
}

func want(t *testing.T, what string, got, wanted any) {
	t.Helper()
	if !reflect.DeepEqual(got, wanted) {
		t.Errorf("%s: got %+v, want %+v", what, got, wanted)
	}
}

func parse(t fataler, text string) *config.File {
	t.Helper()
	f, err := config.Parse("q.toml", []byte(text))
	must(t, err)
	return f
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// part is a Part whose functions a test sets; nil ones do nothing.
type part struct {
	prepare func() error
	commit  func(*config.File)
}

func (p part) Prepare(f *config.File) (func(), error) {
	if p.prepare != nil {
		if err := p.prepare(); err != nil {
			return nil, err
		}
	}
	if p.commit == nil {
		return nil, nil
	}
	return func() { p.commit(f) }, nil
}

// logged is a log to look at.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// take returns what was logged since the last call, without times.
func (l *logged) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.text.Reset()
	return l.text.String()
}

func (l *logged) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
}

type started struct {
	*config.Config
	path string
	reg  *quotient.Registry
}

// start puts a text in force as a file of its own.
func start(t *testing.T, text string, opts ...config.Option) started {
	t.Helper()
	s := started{path: write(t, filepath.Join(t.TempDir(), "q.toml"), text), reg: &quotient.Registry{}}
	f, err := config.Read(s.path)
	must(t, err)
	s.Config, err = config.New(f, s.reg, opts...)
	must(t, err)
	return s
}

// change writes the file again, and reloads it.
func (s started) change(t *testing.T, text string) error {
	t.Helper()
	write(t, s.path, text)
	return s.Reload()
}

func (s started) limiter(t *testing.T, name string) *quotient.Limiter {
	t.Helper()
	l, ok := s.reg.Get(name)
	if !ok {
		t.Fatalf("no limiter %s", name)
	}
	return l
}

const base = `[pool]
replicas = 4
[limiters.api]
rates = [{ name = "second", events = 100, per = "1s" }]
[limiters.api.plans.paid]
in-flight = 8
[limiters.api.overrides."/x"]
deny = true
[limiters.other]
in-flight = 4
`

func rate(unit string) string { return `{ events = 1, per = "1s", unit = "` + unit + `" },` }

func TestNew(t *testing.T) {
	s := start(t, base+"dry-run = true\nqueue = 7\nmax-keys = 99\n",
		config.LimiterOptions(quotient.MaxKeys(50)))
	api, other := s.limiter(t, "api").Stats(), s.limiter(t, "other").Stats()
	if api.Pool.Replicas != 4 || api.Limit.String() != "second: 100 per 1s" || api.MaxKeys != 50 ||
		s.limiter(t, "api").DryRun() || len(api.Plans) != 1 || !s.limiter(t, "api").Explain("/x").Limit.Deny {
		t.Errorf("api: %+v", api)
	}
	if !s.limiter(t, "other").DryRun() || other.MaxKeys != 50 {
		t.Errorf("other: %+v", other)
	}
	st := s.State()
	want(t, "state", st, config.State{Path: s.path, Loaded: st.Loaded})
	if f := s.File(); f.Path != s.path || f.Limiters["other"].Queue != 7 || st.Loaded.IsZero() {
		t.Errorf("%+v", f)
	}
}

// TestNewIsWhole: New that fails leaves the registry as it was.
func TestNewIsWhole(t *testing.T) {
	f, nope := parse(t, base), func(*config.File) error { return errors.New("none") }
	var reg quotient.Registry
	taken, err := reg.Limiter("other", quotient.Rates(quotient.PerSecond(1)))
	must(t, err)
	for want, opt := range map[string]config.Option{
		"q.toml:9:11: limiters.other: the registry has a limiter of that name that is not the file's": func(
			*config.Config) error {
			return nil
		},
		"nope": config.With(part{prepare: func() error { return errors.New("nope") }}),
		"none": config.Adjust(nope),
		"q.toml:2:12: pool.replicas: 0 is not between 1 and 1000000": config.Adjust(
			func(f *config.File) error { f.Pool.Replicas = 0; return nil }),
		"q.toml:3:11: limiters.api: quotient: MaxKeys: 0 is below 1": config.LimiterOptions(quotient.MaxKeys(0)),
		"config: Logger: nil":                        config.Logger(nil),
		"config: With: nil":                          config.With(nil),
		"config: Adjust: nil":                        config.Adjust(nil),
		`config: WithSources: scheme "x": no source`: config.WithSources(config.Sources{"x": nil}),
	} {
		if _, err := config.New(f, &reg, opt); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
		if l, _ := reg.Get("other"); l != taken {
			t.Error("other is gone")
		}
		if _, ok := reg.Get("api"); ok {
			t.Errorf("%s: api is left", want)
		}
	}
	_, err = config.New(nil, &reg)
	fails(t, err, "want both")
	_, err = config.New(f, nil)
	fails(t, err, "want both")
}

// TestReload: a reload changes what the file says differently, keeps the state of limiters, and logs it in
// the words of the file.
func TestReload(t *testing.T) {
	var log logged
	s := start(t, base, config.Logger(log.logger()))
	api, other := s.limiter(t, "api"), s.limiter(t, "other")
	for range 20 {
		api.Allow("/a")
	}
	before := api.Stats().Admitted
	next := strings.NewReplacer("events = 100", "events = 40", "/x", "/y", "in-flight = 8", "in-flight = 9",
		"[limiters.other]", "[limiters.third]", "replicas = 4", "replicas = 2").Replace(base)
	must(t, s.change(t, next))
	if now := s.limiter(t, "api"); now != api || now.Stats().Admitted != before ||
		now.Stats().Limit.Rates[0].Events != 40 {
		t.Errorf("%+v", now.Stats())
	}
	if s.limiter(t, "third").Stats().Pool.Replicas != 2 || api.Stats().Pool.Replicas != 2 {
		t.Error("not two replicas")
	}
	if l, ok := s.reg.Get("other"); ok || other.Stats().Pool.Replicas != 4 {
		t.Errorf("%v is still there", l)
	}
	plain := strings.NewReplacer(`\"" `, `" `, `\"`, `"`, `field="`, `field=`, `"" `, `" `)
	want(t, "the log", plain.Replace(log.take()),
		`level=INFO msg="file changed" field=limiters.api.overrides."/x" old=deny new=none
level=INFO msg="file changed" field=limiters.api.overrides."/y" old=none new=deny
level=INFO msg="file changed" field=limiters.api.plans.paid.in-flight old=8 new=9
level=INFO msg="file changed" field=limiters.api.rates[0].events old=100 new=40
level=INFO msg="file changed" field=limiters.other old="in flight: 4" new=none
level=INFO msg="file changed" field=limiters.third old=none new="in flight: 4"
level=INFO msg="file changed" field=pool.replicas old=4 new=2
level=INFO msg="file in force" path=`+s.path+" changes=7\n")
	if st := s.State(); st.Reloads != 1 || st.Failures != 0 || st.Differs != nil {
		t.Errorf("%+v", st)
	}
	must(t, s.change(t, "[limiters.api]\nin-flight = 3\nmode = \"refuse\"\n"))
	got := log.take()
	for _, line := range []string{
		`field=limiters.api.mode old=wait new=refuse`,
		`field=limiters.api.rates[0] old="second: 40 per 1s" new=none`,
	} {
		if !strings.Contains(got, line) {
			t.Errorf("%s\nlacks %s", got, line)
		}
	}
}

// TestReloadOfALongBody: the log names it, and is not as long.
func TestReloadOfALongBody(t *testing.T) {
	var log logged
	rule := "[limiters.all]\nin-flight = 1\n[proxy]\nupstreams = [\"http://h\"]\n" +
		"[[proxy.rules]]\npattern = \"/\"\nlimiter = \"all\"\n"
	s := start(t, rule, config.Logger(log.logger()))
	for _, row := range []struct{ body, field string }{
		{"a", "proxy.rules[0].refusal old=none"}, {"b", "proxy.rules[0].refusal.body"},
	} {
		must(t, s.change(t, rule+"refusal.body = \""+strings.Repeat(row.body, 60_000)+"\"\n"))
		if got := log.take(); !strings.Contains(got, row.field) || len(got) > 1000 {
			t.Errorf("%.2000s lacks %s, or is long", got, row.field)
		}
	}
}

// TestReloadIsWhole: when a part, or a limiter, cannot follow, nothing changes at all.
func TestReloadIsWhole(t *testing.T) {
	commits, answer := 0, error(nil)
	s := start(t, base, config.With(part{commit: func(*config.File) { commits++ }}),
		config.With(part{prepare: func() error { return answer }}))
	must(t, s.limiter(t, "api").Override("/held", &quotient.Limit{InFlight: 3}, time.Hour))
	must(t, s.limiter(t, "api").Override("/x", &quotient.Limit{InFlight: 3}, time.Hour))
	until := s.limiter(t, "api").Explain("/held").Until
	keys := []string{"/x", "/y", "/held", "k"}
	before := states(s.reg, keys)
	changed := strings.NewReplacer("events = 100", "events = 40", "/x", "/y", "plans.paid", "plans.free",
		"[limiters.other]\nin-flight = 4", "[limiters.new]\ndeny = true").Replace(base)
	refused := func(text, why string) {
		t.Helper()
		fails(t, s.change(t, text), why)
		want(t, "what is in force", states(s.reg, keys), before)
		want(t, "commits", commits, 1)
	}
	answer = errors.New("it cannot")
	refused(changed, "it cannot")
	answer = nil
	// The last limiter by name fails, when all others have changed.
	z := func(first string) string {
		return "[limiters.z]\nrates = [" + rate("b") + rate("c") + rate(first) + "]\n" +
			"[limiters.z.plans.p]\nrates = [" + rate(first) + "]\n"
	}
	must(t, s.change(t, base+z("a")))
	commits, before = 1, states(s.reg, keys)
	refused(changed+z("d"), `is one more than the 3 units a limiter can count: ["b" "c" "a"]`)
	now, x := s.limiter(t, "api").Explain("/held").Until, s.limiter(t, "api").Explain("/x")
	if !now.Equal(until) || fmt.Sprint(x.Then) != "deny" {
		t.Errorf("what an operator set until %v ends at %v, and before %v is %v", until, now, x.Then, x.Limit)
	}
}

// TestFixedSettings: what a limiter in force cannot change is refused, with the place and a way out.
func TestFixedSettings(t *testing.T) {
	s := start(t, base, gossips())
	pool := func(more string) string {
		return strings.Replace(base, "[pool]\nreplicas = 4", "[pool]\n"+more, 1)
	}
	for field, text := range map[string]string{
		"limiters.other.max-keys":      base + "max-keys = 5\n",
		"limiters.other.queue":         base + "queue = 5\n",
		"limiters.other.queue-per-key": base + "queue-per-key = 5\n",
		"limiters.other.policy":        base + "policy = \"tracking\"\n",
		"limiters.other.longest-pause": base + "policy = \"tracking\"\nlongest-pause = \"5s\"\n",
		"pool.hold-down":               pool("replicas = 4\nhold-down = \"1s\""),
		"pool.max-age":                 pool("replicas = 4\nsource = \"env:\"\nmax-age = \"1s\""),
		"pool.replicas":                pool("replicas = 5\nsource = \"env:\""),
	} {
		fails(t, s.change(t, text), field+": it is fixed while the limiter is in force (restart to change it)")
	}
	gossip := pool("replicas = 4\nsource = \"gossip:\"")
	must(t, s.change(t, gossip+"[limiters.lends]\nin-flight = 1\ndemand = { keys = 5 }\n"))
	for _, text := range []string{"", "demand = { keys = 6 }\n", "demand = { keys = 5, max-age = \"1s\" }\n"} {
		fails(t, s.change(t, gossip+"[limiters.lends]\nin-flight = 1\n"+text), "limiters.lends.demand: it is fixed")
	}
	must(t, s.change(t, base+"mode = \"refuse\"\n[limiters.new]\nmax-keys = 5\nin-flight = 1\n"))
	if l := s.File().Limiters; !l["other"].Refuse || s.limiter(t, "new").Stats().MaxKeys != 5 {
		t.Errorf("%+v", l)
	}
}

// TestLongestPause: a pause that the upstream announces is waited out as far as the file says.
func TestLongestPause(t *testing.T) {
	for text, want := range map[string]time.Duration{"": 10 * time.Minute, "longest-pause = \"1m\"\n": time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			l := start(t, "[limiters.api]\nin-flight = 1\npolicy = \"tracking\"\n"+text).limiter(t, "api")
			permit, _ := l.TryAcquire("k")
			permit.Done(policy.Feedback{Outcome: policy.Throttled, RetryAfter: time.Hour})
			if _, d := l.TryAcquire("k"); d.OK || d.RetryAfter < want || d.RetryAfter > want*5/4 { // spread
				t.Errorf("%q: %v, want a pause of %v", text, d, want)
			}
		})
	}
}

// TestOperatorsChange: what was changed by hand stays until the limiter's section changes, or its end, and is shown.
func TestOperatorsChange(t *testing.T) {
	s := start(t, base)
	api := s.limiter(t, "api")
	must(t, api.SetLimit(quotient.Rates(quotient.PerSecond(7))))
	must(t, api.SetPlan("paid", nil))
	must(t, api.Override("/x", &quotient.Limit{Deny: true}, time.Hour)) // which it is for good
	must(t, api.Override("/z", &quotient.Limit{InFlight: 1}, 0))
	api.SetDryRun(true)
	all := []string{"api: limit, dry run, plan paid, override /x, override /z"}
	want(t, "differs", s.State().Differs, all)
	version := api.Stats().Version
	must(t, s.change(t, base+"dry-run = true\n")) // of other
	want(t, "differs, and the section has not changed", s.State().Differs, all)
	want(t, "the version", api.Stats().Version, version)
	end := api.Explain("/x").Until
	for _, row := range []struct{ old, new, then string }{
		{"events = 100", "events = 101", "deny"}, {"deny = true", "in-flight = 5", "in flight: 5"},
		{"[limiters.api.overrides.\"/x\"]\ndeny = true\n", "", "<nil>"}, {"", "", "deny"},
	} {
		must(t, s.change(t, strings.Replace(base, row.old, row.new, 1)))
		want(t, row.new+": differs", s.State().Differs, []string{"api: override /x"})
		x := api.Explain("/x")
		if fmt.Sprint(x.Then) != row.then || !x.Until.Equal(end) || api.DryRun() || api.Stats().Overrides != 1 {
			t.Errorf("%q: the section has changed: %+v", row.new, x)
		}
	}
	must(t, api.Override("/x", &quotient.Limit{Deny: true}, 0))
	want(t, "differs", s.State().Differs, []string(nil))
	s.reg.Remove("api")
	want(t, "differs", s.State().Differs, []string{"api: it is gone"})
}

// TestOperatorsPool: a size that was set by hand differs from the file, until its time is over.
func TestOperatorsPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, base)
		must(t, s.limiter(t, "api").SetPool(quotient.Pool{Replicas: 9}, time.Minute))
		want(t, "differs", s.State().Differs, []string{"api: pool"})
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		want(t, "differs after the time", s.State().Differs, []string(nil))
	})
}

// TestAdjust: flags go before each file that is read. What a program has added stands where it would belong.
func TestAdjust(t *testing.T) {
	s := start(t, base, config.Adjust(func(f *config.File) error { f.Pool.Replicas = 9; return nil }))
	must(t, s.change(t, base+"dry-run = true\n"))
	want(t, "replicas", s.limiter(t, "api").Stats().Pool.Replicas, 9)
	want(t, "replicas of the file", s.File().Pool.Replicas, 9)
	_, err := config.New(parse(t, base), &quotient.Registry{}, config.Adjust(func(f *config.File) error {
		f.Limiters["api"].Overrides["a \"b\".c"] = quotient.Limit{InFlight: -1}
		f.Limiters["api"].Plans["paid"] = quotient.Limit{InFlight: -1}
		return nil
	}))
	fails(t, err, `q.toml:6:13: limiters.api.plans.paid.in-flight: -1 is not between 0 and 1073741824
q.toml:7:15: limiters.api.overrides."a \"b\".c".in-flight: -1 is not between 0 and 1073741824`)
}

// TestAdd: a limiter that a program adds to each file needs no rule, and takes no name of the file's.
func TestAdd(t *testing.T) {
	const text = "[decide]\nhttp = \"off\"\nratelimit-files = [\"a.yaml\"]\n"
	name := "added"
	s := start(t, text, config.Adjust(func(f *config.File) error {
		l := parse(t, base).Limiters["other"]
		return errors.Join(f.Add(name, l), f.Add("more", l))
	}))
	must(t, s.Reload())
	must(t, s.File().CheckKey("added", "anything"))
	fails(t, s.File().Add("added", config.Limiter{}), `the file has a limiter "added" already`)
	must(t, s.limiter(t, "added").SetPlan("own", &quotient.Limit{InFlight: 1}))
	want(t, "differs by the program's own plans", s.State().Differs, []string(nil))
	s.limiter(t, "added").SetDryRun(true)
	want(t, "differs", s.State().Differs, []string{"added: dry run"})
	name = "renamed"
	must(t, s.Reload())
	if _, ok := s.reg.Get("added"); ok || s.limiter(t, "renamed") == nil {
		t.Error("what is not added again is still there")
	}
}

// TestWarnsOfQuestions: a question of quotient decide does not hold what a limiter of its rules has as slots, and may
// not wait for as long as a request.
func TestWarnsOfQuestions(t *testing.T) {
	rule := "[[proxy.rules]]\npattern = \"/\"\nlimiter = \"api\"\nalso = [{ limiter = \"other\" }]\n"
	waits, slots := "max-wait: a question", "in-flight: a question"
	others := []string{
		"3:11: limiters.api." + waits, "6:13: limiters.api.plans.paid." + slots, "10:13: limiters.other." + slots,
	}
	for more, wanted := range map[string][]string{
		"":                       slices.Insert(slices.Clone(others), 2, "9:11: limiters.other."+waits),
		"mode = \"refuse\"\n":    others,
		"max-wait = \"249ms\"\n": others,
	} {
		lines := strings.Split(parse(t, base+more+"[decide]\n"+rule).Warnings.Error(), "\n")
		want(t, more+"warnings", len(lines), len(wanted))
		for i, line := range lines[:min(len(lines), len(wanted))] {
			want(t, line, strings.HasPrefix(line, "q.toml:"+wanted[i]), true)
		}
	}
}

// TestFileIsACopy: a program that changes its file after New changes nothing, also when a file without a path
// is applied again.
func TestFileIsACopy(t *testing.T) {
	f := parse(t, base)
	var reg quotient.Registry
	c, err := config.New(f, &reg)
	must(t, err)
	l, _ := reg.Get("api")
	before := l.Stats().Limit
	changed := f.Limiters["api"]
	changed.Limit = quotient.Limit{Deny: true}
	f.Limiters["api"] = changed
	must(t, c.Reload())
	want(t, "the limit", l.Stats().Limit, before)
}

func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"1d": 24 * time.Hour, "2 weeks": 336 * time.Hour, "1h 30m": 90 * time.Minute, "1h30m": 90 * time.Minute,
		"1.5h": 90 * time.Minute, "0": 0, "-1s": -time.Second, "1x": -1, "": -1, "1d1.5h": -1,
	} {
		d, err := config.Duration(text)
		if err != nil {
			d = -1
		}
		if d != want {
			t.Errorf("%q is %v, want %v; %v", text, d, want, err)
		}
	}
}

// TestNamesOfRates: a rate is named by its period, unless another is.
func TestNamesOfRates(t *testing.T) {
	f := parse(t, `[limiters.api]
rates = [
  { events = 1, per = "1s" }, { events = 20, per = "1m" }, { events = 20, per = "60s", aligned = true },
  { events = 90, per = "1h" }, { events = 99, per = "24h" }, { events = 9, per = "10s" },
  { events = 1, per = "1s", unit = "tokens" }, { name = "", events = 100, per = "100s" },
]`)
	var names []string
	for _, r := range f.Limiters["api"].Limit.Rates {
		names = append(names, r.Name)
	}
	want(t, "names", names, []string{"second", "minute", "", "hour", "day", "10s", "second", ""})
}

// TestDocumentedFile: the files in the package's comment are valid. The last one, but for the unit that a proxy refuses,
// names every field of pools and limiters; the pages have a test of all. The files of testdata that pages show
// are valid.
func TestDocumentedFile(t *testing.T) {
	doc, err := parser.ParseFile(token.NewFileSet(), "doc.go", nil, parser.ParseComments)
	must(t, err)
	var texts []string
	for _, b := range new(comment.Parser).Parse(doc.Doc.Text()).Content {
		if code, ok := b.(*comment.Code); ok && strings.HasPrefix(code.Text, "[") {
			texts = append(texts, code.Text)
		}
	}
	if len(texts) != 2 {
		t.Fatalf("%d files in the comment, want 2", len(texts))
	}
	_, err = config.Parse("q.toml", []byte(texts[0]))
	must(t, err)
	f, err := config.Parse("q.toml", []byte(texts[1]))
	if fails(t, err, `rates[3].unit: "tokens"`); f != nil || strings.Contains(fmt.Sprint(err), "\n") {
		t.Fatalf("%v", err)
	}
	for _, of := range []any{config.Pool{}, config.Limiter{}} {
		for name, v := range table(of) {
			if _, nested := v.(map[string]any); !nested && !strings.Contains(texts[1], name) {
				t.Errorf("%s is not in the comment", name)
			}
		}
	}
	for _, name := range []string{"quotient.toml", "library.toml"} {
		_, err := config.Read("testdata/" + name)
		must(t, err)
	}
}
