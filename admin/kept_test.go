package admin

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/tested"
)

// keeping is a handler of "api" that keeps overrides in a file, until the test ends.
func keeping(t *testing.T, path string, l *quotient.Limiter, opts ...Option) *Handler {
	t.Helper()
	var reg quotient.Registry
	must(t, reg.Add("api", l))
	h, err := New(&reg, append(opts, KeepOverrides(path))...)
	must(t, err)
	t.Cleanup(func() { must(t, h.Close()) })
	return h
}

// TestOverridesAreKept: what operators have set and not taken off is there again, and what has ended is not.
func TestOverridesAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "overrides.json")
	quietly := Logger(slog.New(slog.DiscardHandler))
	first := newLimiter(t)
	h := keeping(t, path, first, quietly)
	puts := func(body string, status int) {
		t.Helper()
		rec := putting("/override", body).send(t, h)
		tested.Want(t, fmt.Sprintf("%s: %s", body, rec.Body), rec.Code, status)
	}
	puts(`{"key":"gone","limit":{"deny":true}}`, 200)
	puts(`{"key":"gone","limit":null}`, 200)
	puts(`{"key":"reloaded","limit":{"deny":true}}`, 200)
	must(t, first.Override("reloaded", nil, 0)) // as the program's configuration may
	puts(`{"key":"short","limit":{"deny":true},"ttl_seconds":0.001}`, 200)
	puts(`{"key":"long","limit":{"rates":[{"name":"d","events":9,"per_seconds":86400,"kind":"window","zone":"UTC"}],"in_flight":2},"ttl_seconds":3600}`, 200)
	puts(`{"key_base64":"gA==","limit":{"unlimited":true}}`, 200)
	puts(`{"key":"","limit":{"deny":true}}`, 200)
	want := first.Overrides()
	delete(want, "short")
	_, err := New(new(quotient.Registry), KeepOverrides(path))
	if err == nil || !strings.Contains(err.Error(), path+": another process has it") {
		t.Errorf("a second handler: %v", err)
	}
	must(t, h.Close())
	puts(`{"key":"late","limit":{"deny":true}}`, http.StatusInternalServerError)
	tested.Want(t, "overrides after a change that is not kept", first.Explain("late").Overridden, false)
	tested.Until(t, "the short one ends", func() bool { return !first.Explain("short").Overridden })
	second := newLimiter(t)
	keeping(t, path, second, quietly)
	same := func(a, b quotient.KeyLimit) bool {
		return fmt.Sprint(a.Limit) == fmt.Sprint(b.Limit) && a.Until.Sub(b.Until).Abs() < time.Minute
	}
	if got := second.Overrides(); !maps.EqualFunc(got, want, same) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestAChangeThatCannotBeKept: nothing has changed, in the limiter or in the file.
func TestAChangeThatCannotBeKept(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "overrides.json")
	l := newLimiter(t, quotient.MaxKeys(2))
	h := keeping(t, path, l, Logger(slog.New(slog.DiscardHandler)))
	one := `{"key":"K","limit":{"rates":[],"in_flight":%d}}`
	tested.Want(t, "the first", putting("/override", fmt.Sprintf(one, 1)).send(t, h).Code, 200)
	text, err := os.ReadFile(path)
	must(t, err)
	must(t, os.Mkdir(path+".new", 0o700))
	for _, body := range []string{fmt.Sprintf(one, 2), `{"key":"K","limit":null}`} {
		rec := putting("/override", body).send(t, h)
		if p := decode[Problem](t, rec); rec.Code != 500 || !strings.Contains(p.Detail, errNotKept.Error()) {
			t.Errorf("%s: %d %+v", body, rec.Code, p)
		}
	}
	now, err := os.ReadFile(path)
	if o := l.Overrides(); err != nil || len(o) != 1 || o["K"].Limit.InFlight != 1 || !bytes.Equal(text, now) {
		t.Errorf("overrides %+v, the file %s, %v", o, now, err)
	}
	must(t, os.Remove(path+".new"))
	tested.Want(t, "the next", putting("/override", fmt.Sprintf(one, 3)).send(t, h).Code, 200)
	text, err = os.ReadFile(path)
	must(t, err)
	tested.Want(t, "one too many", putting("/override", `{"key":"L","limit":{"deny":true}}`).send(t, h).Code, 422)
	h.api.kept.put("api", strings.Repeat("k", mostKept), &quotient.KeyLimit{Limit: quotient.Limit{Deny: true}})
	err = h.api.kept.write()
	now, readErr := os.ReadFile(path)
	if err == nil || !strings.Contains(err.Error(), "more than 4194304 bytes") || readErr != nil || !bytes.Equal(text, now) {
		t.Errorf("too much: %v, the file %s, %v", err, now, readErr)
	}
}

// TestFilesOfOverrides: what New makes of them.
func TestFilesOfOverrides(t *testing.T) {
	const line = `{"limiter":"api","key":"K","limit":{"deny":true}%s}`
	one := func(more string) string { return `{"overrides":[` + fmt.Sprintf(line, more) + `]}` }
	var out bytes.Buffer
	for _, tt := range []struct{ text, err, warns string }{
		{``, "not one JSON value", ""},
		{`{"overrides":[`, "not one JSON value", ""},
		{`{}`, "overrides: the field is missing", ""},
		{`{"overrides":[{"limiter":"api","key":"K"}]}`, "overrides[0].limit: the field is missing", ""},
		{`{"overrides":[{"limiter":"api","key":"K","limit":null}]}`, "overrides[0].limit: there is none", ""},
		{`{"overrides":[{"limiter":"api","key":"K","limit":{"rates":[]}}]}`, "overrides[0].limit.rates: no rate", ""},
		{one(`,"until":"soon"`), "overrides[0].until: not an instant", ""},
		{one(`,"ttl_seconds":1`), "overrides[0].ttl_seconds: there is no such field", ""},
		{strings.Repeat(" ", mostKept+1), "larger than", ""},
		{one(""), "", ""},
		{one(`,"until":"2000-01-01T00:00:00Z"`), "", ""},
		{strings.Replace(one(""), `"api"`, `"none"`, 1), "", "there is no such limiter"},
		{strings.Replace(one(""), `"deny":true`, `"rates":[{"events":1,"per_seconds":1,"unit":"a"},{"events":1,"per_seconds":1,`+
			`"unit":"b"},{"events":1,"per_seconds":1,"unit":"c"},{"events":1,"per_seconds":1,"unit":"d"}]`, 1), "", "units"},
	} {
		path := filepath.Join(t.TempDir(), "overrides.json")
		must(t, os.WriteFile(path, []byte(tt.text), 0o600))
		var reg quotient.Registry
		must(t, reg.Add("api", newLimiter(t)))
		out.Reset()
		h, err := New(&reg, KeepOverrides(path), Logger(slog.New(slog.NewTextHandler(&out, nil))))
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), path+": ") ||
			err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%.200s: %v, want %q", tt.text, err, tt.err)
		}
		if (out.Len() == 0) != (tt.warns == "") || !strings.Contains(out.String(), tt.warns) {
			t.Errorf("%.200s: logged %s, want %q", tt.text, &out, tt.warns)
		}
		if err == nil {
			must(t, h.Close())
		}
	}
	for _, path := range []string{"", filepath.Join(t.TempDir(), "none", "overrides.json")} {
		if _, err := New(new(quotient.Registry), KeepOverrides(path)); err == nil ||
			!strings.Contains(err.Error(), "KeepOverrides: ") || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v", path, err)
		}
	}
	must(t, quietOf(t, new(quotient.Registry)).Close())
	must(t, new(Handler).Close())
}
