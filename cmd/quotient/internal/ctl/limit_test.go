package ctl

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-go/quotient"
)

func TestLimitTexts(t *testing.T) {
	second := quotient.PerSecond(10)
	burst, window, paced := quotient.PerMinute(100), quotient.PerHour(1.5), second
	burst.Burst, window.Kind, paced.Kind = 20, quotient.Window, quotient.Paced
	tokens, day := quotient.Rate{Name: "10s", Unit: "tokens", Events: 5, Per: 10 * time.Second}, quotient.Rate{
		Name: "day", Events: 1000, Per: 24 * time.Hour, Kind: quotient.Window, Zone: "Europe/Berlin",
	}
	for text, want := range map[string]any{
		"10/s":                          quotient.Rates(second),
		"10/1s":                         quotient.Rates(second),
		"10 per s, paced":               quotient.Rates(paced),
		"100/min, burst 20":             quotient.Rates(burst),
		"100/1m,burst 20,10/s":          quotient.Rates(burst, second),
		"1.5/h, window, 5 in flight":    quotient.Limit{Rates: []quotient.Rate{window}, InFlight: 5},
		"5 tokens/10s":                  quotient.Rates(tokens),
		"1000/d, window, Europe/Berlin": quotient.Rates(day),
		"5 in flight":                   quotient.Limit{InFlight: 5},
		"in flight: 5":                  quotient.Limit{InFlight: 5},
		"deny":                          quotient.Limit{Deny: true},
		"unlimited":                     quotient.Limit{},
		"no limit":                      quotient.Limit{},
		"none":                          nil,
		" none ":                        nil,

		"":                                    `"" is no part of one, want for example 10/s`,
		"10":                                  `"10" is no part of one`,
		"10/":                                 `"10/" is no part of one`,
		"10/s,":                               `"" is no part of one`,
		"burst 5":                             `"burst 5" is no part of one`,
		"10/s, burst x":                       `"burst x" is no part of one`,
		"10/s, Mars/Olympus":                  `"Mars/Olympus" is no part of one`,
		"10/s, UTC":                           `Zone`,
		"10/lightyear":                        `duration "1lightyear"`,
		"1.2.3/s":                             `"1.2.3" is no number`,
		"0/s":                                 "Limit.Rates[0].Events: 0",
		"10/s, 20/s":                          "Limit.Rates[1].Name",
		"10/s, window, burst":                 `"burst" is no part of one`,
		"0 in flight":                         `"0 in flight": want 1 or more`,
		"5 in flight, in flight: 6":           `"in flight: 6": want 1 or more, once`,
		"10/s, burst 5, burst 6":              `"burst 6" is no part of one`,
		"10/s, window, paced":                 `"paced" is no part of one`,
		"10/d, window, UTC, Asia/Tokyo":       `"Asia/Tokyo" is no part of one`,
		"deny, 10/s":                          `"deny" is no part of one`,
		"9999999999999999999999999 in flight": "value out of range",
	} {
		got, err := limitOf(text)
		if says, wrong := want.(string); wrong {
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%q: %v, %v; want %s", text, got, err, says)
			}
			continue
		}
		if err != nil || got == nil != (want == nil) || got != nil && !reflect.DeepEqual(*got, want) {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
}

// TestPropertyPrintedLimits: what explain and stats print of a limit can be typed as one.
func TestPropertyPrintedLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l quotient.Limit
		for _, name := range []string{"minute", "a b", "10/s", "é"}[:rapid.IntRange(0, 4).Draw(t, "rates")] {
			r := quotient.Rate{
				Name: name, Unit: rapid.SampledFrom([]string{"", "tokens", "input-bytes"}).Draw(t, "unit"),
				Events: rapid.SampledFrom([]float64{0.25, 1, 1.5, 1e-7, 1e9}).Draw(t, "events"),
				Per:    rapid.SampledFrom([]time.Duration{time.Second, 1500 * time.Millisecond, 24 * time.Hour}).Draw(t, "per"),
				Kind:   rapid.SampledFrom(kindsOf).Draw(t, "kind"),
			}
			switch {
			case r.Kind == quotient.Bucket:
				r.Burst = rapid.IntRange(0, 2).Draw(t, "burst")
			case r.Kind == quotient.Paced:
				r.NoTurns = rapid.Bool().Draw(t, "no turns")
			case r.Per == 24*time.Hour:
				r.Zone = rapid.SampledFrom([]string{"", "Asia/Tokyo"}).Draw(t, "zone")
			}
			l.Rates = append(l.Rates, r)
		}
		l.InFlight = rapid.IntRange(0, 3).Draw(t, "slots")
		if l.Validate() != nil {
			return
		}
		got, err := limitOf(l.String())
		if err != nil || !reflect.DeepEqual(*got, l) {
			t.Fatalf("%q is read as %+v, %v", l, got, err)
		}
	})
}

func FuzzLimit(f *testing.F) {
	for _, text := range []string{"10/s", "a: 1 tokens per 1m, burst 2", "in flight: 3", "deny", "1/0s, ,"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if l, err := limitOf(text); err == nil && l != nil && l.Validate() != nil {
			t.Errorf("%q is read as %+v, which is no limit", text, l)
		}
	})
}
