package sim

import "time"

// stickPeriod is the period of the counter: http_req_rate(1s).
const stickPeriod = time.Second

// stickTable is HAProxy's http_req_rate. It adds what this period has counted to what the one before it counted,
// weighted by how much of this one is still to come. Requests that are refused count too. A period begins where
// the one before it ended, or with the first request after a period without any. HAProxy's source has it in
// freq_ctr_total.
type stickTable struct {
	began     time.Duration
	past, now int64 // requests in the period before this one, and in this one
}

// settle brings the periods up to an instant.
func (t *stickTable) settle(now time.Duration) {
	if now-t.began < stickPeriod {
		return
	}
	t.past, t.now, t.began = t.now, 0, t.began+stickPeriod
	if now-t.began >= stickPeriod {
		t.past, t.began = 0, now
	}
}

// rest is how much of this period is still to come.
func (t *stickTable) rest(now time.Duration) time.Duration { return t.began + stickPeriod - now }

// rate is how many requests a second HAProxy believes to see: a whole number.
func (t *stickTable) rate(now time.Duration) float64 {
	return float64((t.past*int64(t.rest(now)) + t.now*int64(stickPeriod)) / int64(stickPeriod))
}

// renewal is how long it takes until the rate is below limit, if no request comes, and until it is 0.
func (t *stickTable) renewal(now time.Duration, limit float64) (next, reset time.Duration) {
	most, rest := int64(limit)*int64(stickPeriod), t.rest(now)
	if t.past > 0 {
		reset = rest
	}
	if t.now > 0 {
		reset = rest + stickPeriod
	}
	switch used := t.now * int64(stickPeriod); {
	case used+t.past*int64(rest) < most:
		return 0, reset
	case used < most:
		return rest - time.Duration((most-used-1)/t.past), reset
	}
	return rest + stickPeriod - time.Duration((most-1)/t.now), reset
}
