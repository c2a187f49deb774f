package proxy

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/dunglas/httpsfv"
)

// headerOf makes a header of "Name: value" lines.
func headerOf(text string) http.Header {
	h := make(http.Header)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			h.Add(name, value)
		}
	}
	return h
}

// textOf is the reverse, by name.
func textOf(h http.Header) string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(h)) {
		for _, value := range h[name] {
			lines = append(lines, name+": "+value)
		}
	}
	return strings.Join(lines, "\n")
}

// TestFieldsAreOneAnswer: the client sees fields of one form, which do not contradict each other.
func TestFieldsAreOneAnswer(t *testing.T) {
	const draft = "Ratelimit: \"minute\";r=50;t=30\nRatelimit-Policy: \"minute\";q=100;w=60"
	const x = "X-Ratelimit-Limit: 100\nX-Ratelimit-Remaining: 50\nX-Ratelimit-Reset: 30"
	const ours, theirs = "ours", "theirs"
	both := func(limit, policy string) string { return "Ratelimit: " + limit + "\nRatelimit-Policy: " + policy }
	day := both(`"day";r=1;t=9`, `"day";q=9;w=86400`)
	for _, row := range []struct{ what, ours, theirs, want string }{
		{"lists are joined", draft, day,
			"Ratelimit: \"minute\";r=50;t=30\nRatelimit: \"day\";r=1;t=9\n" +
				"Ratelimit-Policy: \"minute\";q=100;w=60\nRatelimit-Policy: \"day\";q=9;w=86400"},
		{"names as tokens are joined", draft, "Ratelimit: day;r=1;t=9",
			"Ratelimit: \"minute\";r=50;t=30\nRatelimit: day;r=1;t=9\nRatelimit-Policy: \"minute\";q=100;w=60"},
		{"of one name theirs has less left", draft, both(`"minute";r=4;t=9`, `"minute";q=10;w=60`), theirs},
		{"of one name ours has less left", draft, both(`"minute";r=51;t=99`, `"minute";q=300;w=60`), ours},
		{"of one name theirs lasts longer", draft, both(`"minute";r=50;t=31`, `"minute";q=300;w=60`), theirs},
		{"of one name, beside others", draft,
			both(`"minute";r=4;t=9, "day";r=7`, `"minute";q=10;w=60, "day";q=9;w=86400`), theirs},
		{"a policy alone of one name", draft, "Ratelimit-Policy: \"minute\";q=10;w=60", ours},
		{"draft 07 has less left", draft, both("limit=100, remaining=4, reset=9", "100;w=60"), theirs},
		{"draft 07 has more left", draft, both("limit=100, remaining=51, reset=99", "100;w=60"), ours},
		{"draft 07 lasts longer", draft, "Ratelimit: limit=100, remaining=50, reset=31", theirs},
		{"single fields have less left", draft,
			"X-Ratelimit-Limit: 100\nX-Ratelimit-Remaining: 4\nX-Ratelimit-Reset: 9", theirs},
		{"single fields have more left", draft,
			"Ratelimit-Limit: 100\nRatelimit-Remaining: 51\nRatelimit-Reset: 9", ours},
		{"ours are single, theirs have less left", x,
			"X-Ratelimit-Limit: 9\nX-Ratelimit-Remaining: 4\nX-Ratelimit-Reset: 9", theirs},
		{"ours are single, theirs have more left", x,
			"X-Ratelimit-Limit: 99\nX-Ratelimit-Remaining: 60\nX-Ratelimit-Reset: 9", ours},
		{"ours are single, theirs a list with less left", x, day, theirs},
		{"theirs cannot be read", draft, both("((", `"a"`), ours},
		{"theirs says nothing of what is left", draft, "X-Ratelimit-Limit: 100", ours},
		{"theirs is very long", draft, "Ratelimit: \"" + strings.Repeat("a", 5000) + "\";r=1", ours},
	} {
		got := make(http.Header)
		joined := together(linesOf(headerOf(row.ours)), linesOf(headerOf(row.theirs)))
		joined.set(got)
		switch row.want {
		case ours:
			row.want = row.ours
		case theirs:
			row.want = row.theirs
		}
		want(t, row.what, textOf(got), row.want)
	}
}

const hundred = `
[limiters.all]
rates = [{ name = "hour", events = 100, per = "1h" }]
`

// TestFieldsReachTheClient: in whatever way the answer comes.
func TestFieldsReachTheClient(t *testing.T) {
	for _, policy := range []string{"fixed", "tracking"} {
		up := func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/hints" {
				w.Header().Set("Link", "</a>")
				w.WriteHeader(http.StatusEarlyHints)
				w.Header().Del("Link")
			}
			if fields := r.Header.Get("X-Fields"); fields != "" {
				for name, values := range headerOf(strings.ReplaceAll(fields, "|", "\n")) {
					w.Header()[name] = values
				}
			}
		}
		w := newWorld(t, hundred+"policy = \""+policy+"\"\n"+all, up)
		for _, row := range []struct{ path, sent, limit string }{
			{"/none", "", `"hour";r=99;t=36`},
			{"/hints", "", `"hour";r=99;t=36`},
			{"/list", `Ratelimit: "day";r=500;t=9`, `"hour";r=99;t=36 & "day";r=500;t=9`},
			{"/less", `Ratelimit: limit=5, remaining=4, reset=9`, `limit=5, remaining=4, reset=9`},
			{"/more", `Ratelimit: limit=500, remaining=400, reset=9`, `"hour";r=99;t=36`},
			{"/single", `X-Ratelimit-Limit: 500|X-Ratelimit-Remaining: 400`, `"hour";r=99;t=36`},
		} {
			resp, _ := w.get(row.path, "X-Fields", row.sent)
			want(t, policy+": Ratelimit of "+row.path, strings.Join(resp.Header["Ratelimit"], " & "),
				row.limit)
			want(t, policy+": X-Ratelimit-Remaining of "+row.path,
				resp.Header.Get("X-Ratelimit-Remaining"), "")
		}
	}
}

// FuzzTogether: whatever an upstream sends, the client gets fields of one form.
func FuzzTogether(f *testing.F) {
	f.Add(`"minute";r=5`, `"minute";q=9;w=60`, "")
	f.Add("limit=1, remaining=2, reset=3", "1;w=60", "")
	f.Add("", "", "7")
	f.Add("((", "a", "x")
	f.Fuzz(func(t *testing.T, limit, policy, remaining string) {
		theirs := make(http.Header)
		for name, value := range map[string]string{
			"Ratelimit":             limit,
			"Ratelimit-Policy":      policy,
			"X-Ratelimit-Remaining": remaining,
		} {
			if value != "" {
				theirs.Set(name, value)
			}
		}
		ours := headerOf("Ratelimit: \"minute\";r=50;t=30\nRatelimit-Policy: \"minute\";q=100;w=60")
		got := make(http.Header)
		joined := together(linesOf(ours), linesOf(theirs))
		joined.set(got)
		list, err := httpsfv.UnmarshalList(got["Ratelimit"])
		single := len(got["X-Ratelimit-Remaining"]) > 0
		if err == nil && single && len(list) > 0 && contains(list, "minute") &&
			len(theirs["Ratelimit"]) == 0 {
			t.Errorf("of %v two forms are left: %v", theirs, got)
		}
		if len(got["Ratelimit"]) == 0 && !single {
			t.Errorf("of %v nothing is left", theirs)
		}
	})
}
