package admin

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/tested"
)

// two is a handler of the limiters "api" and "tenants".
func two(t *testing.T, opts ...Option) (h *Handler, api, tenants *quotient.Limiter) {
	t.Helper()
	api, tenants = newLimiter(t), newLimiter(t, quotient.MaxKeys(4))
	var reg quotient.Registry
	must(t, reg.Add("api", api))
	must(t, reg.Add("tenants", tenants))
	h, err := New(&reg, append(opts, Logger(slog.New(slog.DiscardHandler)))...)
	must(t, err)
	return h, api, tenants
}

func TestChangesTakeEffect(t *testing.T) {
	h, api, tenants := two(t)
	put := func(path, body string) State {
		t.Helper()
		rec := putting(path, body).send(t, h)
		if rec.Code != 200 {
			t.Fatalf("%s %s: %d %s", path, body, rec.Code, rec.Body)
		}
		s := decode[State](t, rec)
		if one := len(s.Limiters) == 1; one != (rec.Header().Get("ETag") != "") ||
			one && rec.Header().Get("ETag") != s.Limiters["api"].ETag {
			t.Errorf("%s: ETag %q of %d limiters", path, rec.Header().Get("ETag"), len(s.Limiters))
		}
		return s
	}
	s := put("/limit?limiter=api", `{"rates":[`+
		`{"name":"m","unit":"tokens","events":2.5,"per_seconds":60,"burst":7,"no_turns":true},`+
		`{"events":9,"per_seconds":0.25},{"name":"d","events":9,"per_seconds":86400,"kind":"window","zone":"UTC"}`+
		`],"in_flight":4}`)
	got := api.Stats().Limit
	if len(got.Rates) != 3 || got.Rates[2].Zone != "UTC" || s.Limiters["api"].Limit.Rates[2].Zone != "UTC" ||
		got.Rates[0] != (quotient.Rate{Name: "m", Unit: "tokens", Events: 2.5, Per: time.Minute, Burst: 7,
			NoTurns: true}) || got.Rates[1].Per != 250*time.Millisecond || got.InFlight != 4 {
		t.Errorf("limit %+v", got)
	}
	if l := s.Limiters["api"]; l.Version != 1 || l.Limit.InFlight != 4 || !l.Limit.Rates[0].NoTurns ||
		len(s.Limiters) != 1 {
		t.Errorf("answer %+v", s)
	}
	put("/limit?limiter=api", `{"deny":true,"rates":[],"in_flight":0}`)
	if !api.Stats().Limit.Deny || tenants.Stats().Limit.Deny {
		t.Error("deny")
	}
	s = put("/override?limiter=api", `{"key":"\ud83d\ude00","limit":{"rates":[],"in_flight":2}}`)
	if o := api.Overrides(); len(o) != 1 || o["😀"].Limit.InFlight != 2 || s.Limiters["api"].OverrideCount != 1 ||
		s.Limiters["api"].Overrides[0].Key != "😀" || s.Limiters["api"].Overrides[0].Limit.InFlight != 2 {
		t.Errorf("overrides %+v, answer %+v", o, s)
	}
	put("/override?limiter=api", `{"key":"😀","limit":null}`)
	if put("/dry-run?limiter=api", `{"dry_run":true}`); api.Stats().Overrides != 0 || !api.DryRun() ||
		tenants.DryRun() {
		t.Errorf("overrides %v, dry run %v %v", api.Overrides(), api.DryRun(), tenants.DryRun())
	}
	if s = put("/replicas", `{"replicas":5}`); len(s.Limiters) != 2 || api.Stats().Pool.Replicas != 5 ||
		tenants.Stats().Pool.Replicas != 5 {
		t.Errorf("pools %v %v", api.Stats().Pool.Pool, tenants.Stats().Pool.Pool)
	}
	if put("/replicas?limiter=api", `{"replicas":6}`); api.Stats().Pool.Replicas != 6 ||
		tenants.Stats().Pool.Replicas != 5 {
		t.Errorf("pools %v %v", api.Stats().Pool.Pool, tenants.Stats().Pool.Pool)
	}
}

// TestTTL: a pool size and an override with an end do end.
func TestTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, quotient.Replicas(3))
		h := quiet(t, l)
		rec := putReplicas(`{"replicas":6,"ttl_seconds":90.5}`).send(t, h)
		until := decode[State](t, rec).Limiters["api"].Pool.Until
		if l.Stats().Pool.Replicas != 6 || !until.Equal(time.Now().Add(90500*time.Millisecond)) {
			t.Errorf("pool %+v until %v", l.Stats().Pool.Pool, until)
		}
		time.Sleep(91 * time.Second)
		l.Allow("K")
		tested.Want(t, "replicas after its end", l.Stats().Pool.Replicas, 3)
	})
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		h := mount(t, newLimiter(t), Logger(slog.New(slog.NewTextHandler(&out, nil))))
		put := func(body string) LimiterState {
			return decode[State](t, putting("/override", body).send(t, h)).Limiters["api"]
		}
		none := put(`{"key":"K","limit":{"rates":[],"in_flight":7}}`)
		s := put(`{"key":"K","limit":{"deny":true},"ttl_seconds":90.5}`)
		until := time.Now().Add(90500 * time.Millisecond)
		explained := decode[Explanation](t, get("/explain?key=K").send(t, h))
		used := decode[Keys](t, get("/keys").send(t, h)).Keys[0]
		if !s.Overrides[0].Until.Equal(until) || !explained.OverrideUntil.Equal(until) ||
			!used.OverrideUntil.Equal(until) || !strings.Contains(out.String(), " new.until=2000-01-01T00:01:30.5") ||
			!strings.Contains(out.String(), ` new.then="in flight: 7"`) {
			t.Errorf("until %v: %+v, %+v, %+v, %s", until, s.Overrides, explained, used, &out)
		}
		if was := s.Was; none.Was != nil || was == nil || was.Key != "K" || was.Limit.InFlight != 7 ||
			!was.Until.IsZero() || was.Then != nil || s.Overrides[0].Then.InFlight != 7 {
			t.Errorf("before: %+v, then %+v, now %+v", none.Was, was, s.Overrides)
		}
		off := put(`{"key":"K","limit":null}`)
		if was := off.Was; off.OverrideCount != 0 || was.Then.InFlight != 7 || !was.Limit.Denies ||
			!was.Until.Equal(until) {
			t.Errorf("before it was taken off: %+v", off.Was)
		}
		put(`{"key":"K","limit":{"rates":[],"in_flight":7}}`) // undone: what follows, and what was
		s = put(`{"key":"K","limit":{"deny":true},"ttl_seconds":90.5}`)
		time.Sleep(91 * time.Second)
		after := decode[State](t, get("/state").send(t, h)).Limiters["api"]
		if own := after.Overrides; after.OverrideCount != 1 || own[0].Limit.InFlight != 7 || !own[0].Until.IsZero() ||
			own[0].Then != nil || after.ETag == s.ETag {
			t.Errorf("after its end: %d %+v with the tag %s", after.OverrideCount, after.Overrides, after.ETag)
		}
	})
}

func TestWhichLimiter(t *testing.T) {
	h, api, tenants := two(t)
	tests := []struct {
		method, path, body string
		status             int
	}{
		{"PUT", "/limit", `{"deny":true}`, 400}, {"PUT", "/override", `{"key":"K","limit":null}`, 400},
		{"PUT", "/dry-run", `{"dry_run":true}`, 400},
		{"PUT", "/plan", `{"plan":"paid","limit":null}`, 400},
		{"PUT", "/plan?limiter=none", `{"plan":"paid","limit":null}`, 404},
		{"PUT", "/reset", `{"key":"K"}`, 400}, {"PUT", "/reset?limiter=none", `{"key":"K"}`, 404},
		{"GET", "/keys", ``, 400}, {"GET", "/explain?key=K", ``, 400},
		{"PUT", "/limit?limiter=none", `{"deny":true}`, 404},
		{"PUT", "/replicas?limiter=none", `{"replicas":3}`, 404},
		{"GET", "/state?limiter=none", ``, 404},
	}
	for _, tt := range tests {
		rec := request{method: tt.method, path: tt.path, body: tt.body}.send(t, h)
		if got := decode[Problem](t, rec); rec.Code != tt.status || got.Field != "limiter" ||
			got.Range != "api, tenants" {
			t.Errorf("%s %s: %d %+v", tt.method, tt.path, rec.Code, got)
		}
	}
	tested.Want(t, "changes", api.Stats().Version+tenants.Stats().Version, 0)
	none := quietOf(t, new(quotient.Registry))
	for _, req := range []request{
		putReplicas(`{"replicas":3}`),
		{method: "PUT", path: "/limit", body: `{"deny":true}`},
		{method: "GET", path: "/keys"},
	} {
		if rec := req.send(t, none); rec.Code != 404 || decode[Problem](t, rec).Field != "limiter" {
			t.Errorf("%s without a limiter: %d", req.path, rec.Code)
		}
	}
	var many quotient.Registry
	for i := range 30 {
		must(t, many.Add(fmt.Sprintf("l%02d", i), api))
	}
	none.api.reg = &many
	if got := decode[Problem](t, get("/state?limiter=x").send(t, none)); strings.Count(
		got.Range, ", ") != 20 || !strings.HasSuffix(got.Range, "…") {
		t.Errorf("names %q", got.Range)
	}
}

// tagFor is the tag of a limiter under a name.
func tagFor(h *Handler, name string, l *quotient.Limiter) string {
	return h.api.etag(name, l, l.Stats().Version)
}

func TestConditions(t *testing.T) {
	h, api, tenants := two(t)
	tag := tagFor(h, "api", api)
	tests := []struct {
		path    string
		ifMatch []string
		want    int
	}{
		{"?limiter=api", nil, 200}, {"?limiter=api", []string{tag}, 200},
		{"?limiter=api", []string{"*"}, 200}, {"?limiter=api", []string{`"a", *`}, 412},
		{"?limiter=api", []string{`"a"`, "*"}, 412}, {"?limiter=api", []string{`"a", "b" ,` + tag}, 200},
		{"?limiter=api", []string{`"a"`, tag}, 200}, {"", nil, 200}, {"", []string{"*"}, 200},
		{"?limiter=api", []string{""}, 412}, {"?limiter=api", []string{`"a"`}, 412},
		{"?limiter=api", []string{"W/" + tag}, 412}, {"?limiter=api", []string{strings.Trim(tag, `"`)}, 412},
		{"?limiter=tenants", []string{tag}, 412}, {"?limiter=api", []string{tagFor(h, "api", tenants)}, 412},
		{"", []string{tag}, 412}, {"", []string{""}, 412},
	}
	for _, tt := range tests {
		old := tagFor(h, "api", api)
		header := http.Header{}
		for _, given := range tt.ifMatch {
			header.Add("If-Match", strings.ReplaceAll(given, tag, old))
		}
		given := header["If-Match"]
		before := api.Stats().Version + tenants.Stats().Version
		rec := putting("/replicas"+tt.path, fmt.Sprintf(`{"replicas":%d}`, before+2)).headed(header).send(t, h)
		if rec.Code != tt.want ||
			(api.Stats().Version+tenants.Stats().Version != before) != (tt.want == 200) {
			t.Errorf("%s %q: %d and version %d after %d, want %d", tt.path, given, rec.Code,
				api.Stats().Version+tenants.Stats().Version, before, tt.want)
		}
		if rec.Code == 412 && decode[Problem](t, rec).Field != "If-Match" {
			t.Errorf("%s %q: %s", tt.path, given, rec.Body)
		}
	}
	old := tagFor(h, "api", api)
	for given, want := range map[string]int{old: 304, `"x", ` + old: 304, "*": 304, `"x"`: 200, "": 200} {
		rec := get("/state?limiter=api").with("If-None-Match", given).send(t, h)
		if rec.Code != want || rec.Header().Get("ETag") != old {
			t.Errorf("If-None-Match %s: %d with ETag %s, want %d", given, rec.Code,
				rec.Header().Get("ETag"), want)
		}
	}
	rec := get("/state").with("If-None-Match", "*").send(t, h)
	if rec.Code != 200 || rec.Header().Get("ETag") != "" {
		t.Errorf("all limiters: %d with ETag %q", rec.Code, rec.Header().Get("ETag"))
	}
	other, _, _ := two(t)
	if tagFor(h, "api", api) == tagFor(h, "api", tenants) ||
		tagFor(h, "api", api) == tagFor(h, "other", api) ||
		tagFor(h, "api", api) == tagFor(other, "api", api) {
		t.Error("another limiter has the same tag")
	}
}

// TestWhatALimiterDoesNotTake is in range and yet refused: the answer has the field that is to blame, and
// nothing has changed.
func TestWhatALimiterDoesNotTake(t *testing.T) {
	const deny = `,"limit":{"deny":true}}`
	units := `{"rates":[` + strings.Repeat(`{"unit":"%d","events":1,"per_seconds":1},`, 3) +
		`{"unit":"u3","events":1,"per_seconds":1}]}`
	units = fmt.Sprintf(units, 1, 2, 3)
	lower := CheckKeys(func(limiter, key string) error {
		if key == strings.ToLower(key) {
			return nil
		}
		return fmt.Errorf("no key %q of %s", key, limiter)
	})
	for _, tt := range []struct {
		state, path, body string
		want              Problem // Detail is a part of it
	}{
		{"fresh", "/limit", units, Problem{Field: "rates", Detail: `"u3"`}},
		{"fresh", "/plan", `{"plan":"p","limit":` + units + `}`,
			Problem{Field: "plan", Value: "p", Detail: `"u3"`}},
		{"64 plans", "/plan", `{"plan":"more"` + deny, Problem{Field: "plan", Value: "more", Detail: "64"}},
		{"all overrides", "/override", `{"key":"c"` + deny, Problem{Field: "key"}},
		{"fresh", "/override", `{"key":"/A"` + deny, Problem{Field: "key", Detail: `no key "/A" of api`}},
		{"fresh", "/override?validate=1", `{"key_base64":"L0E="` + deny, Problem{Field: "key", Detail: `no key "/A"`}},
		{"a shared gate", "/reset", `{"key":"k"}`, Problem{Field: "key", Detail: "shares one limit"}},
	} {
		l := trialStates[tt.state](t)
		h, before := quiet(t, l, lower), configurationOf(l)
		if rec := putting("/override", `{"key":"/A","limit":null}`).send(t, h); rec.Code != 200 {
			t.Errorf("to take one off: %d %s", rec.Code, rec.Body)
		}
		l.Allow("/B")
		rec := putting("/override?validate=1", `{"key":"/B"`+deny).send(t, h)
		if tt.state == "fresh" && rec.Code != 200 {
			t.Errorf("of a key that a request has had: %d %s", rec.Code, rec.Body)
		}
		rec = putting(tt.path, tt.body).send(t, h)
		got := decode[Problem](t, rec)
		if rec.Code != 422 || got.Field != tt.want.Field || got.Value != tt.want.Value ||
			!strings.Contains(got.Detail, tt.want.Detail) {
			t.Errorf("%s %s: %d %+v", tt.path, tt.body, rec.Code, got)
		}
		if after := configurationOf(l); !reflect.DeepEqual(before, after) {
			t.Errorf("%s %s: %+v became %+v", tt.path, tt.body, before, after)
		}
	}
}

func TestEveryChangeIsLogged(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	h := mount(t, newLimiter(t, quotient.Logger(log)), Token(secret), Logger(log))
	tests := []struct{ path, body, want string }{
		{"/limit", `{"rates":[],"in_flight":5}`, `old="second: 100 per 1s, burst 10" new="in flight: 5"`},
		{"/limit", `{"rates":[{"events":1,"per_seconds":1,"kind":"paced"}]}`,
			`old="in flight: 5" new="rate 1: 1 per 1s, paced"`},
		{"/limit", `{"rates":[{"events":1,"per_seconds":1,"kind":"paced","no_turns":true}]}`,
			`old="rate 1: 1 per 1s, paced" new="rate 1: 1 per 1s, paced, no turns"`},
		{"/plan", `{"plan":"paid","limit":{"rates":[],"in_flight":4}}`,
			`old.plan=paid old.limit=none new.plan=paid new.limit="in flight: 4"`},
		{"/plan", `{"plan":"paid","limit":null}`,
			`old.plan=paid old.limit="in flight: 4" new.plan=paid new.limit=none`},
		{"/override", `{"key":"K\n<","limit":{"deny":true}}`,
			`old.key="\"K\\n<\"" old.limit=none new.key="\"K\\n<\"" new.limit=deny`},
		{"/reset", `{"key":"K\n<"}`,
			`old.key="\"K\\n<\"" old.remembered=true old.used=0 old.waiting=0 old.in_flight=0 ` +
				`new.key="\"K\\n<\"" new.remembered=true new.used=0 new.waiting=0 new.in_flight=0`},
		{"/dry-run", `{"dry_run":true}`, `old=false new=true`},
		{"/replicas", `{"replicas":4,"ordinal":2}`, "old.replicas=1 old.ordinal=0 old.fixed=false " +
			"new.replicas=4 new.ordinal=2 new.fixed=false"},
	}
	for i := range 2 * len(tests) {
		tt := tests[i/2]
		out.Reset()
		header := http.Header{"Authorization": {"Bearer " + secret}}
		rec := putting(tt.path, tt.body).headed(header).send(t, h)
		tested.Want(t, fmt.Sprintf("%s: %s", tt.path, rec.Body), rec.Code, 200)
		if i%2 == 1 && tt.path != "/reset" {
			tested.Want(t, tt.path+" that changes nothing", out.String(), "")
			continue
		}
		want := " limiter=api " + tt.want + ` from=127.0.0.1:50000 by="token 1"` + "\n"
		if got := out.String(); !strings.HasSuffix(got, want) || strings.Count(got, "\n") != 1 {
			t.Errorf("logged\n%s, want it to end in\n%s", got, want)
		}
	}
}

// TestNoNumberIsBeyondJSON: NaN and infinity become numbers, also where the root package has them.
func TestNoNumberIsBeyondJSON(t *testing.T) {
	for x, want := range map[float64]float64{
		math.Inf(1):  math.MaxFloat64,
		math.Inf(-1): -math.MaxFloat64,
		1.5:          1.5,
		0:            0,
	} {
		tested.Want(t, fmt.Sprintf("finite(%v)", x), finite(x), want)
	}
	nan := quotient.Rule{Share: math.NaN(), Limit: math.Inf(1)}
	e := newExplanation("api", quotient.Explanation{
		KeyState: quotient.KeyState{Rules: []quotient.RuleState{
			{Left: math.Inf(-1), Rule: nan}, {Pace: math.Inf(1), Rule: nan},
		}},
		Next: quotient.Decision{Rule: nan},
	}, quotient.Stats{})
	if l := e.Learned[0]; l.Pace != math.MaxFloat64 || l.Share != 0 || l.Ceiling != math.MaxFloat64 ||
		e.Rules[0].Tokens != -math.MaxFloat64 || e.Next.Share != 0 {
		t.Errorf("%+v", e)
	}
	k := newKeys("api", []quotient.KeyState{{Used: math.NaN(), Rules: []quotient.RuleState{
		{Rule: quotient.Rule{Window: 1}, Left: math.Inf(-1)}, {Pace: math.Inf(1)},
	}}})
	if u := k.Keys[0]; u.Used != 0 || u.Tokens[0] != -math.MaxFloat64 || u.Rate != math.MaxFloat64 {
		t.Errorf("%+v", u)
	}
}

// TestKeysInBase64: exactly one of the two names, in the one spelling of standard base64.
func TestKeysInBase64(t *testing.T) {
	for n, want := range map[int]int{0: 200, 1: 200, longestKey: 200, longestKey + 1: 400} {
		coded := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{0x80}, n))
		h := quiet(t, newLimiter(t))
		put := putting("/override", `{"key_base64":"`+coded+`","limit":{"deny":true}}`).send(t, h)
		explained := get("/explain?key_base64="+url.QueryEscape(coded)).send(t, h)
		if put.Code != want || explained.Code != want || want == 200 && !decode[Explanation](t, explained).Overridden {
			t.Errorf("%d bytes: %d and %d %s", n, put.Code, explained.Code, explained.Body)
		}
	}
	for _, query := range []string{"gA", "gB==", "gA==%0A", "-_==", "gA==&key=K"} {
		rec := get("/explain?key_base64="+query).send(t, quiet(t, newLimiter(t)))
		if rec.Code != 400 || decode[Problem](t, rec).Range == "" {
			t.Errorf("%s: %d %s", query, rec.Code, rec.Body)
		}
	}
}

// write is a change that went through: from which tag to which.
type write struct{ from, to string }

// TestAttackConcurrentWriters: of a thousand writers who have seen the same state one wins. Then all add one
// to the limit again and again, each on top of what it has read: those that get through form one chain, and
// no addition is lost.
func TestAttackConcurrentWriters(t *testing.T) {
	const writers, rounds = 1000, 2
	l := newLimiter(t)
	srv := httptest.NewServer(quiet(t, l))
	defer srv.Close()
	transport := &http.Transport{MaxIdleConnsPerHost: writers}
	defer transport.CloseIdleConnections()
	c, err := NewClient(srv.URL, HTTPClient(&http.Client{Transport: transport}))
	must(t, err)
	first, err := c.Limiter(t.Context(), "api")
	must(t, err)
	var mu sync.Mutex
	var won []write
	conflicts := 0
	add := func(seen LimiterState) {
		limit := quotient.Rates(quotient.PerSecond(seen.Limit.Rates[0].Events + 1))
		got, err := c.SetLimit(t.Context(), "api", limit, IfMatch(seen.ETag))
		var p *Problem
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil:
			won = append(won, write{seen.ETag, got.ETag})
		case errors.Is(err, ErrConflict) && errors.As(err, &p) && p.Field == "If-Match":
			conflicts++
		default:
			t.Error(err)
		}
	}
	together(writers, func() { add(first) })
	if len(won) != 1 || conflicts != writers-1 {
		t.Fatalf("%d of %d writers with one tag won, %d conflicts", len(won), writers, conflicts)
	}
	together(writers, func() {
		for range rounds {
			seen, err := c.Limiter(context.WithoutCancel(t.Context()), "api")
			if err != nil {
				t.Error(err)
				return
			}
			add(seen)
		}
	})
	tested.Not(t, len(won)+conflicts != writers*(rounds+1), "%d won and %d conflicts", len(won), conflicts)
	t.Logf("%d won, %d conflicts", len(won), conflicts)
	last := chain(t, first.ETag, won)
	end, err := c.Limiter(t.Context(), "api")
	if err != nil || end.ETag != last || end.Version != first.Version+uint64(len(won)) {
		t.Errorf("at the end %s version %d (%v), want %s and %d more than %d", end.ETag, end.Version, err,
			last, len(won), first.Version)
	}
	if want := first.Limit.Rates[0].Events + float64(len(won)); end.Limit.Rates[0].Events != want {
		t.Errorf("the limit is %v after %d additions, want %v", end.Limit.Rates[0].Events, len(won), want)
	}
}

// together runs f so many times at once.
func together(n int, f func()) {
	start := make(chan struct{})
	var all sync.WaitGroup
	for range n {
		all.Go(func() { <-start; f() })
	}
	close(start)
	all.Wait()
}

// chain follows the writes from the first tag, and fails unless each has one successor and all are on the
// way.
func chain(t *testing.T, tag string, writes []write) string {
	t.Helper()
	next := make(map[string]string)
	for _, w := range writes {
		if other, twice := next[w.from]; twice {
			t.Errorf("from %s both to %s and %s", w.from, w.to, other)
		}
		next[w.from] = w.to
	}
	for range writes {
		to, ok := next[tag]
		tested.Not(t, !ok, "the chain ends at %s", tag)
		tag = to
	}
	return tag
}

// TestOneChangeAtATime: no other writer can get between the comparison, the old value, the change and the new
// value.
func TestOneChangeAtATime(t *testing.T) {
	l := newLimiter(t)
	h := quiet(t, l).(*Handler).api
	looks := 0
	alone := func() {
		if looks++; h.writing.TryLock() {
			h.writing.Unlock()
			t.Error("another change could come in between")
		}
	}
	c := change{
		show:  func(*quotient.Limiter) slog.Value { alone(); return slog.Value{} },
		apply: func(l *quotient.Limiter) error { alone(); l.SetDryRun(true); return nil },
	}
	r := &call{Request: overLoopback(httptest.NewRequest("PUT", "/dry-run", nil))}
	if h.on(r, c, false); r.bad != nil || looks != 3 {
		t.Errorf("%v after %d looks", r.bad, looks)
	}
}

// Who sends back what GET has answered changes nothing. Nor does who knows of no kind and leaves it out, unless
// there was no way to say it: such a one takes a bucket of one event for a paced rate, which admits no more.
func TestWhatWasReadCanBeSentBack(t *testing.T) {
	for _, r := range []quotient.Rate{
		{Events: 10}, {Events: 10, Burst: 3}, {Events: 10, Burst: 1}, {Events: 10, Kind: quotient.Paced},
		{Events: 10, Kind: quotient.Paced, Burst: 1, NoTurns: true}, {Events: 10, Kind: quotient.Window},
		{Events: 10, Kind: quotient.CountedWindow},
	} {
		r.Name, r.Per = "r", time.Second
		l, err := quotient.New(quotient.Rates(r))
		must(t, err)
		h := quiet(t, l)
		back := func(without string) quotient.Rate {
			rates, err := json.Marshal(decode[State](t, get("/state").send(t, h)).Limiters["api"].Limit.Rates)
			must(t, err)
			rates = regexp.MustCompile(without).ReplaceAll(rates, nil)
			if rec := putting("/limit", fmt.Sprintf(`{"rates":%s}`, rates)).send(t, h); rec.Code != 200 {
				t.Errorf("%s: %d %s", rates, rec.Code, rec.Body)
			}
			return l.Stats().Limit.Rates[0]
		}
		tested.Want(t, "what it became", back(`^$`), r)
		if r.Kind == quotient.Bucket && r.Burst == 1 {
			r.Kind, r.Burst = quotient.Paced, 0
		}
		tested.Want(t, "what it became without its kind", back(`"kind":"[a-z-]+",`), r)
	}
}
