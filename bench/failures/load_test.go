package failures

import (
	"strconv"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
)

func oneKeyOneReplica(t *testing.T) outcome {
	f := newFleet(t, 4, replicas(4))
	f.run(time.Second, f.members[0])
	sent := f.run(minute, f.members[0])
	return outcome{over: f.over(4), promise: "2", lost: lost(sent, minute), during: minute}
}

// The load balancer gives 40, 30, 20 and 10 % of just what the limit allows.
func unevenLoad(t *testing.T) outcome {
	f := newFleet(t, 4, replicas(4))
	f.demand(time.Second, 400, 300, 200, 100)
	sent := f.demand(minute, 400, 300, 200, 100)
	return outcome{over: f.over(4), promise: "2", lost: lost(sent, minute), during: minute}
}

// restarts replaces one replica each second, for a minute.
func restarts(t *testing.T, starts ...quotient.Option) (over float64) {
	f := newFleet(t, 4, replicas(4))
	for range 60 {
		f.run(time.Second, f.members...)
		f.members = f.members[1:]
		f.add(limit(), append(starts, quotient.Replicas(4))...)
	}
	return f.over(4)
}

// Each restart may bring a replica's part of the burst, and no more.
func restartStarts(t *testing.T) outcome {
	return outcome{over: restarts(t), most: 60 * burst / 4, promise: "B/N a restart"}
}

func restartJoins(t *testing.T) outcome {
	return outcome{over: restarts(t, quotient.StartEmpty()), promise: "2"}
}

// attack asks 20 new keys a millisecond of a limiter with room for a thousand, while one old and one new key
// are asked for all they get. It returns what these two got in three seconds.
func attack(t *testing.T) (old, fresh int) {
	l, err := quotient.New(quotient.Rates(quotient.Rate{Events: 10, Per: time.Second, Burst: 10}),
		quotient.MaxKeys(1000))
	if err != nil {
		t.Fatal(err)
	}
	takes := func(key string) (n int) {
		for l.Allow(key) {
			n++
		}
		return n
	}
	old = takes("old")
	for ms := range 3001 {
		for i := range 20 {
			l.Allow(strconv.Itoa(20*ms + i))
		}
		old += takes("old")
		if ms >= 1000 { // by now there is no room
			fresh += takes("fresh")
		}
		time.Sleep(time.Millisecond)
	}
	if s := l.Stats(); s.Keys > 1000 || s.Overflowed == 0 {
		t.Errorf("%d keys, %d asks that found no room", s.Keys, s.Overflowed)
	}
	return old, fresh
}

// A key that was there before an attack: 10 at once and 30 in three seconds.
func attackOld(t *testing.T) outcome {
	old, _ := attack(t)
	return outcome{over: max(0, float64(old-40)), promise: "1, 6", lost: max(0, 1-float64(old)/40),
		during: 3 * time.Second}
}

// A key that comes during an attack: 10 at once and 20 in two seconds.
func attackFresh(t *testing.T) outcome {
	_, fresh := attack(t)
	return outcome{over: max(0, float64(fresh-30)), promise: "1, 6", lost: max(0, 1-float64(fresh)/30),
		during: 2 * time.Second}
}

// One of four replicas keeps what it was admitted for a second, and sends it all then. No limiter can see
// that.
func latePermits(t *testing.T) outcome {
	const pause = time.Second
	f := newFleet(t, 4, replicas(4))
	f.run(time.Second, f.members...)
	kept := 0
	for range pause / tick {
		kept += takeAll(f.members[:1])
		f.sent = append(f.sent, takeAll(f.members[1:]))
		time.Sleep(tick)
	}
	f.sent[len(f.sent)-1] += kept
	f.run(time.Second, f.members...)
	return outcome{over: f.over(4), most: perSecond / 4 * pause.Seconds(), promise: "R/N x delay"}
}

// A dry run decides and counts, and stops no request: all that come leave.
func dryRun(t *testing.T) outcome {
	const lasts, asked = 10 * time.Second, 2 * perSecond
	f := newFleet(t, 4, replicas(4))
	for _, l := range f.members {
		l.SetDryRun(true)
	}
	f.demand(lasts, asked/4, asked/4, asked/4, asked/4)
	counted := uint64(0)
	for _, l := range f.members {
		counted += l.Stats().DryRunAdmitted[quotient.ReasonRate]
	}
	if over := (asked - perSecond) * lasts.Seconds(); float64(counted) < over-burst ||
		float64(counted) > over {
		t.Errorf("%d were counted as admitted only by the dry run", counted)
	}
	return outcome{over: f.over(4), most: (asked - perSecond) * lasts.Seconds(), promise: "none"}
}
