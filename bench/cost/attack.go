package main

import (
	"fmt"
	"strconv"
	"time"
)

// The cycling attack: a client that has used up its key's burst sends requests for as many other keys as
// the limiter can hold, and comes back. A limiter that forgot the drained key hands out a fresh burst.
const (
	attackKeys   = 1024 // bound on the keys held
	attackBurst  = 10   // events the drained key may have, in total: nothing refills within the run
	attackVisits = 50   // how often the attacker comes back
	attackTries  = 20   // requests for the drained key at every visit
)

// attackFigure counts the admissions beyond the bound, for rotations of one and four times the bound.
func attackFigure(c config) ([]table, error) {
	t := table{
		title: fmt.Sprintf("Cycling attack, at most %d keys held, burst %d, %d visits", attackKeys, attackBurst, attackVisits),
		note:  "Admissions of the drained key beyond its burst, by the number of hostile keys between two visits.",
		header: []string{"contender", fmt.Sprintf("%d keys", attackKeys), fmt.Sprintf("%d keys", 4*attackKeys),
			"bounded memory"},
	}
	for _, m := range keyedPeers() {
		one, err := attack(m, attackKeys)
		if err != nil {
			return nil, err
		}
		four, err := attack(m, 4*attackKeys)
		if err != nil {
			return nil, err
		}
		t.rows = append(t.rows, []string{m.name, plus(one), plus(four), bounded(m.name)})
		if m.name == nameQuotient {
			t.verdicts = append(t.verdicts, verdict{"quotient, admissions beyond the bound", float64(max(one, four)), 0, ""})
		}
	}
	return []table{t}, nil
}

// attack returns how many requests for the drained key were admitted beyond its burst.
func attack(m maker, hostile int) (beyond int, err error) {
	k, err := m.make(quota{burst: attackBurst, per: time.Hour}, attackKeys, 0)
	if err != nil {
		return 0, err
	}
	if k.close != nil {
		defer k.close()
	}
	victim, others := makeKey("victim-", 0), makeKeys("hostile-", hostile)
	if err := checkKeys(append(others, victim)); err != nil {
		return 0, err
	}
	admitted := 0
	for range attackVisits {
		admitted += count(attackTries, func() bool { return k.allow(victim) })
		for _, o := range others {
			k.allow(o)
		}
	}
	if admitted < attackBurst {
		return 0, fmt.Errorf("%s: only %d of the burst of %d admitted", m.name, admitted, attackBurst)
	}
	return admitted - attackBurst, nil
}

// count returns how often f says true in n calls.
func count(n int, f func() bool) int {
	yes := 0
	for range n {
		if f() {
			yes++
		}
	}
	return yes
}

func plus(n int) string { return "+" + strconv.Itoa(n) }

// bounded returns which contenders have a bound on the keys they hold.
func bounded(name string) string {
	switch name {
	case nameQuotient, nameRateInLRU, nameThrottled:
		return "yes"
	default:
		return "no"
	}
}
