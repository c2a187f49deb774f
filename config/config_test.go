package config_test

import (
	"bytes"
	"errors"
	"log/slog"
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
)

// part is a Part whose functions a test sets; nil ones do nothing.
type part struct {
	prepare func(*config.File) error
	commit  func(*config.File)
}

func (p part) Prepare(f *config.File) (func(), error) {
	if p.prepare != nil {
		if err := p.prepare(f); err != nil {
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

// started is a file in force.
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

func TestNew(t *testing.T) {
	s := start(t, base+"dry-run = true\nqueue = 7\nmax-keys = 99\n",
		config.LimiterOptions(quotient.MaxKeys(50)))
	api, other := s.limiter(t, "api").Stats(), s.limiter(t, "other").Stats()
	if api.Pool.Replicas != 4 || api.Limit.String() != "second: 100 per 1s" || api.DryRun ||
		api.MaxKeys != 50 ||
		len(api.Plans) != 1 || !s.limiter(t, "api").Explain("/x").Limit.Deny {
		t.Errorf("api: %+v", api)
	}
	if !other.DryRun || other.MaxKeys != 50 {
		t.Errorf("other: %+v", other)
	}
	if st := s.State(); st.Path != s.path || st.Loaded.IsZero() || st.Reloads != 0 || st.Failures != 0 ||
		st.Differs != nil {
		t.Errorf("%+v", st)
	}
	if f := s.File(); f.Path != s.path || f.Limiters["other"].Queue != 7 {
		t.Errorf("%+v", f)
	}
}

// TestNewIsWhole: New that fails leaves the registry as it was.
func TestNewIsWhole(t *testing.T) {
	f, err := config.Parse("q.toml", []byte(base))
	must(t, err)
	nope := errors.New("nope")
	var reg quotient.Registry
	taken, err := reg.Limiter("other", quotient.Rates(quotient.PerSecond(1)))
	must(t, err)
	for want, opts := range map[string][]config.Option{
		"q.toml:9:11: limiters.other: the registry has a limiter of that name that is not the file's": nil,
		"nope": {config.With(part{prepare: func(*config.File) error { return nope }})},
		"none": {config.Adjust(func(*config.File) error { return errors.New("none") })},
		"q.toml:2:12: pool.replicas: 0 is not between 1 and 1000000": {
			config.Adjust(func(f *config.File) error { f.Pool.Replicas = 0; return nil })},
		"q.toml:3:11: limiters.api: quotient: MaxKeys: 0 is below 1": {
			config.LimiterOptions(quotient.MaxKeys(0))},
		"config: Logger: nil":                        {config.Logger(nil)},
		"config: With: nil":                          {config.With(nil)},
		"config: Adjust: nil":                        {config.Adjust(nil)},
		`config: WithSources: scheme "x": no source`: {config.WithSources(config.Sources{"x": nil})},
	} {
		if _, err := config.New(f, &reg, opts...); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
		if l, _ := reg.Get("other"); l != taken {
			t.Error("other is gone")
		}
		if _, ok := reg.Get("api"); ok {
			t.Errorf("%s: api is left", want)
		}
	}
	if _, err := config.New(nil, &reg); err == nil {
		t.Error("no file, and no error")
	}
	if _, err := config.New(f, nil); err == nil {
		t.Error("no registry, and no error")
	}
}

// TestReload: a reload changes what the file says differently, keeps the state of limiters, and logs it.
func TestReload(t *testing.T) {
	var log logged
	s := start(t, base, config.Logger(log.logger()))
	api, other := s.limiter(t, "api"), s.limiter(t, "other")
	for range 20 {
		api.Allow("/a")
	}
	before := api.Stats().Admitted
	must(t, s.change(t, strings.NewReplacer("events = 100", "events = 40", "/x", "/y", "in-flight = 8",
		"in-flight = 9",
		"[limiters.other]", "[limiters.third]", "replicas = 4", "replicas = 2").Replace(base)))
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
	want := `level=INFO msg="file changed" field=limiters.api.overrides."/x" old=deny new=none
level=INFO msg="file changed" field=limiters.api.overrides."/y" old=none new=deny
level=INFO msg="file changed" field=limiters.api.plans.paid.in-flight old=8 new=9
level=INFO msg="file changed" field=limiters.api.rates[0].events old=100 new=40
level=INFO msg="file changed" field=limiters.other old="in flight: 4" new=none
level=INFO msg="file changed" field=limiters.third old=none new="in flight: 4"
level=INFO msg="file changed" field=pool.replicas old=4 new=2
level=INFO msg="file in force" path=` + s.path + " changes=7\n"
	plain := strings.NewReplacer(`\"" `, `" `, `\"`, `"`, `field="`, `field=`, `"" `, `" `)
	if got := plain.Replace(log.take()); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if st := s.State(); st.Reloads != 1 || st.Failures != 0 || st.Differs != nil {
		t.Errorf("%+v", st)
	}
}

// TestBrokenFile: a file that is wrong changes nothing, and State has its error until it is not.
func TestBrokenFile(t *testing.T) {
	var log logged
	s := start(t, base, config.Logger(log.logger()))
	old := s.File()
	err := s.change(t, strings.Replace(base, "events = 100", "events = -1", 1)+"x = 1\n")
	want := s.path + ":4:38: limiters.api.rates[0].events: -1 is not above 0 and at most 1e+12\n" +
		s.path + ":11:1: limiters.other.x: unknown field"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	st := s.State()
	if st.Failures != 1 || st.Error != want || st.ErrorAt.IsZero() || st.Reloads != 0 || s.File() != old {
		t.Errorf("%+v", st)
	}
	if line := log.take(); !strings.HasPrefix(line,
		`level=ERROR msg="file refused: the old one stays in force"`) ||
		strings.Count(line, "\n") != 1 {
		t.Error(line)
	}
	if s.limiter(t, "api").Stats().Limit.Rates[0].Events != 100 {
		t.Error("the limit has changed")
	}
	must(t, s.change(t, base))
	if st := s.State(); st.Error != "" || st.Failures != 1 || st.Reloads != 1 {
		t.Errorf("%+v", st)
	}
}

// TestReloadIsWhole: when a part, or a limiter, cannot follow, nothing changes at all.
func TestReloadIsWhole(t *testing.T) {
	commits, fails := 0, false
	s := start(t, base, config.With(part{commit: func(*config.File) { commits++ }}),
		config.With(part{prepare: func(*config.File) error {
			if fails {
				return errors.New("it cannot")
			}
			return nil
		}}))
	api := s.limiter(t, "api")
	must(t, api.Override("/held", &quotient.Limit{InFlight: 3}))
	keys := []string{"/x", "/y", "/held", "k"}
	before := states(s.reg, keys)
	changed := strings.NewReplacer("events = 100", "events = 40", "/x", "/y",
		"[limiters.other]\nin-flight = 4", "[limiters.new]\ndeny = true",
		"plans.paid", "plans.free").Replace(base)
	refused := func(text, want string) {
		t.Helper()
		if err := s.change(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		if now := states(s.reg, keys); !reflect.DeepEqual(now, before) || commits != 1 {
			t.Errorf("%d commits\n%v\nwant\n%v", commits, now, before)
		}
	}
	fails = true
	refused(changed, "it cannot")
	fails = false
	// The last limiter by name fails, when all others have changed.
	must(t, s.change(t, base+"[limiters.z]\nrates = ["+rate("a")+rate("b")+rate("c")+"]\n"))
	commits, before = 1, states(s.reg, keys)
	refused(changed+"[limiters.z]\nrates = ["+rate("d")+"]\n",
		"limiters.z: quotient: Limit.Rates[0].Unit: \"d\" is one more than the 3 units a limiter can count")
}

func rate(unit string) string { return `{ events = 1, per = "1s", unit = "` + unit + `" },` }

// TestFixedSettings: what a limiter in force cannot change is refused, with the place and a way out.
func TestFixedSettings(t *testing.T) {
	s := start(t, base)
	for field, text := range map[string]string{
		"limiters.other.max-keys":      base + "max-keys = 5\n",
		"limiters.other.queue":         base + "queue = 5\n",
		"limiters.other.queue-per-key": base + "queue-per-key = 5\n",
		"limiters.other.policy":        base + "policy = \"tracking\"\n",
		"pool.hold-down":               strings.Replace(base, "[pool]", "[pool]\nhold-down = \"1s\"", 1),
		"pool.max-age": strings.Replace(base, "[pool]",
			"[pool]\nsource = \"env:\"\nmax-age = \"1s\"", 1),
		"pool.replicas": strings.Replace(base, "[pool]\nreplicas = 4",
			"[pool]\nsource = \"env:\"\nreplicas = 5", 1),
	} {
		want := field + ": it is fixed while the limiter is in force (restart to change it)"
		if err := s.change(t, text); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	must(t, s.change(t, base+"mode = \"refuse\"\n[limiters.new]\nmax-keys = 5\nin-flight = 1\n"))
	if l := s.File().Limiters; !l["other"].Refuse || s.limiter(t, "new").Stats().MaxKeys != 5 {
		t.Errorf("%+v", l)
	}
}

// TestOperatorsChange: what was changed by hand stays until the limiter's section changes, and is shown.
func TestOperatorsChange(t *testing.T) {
	s := start(t, base)
	api := s.limiter(t, "api")
	must(t, api.SetLimit(quotient.Rates(quotient.PerSecond(7))))
	must(t, api.SetPlan("paid", nil))
	must(t, api.Override("/x", nil))
	must(t, api.Override("/z", &quotient.Limit{InFlight: 1}))
	api.SetDryRun(true)
	want := []string{"api: limit, dry run, plan paid, override /x, override /z"}
	if d := s.State().Differs; !reflect.DeepEqual(d, want) {
		t.Errorf("%q, want %q", d, want)
	}
	version := api.Stats().Version
	must(t, s.change(t, base+"dry-run = true\n")) // of other
	if d := s.State().Differs; !reflect.DeepEqual(d, want) || api.Stats().Version != version {
		t.Errorf("%q, want %q: the section has not changed", d, want)
	}
	must(t, s.change(t, strings.Replace(base, "events = 100", "events = 101", 1)))
	if d := s.State().Differs; d != nil || api.Stats().DryRun || api.Stats().Overrides != 1 {
		t.Errorf("%q: the section has changed", d)
	}
	s.reg.Remove("api")
	if d := s.State().Differs; !reflect.DeepEqual(d, []string{"api: it is gone"}) {
		t.Errorf("%q", d)
	}
}

// TestOperatorsPool: a size that was set by hand differs from the file, until its time is over.
func TestOperatorsPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, base)
		must(t, s.limiter(t, "api").SetPool(quotient.Pool{Replicas: 9}, time.Minute))
		if d := s.State().Differs; !reflect.DeepEqual(d, []string{"api: pool"}) {
			t.Errorf("%q", d)
		}
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		if d := s.State().Differs; d != nil {
			t.Errorf("%q: the time is over", d)
		}
	})
}

// TestAdjustedPlaces: what a program has added to a file stands where it would belong.
func TestAdjustedPlaces(t *testing.T) {
	f, err := config.Parse("q.toml", []byte(base))
	must(t, err)
	_, err = config.New(f, &quotient.Registry{}, config.Adjust(func(f *config.File) error {
		f.Limiters["api"].Overrides["a \"b\".c"] = quotient.Limit{InFlight: -1}
		f.Limiters["api"].Plans["paid"] = quotient.Limit{InFlight: -1}
		return nil
	}))
	want := `q.toml:6:13: limiters.api.plans.paid.in-flight: -1 is not between 0 and 1073741824
q.toml:7:15: limiters.api.overrides."a \"b\".c".in-flight: -1 is not between 0 and 1073741824`
	if err == nil || err.Error() != want {
		t.Errorf("%v\nwant\n%s", err, want)
	}
}

// TestChangesInWordsOfTheFile checks that a rate that goes, and a mode, are logged as the file spells them.
func TestChangesInWordsOfTheFile(t *testing.T) {
	const text = "[limiters.api]\nrates = [{ events = 5, per = \"1s\" }]\n"
	var log logged
	s := start(t, text, config.Logger(log.logger()))
	must(t, s.change(t, "[limiters.api]\nin-flight = 3\nmode = \"refuse\"\n"))
	got := log.take()
	for _, want := range []string{
		`field=limiters.api.mode old=wait new=refuse`,
		`field=limiters.api.rates[0] old="second: 5 per 1s" new=none`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s\nlacks %s", got, want)
		}
	}
}

// TestNamesOfRates: a rate is named by its period, unless another is.
func TestNamesOfRates(t *testing.T) {
	f, err := config.Parse("q.toml", []byte(`[limiters.api]
rates = [
  { events = 1, per = "1s" }, { events = 20, per = "1m" }, { events = 20, per = "60s", aligned = true },
  { events = 90, per = "1h" }, { events = 99, per = "24h" }, { events = 9, per = "10s" },
  { events = 1, per = "1s", unit = "tokens" }, { name = "", events = 100, per = "100s" },
]`))
	must(t, err)
	var names []string
	for _, r := range f.Limiters["api"].Limit.Rates {
		names = append(names, r.Name)
	}
	want := []string{"second", "minute", "", "hour", "day", "10s", "second", ""}
	if !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
}

// TestAdjust: flags go before each file that is read.
func TestAdjust(t *testing.T) {
	s := start(t, base, config.Adjust(func(f *config.File) error { f.Pool.Replicas = 9; return nil }))
	must(t, s.change(t, base+"dry-run = true\n"))
	if n := s.limiter(t, "api").Stats().Pool.Replicas; n != 9 || s.File().Pool.Replicas != 9 {
		t.Errorf("%d replicas, want 9", n)
	}
}

// TestFileIsACopy: a program that changes its file after New changes nothing, also when a file without a path
// is applied again.
func TestFileIsACopy(t *testing.T) {
	f, err := config.Parse("q.toml", []byte(base))
	must(t, err)
	var reg quotient.Registry
	c, err := config.New(f, &reg)
	must(t, err)
	l, _ := reg.Get("api")
	before := l.Stats().Limit
	changed := f.Limiters["api"]
	changed.Limit = quotient.Limit{Deny: true}
	f.Limiters["api"] = changed
	must(t, c.Reload())
	if after := l.Stats().Limit; !reflect.DeepEqual(after, before) {
		t.Errorf("the limit is %v, want %v", after, before)
	}
}
