package main

import (
	"errors"
	"fmt"
	"runtime"
	"time"
)

const (
	memoryKeys  = 1_000_000
	memoryRoom  = 1_250_000        // bound given to the bounded ones, with room for uneven shards
	restPer     = 20 * time.Second // in the second part, every key has one event in this time
	trafficKeys = 1000             // keys that are asked for after all others went idle
	trafficAsks = 2_000_000
)

// memoryFigure weighs each live key with its name, and what remains once all are idle and traffic goes on.
// Memory hardly varies from run to run, so there is one round. In the second part all contenders are
// filled first, so that one rest serves them all.
func memoryFigure(c config) ([]table, error) {
	n, asks := memoryKeys/c.scale, trafficAsks/c.scale
	peers := keyedPeers()
	all := make([]weighed, len(peers))
	for i, m := range peers {
		if err := all[i].weighLive(m, n); err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
	}
	for i, m := range peers {
		if err := all[i].fill(m, quota{burst: 1, per: restPer}, restPer, n); err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
	}
	time.Sleep(2 * restPer) // a sweep that comes every half period may be due just before the end of the first
	for i, m := range peers {
		if err := all[i].weighLeft(n, asks); err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return []table{memoryTable(peers, all, n, asks)}, nil
}

func memoryTable(peers []maker, all []weighed, n, asks int) table {
	t := table{
		title: fmt.Sprintf("Memory, %d live keys of %d bytes, one rate", n, keyLen),
		note: fmt.Sprintf("Heap in use after a collection, key strings included. Then no call comes for two periods, "+
			"so that all keys are idle, %d more calls go to %d other keys, and the heap is weighed again. Those that "+
			"forget by time were set to forget after %s.", asks, trafficKeys, restPer),
		header: []string{"contender", "bytes a key", "remains", "of it"},
	}
	for i, m := range peers {
		w := all[i]
		t.rows = append(t.rows, []string{m.name, number(w.live), number(w.left), fmt.Sprintf("%.0f%%", 100*w.left/w.live)})
		if m.name == nameQuotient {
			t.verdicts = append(t.verdicts,
				verdict{"quotient, a live key with its name", w.live, 208, " bytes"},
				verdict{"quotient, what remains of it when idle", w.left / w.live, 0.25, ""})
		}
	}
	return t
}

// weighed is a contender and its bytes a key: while all were live, and after all went idle.
type weighed struct {
	keyed
	live, left float64
}

// weighLive weighs a contender that was filled with n keys, drained so that none is idle for five minutes.
func (w *weighed) weighLive(m maker, n int) error {
	before := heap()
	if err := w.fill(m, quota{burst: 1, per: generous.per}, 0, n); err != nil {
		return err
	}
	w.live = (heap() - before) / float64(n)
	w.drop()
	return nil
}

// weighLeft visits other keys and weighs the contender by what its going frees.
func (w *weighed) weighLeft(n, asks int) error {
	if err := visit(w.keyed, asks); err != nil {
		return err
	}
	with := heap()
	w.drop()
	w.left = (with - heap()) / float64(n)
	return nil
}

// fill makes a contender and drains n fresh keys in it.
func (w *weighed) fill(m maker, q quota, forget time.Duration, n int) error {
	k, err := m.make(q, memoryRoom, forget)
	if err != nil {
		return err
	}
	w.keyed = k
	return drain(k, n)
}

func (w *weighed) drop() {
	if w.close != nil {
		w.close()
	}
	w.keyed = keyed{}
}

// drain takes the one event of each of n fresh keys.
func drain(k keyed, n int) error {
	for i := range n {
		if !k.allow(makeKey("tenant-", i)) {
			return fmt.Errorf("key %d was refused at its first visit", i)
		}
	}
	if k.allow(makeKey("tenant-", n-1)) {
		return errors.New("a drained key was admitted again: it was not live")
	}
	return k.holds(n)
}

// visit asks for a few other keys again and again.
func visit(k keyed, asks int) error {
	keys := makeKeys("later-", trafficKeys)
	admitted := 0
	for i := range asks {
		if k.allow(keys[i%len(keys)]) {
			admitted++
		}
	}
	if admitted < trafficKeys {
		return fmt.Errorf("%d later calls admitted, want at least one for each of %d keys", admitted, trafficKeys)
	}
	return nil
}

// heap returns the bytes in use after full collections. Several are needed, with a moment in between:
// finalizers run after the first (ulule stops its goroutine in one), and what they let go is found later.
func heap() float64 {
	for range 3 {
		runtime.GC()
		time.Sleep(5 * time.Millisecond)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
