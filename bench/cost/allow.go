package main

import (
	"fmt"
	"time"

	"github.com/quotient-go/quotient"
)

// nameIdle is quotient with keys that are full again at once, so that all may be forgotten.
const nameIdle = "quotient, all keys idle"

// allowCase is one traffic pattern of the Allow figure, and how close quotient must come to which peer.
type allowCase struct {
	name    string
	keys    int
	traffic func(int) (traffic, error)
	goals   []goal
}

var allowCases = []allowCase{
	{"one hot key", 1, uniform, []goal{{nameQuotient, nameRate, times, .85}}},
	{"100 keys", 100, uniform, manyKeys},
	{"100,000 keys, Zipf", 100_000, zipf, manyKeys},
	{"1,000,000 keys, Zipf", 1_000_000, zipf, manyKeys},
}

var manyKeys = []goal{{nameQuotient, nameGoLimiter, times, 1}, {nameQuotient, nameCounter, times, 1.1}}

// allowFigure times one decision for one key, all keys present and none idle.
func allowFigure(c config) ([]table, error) {
	var tables []table
	for _, ac := range allowCases {
		ts, err := ac.measure(c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", ac.name, err)
		}
		tables = append(tables, ts...)
	}
	return tables, nil
}

func (ac allowCase) measure(c config) ([]table, error) {
	t, err := ac.traffic(max(min(100, ac.keys), ac.keys/c.scale))
	if err != nil {
		return nil, err
	}
	held, stop, err := holders(t)
	if err != nil {
		return nil, err
	}
	defer stop()
	var tables []table
	for _, workers := range c.cpus {
		all, err := race(c, workers, contenders(held, t, workers))
		if err != nil {
			return nil, err
		}
		tables = append(tables, ac.table(t, workers, all))
	}
	return tables, nil
}

func (ac allowCase) table(t traffic, workers int, all []series) table {
	title := fmt.Sprintf("Allow, %s, %d-byte keys, cpu %d", ac.name, keyLen, workers)
	note := fmt.Sprintf("%d keys held, %d distinct ones visited, every call admitted.", len(t.keys), t.distinct)
	refs := []string{nameFloor, nameRate, nameGoLimiter, nameCounter}
	return raceTable(title, note, all, refs, append([]goal{{nameQuotient, "", allocsEach, 0}}, ac.goals...))
}

// holder is a keyed contender that holds all keys of a traffic pattern.
type holder struct {
	name string
	keyed
}

// holders builds every keyed contender and lets it see every key once.
func holders(t traffic) ([]holder, func(), error) {
	var hs []holder
	stop := func() {
		for _, h := range hs {
			if h.close != nil {
				h.close()
			}
		}
	}
	makers := append([]maker{{nameFloor, makeFloor}, {nameMapFloor, makeMapFloor}, {nameRate, makeRate}}, keyedPeers()...)
	for _, m := range append(makers, maker{nameIdle, makeIdle}) {
		k, err := m.make(generousTo(len(t.keys)), max(65536, 2*len(t.keys)), 0)
		if err == nil {
			err = k.fill(t.keys)
		}
		if err != nil {
			stop()
			return nil, nil, fmt.Errorf("%s: %w", m.name, err)
		}
		hs = append(hs, holder{m.name, k})
	}
	return hs, stop, nil
}

// makeIdle is quotient with a rate so high that every key is idle again at the next look at the clock.
func makeIdle(q quota, maxKeys int, _ time.Duration) (keyed, error) {
	limit := quotient.Rates(quotient.Rate{Events: 1e9, Per: time.Second, Burst: q.burst})
	l, err := quotient.New(limit, quotient.MaxKeys(maxKeys))
	if err != nil {
		return keyed{}, err
	}
	return keyed{allow: l.Allow}, nil
}

func contenders(hs []holder, t traffic, workers int) []contender {
	cs := make([]contender, len(hs))
	for i, h := range hs {
		vs := t.visitors(workers)
		cs[i] = contender{
			name:  h.name,
			run:   func(w, n int) int { return vs[w].run(h.allow, n) },
			check: func() error { return h.holds(len(t.keys)) },
		}
	}
	return cs
}
