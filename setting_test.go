package quotient

import (
	"testing"
	"time"
)

// A new replica starts empty and fills at its share, or with the next window.
func TestNewReplicaStartsEmpty(t *testing.T) {
	for _, r := range []Rate{perSecond(8, 40), aligned(8, time.Second)} {
		row(t, r, func(t *testing.T) {
			l := mustNew(t, Rates(r), Replicas(4), StartEmpty())
			wants(t, l, "k", 0)
			time.Sleep(time.Second)
			wants(t, l, "k", 2)
			wants(t, l, "another, never seen", 2)
			time.Sleep(time.Hour)
			wants(t, l, "k", max(2, r.Burst/4))
		})
	}
}
