package ctl

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/cmd/quotient/internal/cmdline"
	"github.com/quotient-go/quotient/lease"
)

// kindsOf are the kinds of rates, by their names.
var kindsOf = []quotient.Kind{quotient.Bucket, quotient.Paced, quotient.Window, quotient.CountedWindow}

// ratePart is "second: 100 tokens per 1s", as a quotient.Limit prints it, or "100/s".
var ratePart = regexp.MustCompile(`^(?:([^:]+): )?([0-9.]+(?:e[+-]?[0-9]+)?)(?: ([^ /]+))?(?: per |/)([^/]+)$`)

// inFlightPart is "in flight: 10", as a quotient.Limit prints it, or "10 in flight".
var inFlightPart = regexp.MustCompile(`^(?:in flight: ([0-9]+)|([0-9]+) in flight)$`)

// limitOf reads a limit: what a quotient.Limit prints, or the same in short. Nil is none.
func limitOf(text string) (*quotient.Limit, error) {
	l := new(quotient.Limit)
	switch strings.TrimSpace(text) {
	case "none":
		return nil, nil
	case "unlimited", "no limit":
		return l, nil
	case "deny":
		l.Deny = true
		return l, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		if err := addPart(l, strings.TrimSpace(part)); err != nil {
			return nil, cmdline.Usagef("the limit %q: %v", text, err)
		}
	}
	if err := l.Validate(); err != nil {
		return nil, cmdline.Usagef("the limit %q: %s", text, strings.TrimPrefix(err.Error(), "quotient: "))
	}
	return l, nil
}

func addPart(l *quotient.Limit, part string) (err error) {
	if m := inFlightPart.FindStringSubmatch(part); m != nil {
		had := l.InFlight
		if l.InFlight, err = strconv.Atoi(m[1] + m[2]); err == nil && (l.InFlight == 0 || had > 0) {
			err = fmt.Errorf("%q: want 1 or more, once; or deny", part) // a limit with 0 has none
		}
		return err
	}
	if m := ratePart.FindStringSubmatch(part); m != nil {
		rate, err := rateOf(m[1], m[2], m[3], m[4])
		l.Rates = append(l.Rates, rate)
		return err
	}
	if len(l.Rates) > 0 && part != "" && ofRate(&l.Rates[len(l.Rates)-1], part) {
		return nil
	}
	return fmt.Errorf("%q is no part of one, want for example 10/s, or 100/min and burst 20 or window behind it, "+
		"or 5 in flight", part)
}

// rateOf names a rate that has no name as a file does. "/s" is "/1s".
func rateOf(name, events, unit, per string) (r quotient.Rate, err error) {
	r.Name, r.Unit = name, unit
	if r.Events, err = strconv.ParseFloat(events, 64); err != nil {
		return r, fmt.Errorf("%q is no number", events)
	}
	if per[0] < '0' || per[0] > '9' {
		per = "1" + per
	}
	if r.Per, err = time.ParseDuration(per); err != nil { // which has parts of a second
		r.Per, err = lease.ParseDuration(per)
	}
	if name == "" {
		names := map[time.Duration]string{
			time.Second: "second", time.Minute: "minute", time.Hour: "hour", 24 * time.Hour: "day",
		}
		if r.Name = names[r.Per]; r.Name == "" {
			r.Name = r.Per.String()
		}
	}
	return r, err
}

// ofRate takes what stands behind a rate, and reports whether it is something that the rate does not have yet.
func ofRate(r *quotient.Rate, part string) bool {
	if text, ok := strings.CutPrefix(part, "burst "); ok {
		had := r.Burst
		n, err := strconv.Atoi(text)
		r.Burst = n
		return err == nil && had == 0
	}
	if part == "no turns" {
		r.NoTurns = true
		return true
	}
	for _, k := range kindsOf {
		if k.String() == part {
			had := r.Kind
			r.Kind = k
			return had == 0
		}
	}
	had := r.Zone
	r.Zone = part
	_, err := time.LoadLocation(part)
	return err == nil && had == ""
}
