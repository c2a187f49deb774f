package caddyquotient

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/quotient-go/quotient"
)

// Limit is what one key may do over all Caddys of the pool: quotient.Limit.
type Limit struct {
	// Rates are all in force, at most 16.
	Rates []Rate `json:"rates,omitempty"`
	// InFlight is how many requests are served at a time, 1 to 1<<30. 0 means any number.
	InFlight int `json:"in_flight,omitempty"`
	// Deny refuses everything, and excludes the others.
	Deny bool `json:"deny,omitempty"`
}

// Rate is a number of requests in a period: quotient.Rate.
type Rate struct {
	// Name stands in RateLimit fields and metrics. Empty is the period: second, minute, hour, day, or 10s. A second
	// one of a name gets its position too. A reload keeps the state of a rate by its name.
	Name string `json:"name,omitempty"`
	// Events is how many requests a period has, above 0.
	Events float64 `json:"events"`
	// Per is the period.
	Per caddy.Duration `json:"per"`
	// Kind is bucket, which is the default, paced, or window: by the clock, as a full minute.
	Kind string `json:"kind,omitempty"`
	// Burst is how many requests a full bucket admits at once. 0 means as many as Events, at least 1.
	Burst int `json:"burst,omitempty"`
}

// kinds are those of a rate. A counted window takes a source that carries reports, which there is none of here.
var kinds = map[string]quotient.Kind{
	"": quotient.Bucket, "bucket": quotient.Bucket, "paced": quotient.Paced, "window": quotient.Window,
}

var periods = map[time.Duration]string{
	time.Second: "second", time.Minute: "minute", time.Hour: "hour", 24 * time.Hour: "day",
}

// limit is the limit with the names of rates filled in, or an error that names the first field out of range.
func (l *Limit) limit() (quotient.Limit, error) {
	limit := quotient.Limit{InFlight: l.InFlight, Deny: l.Deny}
	taken := make(map[string]bool)
	for i, r := range l.Rates {
		kind, ok := kinds[r.Kind]
		if !ok {
			return limit, fmt.Errorf("kind: %q is not bucket, paced or window", r.Kind)
		}
		name := cmp.Or(r.Name, periods[time.Duration(r.Per)], time.Duration(r.Per).String())
		if taken[name] && r.Name == "" {
			name += " " + strconv.Itoa(i+1)
		}
		taken[name] = true
		limit.Rates = append(limit.Rates, quotient.Rate{
			Name: name, Events: r.Events, Per: time.Duration(r.Per), Kind: kind, Burst: r.Burst,
		})
	}
	return limit, limit.Validate()
}

// readRate reads 100/s, 5/10s.
func readRate(text string) (Rate, error) {
	number, period, _ := strings.Cut(text, "/")
	events, err := strconv.ParseFloat(number, 64)
	if period != "" && strings.Trim(period[:1], "0123456789.") != "" {
		period = "1" + period // 100/s
	}
	per, failed := caddy.ParseDuration(period)
	if err != nil || failed != nil {
		return Rate{}, fmt.Errorf("%q is not a number of requests in a period, such as 100/s or 5/10s", text)
	}
	return Rate{Events: events, Per: caddy.Duration(per)}, nil
}

// isName is an error for what cannot be the name of a zone or a plan.
func isName(name string) error {
	if name == "" || len(name) > 64 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") != "" {
		return fmt.Errorf("the name %q is not 1 to 64 of a-z, 0-9, '.', '_' and '-'", name)
	}
	return nil
}
