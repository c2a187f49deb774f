package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/quotient-go/quotient"
)

// saysWhy fails unless a refusal gives its reason, in text that does not grow with the body.
func saysWhy(t *testing.T, bad *Problem) {
	t.Helper()
	if bad.Status != 400 || bad.Detail == "" || bad.Field == "" || bad.Range == "" {
		t.Fatalf("refusal %+v", bad)
	}
	if len(bad.Error()) > 8*maxValue+300 {
		t.Fatalf("a refusal of %d bytes", len(bad.Error()))
	}
}

// FuzzReplicas holds: no body panics; what is accepted is in range, is JSON, and reads back as the same pool;
// what is refused comes with a reason in bounded text.
func FuzzReplicas(f *testing.F) {
	f.Add([]byte(`{"replicas":4,"ordinal":2,"ttl_seconds":1.5}`))
	f.Add([]byte(`{"replicas":4,"weight":2,"ordinal":3}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		v, bad := readReplicas(body)
		if bad != nil {
			saysWhy(t, bad)
			if v != (replicas{}) {
				t.Fatalf("refused with %+v", v)
			}
			return
		}
		p := v.pool
		if newLimiter(t).SetPool(p, 0) != nil || p.Fixed || v.ttl < 0 || v.ttl > longestWord {
			t.Fatalf("accepted %+v", v)
		}
		var loose struct {
			Replicas, Ordinal, Weight int
			TTL                       *float64 `json:"ttl_seconds"`
		}
		if err := json.Unmarshal(body, &loose); err != nil || loose.Replicas != p.Replicas ||
			loose.Ordinal != p.Ordinal || loose.Weight != p.Weight || (loose.TTL != nil) != (v.ttl > 0) {
			t.Fatalf("encoding/json reads %+v (%v), readReplicas %+v", loose, err, v)
		}
		canonical := fmt.Sprintf(`{"replicas":%d,"ordinal":%d}`, p.Replicas, p.Ordinal)
		if p.Weight > 0 {
			canonical = fmt.Sprintf(`{"replicas":%d,"weight":%d,"ordinal":%d}`, p.Replicas, p.Weight,
				p.Ordinal)
		}
		if again, bad := readReplicas([]byte(canonical)); bad != nil || again.pool != p {
			t.Fatalf("%s reads back as %+v, %v", canonical, again, bad)
		}
	})
}

// FuzzLimit holds: no body panics; what is accepted the limiter accepts too, and it reads back as the same
// limit from what the client would send of it.
func FuzzLimit(f *testing.F) {
	f.Add([]byte(`{"rates":[{"name":"a","unit":"b","events":1.5,"per_seconds":0.25,"burst":3,"aligned":false,"no_turns":true}],"in_flight":2,"deny":false}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		limit, bad := readLimitBody(body)
		if bad != nil {
			saysWhy(t, bad)
			if !reflect.DeepEqual(limit, quotient.Limit{}) {
				t.Fatalf("refused with %+v", limit)
			}
			return
		}
		if err := limit.Validate(); err != nil || !json.Valid(body) {
			t.Fatalf("accepted %+v: %v", limit, err)
		}
		text, err := json.Marshal(newLimitRequest(limit))
		if err != nil {
			t.Fatal(err)
		}
		again, bad := readLimitBody(text)
		if bad != nil {
			t.Fatalf("%s of %s: %v", text, body, bad)
		}
		sameLimit(t, limit, again)
	})
}

// sameLimit compares limits; a period may have lost the nanoseconds that a float64 of seconds has no room
// for.
func sameLimit(t *testing.T, a, b quotient.Limit) {
	t.Helper()
	if len(a.Rates) != len(b.Rates) {
		t.Fatalf("%+v became %+v", a, b)
	}
	for i := range a.Rates {
		if d := float64(a.Rates[i].Per-b.Rates[i].Per) / float64(a.Rates[i].Per); d < -1e-15 || d > 1e-15 {
			t.Fatalf("%+v became %+v", a, b)
		}
		b.Rates[i].Per = a.Rates[i].Per
	}
	if !reflect.DeepEqual(a, b) && len(a.Rates) > 0 || a.InFlight != b.InFlight || a.Deny != b.Deny {
		t.Fatalf("%+v became %+v", a, b)
	}
}

// FuzzOverride holds: no body panics; what is accepted has one key, as it was sent, of any bytes only in
// base64, and a limit that the limiter accepts.
func FuzzOverride(f *testing.F) {
	f.Add([]byte(`{"key":"K","limit":{"deny":true}}`))
	f.Add([]byte(`{"key":"\ud83d\ude00","limit":null}`))
	f.Add([]byte(`{"key_base64":"gA==","limit":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		v, bad := readOverride(body)
		if bad != nil {
			saysWhy(t, bad)
			if v != (override{}) {
				t.Fatalf("refused with %+v", v)
			}
			return
		}
		var loose struct {
			Key       *string
			KeyBase64 []byte `json:"key_base64"`
			Limit     *struct{}
		}
		err := json.Unmarshal(body, &loose)
		key, text := string(loose.KeyBase64), loose.Key != nil
		if text {
			key = *loose.Key
		}
		if err != nil || text == (loose.KeyBase64 != nil) || key != v.key ||
			(loose.Limit != nil) != (v.limit != nil) {
			t.Fatalf("encoding/json reads %+v (%v), readOverride %+v", loose, err, v)
		}
		if text && !utf8.ValidString(v.key) || len(v.key) > longestKey ||
			v.limit != nil && v.limit.Validate() != nil {
			t.Fatalf("accepted %+v", v)
		}
	})
}

// FuzzPlan holds: no body panics; what is accepted is a name and a limit that a limiter takes, as they were
// sent.
func FuzzPlan(f *testing.F) {
	f.Add([]byte(`{"plan":"paid","limit":{"deny":true}}`))
	f.Add([]byte(`{"plan":"0.a_b-c","limit":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		v, bad := readPlan(body)
		if bad != nil {
			saysWhy(t, bad)
			if v != (namedPlan{}) {
				t.Fatalf("refused with %+v", v)
			}
			return
		}
		var loose struct {
			Plan  string
			Limit *struct{}
		}
		if err := json.Unmarshal(body, &loose); err != nil || loose.Plan != v.name ||
			(loose.Limit != nil) != (v.limit != nil) {
			t.Fatalf("encoding/json reads %+v (%v), readPlan %+v", loose, err, v)
		}
		var units []string // that no other one may be added to
		if v.limit != nil {
			for _, r := range v.limit.Rates {
				units = append(units, r.Unit)
			}
		}
		if err := newLimiter(t).SetPlan(v.name, v.limit); err != nil && len(units) < 4 {
			t.Fatalf("accepted %+v: %v", v, err)
		}
	})
}

// FuzzReset holds: no body panics; what is accepted is one key, as it was sent, of any bytes only in base64.
func FuzzReset(f *testing.F) {
	f.Add([]byte(`{"key":"K"}`))
	f.Add([]byte(`{"key_base64":"gA=="}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		v, bad := readReset(body)
		if bad != nil {
			saysWhy(t, bad)
			if v != (keyReset{}) {
				t.Fatalf("refused with %+v", v)
			}
			return
		}
		var loose map[string][]byte // of base64, or of none
		var text map[string]string
		err := json.Unmarshal(body, &text)
		key, coded := text["key"], text["key"] == "" && text["key_base64"] != ""
		if coded {
			err = errors.Join(err, json.Unmarshal(body, &loose))
			key = string(loose["key_base64"])
		}
		if err != nil || len(text) != 1 || key != v.key || !coded && !utf8.ValidString(v.key) ||
			len(v.key) > longestKey {
			t.Fatalf("encoding/json reads %q (%v), readReset %+v", text, err, v)
		}
	})
}

// FuzzDryRun holds: no body panics, and only one that says true turns it on.
func FuzzDryRun(f *testing.F) {
	f.Add([]byte(`{"dry_run":true}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		on, bad := readDryRun(body)
		if bad != nil {
			saysWhy(t, bad)
			if on {
				t.Fatal("refused and on")
			}
			return
		}
		var loose map[string]any
		if err := json.Unmarshal(body, &loose); err != nil || len(loose) != 1 || loose["dry_run"] != on {
			t.Fatalf("encoding/json reads %+v (%v), readDryRun %v", loose, err, on)
		}
	})
}

func TestClipKeepsCharactersWhole(t *testing.T) {
	for _, s := range []string{"", "short", strings.Repeat("é", maxValue),
		"x" + strings.Repeat("界", maxValue)} {
		got := clip(s)
		if !utf8.ValidString(got) || len(got) > maxValue+len("…") {
			t.Errorf("clip(%q) = %q", s, got)
		}
		if len(s) <= maxValue && got != s {
			t.Errorf("clip(%q) = %q, want it unchanged", s, got)
		}
	}
}
