package etcd

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/quotient-go/quotient/poolsize/internal/setting"
)

const field = "poolsize/etcd: Source."

// Validate reports the first field that is wrong, as Watch does. It does not ask the store.
func (s *Source) Validate() error {
	_, err := s.complete()
	return err
}

// complete returns a source with all its fields set, or the first one that is wrong.
func (s *Source) complete() (*Source, error) {
	c := &Source{
		Client: s.Client, Fleet: s.Fleet, ID: s.ID,
		Prefix: cmp.Or(s.Prefix, setting.Prefix),
		Period: cmp.Or(s.Period, setting.Period),
		Expiry: cmp.Or(s.Expiry, setting.Expiry),
	}
	if c.Client == nil {
		return nil, errors.New(field + "Client: nil")
	}
	if c.Client.ActiveConnection() == nil {
		return nil, errors.New(field + "Client: it has no connection")
	}
	var err error
	c.ID, err = setting.ID(field+"ID", c.ID)
	err = cmp.Or(err, setting.Name(field+"Prefix", c.Prefix, setting.LongestName, "", ""),
		// A slash would put a fleet's keys among another one's.
		setting.Name(field+"Fleet", c.Fleet, setting.LongestName, "/", "a slash"),
		setting.Name(field+"ID", c.ID, setting.LongestName, "/", "a slash"),
		setting.Between(field+"Period", c.Period, setting.ShortestPeriod, setting.LongestExpiry/2),
		setting.Between(field+"Expiry", c.Expiry, 2*c.Period, setting.LongestExpiry))
	if err == nil && c.Expiry%time.Second != 0 {
		err = fmt.Errorf(field+"Expiry: %v is no whole number of seconds", c.Expiry)
	}
	return c, err
}

// keys returns what all keys of the fleet begin with. The last slash keeps those of a fleet whose name begins
// alike apart.
func (s *Source) keys() string { return s.Prefix + "/" + s.Fleet + "/" }

// patience returns the longest that one command of a complete source may take.
func (s *Source) patience() time.Duration { return min(setting.LongestCommand, s.Expiry/2) }

// start returns how long nothing is reported after a registration. All others that reach the store look once
// a period, give or take the jitter, and after a failure no later. A command that hung may have held them up.
func (s *Source) start() time.Duration { return s.Period + s.Period/4 + s.patience() }
