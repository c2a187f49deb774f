package admin

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// longestReplica is the length of the longest DNS name, in bytes.
const longestReplica = 253

// Replica names this process in GET /state and on the page, so that operators see which replica they change.
// Without it the name is that of the host, which in Kubernetes is the pod's. A name is 1 to 253 bytes of
// printable UTF-8; New refuses any other one.
func Replica(name string) Option {
	return func(h *handler) {
		h.replica = name
		if !printable(name) {
			h.errs = append(h.errs, fmt.Errorf(
				"admin: Replica: name: %q is not 1 to %d bytes of printable UTF-8", clip(name), longestReplica))
		}
	}
}

// printable reports whether a replica can have the name.
func printable(name string) bool {
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
	return name != "" && len(name) <= longestReplica && utf8.ValidString(name) && !strings.ContainsFunc(name, unprintable)
}

// hostname is the name of the host, "" where it has none that can be shown.
var hostname = sync.OnceValue(func() string {
	name, err := os.Hostname()
	if err != nil || !printable(name) {
		return ""
	}
	return name
})

// The values of State.May: what a caller may do.
const (
	mayRead  = "read"
	mayWrite = "write"
)

// may is what the caller may do here. The page does not know what a proxy in front forbids.
func (c caller) may() []string {
	if c.readOnly {
		return []string{mayRead}
	}
	return []string{mayRead, mayWrite}
}
