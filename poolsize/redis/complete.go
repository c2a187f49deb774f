package redis

import (
	"cmp"
	"crypto/rand"
	"errors"
	"time"

	"github.com/quotient-go/quotient/poolsize/internal/setting"
)

const (
	field = "poolsize/redis: Source."
	// defaultResumeFor is three minutes: longer than most restarts, shorter than most changes of an upstream's mind.
	defaultResumeFor = 3 * time.Minute
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
		Prefix:    cmp.Or(s.Prefix, setting.Prefix),
		Period:    cmp.Or(s.Period, setting.Period),
		Expiry:    cmp.Or(s.Expiry, setting.Expiry),
		ResumeFor: cmp.Or(s.ResumeFor, defaultResumeFor),
	}
	if c.Client == nil {
		return nil, errors.New(field + "Client: nil")
	}
	var err error
	c.ID, err = setting.ID(field+"ID", c.ID)
	return c, cmp.Or(err, setting.Between(field+"Weight", c.Weight, 1, mostWeight),
		// what stands in braces chooses a Cluster's node, and the last colon there ends the prefix
		setting.Name(field+"Prefix", c.Prefix, setting.LongestName, "{}", "one of {}"),
		setting.Name(field+"Fleet", c.Fleet, setting.LongestName, "{}:", "one of {}:"),
		setting.Name(field+"ID", c.ID, setting.LongestName, "", ""),
		setting.Between(field+"Period", c.Period, setting.ShortestPeriod, longestExpiry/2),
		setting.Between(field+"Expiry", c.Expiry, 2*c.Period, longestExpiry),
		setting.Between(field+"ResumeFor", c.ResumeFor, time.Millisecond, longestResume))
}

// processor returns the name in the store of the processor that s is, of which id is the first part.
func (s *Source) processor(id string) string {
	s.once.Do(func() { s.token = rand.Text() })
	return id + "/" + s.token
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
func (s *Source) patience() time.Duration { return min(setting.LongestCommand, s.Expiry/2) }
