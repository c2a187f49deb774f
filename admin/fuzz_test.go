package admin

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/quotient-go/quotient"
)

// fuzzBodies fuzzes a reader of bodies: none panics, and what is refused comes with a reason in bounded text and
// with nothing else. hold looks at what is accepted.
func fuzzBodies[T any](f *testing.F, read func([]byte) (T, *Problem), hold func(*testing.T, []byte, T),
	seeds ...string) {
	f.Helper()
	// of the text: no JSON, no UTF-8, deep, twice, half of a surrogate pair, names that are none
	for _, seed := range append(seeds, `null`, `{}`, `{""`, `{"":0,""`, "{\"\xff\":4}", ` { } ]`,
		`{"rates":[[[[[[[[[1]]]]]]]]]}`, `{"key":"K","key":"L"}`, `{"key":"\udc00\ud83d","limit":null}`) {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		v, bad := read(body)
		if bad == nil {
			hold(t, body, v)
			return
		}
		if bad.Status != 400 || bad.Detail == "" || bad.Field == "" || bad.Range == "" {
			t.Fatalf("refusal %+v", bad)
		}
		if len(bad.Error()) > 8*maxValue+300 {
			t.Fatalf("a refusal of %d bytes", len(bad.Error()))
		}
		if !reflect.ValueOf(v).IsZero() {
			t.Fatalf("refused with %+v", v)
		}
	})
}

// FuzzReplicas holds: what is accepted is in range, is JSON, and reads back as the same pool.
func FuzzReplicas(f *testing.F) {
	fuzzBodies(f, readReplicas, func(t *testing.T, body []byte, v replicas) {
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
	}, `{"replicas":4,"ordinal":2,"ttl_seconds":1.5}`, `{"replicas":4,"weight":2,"ordinal":3}`,
		` {"\u0072eplicas" : 7 , "ordinal" : -0 } `, `{"replicas":9223372036854775808}`, `{"replicas":4e0}`,
		`{"Replicas":4}`, `{"replicas":4}]`, `{"replicas":4,"ttl_seconds":1e400}`,
		`{"replicas":4,"ttl_seconds":0.001}`)
}

// FuzzLimit holds: what is accepted the limiter accepts too, and it reads back as the same limit from what the
// client would send of it.
func FuzzLimit(f *testing.F) {
	fuzzBodies(f, readLimitBody, func(t *testing.T, body []byte, limit quotient.Limit) {
		if err := limit.Validate(); err != nil || !json.Valid(body) {
			t.Fatalf("accepted %+v: %v", limit, err)
		}
		text, err := json.Marshal(newLimitRequest(&limit))
		must(t, err)
		again, bad := readLimitBody(text)
		if bad != nil {
			t.Fatalf("%s of %s: %v", text, body, bad)
		}
		sameLimit(t, limit, again)
	}, `{"rates":[{"name":"a","unit":"b","events":1.5,"per_seconds":0.25,"burst":3,"aligned":false,`+
		`"no_turns":true}],"in_flight":2,"deny":false}`,
		`{"rates":[{"events":10,"per_seconds":60,"aligned":true,"counted":true,"kind":"counted-window"}]}`,
		`{"rates":[{"events":10,"per_seconds":86400,"kind":"window","zone":"Europe/Berlin"}]}`,
		`{"rates":[{"events":10,"per_seconds":60,"kind":"bucket","burst":1}]}`, `{"rates":[{"events":1,"per_seconds":1,"burst":1}]}`,
		`{"rates":[{"events":10,"per_seconds":60,"aligned":true}]}`, `{"rates":[],"in_flight":-0}`,
		`{"rates":[{"events":1e-300,"per_seconds":1e-9}]}`, `{"rates":null}`,
		`{"rates":[{"events":1,"per_seconds":9223372036.854775}]}`,
		`{"rates":[{"events":1,"per_seconds":9223372036.854776}]}`, `{"deny":true,"rates":[],"in_flight":0}`,
		`{"deny":true,"rates":[{"events":1,"per_seconds":1}]}`, `{"rates":[{"events":1,"events":2}]}`,
		`{"rates":[{"events":1,"per_seconds":1},{"name":"rate 1","events":1,"per_seconds":1}]}`)
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

// FuzzOverride holds: what is accepted has one key, as it was sent, of any bytes only in base64, and a limit
// that the limiter accepts.
func FuzzOverride(f *testing.F) {
	fuzzBodies(f, readOverride, func(t *testing.T, body []byte, v override) {
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
	}, `{"key":"K","limit":{"deny":true}}`, `{"key":"\ud83d\ude00","limit":null}`,
		`{"key_base64":"gA==","limit":null}`, `{"key":"K","limit":{}}`, `{"key":"\\ud800","limit":null}`,
		`{"key":"K"}`, "{\"key\":\"\\ufffd\xc3\xaf\xc2\xbf\xc2\xbd\",\"limit\":null}",
		`{"key":"K","limit":{"rates":[{"events":5,"per_seconds":60}],"in_flight":1}}`,
		`{"key":"K","limit":{"key":1}}`)
}

// FuzzPlan holds: what is accepted is a name and a limit that a limiter takes, as they were sent.
func FuzzPlan(f *testing.F) {
	fuzzBodies(f, readPlan, func(t *testing.T, body []byte, v namedPlan) {
		var loose struct {
			Plan  string
			Limit *struct{}
		}
		if err := json.Unmarshal(body, &loose); err != nil || loose.Plan != v.name ||
			(loose.Limit != nil) != (v.limit != nil) {
			t.Fatalf("encoding/json reads %+v (%v), readPlan %+v", loose, err, v)
		}
		// no other unit may be added to four
		if err := newLimiter(t).SetPlan(v.name, v.limit); err != nil && (v.limit == nil || len(v.limit.Rates) < 4) {
			t.Fatalf("accepted %+v: %v", v, err)
		}
	}, `{"plan":"paid","limit":{"deny":true}}`, `{"plan":"0.a_b-c","limit":null}`, `{"plan":"","limit":null}`,
		`{"plan":"\u0070aid","limit":null}`, `{"plan":"paid\n","limit":null}`, `{"plan":"Paid","limit":null}`,
		`{"plan":"`+strings.Repeat("p", 65)+`","limit":null}`, `{"plan":"paid","name":"x","limit":null}`,
		`{"plan":"a","limit":{"rates":[{"unit":"t","events":1,"per_seconds":1}],"in_flight":2}}`)
}

// FuzzBreak holds: what is accepted is one lock, as encoding/json reads it.
func FuzzBreak(f *testing.F) {
	fuzzBodies(f, readLeaseBreak, func(t *testing.T, body []byte, v leaseBreak) {
		var loose struct {
			Semaphore string
			Peer      uint64 `json:",string"`
			Token     uint64 `json:",string"`
		}
		if err := json.Unmarshal(body, &loose); err != nil || loose.Semaphore != v.semaphore ||
			loose.Peer != v.peer || loose.Token != v.token || v.token == 0 {
			t.Fatalf("encoding/json reads %+v (%v), readLeaseBreak %+v", loose, err, v)
		}
	}, goodBreak("a").body, `{"semaphore":"\ud83d\ude00","peer":"0","token":"18446744073709551615"}`,
		`{"semaphore":"A","peer":"18446744073709551616","token":"1"}`, `{"semaphore":"A","peer":42,"token":"1"}`,
		`{"semaphore":"A","peer":"1","token":"0"}`)
}
