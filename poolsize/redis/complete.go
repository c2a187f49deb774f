package redis

import (
	"cmp"
	"crypto/rand"
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
	// defaultExpiry is ten periods: nine lost syncs in a row are not a death.
	defaultExpiry = 10 * time.Second
	// defaultResumeFor is three minutes: longer than most restarts, shorter than most changes of an upstream's mind.
	defaultResumeFor = 3 * time.Minute
)

const (
	// firstRetry is the pause after a first failure. It doubles with each further one, up to the period.
	firstRetry = 100 * time.Millisecond
	// jitter is the part of a pause by which it is longer or shorter, so that the fleet does not sync in step.
	jitter = .1
	// longestName is the most bytes of a prefix, a fleet or an ID.
	longestName = 200
	// shortestPeriod keeps a mistyped period from being a flood.
	shortestPeriod = time.Millisecond
	// mostWeight leaves room for a hundred processors of it.
	mostWeight = mostProcessors / 100
	// longestResume is the longest ResumeFor: beyond a day, what was learned says nothing.
	longestResume = 24 * time.Hour
)

// Validate reports the first field that is wrong, as Watch does. It does not ask the store.
func (s *Source) Validate() error {
	_, err := s.complete()
	return err
}

// complete returns a source with all its fields set, or the first one that is wrong.
func (s *Source) complete() (*Source, error) {
	c := &Source{
		Client: s.Client, Fleet: s.Fleet, ID: s.ID, Ceiling: s.Ceiling,
		Weight:    cmp.Or(s.Weight, 1),
		Prefix:    cmp.Or(s.Prefix, defaultPrefix),
		Period:    cmp.Or(s.Period, defaultPeriod),
		Expiry:    cmp.Or(s.Expiry, defaultExpiry),
		ResumeFor: cmp.Or(s.ResumeFor, defaultResumeFor),
	}
	if c.Client == nil {
		return nil, errors.New("poolsize/redis: Source.Client: nil")
	}
	if c.Weight < 1 || c.Weight > mostWeight {
		return nil, fmt.Errorf("poolsize/redis: Source.Weight: %d is not between 1 and %d", c.Weight, mostWeight)
	}
	var err error
	if c.ID == "" {
		if c.ID, err = os.Hostname(); err != nil {
			return nil, fmt.Errorf("poolsize/redis: Source.ID: the host has no name: %w", err)
		}
	}
	return c, cmp.Or(c.checkNames(), c.checkTimes())
}

// processor returns the name in the store of the processor that s is, of which id is the first part.
func (s *Source) processor(id string) string {
	s.once.Do(func() { s.token = rand.Text() })
	return id + "/" + s.token
}

func (s *Source) checkNames() error {
	for _, n := range []struct{ field, value, not string }{
		// what stands in braces chooses a Cluster's node, and the last colon there ends the prefix
		{"Prefix", s.Prefix, "{}"}, {"Fleet", s.Fleet, "{}:"}, {"ID", s.ID, ""},
	} {
		if n.value == "" || len(n.value) > longestName {
			return fmt.Errorf("poolsize/redis: Source.%s: %.40q has %d bytes, not 1 to %d",
				n.field, n.value, len(n.value), longestName)
		}
		if strings.ContainsAny(n.value, n.not) {
			return fmt.Errorf("poolsize/redis: Source.%s: %q has one of %s", n.field, n.value, n.not)
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
		{"ResumeFor", s.ResumeFor, time.Millisecond, longestResume},
	} {
		if d.value < d.least || d.value > d.greatest {
			return fmt.Errorf("poolsize/redis: Source.%s: %v is not between %v and %v",
				d.field, d.value, d.least, d.greatest)
		}
	}
	return nil
}

// store returns the data of the fleet for one processor of a complete source.
func (s *Source) store(processor string) *store {
	fleet := "{" + s.Prefix + ":" + s.Fleet + "}:"
	return &store{
		client: s.Client, processor: processor,
		deadlines: fleet + "deadlines", sizes: fleet + "sizes", silence: fleet + "silence",
		left:    fleet + "left:" + s.ID,
		weights: fleet + "weights", weight: s.Weight,
		expiry: s.Expiry, keep: s.ResumeFor, patience: s.patience(),
	}
}

// patience returns the longest that one command of a complete source may take.
func (s *Source) patience() time.Duration { return min(longestCommand, s.Expiry/2) }

// jittered returns d, a tenth longer or shorter at most.
func jittered(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (1 + jitter*(2*mathrand.Float64()-1)))
}
