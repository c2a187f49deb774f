package dashboard

import (
	"log/slog"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/admin"
	"github.com/quotient-go/quotient/metrics"
)

// TestOperatorsDoNotBreakTheScrape: whatever names the rules of a limit have that an operator has set, every
// rule is a series of its own.
func TestOperatorsDoNotBreakTheScrape(t *testing.T) {
	one := func(unit, name string) quotient.Rate {
		return quotient.Rate{Name: name, Unit: unit, Events: 1, Per: 1e9}
	}
	tests := map[string]quotient.Limit{
		"a rate called as the slots": {Rates: []quotient.Rate{one("", "in-flight")}, InFlight: 3},
		"a unit called as the slots": {Rates: []quotient.Rate{one("in-flight", "")}, InFlight: 3},
		"a unit called slots": {Rates: []quotient.Rate{one("slots", "second"), one("", "")},
			InFlight: 3},
		"a unit called requests": {Rates: []quotient.Rate{one("requests", "a"), one("", "a")},
			InFlight: 3},
		"control characters":          {Rates: []quotient.Rate{one("", "\x00"), one("", "a\nb")}},
		"a name that another implies": {Rates: []quotient.Rate{one("", "second"), {Events: 2, Per: 2e9}}},
	}
	for name, limit := range tests {
		l, err := quotient.New(quotient.Limit{InFlight: 1})
		if err != nil {
			t.Fatal(err)
		}
		var reg quotient.Registry
		if err := reg.Add("api", l); err != nil {
			t.Fatal(err)
		}
		h, err := admin.New(&reg, admin.Logger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		srv := httptest.NewServer(h)
		c, err := admin.NewClient(srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		_, refused := c.SetLimit(t.Context(), "api", limit)
		c.Close()
		srv.Close()
		l.Allow("k")
		all := prometheus.NewPedanticRegistry()
		all.MustRegister(metrics.New(&reg))
		if _, err := all.Gather(); err != nil {
			t.Errorf("%s (%v): %v", name, refused, err)
		}
	}
}
