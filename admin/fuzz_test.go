package admin

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/quotient-go/quotient"
)

// FuzzParsePool holds: no body panics; what is accepted is in range, is JSON, and reads back as
// the same pool; what is refused says why in bounded text.
func FuzzParsePool(f *testing.F) {
	f.Add([]byte(`{"replicas":4,"ordinal":2}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		pool, bad := parsePool(body)
		if bad != nil {
			if pool != (quotient.Pool{}) || bad.Status != 400 || bad.Detail == "" || bad.Range == "" {
				t.Fatalf("refusal %+v with pool %+v", bad, pool)
			}
			if len(bad.Error()) > 4*maxValue+200 {
				t.Fatalf("a refusal of %d bytes", len(bad.Error()))
			}
			return
		}
		if pool.Replicas < 1 || pool.Replicas > maxReplicas || pool.Ordinal < 0 || pool.Ordinal > pool.Replicas || pool.Fixed {
			t.Fatalf("accepted %+v", pool)
		}
		var loose struct{ Replicas, Ordinal int }
		if err := json.Unmarshal(body, &loose); err != nil || loose.Replicas != pool.Replicas || loose.Ordinal != pool.Ordinal {
			t.Fatalf("encoding/json reads %+v (%v), parsePool %+v", loose, err, pool)
		}
		canonical := `{"replicas":` + strconv.Itoa(pool.Replicas) + `,"ordinal":` + strconv.Itoa(pool.Ordinal) + `}`
		if again, bad := parsePool([]byte(canonical)); bad != nil || again != pool {
			t.Fatalf("%s reads back as %+v, %v", canonical, again, bad)
		}
	})
}

func TestClipKeepsCharactersWhole(t *testing.T) {
	for _, s := range []string{"", "short", strings.Repeat("é", maxValue), "x" + strings.Repeat("界", maxValue)} {
		got := clip(s)
		if !utf8.ValidString(got) || len(got) > maxValue+len("…") {
			t.Errorf("clip(%q) = %q", s, got)
		}
		if len(s) <= maxValue && got != s {
			t.Errorf("clip(%q) = %q, want it unchanged", s, got)
		}
	}
}
