package failures

import (
	"errors"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
)

const minute = time.Minute

// late is bound 3: what a growth of the pool that is seen so late lets through.
func late(d time.Duration, before, after float64) float64 {
	return perSecond * d.Seconds() * (after/before - 1)
}

func nothingFails(t *testing.T) outcome {
	f := newFleet(t, 4, replicas(4))
	sent := f.run(minute, f.members...)
	return outcome{over: f.over(4), promise: "2", lost: lost(sent, minute), during: minute}
}

func countTooLow(t *testing.T) outcome {
	f := newFleet(t, 4, replicas(4))
	f.run(time.Second, f.members...)
	f.add(limit(), quotient.StartPool(replicas(4)), quotient.StartEmpty())
	sent := f.run(minute, f.members...)
	return outcome{over: f.over(5), most: late(minute, 4, 5), promise: "3", lost: lost(sent, minute),
		during: minute}
}

func countTooHigh(t *testing.T) outcome {
	f := newFleet(t, 4, replicas(5))
	f.run(time.Second, f.members...)
	sent := f.run(minute, f.members...)
	return outcome{over: f.over(4), promise: "2", lost: lost(sent, minute), during: minute}
}

func newReplicaUnknown(t *testing.T) outcome {
	const delay = 5 * time.Second
	f := newFleet(t, 4, replicas(4))
	f.run(time.Second, f.members...)
	f.add(limit(), quotient.StartPool(replicas(5)), quotient.StartEmpty()) // it knows, the others do not yet
	sent := f.run(delay, f.members...)
	f.believe(5, f.members...)
	f.run(minute, f.members...)
	return outcome{over: f.over(5), most: late(delay, 4, 5), promise: "3", lost: lost(sent, delay),
		during: delay}
}

func newReplicaAnnounced(t *testing.T) outcome {
	const delay = 5 * time.Second
	f := newFleet(t, 4, replicas(5)) // all were informed before the new replica starts
	f.run(time.Second, f.members...)
	sent := f.run(delay, f.members...)
	f.add(limit(), quotient.StartPool(replicas(5)), quotient.StartEmpty())
	f.run(minute, f.members...)
	return outcome{over: f.over(5), promise: "2", lost: lost(sent, delay), during: delay}
}

func killed(t *testing.T) outcome {
	const holdDown = 30 * time.Second // the default
	f := newFleet(t, 4, replicas(4))
	say := f.follow(f.members...)
	say(replicas(4))
	f.run(time.Second, f.members...)
	say(replicas(3))
	sent := f.run(holdDown, f.members[:3]...)
	f.run(minute, f.members[:3]...)
	return outcome{over: f.over(4), promise: "2", lost: lost(sent, holdDown), during: holdDown}
}

func split(t *testing.T) outcome {
	const holdDown, after = 30 * time.Second, 10 * time.Second
	f := newFleet(t, 4, replicas(4))
	say := f.follow(f.members...)
	say(replicas(4))
	f.run(time.Second, f.members...)
	say(replicas(2)) // each half sees itself
	f.run(holdDown, f.members...)
	if over := f.over(4); over > 0 {
		t.Errorf("%.1f above the limit during the hold-down", over)
	}
	sent := f.run(after, f.members...)
	return outcome{over: f.over(4), most: late(after, 2, 4), promise: "4", lost: lost(sent, after),
		during: after}
}

func sourceDown(t *testing.T) outcome {
	f := newFleet(t, 4, replicas(9))
	say := f.follow(f.members...)
	say(replicas(4))
	// a larger configured pool fell at once: nothing had been followed before
	f.run(time.Second, f.members...)
	say(errors.New("no such host"))
	sent := f.run(10*minute, f.members...)
	return outcome{over: f.over(4), promise: "2", lost: lost(sent, 10*minute), during: 10 * minute}
}

func sourceDownAndAged(t *testing.T) outcome {
	f := newFleet(t, 4, replicas(5), quotient.HintMaxAge(minute))
	say := f.follow(f.members...)
	say(replicas(4))
	f.run(minute, f.members...)
	say(errors.New("no such host"))
	sent := f.run(minute, f.members...) // the configured pool, a deliberately larger one
	return outcome{over: f.over(4), promise: "2", lost: lost(sent, minute), during: minute}
}

func sourceNeverSpeaks(t *testing.T) outcome {
	f := newFleet(t, 4, replicas(4), quotient.AwaitPool(), quotient.HintMaxAge(minute))
	say := f.follow(f.members...)
	say(errors.New("connection refused"))
	sent := f.run(minute, f.members...)
	if after := f.run(minute, f.members...); lost(after, minute) > .001 {
		t.Errorf("%d of 60,000 in the minute after", after)
	}
	return outcome{over: f.over(4), promise: "2", lost: lost(sent, minute), during: minute}
}

func stopped(t *testing.T) outcome {
	const pause = 20 * time.Second
	f := newFleet(t, 4, replicas(4))
	f.run(time.Second, f.members...)
	sent := f.run(pause, f.members[:3]...)
	f.run(minute, f.members...)
	return outcome{over: f.over(4), promise: "2", lost: lost(sent, pause), during: pause}
}

// A replica that stands still for longer than a store's expiry and the hold-down has left. Then it goes on
// as one of four, one period before the others learn of it.
func stoppedForLong(t *testing.T) outcome {
	const expiry, holdDown, period = 10 * time.Second, 30 * time.Second, time.Second
	f := newFleet(t, 4, replicas(4))
	others := f.members[:3]
	say := f.follow(others...)
	say(replicas(4))
	f.run(time.Second, f.members...)
	sent := f.run(expiry, others...)
	say(replicas(3))
	sent += f.run(holdDown, others...)
	f.run(20*time.Second, others...)
	f.run(period, f.members...)
	say(replicas(4))
	f.run(minute, f.members...)
	return outcome{over: f.over(4), most: late(period, 3, 4), promise: "3", lost: lost(sent, expiry+holdDown),
		during: expiry + holdDown}
}
