// Package fairshare is the controller by which the replicas of a pool divide the limit of a key among those
// that want it.
//
// Each replica may always use its even share, 1/N, without asking. It may borrow what the others do not use
// of theirs. For that the replicas say what they use and want of a key. Each learns the sum of what all say.
// Those that have what they want claim what they use. The rest belongs to those that want more, in equal
// parts by weight. The controller has no clock, no lock and no goroutine.
//
// A replica borrows only while all replicas of the pool have said something about the key, and the oldest of
// it is no older than MaxAge. So a replica that is cut off, or that others are cut off from, is back at its
// even share after MaxAge. No replica ever has less: whatever the others say, they cannot take that away.
//
// What lending costs is counted by onsets: while others borrow, a replica begins or resumes to use more than it
// claimed, or to want more than its share. Steady use costs nothing, as a claim is a tenth above it, and neither does a
// surge while nothing is lent. A share below three events per interval may cost three more. A loan outlives an onset
// by a time T: without losses a report's delay and two intervals, at the most MaxAge and one interval. It runs by the
// borrower's monotonic clock, which stops during a suspend. Onsets that overlap counted once in 100,000 histories; if
// for all of T no report of a later onset arrived, k of them would cost at most R T ln(k + 1).
package fairshare

import (
	"math"
	"time"

	"github.com/quotient-go/quotient/internal/carry"
)

// The places in the carry.Terms that a replica says of a key, and in their sum.
const (
	Known   = iota // weight of the replicas that know of the key
	Asked          // replicas for which others mention the key
	Wanting        // weight of those that want more than they have
	Claim          // what the others use: millionths of the limit, or thousandths of what a controller governs
	Rate           // what controllers allow those that want more: thousandths of what they govern
	Refused        // what controllers see refused, in the same unit
)

// Millionths are the parts that Claim counts in.
const Millionths = 1e6

// Seen is what a replica has seen of a key since the turn before.
type Seen struct {
	Used   float64       // part of the limit: what was taken over what the fleet may take in that time
	Held   float64       // part of the limit: slots that are taken now, and come back by a release alone
	Wants  bool          // callers were held back by what can be borrowed
	Span   time.Duration // since the turn before; 0: nothing was measured yet
	Spaced time.Duration // from one event to the next at the even share; 0 for slots
}

// Reports are the sum over the fleet, this replica included.
type Reports struct {
	Sum carry.Terms
	Age time.Duration // of the oldest part of it
}

// Pool is what a replica believes about the pool.
type Pool struct{ Replicas, Weight int }

// Share is the state of one key on one replica. The zero value is ready: at the even share.
type Share struct {
	said   carry.Terms
	part   float64       // of the limit; 0: the even share
	since  time.Duration // when it began to want more
	wants  bool
	wanted time.Duration // when callers were last held back
	now    float64       // what is used: in the latest span, and smoothed over a short and a long time
	fast   float64
	slow   float64
	last   time.Duration // when anything was used
	span   time.Duration // of the first measurement, until it is long enough to be known
	knows  bool
}

// The constants of the controller. A claim rises with use at once, and falls as use does that is smoothed
// over half a second and over two. Where events are rarer it is over some events. So a pause between two of
// them is not the end of demand. A claim is a tenth larger than the use that it stands for.
const (
	fastest  = 500 * time.Millisecond
	slowest  = 30 * time.Second
	events   = 3
	slack    = 1.1
	forget   = 12          // short times without use, after which nothing is claimed, or rounding costs a slot
	patience = time.Second // a replica that was held back wants more for so long
	steps    = 64          // parts are rounded down to so many steps an octave
)

// Next returns what the replica says from now on, and the part of the limit that it may use until the
// reports are older than maxAge. The part is 0 for the even share, which needs no reports.
func (s *Share) Next(
	now time.Duration, seen Seen, news Reports, pool Pool, maxAge time.Duration,
) (own carry.Terms, part float64) {
	s.measure(now, seen)
	fair := float64(pool.Weight) / float64(pool.Replicas)
	level, crowd, known := s.level(news, pool, maxAge)
	own[Known] = int64(pool.Weight)
	most, have := max(fair, level), max(s.part, fair)
	held := min(max(0, seen.Held), 1)
	claimed := 0.0
	if s.wants {
		own[Wanting] = int64(pool.Weight)
		if s.part = min(have, most); now-s.since >= news.Age {
			s.part = most
		}
		if held > s.part { // what must drain first is not there for the others
			claimed = min(held, (held-s.part)*crowd)
		}
	} else {
		s.part = min(s.claim(fair), have, most)
		claimed = max(s.part, held)
	}
	own[Claim] = int64(math.Ceil(claimed * Millionths))
	s.said = own
	if s.part = roundDown(s.part); !known || s.part <= fair {
		s.part = 0
	}
	return own, s.part
}

// Said returns what the replica says.
func (s *Share) Said() carry.Terms { return s.said }

// level returns what a replica that wants more may use, if the others' parts are known. It also returns how
// many want more, this one included, for each of the others that do. The reserve of one is taken off the
// level of all, its own included.
func (s *Share) level(news Reports, pool Pool, maxAge time.Duration) (level, crowd float64, known bool) {
	if news.Age > maxAge || news.Sum[Known] < int64(pool.Replicas) {
		return 0, 1, false
	}
	claimed := float64(news.Sum[Claim]-s.said[Claim]) / Millionths
	wanting := float64(max(0, news.Sum[Wanting]-s.said[Wanting]))
	all := wanting + float64(pool.Weight)
	return max(0, 1-max(0, claimed)) / all * float64(pool.Weight), all / wanting, true
}

// measure takes note of what was seen.
func (s *Share) measure(now time.Duration, seen Seen) {
	short := min(max(fastest, events*seen.Spaced), slowest)
	if seen.Wants {
		if s.wanted = now; !s.wants {
			s.since = now
		}
		s.wants = true
	} else if now-s.wanted >= max(patience, short) {
		s.wants = false
	}
	if seen.Span <= 0 {
		s.knows, s.slow, s.span = false, 0, 0
		return
	}
	if s.now = seen.Used; !s.knows {
		total := s.slow*float64(s.span) + seen.Used*float64(seen.Span)
		s.span += seen.Span
		s.slow = total / float64(s.span)
		s.fast, s.knows = s.slow, s.span >= min(events*seen.Spaced, slowest)
		return
	}
	s.fast += (seen.Used - s.fast) * -math.Expm1(-float64(seen.Span)/float64(short))
	s.slow += (seen.Used - s.slow) * -math.Expm1(-float64(seen.Span)/float64(4*short))
	if seen.Used > 0 {
		s.last = now
	} else if now-s.last >= forget*short {
		s.fast, s.slow = 0, 0
	}
}

// claim returns what the replica reserves: all that it may use while nothing was measured.
func (s *Share) claim(fair float64) float64 {
	if !s.knows {
		return fair
	}
	return slack * max(s.now, s.fast, s.slow)
}

// roundDown rounds a part down to a step, so that small changes change nothing.
func roundDown(part float64) float64 {
	frac, exp := math.Frexp(part)
	return math.Ldexp(math.Floor(frac*2*steps)/(2*steps), exp)
}
