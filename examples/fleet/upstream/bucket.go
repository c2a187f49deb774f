package upstream

import "time"

// A bucket is the upstream's own limit, written down a second time on purpose: the judge does not
// borrow the code of those it judges. It is not safe for concurrent use.
type bucket struct {
	rate, burst float64 // tokens a second, most tokens
	tokens      float64
	last        time.Duration
}

// newBucket returns a full bucket.
func newBucket(rate float64, burst int) *bucket {
	return &bucket{rate: rate, burst: float64(burst), tokens: float64(burst)}
}

// settle fills the bucket up to now. Time does not go back.
func (b *bucket) settle(now time.Duration) {
	if now > b.last {
		b.tokens = min(b.burst, b.tokens+(now-b.last).Seconds()*b.rate)
		b.last = now
	}
}

// set changes the limit at now. Tokens that are there stay, up to the new burst.
func (b *bucket) set(now time.Duration, rate float64, burst int) {
	b.settle(now)
	b.rate, b.burst = rate, float64(burst)
	b.tokens = min(b.tokens, b.burst)
}

// take takes a token at now if there is one.
func (b *bucket) take(now time.Duration) bool {
	b.settle(now)
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// wait is how long it is until there are n tokens, if none is taken; 0 if there are.
func (b *bucket) wait(n float64) time.Duration {
	return time.Duration(max(0, n-b.tokens) / b.rate * float64(time.Second))
}
