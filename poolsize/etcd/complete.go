package etcd

import (
	"cmp"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"strings"
	"time"
)

// The defaults of Source's fields.
const (
	defaultPrefix = "quotient"
	defaultPeriod = time.Second
	// defaultExpiry is ten periods: nine lost looks in a row are not a death.
	defaultExpiry = 10 * time.Second
)

const (
	// firstRetry is the pause after a first failure. It doubles with each further one, up to the period.
	firstRetry = 100 * time.Millisecond
	// jitter is the part of a pause by which it is longer or shorter, so that the fleet does not look in step.
	jitter = .1
	// longestName is the most bytes of a prefix, a fleet or an ID.
	longestName = 200
	// shortestPeriod keeps a mistyped period from being a flood.
	shortestPeriod = time.Millisecond
	// longestExpiry bounds how long the dead count.
	longestExpiry = 10 * time.Minute
	// longestCommand is the longest that one command may take.
	longestCommand = time.Second
)

// Validate reports the first field that is wrong, as Watch does. It does not ask the store.
func (s *Source) Validate() error {
	_, err := s.complete()
	return err
}

// complete returns a source with all its fields set, or the first one that is wrong.
func (s *Source) complete() (*Source, error) {
	c := &Source{
		Client: s.Client, Fleet: s.Fleet, ID: s.ID,
		Prefix: cmp.Or(s.Prefix, defaultPrefix),
		Period: cmp.Or(s.Period, defaultPeriod),
		Expiry: cmp.Or(s.Expiry, defaultExpiry),
	}
	if c.Client == nil {
		return nil, errors.New("poolsize/etcd: Source.Client: nil")
	}
	if c.Client.ActiveConnection() == nil {
		return nil, errors.New("poolsize/etcd: Source.Client: it has no connection")
	}
	if c.ID == "" {
		var err error
		if c.ID, err = os.Hostname(); err != nil {
			return nil, fmt.Errorf("poolsize/etcd: Source.ID: the host has no name: %w", err)
		}
	}
	return c, cmp.Or(c.checkNames(), c.checkTimes())
}

func (s *Source) checkNames() error {
	// A slash would put a fleet's keys among another one's.
	for _, n := range []struct{ field, value, not string }{
		{"Prefix", s.Prefix, ""}, {"Fleet", s.Fleet, "/"}, {"ID", s.ID, "/"},
	} {
		if size := len(n.value); size < 1 || size > longestName {
			return fmt.Errorf("poolsize/etcd: Source.%s: %.40q has %d bytes, not 1 to %d",
				n.field, n.value, size, longestName)
		}
		if strings.ContainsAny(n.value, n.not) {
			return fmt.Errorf("poolsize/etcd: Source.%s: %q has a slash", n.field, n.value)
		}
	}
	return nil
}

func (s *Source) checkTimes() error {
	for _, d := range []struct {
		field                  string
		value, least, greatest time.Duration
	}{
		{"Period", s.Period, shortestPeriod, longestExpiry / 2},
		{"Expiry", s.Expiry, 2 * s.Period, longestExpiry},
	} {
		if d.value < d.least || d.value > d.greatest {
			return fmt.Errorf("poolsize/etcd: Source.%s: %v is not between %v and %v",
				d.field, d.value, d.least, d.greatest)
		}
	}
	if s.Expiry%time.Second != 0 {
		return fmt.Errorf("poolsize/etcd: Source.Expiry: %v is no whole number of seconds", s.Expiry)
	}
	return nil
}

// keys returns what all keys of the fleet begin with. The last slash keeps those of a fleet whose name begins
// alike apart.
func (s *Source) keys() string { return s.Prefix + "/" + s.Fleet + "/" }

// patience returns the longest that one command of a complete source may take.
func (s *Source) patience() time.Duration { return min(longestCommand, s.Expiry/2) }

// start returns how long nothing is reported after a registration. All others that reach the store look once
// a period, give or take the jitter, and after a failure no later. A command that hung may have held them up.
func (s *Source) start() time.Duration { return s.Period + s.Period/4 + s.patience() }

// jittered returns d, a tenth longer or shorter at most.
func jittered(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (1 + jitter*(2*mathrand.Float64()-1)))
}
