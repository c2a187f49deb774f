package main

import (
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/quotient-go/quotient/lease"
)

// TestHistoriesAreLinearizable plays a few histories against the real table.
func TestHistoriesAreLinearizable(t *testing.T) {
	c := &counts{}
	for seed := range uint64(12) {
		if err := oneHistory(seed, 8, 60, realTable, c); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
	if c.violations+c.unknown > 0 || c.histories != 12 || c.operations < 12*8*60 || c.least() == 0 {
		t.Errorf("%+v", c)
	}
}

// faulty is a table with one fault.
type faulty struct {
	*lease.Table
	defects
}

type defects struct {
	overtakes, over, expiresLate, expiresEarly, forgetsWaiters bool
	repeatsTokens, ignoresGrace, loses, grows                  bool

	last *uint64
}

func (f defects) make(c lease.Config, tokens lease.Tokens, now time.Time) (table, error) {
	if f.ignoresGrace {
		c.Grace = 0
	}
	if f.over {
		c = f.more(c)
	}
	t, err := lease.NewTable(c, tokens, now)
	return &faulty{t, f}, err
}

// more raises each maximum by one.
func (f defects) more(c lease.Config) lease.Config {
	all := map[string]lease.Semaphore{}
	for name, s := range c.Semaphores {
		s.Max++
		all[name] = s
	}
	c.Semaphores = all
	return c
}

func (f *faulty) Configure(c lease.Config, now time.Time) error {
	if f.over {
		c = f.more(c)
	}
	return f.Table.Configure(c, now)
}

// Acquire lets a lock overtake those that wait: they are asked for again behind it.
func (f *faulty) Acquire(id uint64, name string, count int64, now time.Time) (uint64, error) {
	_, pending, _ := f.Locks(name, 1, now)
	first := len(pending) == 1 && pending[0].Peer != id
	if first && f.overtakes {
		_ = f.Release(pending[0].Peer, name, now)
	}
	token, err := f.Table.Acquire(id, name, count, now)
	if first && f.overtakes {
		_, _ = f.Table.Acquire(pending[0].Peer, name, pending[0].Count, now)
	}
	if f.grows && strings.HasPrefix(text(err), "Lock count can only shrink") {
		_ = f.Release(id, name, now)
		return f.Table.Acquire(id, name, count, now)
	}
	if f.repeatsTokens && token != 0 && *f.last != 0 && token%3 == 0 {
		return *f.last, err
	}
	if token != 0 {
		*f.last = token
	}
	return token, err
}

func (f *faulty) Heartbeat(id uint64, d time.Duration, now time.Time) ([]string, error) {
	switch {
	case f.expiresLate:
		d++
	case f.expiresEarly:
		d--
	}
	return f.Table.Heartbeat(id, d, now)
}

func (f *faulty) Restore(
	id uint64, d time.Duration, locks []lease.Restored, now time.Time,
) ([]string, error) {
	if f.loses && len(locks) > 0 {
		locks = locks[1:]
	}
	return f.Table.Restore(id, d, locks, now)
}

func (f *faulty) Release(id uint64, name string, now time.Time) error {
	if f.forgetsWaiters && now.UnixNano()%7 == 0 {
		return nil
	}
	return f.Table.Release(id, name, now)
}

// TestFaultsAreFound checks that a table with a fault is refuted, and soon.
func TestFaultsAreFound(t *testing.T) {
	for name, f := range map[string]defects{
		"a request overtakes": {overtakes: true}, "one more than the maximum": {over: true},
		"a peer expires a nanosecond late": {expiresLate: true}, "a nanosecond early": {expiresEarly: true},
		"a release is lost": {forgetsWaiters: true}, "a token is given twice": {repeatsTokens: true},
		"the grace time is not kept": {ignoresGrace: true}, "a lock is not restored": {loses: true},
		"a lock grows": {grows: true},
	} {
		t.Run(name, func(t *testing.T) {
			f.last = new(uint64)
			for seed := range uint64(30) {
				if oneHistory(seed, 6, 60, f.make, &counts{}) != nil {
					return
				}
			}
			t.Error("30 histories have not refuted it")
		})
	}
}

// TestNoFaultIsNotFound checks that the wrapper itself is no fault.
func TestNoFaultIsNotFound(t *testing.T) {
	for seed := range uint64(5) {
		if err := oneHistory(seed, 6, 60, defects{last: new(uint64)}.make, &counts{}); err != nil {
			t.Error(err)
		}
	}
}

// TestTokensRise checks that a token which falls is found, where one lock was held before the next was asked
// for.
func TestTokensRise(t *testing.T) {
	lock := func(id, token uint64, call, ret int64) porcupine.Operation {
		return porcupine.Operation{Input: &input{kind: ask, id: id}, Output: &output{token: token},
			Call: call, Return: ret}
	}
	for _, c := range []struct {
		what string
		ops  []porcupine.Operation
		ok   bool
	}{
		{"rising", []porcupine.Operation{lock(1, 5, 1, 2), lock(2, 6, 3, 4)}, true},
		{"falling", []porcupine.Operation{lock(1, 6, 1, 2), lock(2, 5, 3, 4)}, false},
		{"the same twice", []porcupine.Operation{lock(1, 6, 1, 2), lock(2, 6, 3, 4)}, false},
		{"at once", []porcupine.Operation{lock(1, 6, 1, 4), lock(2, 5, 2, 3)}, true},
		{"the same lock again", []porcupine.Operation{lock(1, 5, 1, 2), lock(2, 6, 3, 4), lock(1, 5, 5, 6)},
			true},
	} {
		if err := foresee(c.ops); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}
