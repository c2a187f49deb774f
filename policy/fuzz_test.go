package policy_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/quotient-go/quotient/policy"
)

// tape is a sequence of bytes that samples are read from. At its end it goes on with zeros.
type tape []byte

func (p *tape) next() byte {
	if len(*p) == 0 {
		return 0
	}
	b := (*p)[0]
	*p = (*p)[1:]
	return b
}

// odd are the numbers that controllers are most likely to stumble over.
var odd = []float64{0, math.NaN(), math.Inf(1), math.Inf(-1), -1, math.MaxFloat64, -math.MaxFloat64,
	math.SmallestNonzeroFloat64}

// number takes one byte for an odd number, and two for others: from 1e-9 to 1e15, in even steps of the
// logarithm.
func (p *tape) number() float64 {
	b := p.next()
	if int(b) < len(odd) {
		return odd[b]
	}
	return math.Pow(10, float64(b)/10-9) * (1 + float64(p.next())/256)
}

// span is a number of milliseconds, or an absurd time.
func (p *tape) span() time.Duration {
	switch b := p.next(); b {
	case 255:
		return math.MaxInt64
	case 254:
		return math.MinInt64
	case 253:
		return -time.Duration(p.next()) * time.Second
	default:
		return time.Duration(b) * time.Duration(p.next()) * time.Millisecond
	}
}

// sample reads one sample; its first byte says what it has besides an instant and an outcome.
func (p *tape) sample(now time.Duration) policy.Sample {
	flags := p.next()
	s := policy.Sample{Outcome: policy.Outcome(flags & 7), Paced: flags&8 != 0, Now: now + p.span(), Cost: 1}
	s.Sent = s.Now - p.span()
	if flags&16 != 0 {
		s.RetryAfter = p.span()
	}
	if flags&32 != 0 {
		s.Quota = policy.Quota{Limit: p.number(), Remaining: p.number(), Reset: p.span()}
	}
	if flags&64 != 0 {
		s.Cost = p.number()
	}
	return s
}

// tapes are the beginnings of the corpus: a plain life, a blackout, fields, and a clock that jumps.
var tapes = []string{
	"\x00\x64\x00\x64\x00\x08\x0a\x0a\x0a\x0a\x02\x0a\x0a\x0a\x0a\x09\x0a\x0a\x0a\x0a",
	"\x00\x64\x64\x02\x64\x64\x02\x64\x64\x02\x64\x64\x12\x64\x64\x0a\x64\x01\x64\x64\x09\x64\x64\x01\x01",
	"\x00\x29\x0a\x0a\x01\x01\x78\x00\x6e\x00\x0a\x64\x29\x0a\x0a\x01\x01\x78\x00\x00\x0a\x64",
	"\x00\x02\xff\x00\x09\xfe\x00\x09\x0a\x0a\xff\x5a\xfd\x05\xff\x01\x02\x03",
}

// FuzzController holds for all policies what every controller promises (see witness.judge), for any samples
// and bounds.
func FuzzController(f *testing.F) {
	for _, t := range tapes {
		f.Add(uint64(1), []byte(t))
	}
	for seed := range uint64(20) { // and long lives
		life, random := make([]byte, 1000), rand.New(rand.NewPCG(seed, 0))
		for i := range life {
			life[i] = byte(random.Uint32())
		}
		f.Add(seed, life)
	}
	f.Fuzz(func(t *testing.T, seed uint64, data []byte) {
		for _, c := range contracts {
			p, w := tape(data), c.witness(seed)
			varied := p.next()&1 == 1 // else all requests cost the same, and rates can be compared
			s, b := policy.Sample{}, policy.Bounds{Share: p.number(), Ceiling: p.number()}
			w.tell(s, b)
			for len(p) > 0 {
				if s = p.sample(s.Now); s.Outcome == 7 { // no outcome at all: new bounds
					s.Outcome, b = policy.Unknown, policy.Bounds{Share: p.number(), Ceiling: p.number()}
				}
				if !varied {
					s.Cost = 1
				}
				w.tell(s, b)
			}
			w.holds(t)
		}
	})
}

// FuzzReports is FuzzController with reports in all bounds, true or not.
func FuzzReports(f *testing.F) {
	for _, t := range tapes {
		f.Add(uint64(1), []byte(t))
	}
	f.Fuzz(func(t *testing.T, seed uint64, data []byte) {
		for _, c := range contracts {
			p, w := tape(data), c.witness(seed)
			s, b := policy.Sample{}, p.newsy()
			w.tell(s, b)
			for len(p) > 0 {
				if s = p.sample(s.Now); s.Outcome == 7 {
					s.Outcome, b = policy.Unknown, p.newsy()
				}
				w.tell(s, b)
			}
			w.holds(t)
		}
	})
}

// newsy is bounds with reports.
func (p *tape) newsy() policy.Bounds {
	return policy.Bounds{Share: p.number(), Ceiling: p.number(), Fleet: &policy.Fleet{
		Weight: 1 + p.number(), Limit: p.number(), Wanting: p.number(), Rate: p.number(), Used: p.number(),
		Refused: p.number(),
	}}
}
