package main

import (
	"context"
	"fmt"

	"github.com/failsafe-go/failsafe-go/bulkhead"
	"golang.org/x/sync/semaphore"

	"github.com/quotient-go/quotient"
)

// Names of the in-flight contenders that goals refer to.
const (
	nameXSemaphore = "x/sync semaphore"
	nameSemaphore  = "quotient.Semaphore"
	nameInFlight   = "quotient limiter, one key"
	nameInFlights  = "quotient limiter, 100 keys in turn"
	nameChannel    = "buffered channel"
	nameBulkhead   = "failsafe-go bulkhead"
)

// slots is a contender that bounds what is in flight. hold takes a slot, waits if it must, calls f (unless
// it is nil) while it holds the slot and gives it back. It reports whether it got one.
type slots struct {
	name string
	make func(capacity int) (hold func(f func()) bool, err error)
}

func slotPeers() []slots {
	return []slots{
		{nameXSemaphore, makeXSemaphore},
		{nameChannel, makeChannel},
		{nameBulkhead, makeBulkhead},
		{nameSemaphore, makeSemaphore},
		{nameInFlight, makeInFlight},
	}
}

func makeXSemaphore(capacity int) (func(func()) bool, error) {
	s, ctx := semaphore.NewWeighted(int64(capacity)), context.Background()
	return func(f func()) bool {
		if s.Acquire(ctx, 1) != nil {
			return false
		}
		if f != nil {
			f()
		}
		s.Release(1)
		return true
	}, nil
}

func makeChannel(capacity int) (func(func()) bool, error) {
	c, ctx := make(chan struct{}, capacity), context.Background()
	return func(f func()) bool {
		select {
		case c <- struct{}{}:
		case <-ctx.Done():
			return false
		}
		if f != nil {
			f()
		}
		<-c
		return true
	}, nil
}

func makeBulkhead(capacity int) (func(func()) bool, error) {
	b, ctx := bulkhead.New[any](uint(capacity)), context.Background()
	return func(f func()) bool {
		if b.AcquirePermit(ctx) != nil {
			return false
		}
		if f != nil {
			f()
		}
		b.ReleasePermit()
		return true
	}, nil
}

func makeSemaphore(capacity int) (func(func()) bool, error) {
	var s quotient.Semaphore
	if err := s.Resize(capacity); err != nil {
		return nil, err
	}
	ctx := context.Background()
	return func(f func()) bool {
		if s.Acquire(ctx, 1) != nil {
			return false
		}
		if f != nil {
			f()
		}
		s.Release(1)
		return true
	}, nil
}

func makeInFlight(capacity int) (func(func()) bool, error) {
	l, err := quotient.New(quotient.Limit{InFlight: capacity})
	if err != nil {
		return nil, err
	}
	key, ctx := makeKey("tenant-", 0), context.Background()
	return func(f func()) bool {
		p, err := l.Acquire(ctx, key)
		if err != nil {
			return false
		}
		if f != nil {
			f()
		}
		p.Release()
		return true
	}, nil
}

// inflightFigure times taking and giving back a slot that is free. The capacity is above the number of
// workers, so no worker ever waits.
func inflightFigure(c config) ([]table, error) {
	var tables []table
	for _, workers := range c.cpus {
		cs, err := slotContenders(8 * workers)
		if err != nil {
			return nil, err
		}
		all, err := race(c, workers, cs)
		if err != nil {
			return nil, err
		}
		title := fmt.Sprintf("In flight, take and give back a free slot, cpu %d", workers)
		goals := []goal{{nameInFlight, "", allocsEach, 0}, {nameSemaphore, "", allocsEach, 0}}
		if workers == 1 {
			goals = append(goals, goal{nameInFlight, nameXSemaphore, times, 2}, goal{nameSemaphore, nameXSemaphore, times, 1.1})
		}
		tables = append(tables, raceTable(title, "Every call admitted; none waits.", all, []string{nameXSemaphore}, goals))
	}
	return tables, nil
}

func slotContenders(capacity int) ([]contender, error) {
	var cs []contender
	for _, s := range slotPeers() {
		hold, err := s.make(capacity)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		cs = append(cs, contender{name: s.name, run: func(_, n int) int {
			admitted := 0
			for range n {
				if hold(nil) {
					admitted++
				}
			}
			return admitted
		}})
	}
	many, err := inFlightKeys(capacity)
	if err != nil {
		return nil, err
	}
	return append(cs, many), nil
}

// inFlightKeys goes round keys, so that a call never finds the key of the call before it.
func inFlightKeys(capacity int) (contender, error) {
	l, err := quotient.New(quotient.Limit{InFlight: capacity})
	if err != nil {
		return contender{}, err
	}
	keys, ctx := makeKeys("tenant-", 100), context.Background()
	return contender{name: nameInFlights, run: func(_, n int) int {
		admitted, k := 0, 0
		for range n {
			if k++; k == len(keys) {
				k = 0
			}
			if p, err := l.Acquire(ctx, keys[k]); err == nil {
				p.Release()
				admitted++
			}
		}
		return admitted
	}}, checkKeys(keys)
}
