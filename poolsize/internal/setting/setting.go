// Package setting checks the settings of sources. Its errors begin with the field, as in "dns: Source.Name".
package setting

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"
)

// LongestName is the most bytes of most names.
const LongestName = 200

// FirstRetry is the pause of a source after a first failure. It doubles with each further one.
const FirstRetry = 100 * time.Millisecond

// The defaults of sources with a store, and their bounds.
const (
	Prefix = "quotient"
	Period = time.Second
	Expiry = 10 * time.Second // ten periods: nine lost looks in a row are not a death

	ShortestPeriod = time.Millisecond // else a mistyped one is a flood
	LongestExpiry  = 10 * time.Minute // for so long the dead count
	LongestCommand = time.Second
)

// Between returns an error for a value that is not one of least to most.
func Between[T cmp.Ordered](field string, v, least, most T) error {
	if v < least || v > most {
		return fmt.Errorf("%s: %v is not between %v and %v", field, v, least, most)
	}
	return nil
}

// Default is Between where 0 stands for the default.
func Default(field string, v, least, most time.Duration) error {
	return Between(field, cmp.Or(v, least), least, most)
}

// Name returns an error for a text that is empty, too long, or has a character of not, which what describes.
func Name(field, text string, most int, not, what string) error {
	if n := len(text); n < 1 || n > most {
		return fmt.Errorf("%s: %.40q has %d bytes, not 1 to %d", field, text, n, most)
	}
	if strings.ContainsAny(text, not) {
		return fmt.Errorf("%s: %q has %s", field, text, what)
	}
	return nil
}

// ID returns the text, or the host's name if that is "".
func ID(field, text string) (string, error) {
	if text != "" {
		return text, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("%s: the host has no name: %w", field, err)
	}
	return host, nil
}

// OwnAddrs returns the addresses of this host that no other has.
func OwnAddrs() (own []netip.Addr, err error) {
	nets, err := net.InterfaceAddrs()
	for _, n := range nets {
		if p, err := netip.ParsePrefix(n.String()); err == nil && p.Addr().Unmap().IsGlobalUnicast() {
			own = append(own, p.Addr().Unmap())
		}
	}
	return own, err
}

// Jittered returns d, a tenth longer or shorter at most, so that the fleet does not look in step.
func Jittered(d time.Duration) time.Duration { return d - d/10 + rand.N(d/5+1) }
