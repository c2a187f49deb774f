package main

import (
	"cmp"
	"errors"
	"slices"
	"time"
)

// silenceKinds are the ways in which the sources of two paths, onSlots and fromFile, say nothing for a while.
var silenceKinds = []struct {
	name        string
	least, most time.Duration
	do          func(f *fleet, x fault) error
}{
	{"past the hold-down", holdDown + 500*time.Millisecond, hintAge - time.Second, (*fleet).hushAll},
	{"past HintMaxAge", hintAge + time.Second, hintAge + 3*time.Second, (*fleet).hushAll},
	{"in turns", 2*holdDown + 2*time.Second, 2*holdDown + 3*time.Second, (*fleet).hushInTurns},
}

// hushed are the paths whose source may be silent.
var hushed = []source{fromFile, onSlots}

func silenceLasts(kind int) (least, most time.Duration) {
	return silenceKinds[kind].least, silenceKinds[kind].most
}

const (
	kindSilence = "a silence"
	kindAge     = "hints too old"
)

// hush plays a silence.
func (f *fleet) hush(x fault) error {
	f.say("silence %s, for %.1f s", silenceKinds[x.kind].name, x.lasts.Seconds())
	return silenceKinds[x.kind].do(f, x)
}

// hushAll lets the sources of all processes that run fall silent. A process that comes meanwhile has a source
// that speaks, and one comes at the very time when another one goes.
func (f *fleet) hushAll(x fault) error {
	list, now := f.running(), f.now()
	f.at(now+x.lasts/3, func() error { return f.swap(f.victim(), f.rng.IntN(2) == 0) })
	f.at(now+x.lasts, func() error { return f.speak(list...) })
	return f.mute(list...)
}

// hushInTurns lets two processes fall silent, one after the other, that are neighbours in the order of
// addresses. The first one is the last one that has a slot of the remainder. A process before them stands
// still, so that the platform takes it off its list, and starts another one. Now the ordinal of the first
// one is the second one's, and counts after a hold-down. Then the second one falls silent, the process goes
// on and is on the list again, and the first one reports. The ordinal is its own once more, while the second
// one still believes to have it.
func (f *fleet) hushInTurns(x fault) error {
	list, n := f.running(), len(f.addrs())
	slices.SortFunc(list, func(a, b *process) int { return a.addr.Compare(b.addr) })
	remainder := f.ctrl(onSlots).slots % n
	if len(list) < n || remainder < 2 {
		return f.hushAll(x)
	}
	still, first, second := list[f.rng.IntN(remainder-1)], list[remainder-1], list[remainder]
	at := f.now()
	fixed := at + holdDown + 2*periods[onSlots] + 200*time.Millisecond
	f.say("SIGSTOP of replica %d, replaced at once, for %.1f s", still.id, (fixed - at).Seconds())
	if err := errors.Join(still.pause(), f.startOne(f.world.address(true))); err != nil {
		return err
	}
	instead := f.all[len(f.all)-1]
	still.unlisted = true
	f.at(fixed-50*time.Millisecond, func() error { return f.mute(second) })
	f.at(fixed, func() error { return f.goesOnInstead(still, instead, at) })
	f.at(fixed+100*time.Millisecond, func() error { return f.speak(first) })
	f.at(max(fixed+holdDown+300*time.Millisecond, at+x.lasts), func() error { return f.speak(second) })
	return errors.Join(f.publish(kindSwap, f.addrs()), f.mute(first))
}

// goesOnInstead lets a process go on that was stopped at an instant, and kills the one that was started in
// its stead.
func (f *fleet) goesOnInstead(p, instead *process, at time.Duration) error {
	if instead.ordered { // another caller takes it
		instead = f.victim()
	}
	f.say("SIGCONT of replica %d, and kill -9 of replica %d", p.id, instead.id)
	if err := f.kill(instead); err != nil {
		return err
	}
	p.unlisted = false
	return errors.Join(f.publish(kindSwap, f.addrs()), f.goOn(p, at))
}

// mute lets the sources of processes fall silent, and speak lets them report again. Processes that are gone
// do not matter.
func (f *fleet) mute(list ...*process) error { return f.order(command{Mute: hushed}, list) }

func (f *fleet) speak(list ...*process) error {
	e := event{At: f.now(), Kind: kindSilence, Mend: true}
	for _, s := range hushed {
		e.On[s] = true
	}
	f.Events = append(f.Events, e)
	return f.order(command{Speak: hushed}, list)
}

// order gives a command to those who live.
func (f *fleet) order(c command, list []*process) error {
	for _, p := range list {
		if p.ordered {
			continue
		}
		if err := p.tell(c); err != nil {
			return err
		}
	}
	return nil
}

// swap kills a process, if it lives still, and starts another one at the same time. The new one is behind
// all others in the order of addresses or before them: the file and DNS report the same number as before.
func (f *fleet) swap(p *process, behind bool) error {
	if p.ordered {
		return nil
	}
	if err := f.kill(p); err != nil {
		return err
	}
	f.say("kill -9 of replica %d, replaced at once", p.id)
	if err := f.startOne(f.world.address(behind)); err != nil {
		return err
	}
	return f.publish(kindSwap, f.addrs())
}

const kindSwap = "one for another"

// countSilences works out which sources were silent, and when hints were too old because of that.
func (f *fleet) countSilences() {
	for i := range f.Lives {
		l := &f.Lives[i]
		for _, s := range hushed {
			for _, m := range l.Mutes[s] {
				m.To = min(m.To, l.Died, f.Length)
				f.Faults[s] = append(f.Faults[s], m)
				if at := m.From + hintAge - 2*periods[s]; s == onSlots && at < m.To {
					e := event{At: at, Kind: kindAge, On: [sources]bool{onSlots: true}}
					f.Events = append(f.Events, e)
				}
			}
		}
	}
	slices.SortStableFunc(f.Events, func(a, b event) int { return cmp.Compare(a.At, b.At) })
}
