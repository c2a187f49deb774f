package cost

import (
	"errors"
	"runtime"
	"time"
)

const (
	attackKeys   = 1024 // bound on the keys held
	attackBurst  = 10   // events that the drained key may have: nothing refills within the run
	attackVisits = 50
)

func attack(m maker, hostile int) (beyond int, err error) {
	k := m.make(quota{burst: attackBurst, per: time.Hour}, attackKeys)
	if k.close != nil {
		defer k.close()
	}
	victim, others, admitted := makeKey("victim-", 0), makeKeys("hostile-", hostile), 0
	for range attackVisits {
		for range 2 * attackBurst {
			if k.allow(victim) {
				admitted++
			}
		}
		for _, o := range others {
			k.allow(o)
		}
	}
	if admitted < attackBurst {
		return 0, errors.New("the burst was not admitted")
	}
	return admitted - attackBurst, nil
}

// heap returns the bytes in use after full collections: finalizers run after the first, and what they let go is
// found later.
func heap() float64 {
	for range 3 {
		runtime.GC()
		time.Sleep(5 * time.Millisecond)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// collection returns how long a full collection takes: the shortest of several, as others use the processors too.
func collection() time.Duration {
	shortest := time.Hour
	for range 10 {
		start := time.Now()
		runtime.GC()
		shortest = min(shortest, time.Since(start))
	}
	return shortest
}

// timeQuantile returns the wait that a call arriving at a random moment exceeds with probability beyond. A prober
// that is stuck sends no further probes, so a wait of d stands for all arrivals within d. The waits are sorted.
func timeQuantile(waits []time.Duration, beyond float64) time.Duration {
	total := time.Duration(0)
	for _, d := range waits {
		total += d
	}
	budget := beyond * float64(total)
	for i := len(waits) - 1; i > 0; i-- {
		longer := float64(len(waits) - i) // waits at least as long as this one
		if step := longer * float64(waits[i]-waits[i-1]); step < budget {
			budget -= step
			continue
		}
		return waits[i] - time.Duration(budget/longer)
	}
	return waits[0]
}
