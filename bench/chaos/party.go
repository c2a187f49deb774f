package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	quietFor    = 5 * time.Second // before the counters are compared
	countWithin = 5 * time.Second // of being queried
)

// A party is what a fleet that gossips learns from: a mesh, and a file of addresses to join. Only the
// goroutine of play uses it.
type party struct {
	mesh  *mesh
	dir   string
	seats int // that there were
	names int
	split *split // nil: the mesh is whole
	busy  bool   // those that are new are busy
}

// A split is a partition that is in force.
type split struct {
	first  map[int]bool // seats of the first part
	oneWay bool         // the second part receives what the first one sends
	cuts   []cut
	at     time.Duration
}

// counterOf is the name of a replica's counter.
func counterOf(id int) string { return "of-" + strconv.Itoa(id) }

// An onset is when a replica begins to ask. Without Who it is when all may have to find each other.
type onset struct {
	At  time.Duration
	Who int
}

// A stretch is a time without faults in which one replica alone is busy.
type stretch struct {
	span
	Busy int
}

// prepareGossip makes the mesh. All other paths and faults are those of another run.
func (f *fleet) prepareGossip(context.Context) (err error) {
	if f.exe, err = os.Executable(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "chaos")
	f.party = &party{mesh: newMesh(), dir: dir}
	return err
}

func (p *party) close() error { return errors.Join(p.mesh.close(), os.RemoveAll(p.dir)) }

func (p *party) joins() string { return filepath.Join(p.dir, "joins") }

// name is one that no replica has had.
func (p *party) name() string {
	p.names++
	return fmt.Sprintf("replica-%d", p.names)
}

// sit opens a seat. A new replica under a split belongs to either part.
func (f *fleet) sit() (*seat, error) {
	p := f.party
	p.seats++
	s, err := p.mesh.open(p.seats)
	if err == nil && p.split != nil {
		p.split.first[s.number] = f.rng.IntN(2) == 0
		cuts := p.split.between(s.number, f.seated())
		p.split.cuts = append(p.split.cuts, cuts...)
		p.mesh.part(cuts)
	}
	return s, err
}

// seated are the seats of those that live.
func (f *fleet) seated() (list []int) {
	for _, p := range f.alive() {
		list = append(list, p.seat.number)
	}
	return list
}

// between are the cuts between one seat and others.
func (s *split) between(one int, others []int) (cuts []cut) {
	for _, o := range others {
		if s.first[o] == s.first[one] {
			continue
		}
		a, b := o, one
		if s.first[one] {
			a, b = one, o
		}
		if cuts = append(cuts, cut{b, a}); !s.oneWay {
			cuts = append(cuts, cut{a, b})
		}
	}
	return cuts
}

// seatAll starts the processes.
func (f *fleet) seatAll() error {
	for range f.Replicas {
		if err := f.startSeat(nil, ""); err != nil {
			return err
		}
	}
	return nil
}

// startSeat starts a process at a seat, by a name; without them at a seat and by a name that are new.
func (f *fleet) startSeat(s *seat, name string) (err error) {
	if s == nil {
		if s, err = f.sit(); err != nil {
			return err
		}
	}
	if name == "" {
		name = f.party.name()
	}
	if err := f.writeJoins(s); err != nil {
		return err
	}
	p, err := start(f.exe, assignment{
		config: f.config, ID: len(f.all) + 1, URL: f.url,
		Whisper: &gossiping{name, s.bind.String(), s.public.String(), f.party.joins(), f.party.busy},
		Life:    f.Duration + startWithin + coolDown + stopWithin + quietFor + countWithin,
	}, f.since)
	if err != nil {
		return err
	}
	p.seat, p.name, p.busy = s, name, f.party.busy
	f.all = append(f.all, p)
	return nil
}

// writeJoins writes the addresses of those that live, and of one more.
func (f *fleet) writeJoins(one *seat) error {
	var b strings.Builder
	fmt.Fprintln(&b, one.public)
	for _, p := range f.alive() {
		fmt.Fprintln(&b, p.seat.public)
	}
	next := f.party.joins() + ".next"
	if err := os.WriteFile(next, []byte(b.String()), 0o600); err != nil {
		return err
	}
	return os.Rename(next, f.party.joins())
}

// setBusy lets the callers of some processes ask, and no others.
func (f *fleet) setBusy(list []*process) error {
	for _, p := range f.alive() {
		busy := slices.Contains(list, p)
		if busy == p.busy {
			continue
		}
		if p.busy = busy; busy {
			f.Onsets = append(f.Onsets, onset{f.now(), p.id})
		}
		if err := p.tell(command{Busy: &busy}); err != nil {
			return err
		}
	}
	return nil
}

// countAll lets all fall silent, waits until the last numbers have gone round, and asks for all counters.
func (f *fleet) countAll(ctx context.Context) error {
	f.party.busy = false
	if err := f.setBusy(nil); err != nil {
		return err
	}
	f.say("quiet")
	asked, over := false, false
	f.at(f.now()+quietFor, func() error { asked = true; return f.order(command{Count: true}, f.alive()) })
	f.at(f.now()+quietFor+countWithin, func() error { over = true; return nil })
	for !over && !(asked && f.allCounted()) {
		if asked {
			f.at(f.now()+100*time.Millisecond, func() error { return nil })
		}
		if err := f.next(ctx); err != nil {
			return err
		}
	}
	f.Mesh = f.party.mesh.counts()
	return nil
}

// allCounted reports whether all that live have said what they know of the counters.
func (f *fleet) allCounted() bool {
	return !slices.ContainsFunc(f.alive(), func(p *process) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.life.Counts == nil
	})
}
