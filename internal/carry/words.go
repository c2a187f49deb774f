package carry

import (
	"encoding/binary"
	"strings"
)

// The limiters of a fleet report under texts, which are the keys of Sums. The first byte says what a text is about.
const (
	ofKey   = "k"
	ofCount = "c"
	Totals  = "t" // what the limiters have done together
)

// The places in the Terms under Totals.
const (
	TotalReplicas = iota // by weight
	TotalAdmitted
	TotalRefused
	TotalWaiting
	TotalInFlight
)

// KeyText is what replicas that lend each other of a key report on it under. Its Terms are those of package fairshare.
func KeyText(key string) string { return ofKey + key }

// ReadKey is the other direction.
func ReadKey(text string) (key string, ok bool) { return strings.CutPrefix(text, ofKey) }

// Count is a key whose events the replicas count together under one rule, which is never 0.
type Count struct {
	Rule uint64
	Key  string
}

// The places in the Terms under the text of a Count. The first two only grow.
const (
	CountEvents = iota // that were taken in the window
	CountBack          // of them, those that were given back
	CountKnown         // weight of the replicas that count it
	CountAsked         // how many of them name it
)

// Text is what the events of one window are summed under.
func (c Count) Text(window int64) string {
	b := binary.BigEndian.AppendUint64([]byte(ofCount), c.Rule)
	return string(binary.AppendVarint(b, window)) + c.Key
}

// ReadCount is the other direction.
func ReadCount(text string) (c Count, window int64, ok bool) {
	rest, ok := strings.CutPrefix(text, ofCount)
	if !ok || len(rest) < 8 {
		return Count{}, 0, false
	}
	head := []byte(rest[:min(len(rest), 8+binary.MaxVarintLen64)])
	window, n := binary.Varint(head[8:])
	if n <= 0 {
		return Count{}, 0, false
	}
	c = Count{binary.BigEndian.Uint64(head), rest[8+n:]}
	return c, window, c.Rule != 0 && c.Text(window) == text
}

// MostCounted bounds what is believed of the sum of a Count.
const MostCounted = 1 << 60

// Taken is what the others have taken of a window, net of what they have given back. Both sums only grow. When a
// replica is gone, or has started again, they fall. Its takes still count. The zero value is a window that begins.
type Taken struct{ events, back, lost int64 }

// See returns the number for a sum. When a replica joins, what was lost may be in it again.
func (t *Taken) See(sum Terms, joined bool) int64 {
	events, back := sum[CountEvents]-t.events, sum[CountBack]-t.back
	if events < 0 {
		t.lost = min(t.lost+max(0, -events-max(0, -back)), MostCounted)
	} else if joined {
		t.lost -= min(t.lost, max(0, events-max(0, back)))
	}
	t.events, t.back = sum[CountEvents], sum[CountBack]
	return t.events - t.back + t.lost
}
