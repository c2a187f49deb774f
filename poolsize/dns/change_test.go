package dns

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/poolsize/dns/dnstest"
)

// Every failure is an error of its own, at every look-up, and the limiter keeps the last good pool.
func TestFailuresKeepTheLastGoodPool(t *testing.T) {
	rows := []struct {
		mode dnstest.Mode
		says string
	}{
		{dnstest.NXDomain, "no such host"}, {dnstest.Empty, "no such host"},
		{dnstest.ServFail, "misbehaving"},
		{dnstest.ServFailAAAA, "misbehaving"}, {dnstest.Truncated, "truncated"},
		{dnstest.Garbage, "misbehaving"},
		{dnstest.Silent, "i/o timeout"},
	}
	for _, srv := range []bool{false, true} {
		for _, r := range rows {
			if srv && r.mode == dnstest.ServFailAAAA {
				continue // it answers questions for SRV
			}
			t.Run(fmt.Sprint(r.mode, " srv ", srv), func(t *testing.T) {
				s := server(t)
				s.Set(name, append(run("10.0.0.1", 5), run("fd00::1", 3)...)...)
				s.SetSRV(name, targets("a:1 b:1 c:1 d:1 e:1")...)
				src := source(s)
				src.SRV = srv
				keepsFive(t, s, src, r.mode, r.says)
			})
		}
	}
}

func keepsFive(t *testing.T, s *dnstest.Server, src *Source, mode dnstest.Mode, words string) {
	t.Helper()
	if mode == dnstest.Silent {
		src.Timeout = 400 * time.Millisecond
	}
	l := limiter(t)
	reports := following(t, l, src)
	five := quotient.Pool{Replicas: 5}
	until(t, reports, five)
	s.Fail(mode)
	r := receive(t, reports)
	for i := 0; r.err == nil; r = receive(t, reports) { // a look-up that was on its way
		if i++; i > 3 || r.pool != five {
			t.Fatalf("reported %+v", r.pool)
		}
	}
	if !strings.Contains(r.err.Error(), words) {
		t.Errorf("reported %v, want one that says %q", r.err, words)
	}
	fails(t, reports, words)
	if st := l.Stats().Pool; st.Replicas != 5 || st.Errors < 2 || !strings.Contains(st.LastError, name) {
		t.Errorf("while it fails: %+v", st)
	}
	s.Fail(dnstest.Healthy)
	s.Set(name, run("10.0.0.1", 6)...)
	s.SetSRV(name, targets("a:1 b:1 c:1 d:1 e:1 f:1")...)
	until(t, reports, quotient.Pool{Replicas: 6})
	if got := l.Stats().Pool.Replicas; got != 6 {
		t.Errorf("healed: the pool in force is one of %d", got)
	}
}

func limiter(t *testing.T) *quotient.Limiter {
	t.Helper()
	l, err := quotient.New(quotient.Rates(quotient.PerSecond(1000)))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// following is watching through a limiter that has applied each report before it is returned.
func following(t *testing.T, l *quotient.Limiter, s *Source) <-chan report {
	t.Helper()
	return through(t, func(ctx context.Context, note func(quotient.Pool, error)) error {
		err := l.Follow(ctx, watchFunc(func(ctx context.Context, report func(quotient.Pool, error)) error {
			return s.Watch(ctx, func(p quotient.Pool, err error) { report(p, err); note(p, err) })
		}))
		if err != nil {
			t.Errorf("Follow returned %v", err)
		}
		return ctx.Err()
	})
}

type watchFunc func(context.Context, func(quotient.Pool, error)) error

func (f watchFunc) Watch(ctx context.Context, report func(quotient.Pool, error)) error {
	return f(ctx, report)
}

// until reads reports until one is the pool.
func until(t *testing.T, reports <-chan report, want quotient.Pool) {
	t.Helper()
	deadline := time.After(patience)
	for last := (report{}); last.err != nil || last.pool != want; {
		select {
		case last = <-reports:
		case <-deadline:
			t.Fatalf("%+v was not reported within %v; the last report is %+v, %v", want, patience,
				last.pool, last.err)
		}
	}
}

func TestChanging(t *testing.T) {
	s := server(t)
	src := source(s)
	src.Own = addrs("10.0.0.3")
	s.Set(name, run("10.0.0.1", 2)...)
	reports := watching(t, src)
	says(t, reports, quotient.Pool{Replicas: 3}) // with this one
	for _, n := range []int{3, 7, 5, 20, 3} {
		s.Set(name, run("10.0.0.1", n)...)
		until(t, reports, quotient.Pool{Replicas: n, Ordinal: 3})
	}
}

func TestExactlyEight(t *testing.T) {
	s := server(t)
	src := source(s)
	src.Own = addrs("10.0.0.1")
	l := limiter(t)
	s.Set(name, run("10.0.0.1", 8)...)
	reports := following(t, l, src)
	for range 3 { // at each look-up
		says(t, reports, quotient.Pool{Replicas: 8})
		r := receive(t, reports)
		if !errors.Is(r.err, ErrEight) || !strings.Contains(r.err.Error(), name) ||
			!strings.Contains(r.err.Error(), "Uncapped") {
			t.Errorf("reported %+v, %v", r.pool, r.err)
		}
	}
	if st := l.Stats().Pool; st.Replicas != 8 || st.Errors < 3 || st.Errors > st.Reports {
		t.Errorf("%+v", st)
	}
	s.Set(name, run("10.0.0.1", 12)...)
	until(t, reports, quotient.Pool{Replicas: 12, Ordinal: 1})
	s.Set(name, run("10.0.0.1", 8)...)
	until(t, reports, quotient.Pool{Replicas: 12}) // cut, or fewer: it cannot be known
	s.Set(name, run("10.0.0.1", 5)...)
	until(t, reports, quotient.Pool{Replicas: 5, Ordinal: 1})
	s.Set(name, run("10.0.0.1", 8)...)
	until(t, reports, quotient.Pool{Replicas: 8})
}

func TestUncapped(t *testing.T) {
	s := server(t)
	src := source(s)
	src.Uncapped, src.Own = true, addrs("10.0.0.8")
	s.Set(name, run("10.0.0.1", 8)...)
	reports := watching(t, src)
	for range 3 {
		says(t, reports, quotient.Pool{Replicas: 8, Ordinal: 8})
	}
}
