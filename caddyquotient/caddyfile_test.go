package caddyquotient

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/quotient-go/quotient/internal/tested"
)

// TestCaddyfile checks what a directive says, as JSON, or the error for it with its line.
func TestCaddyfile(t *testing.T) {
	long := strings.Repeat("x", 65)
	for _, c := range []struct{ text, want string }{
		{"quotient {\n rate 100/s\n}", `{"rates":[{"events":100,"per":1000000000}]}`},
		{"quotient api {\n rate 5/10s paced\n}",
			`{"zone":"api","rates":[{"events":5,"per":10000000000,"kind":"paced"}]}`},
		{"quotient {\n rate .5/1.5m window name w\n}",
			`{"rates":[{"name":"w","events":0.5,"per":90000000000,"kind":"window"}]}`},
		{"quotient {\n rate 9/d burst 2 bucket\n rate 1/s\n}",
			`{"rates":[{"events":9,"per":86400000000000,"kind":"bucket","burst":2},{"events":1,"per":1000000000}]}`},
		{"quotient {\n in_flight 5\n key {a}{b}\n ipv6_prefix 56\n wait 5s\n dry_run\n replicas 3\n}",
			`{"in_flight":5,"key":"{a}{b}","ipv6_prefix":56,"wait":5000000000,"dry_run":true,"replicas":3}`},
		{"quotient {\n deny\n pool dns:a.svc.\n await_pool 1m\n max_keys 9\n fields off\n status 503\n}",
			`{"deny":true,"pool":"dns:a.svc.","await_pool":60000000000,"max_keys":9,"fields":"off","status":503}`},
		{"quotient {\n plan a {\n in_flight 2\n }\n plan b {\n deny\n }\n plan_by {p}\n}",
			`{"plans":{"a":{"in_flight":2},"b":{"deny":true}},"plan_by":"{p}"}`},

		{"quotient", "it limits nothing: give it a rate, in_flight or deny, at Test:1"},
		{"quotient a b", "wrong argument count or unexpected line ending after 'b', at Test:1"},
		{"quotient A {\n deny\n}", `zone: the name "A" is not 1 to 64 of a-z, 0-9, '.', '_' and '-', at Test:3`},
		{"quotient " + long + " {\n deny\n}", "is not 1 to 64"},
		{"quotient {\n rates 1/s\n}", "unknown option rates, at Test:2"},
		{"quotient {\n rate\n}", "unexpected line ending after 'rate', at Test:2"},
		{"quotient {\n rate 100\n}",
			`rate: "100" is not a number of requests in a period, such as 100/s or 5/10s, at Test:2`},
		{"quotient {\n rate 100/\n}", "such as 100/s"},
		{"quotient {\n rate x/s\n}", "such as 100/s"},
		{"quotient {\n rate 1/parsec\n}", "such as 100/s"},
		{"quotient {\n rate 0/s\n}", "Events: 0 is not above 0 and at most 1e+12, at Test:2"},
		{"quotient {\n rate NaN/s\n}", "Events: NaN"},
		{"quotient {\n rate 1/0s\n}", "Per: 0s"},
		{"quotient {\n rate 1/s often\n}",
			`rate: "often" is not bucket, paced, window, burst or name, or is there twice, at`},
		{"quotient {\n rate 1/s counted-window\n}", `rate: "counted-window" is not`},
		{"quotient {\n rate 1/s paced window\n}", `rate: "window" is not`},
		{"quotient {\n rate 1/s burst\n}", "unexpected line ending after 'burst', at Test:2"},
		{"quotient {\n rate 1/s burst 0\n}", `rate: burst: "0" is not a number above 0, at Test:2`},
		{"quotient {\n rate 1/s window burst 5\n}", "Burst: 5"},
		{"quotient {\n rate 1/s\n rate 2/s name second\n}", "second"},
		{"quotient {\n deny\n rate 1/s\n}", "Deny"},
		{"quotient {\n in_flight 0\n}", `in_flight: "0" is not a number above 0, at Test:2`},
		{"quotient {\n in_flight 2000000000\n}", "InFlight: 2000000000"},
		{"quotient {\n in_flight 1 2\n}", "wrong argument count"},
		{"quotient {\n in_flight 1\n in_flight 2\n}", "in_flight: it is there twice, at Test:3"},
		{"quotient {\n deny now\n}", "wrong argument count"},
		{"quotient {\n deny\n wait 0s\n}", `wait: "0s" is not a duration above 0, such as 5s, at Test:3`},
		{"quotient {\n deny\n wait long\n}", "wait: "},
		{"quotient {\n deny\n key " + strings.Repeat("{", 102) + "\n}",
			"key: too many unclosed placeholders, at Test:4"},
		{"quotient {\n deny\n ipv6_prefix 129\n}", "ipv6_prefix: 129 is not 1 to 128, at Test:4"},
		{"quotient {\n deny\n replicas 1000001\n}", "1000001"},
		{"quotient {\n deny\n max_keys 2000000000\n}", "2000000000"},
		{"quotient {\n deny\n fields all\n}", `fields: "all" is not draft-11, x-ratelimit or off`},
		{"quotient {\n deny\n status 200\n}", "status: 200 is not 400 to 599"},
		{"quotient {\n deny\n pool redis:x\n}", `pool: "redis:x" is not dns:NAME, file:PATH or env:`},
		{"quotient {\n deny\n pool dns:192.0.2.1\n}", "pool: "},
		{"quotient {\n deny\n pool dns:a?b\n}", `pool: "b" behind ? is neither uncapped nor hosts`},
		{"quotient {\n deny\n pool file:\n}", "pool: "},
		{"quotient {\n deny\n await_pool 1m\n}", "await_pool: there is no pool to wait for"},
		{"quotient {\n plan A {\n deny\n }\n plan_by {p}\n}", `plan A: the name "A" is not`},
		{"quotient {\n plan {\n deny\n }\n}", "plan"},
		{"quotient {\n plan a {\n deny\n }\n}", "plan_by: no placeholder names a request's plan"},
		{"quotient {\n plan a {\n wait 5s\n }\n}", "unknown option wait, at Test:3"},
		{"quotient {\n plan a {\n deny\n }\n plan a {\n deny\n }\n}", "plan a: it is there twice, at Test:5"},
	} {
		var h Handler
		err := h.UnmarshalCaddyfile(caddyfile.NewTestDispenser(c.text))
		var got []byte
		if err != nil {
			got = []byte(strings.ReplaceAll(err.Error(), "Testfile", "Test"))
		} else {
			got, err = json.Marshal(&h)
			tested.Must(t, err)
		}
		same := string(got) == c.want || got[0] != '{' && c.want[0] != '{' && strings.Contains(string(got), c.want)
		tested.Not(t, !same, "%s\ngot  %s\nwant %s", c.text, got, c.want)
	}
}

// TestPage reads the Caddyfile of docs/caddy.md as Caddy does before a start.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../docs/caddy.md")
	tested.Must(t, err)
	_, text, _ := strings.Cut(string(page), "```caddyfile\n")
	text, _, whole := strings.Cut(text, "```\n")
	got, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), nil)
	tested.Must(t, err)
	zones := strings.Count(string(got), `"handler":"quotient"`)
	tested.Not(t, !whole || zones != 3 || len(warnings) > 0, "%d directives, warnings %v in\n%s", zones, warnings, text)
}

// FuzzCaddyfile checks that no directive panics, and that what is read is valid as JSON too.
func FuzzCaddyfile(f *testing.F) {
	f.Add("quotient a {\n rate 1/s burst 2 name x\n plan p {\n in_flight 1\n }\n plan_by {p}\n}")
	f.Add("quotient {\n pool dns:x\n wait 5s\n}")
	f.Fuzz(func(t *testing.T, text string) {
		var h, again Handler
		if h.UnmarshalCaddyfile(caddyfile.NewTestDispenser(text)) != nil {
			return
		}
		written, err := json.Marshal(&h)
		tested.Must(t, err)
		tested.Must(t, json.Unmarshal(written, &again))
		tested.Must(t, again.check())
	})
}
