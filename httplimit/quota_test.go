package httplimit

import (
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"pgregory.net/rapid"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/tested"
)

// A rule in whole events and seconds is never above the rule itself.
func TestRulesInWhole(t *testing.T) {
	for _, tt := range []struct {
		limit           float64
		window          time.Duration
		events, seconds int64
	}{
		{100, time.Minute, 100, 60}, {1.9, time.Second, 1, 1}, {0.3, time.Second, 1, 4},
		{0.001, time.Hour, 1, 3_600_000},
		{10, 100 * time.Millisecond, 100, 1}, {0.05, 100 * time.Millisecond, 1, 2},
		{10, 1500 * time.Millisecond, 10, 2},
		{1e12, time.Second, 1e12, 1}, {1e12, 1e6 * time.Hour, 1e12, 3_600_000_000},
		{1e3, time.Nanosecond, 1e12 - 1, 1},
		{1e-300, math.MaxInt64, 1, maxAmount}, {8, 0, 8, 0}, {1 << 30, 0, 1 << 30, 0},
	} {
		events, seconds := inWhole(&quotient.RuleState{Rule: quotient.Rule{Limit: tt.limit, Window: tt.window}})
		if events != tt.events || seconds != tt.seconds {
			t.Errorf("%v in %v: %d in %d s, want %d in %d s", tt.limit, tt.window, events, seconds, tt.events,
				tt.seconds)
		}
	}
	for n, want := range map[float64]int64{-1: 0, 0.9: 0, 1e15: maxAmount, math.Inf(1): maxAmount} {
		tested.Want(t, fmt.Sprintf("%v, as it is sent", n), whole(n), want)
	}
	for d, want := range map[time.Duration]int64{-time.Hour: 0, 0: 0, 1: 1, time.Second: 1,
		time.Second + 1: 2, 2*time.Second - 1: 2, math.MaxInt64: 9223372037} {
		if got, again := secondsUp(d), wholeSeconds(d); got != want || again != max(want, 1) {
			t.Errorf("%v is sent as %d, in Retry-After as %d; want %d", d, got, again, want)
		}
	}
}

// Whatever the rules are called and hold, the fields are lists of Strings with Integers, no name stands
// twice, and the two fields belong together.
func TestFieldsAreStructured(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		quotas := make([]quotient.RuleState, rapid.IntRange(0, 17).Draw(t, "rules"))
		for i := range quotas {
			q := &quotas[i]
			q.Name = rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"minute", "minute/tokens", "in-flight",
				`"\`, "é%\x00\xff", strings.Repeat("%", 50)})).Draw(t, "name")
			q.Unit = rapid.SampledFrom([]string{"", "tokens", `"`, "ü", strings.Repeat("u", 100)}).Draw(t, "unit")
			q.Limit = rapid.Float64Range(1e-3, 1e12).Draw(t, "limit")
			q.Window = time.Duration(rapid.Int64Min(0).Draw(t, "window"))
			q.Left = rapid.Float64Range(0, math.MaxFloat64).Draw(t, "left")
			q.Reset = time.Duration(rapid.Int64Min(0).Draw(t, "reset"))
		}
		s := &sender{set: FieldsDraft11}
		texts := s.textsOf(quotas)
		if texts.policy == "" {
			return
		}
		values := []string{texts.policy, texts.said(FieldsDraft11, texts.levels(nil, quotas)).text}
		if len(values[0]) > maxStructured-2 {
			t.Fatalf("RateLimit-Policy has %d bytes", len(values[0]))
		}
		policies, now := members(t, values[0], "q"), members(t, values[1], "r")
		if !slices.Equal(policies, now) {
			t.Fatalf("policies %q, members %q", policies, now)
		}
		distinct := slices.Compact(slices.Sorted(slices.Values(policies)))
		if len(distinct) != len(policies) {
			t.Fatalf("a name stands twice in %q", policies)
		}
	})
}

// members are the names in a list of Strings that all have the Integer.
func members(t interface{ Fatalf(string, ...any) }, value, integer string) (names []string) {
	list, err := httpsfv.UnmarshalList([]string{value})
	if err != nil {
		t.Fatalf("%q: %v", value, err)
	}
	for _, m := range list {
		item := m.(httpsfv.Item)
		n, _ := item.Params.Get(integer)
		if _, is := n.(int64); !is {
			t.Fatalf("%q: %s is %v, no Integer", value, integer, n)
		}
		names = append(names, item.Value.(string))
	}
	return names
}

// FuzzQuoted checks that any name becomes one String, from which it can be read again.
func FuzzQuoted(f *testing.F) {
	addAll(f, "", "minute", `a"b\c`, "a\\", "é", "%41", "\x00\x7f\xff", "a\r\nb: c")
	f.Fuzz(func(t *testing.T, name string) {
		item, err := httpsfv.UnmarshalItem([]string{quoted(name)})
		if err != nil {
			t.Fatalf("%q is written as %q: %v", name, quoted(name), err)
		}
		text, is := item.Value.(string)
		back, err := url.PathUnescape(text)
		if !is || err != nil || back != name {
			t.Fatalf("%q is read as %q: %v", name, back, err)
		}
	})
}
