package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// A change is an instant from which on another number of replicas was alive.
type change struct {
	of     string // join, kill
	shrink bool
	at     time.Duration // when it happened
	said   time.Duration // when the platform had made it known
	until  time.Duration // when the next change happened, or the run ended
	alive  []*process    // from then on
	shown  bool          // that all have noticed
}

// forever is later than any run ends.
const forever = time.Hour

// say has the platform make known who is alive, and notes that there is something to notice.
func (f *fleet) say(c change) error {
	c.alive, c.said, c.until = f.alive(), c.at, forever
	ids := make([]int, len(c.alive))
	for i, p := range c.alive {
		ids[i] = p.id
	}
	if f.platform.say != nil {
		if err := f.platform.say(ids); err != nil {
			return err
		}
		c.said = f.up.Now()
	}
	if n := len(f.changes); n > 0 {
		f.changes[n-1].until = c.at
	}
	f.changes = append(f.changes, c)
	return nil
}

// happens shows a change that replicas are not notified of, and lets the platform report what it reports.
func (f *fleet) happens(what string, c change) error {
	err := f.say(c)
	f.out.happening(c.at-f.begin, what, "no replica is notified")
	return err
}

// gather waits until the first replicas know of each other, and only then lets them send: a service that
// starts is not ready before.
func (f *fleet) gather(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	if err := f.say(change{at: f.up.Now()}); err != nil {
		return err
	}
	for !f.noticed(f.changes[0]).all {
		select {
		case <-f.urgent:
		case <-ctx.Done():
			return fmt.Errorf("the replicas did not find each other: %w", ctx.Err())
		}
		if err := f.check(); err != nil {
			return err
		}
	}
	f.changes = nil
	for _, p := range f.all {
		if err := p.order(order{Want: f.plan.Want}); err != nil {
			return err
		}
	}
	f.out.happening(0, fmt.Sprintf("%d replicas know how many they are", len(f.all)), "from "+f.platform.name)
	return nil
}

// A belief is a pool size that a replica had put in force, by a reading of its clock; at the reading After, another one was.
type belief struct {
	Replicas  int
	After, By int64
}

// A notice is how long after a change each replica had put the new size in force.
type notice struct {
	announcement
	all bool // or else some never have, and their delays last until the next change
}

// noticed returns which replicas have noticed a change, and when.
func (f *fleet) noticed(c change) notice {
	n := notice{all: true}
	for _, p := range c.alive {
		at, ok := knew(f.beliefs(p), len(c.alive), c.at, c.until)
		n.ids, n.delays = append(n.ids, p.id), append(n.delays, at-c.at)
		n.all = n.all && ok
	}
	return n
}

// A sighting is a belief by the upstream's clock.
type sighting struct {
	replicas  int
	after, by time.Duration
}

// beliefs is what a replica has believed so far, oldest first.
func (f *fleet) beliefs(p *process) []sighting {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]sighting, len(p.beliefs))
	for i, b := range p.beliefs {
		all[i] = sighting{b.Replicas, f.up.Since(b.After), f.up.Since(b.By)}
	}
	return all
}

// knew is the first instant from one on, before another, at which a pool of n was in force for certain; that other if none was.
func knew(beliefs []sighting, n int, from, to time.Duration) (time.Duration, bool) {
	for i, b := range beliefs {
		replaced := i+1 < len(beliefs) && beliefs[i+1].by <= from
		if b.replicas == n && b.by < to && !replaced {
			return max(from, b.by), true
		}
	}
	return to, false
}

// showNotice shows, once, that all have noticed the last change.
func (f *fleet) showNotice() {
	if len(f.changes) == 0 {
		return
	}
	last := &f.changes[len(f.changes)-1]
	if last.shown {
		return
	}
	if n := f.noticed(*last); n.all {
		last.shown = true
		f.out.event(last.at+slices.Max(n.delays)-f.begin, fmt.Sprintf("all know of the %s", last.of), "noticed", n.announcement)
	}
}

// settle works out what replicas were entitled to at any time by what they believed, and what the growth of
// the pool may have cost. It is called once all replicas have ended and so sent their last reports.
func (f *fleet) settle() {
	for _, p := range f.all {
		p.steps = f.entitled(f.beliefs(p))
	}
	for _, c := range f.changes {
		if !c.shrink {
			f.growth = f.grown(c.at, slices.Max(f.noticed(c).delays), len(c.alive))
		}
	}
}

// entitled is the share by what was believed: nothing before the first hint. Between the two looks that saw a change it is
// the larger one.
func (f *fleet) entitled(beliefs []sighting) []step {
	steps := []step{{}}
	for _, b := range beliefs {
		next := f.share(b.by, b.replicas)
		if next.rate > steps[len(steps)-1].rate {
			next.from = b.after
		}
		steps = append(steps, next)
	}
	return steps
}

// machine is what a look, a round trip and a wake-up may take beyond the periods when nothing stands still.
// It is also the tenth by which some periods are longer than they are on average.
const machine = 250 * time.Millisecond

// A timeliness is how late a change was noticed, and whether that was in time.
type timeliness struct {
	check
	open bool // it was not noticed, but it is not known that it was too late
}

// lateness judges how late each change was noticed. Four times the longest stall are forgiven. The replica
// that looks, the answering server and the replica that puts it in force may all have stood still, and the
// observer too. A change that was not noticed when the next one came, although there was time yet, stays
// open.
func (f *fleet) lateness(stall time.Duration) []timeliness {
	how := countings[f.plan.Pool]
	slack := machine + 4*stall
	var all []timeliness
	for _, c := range f.changes {
		n := f.noticed(c)
		took, allowed := max(0, c.at+slices.Max(n.delays)-c.said), how.allowed(c.shrink)
		found := fmt.Sprintf("noticed after %.2f s, by the last replica", took.Seconds())
		open := !n.all && took <= allowed+slack
		switch {
		case open:
			found = fmt.Sprintf("not noticed by all in %.2f s, too short a time to judge on this machine", took.Seconds())
		case !n.all:
			found = fmt.Sprintf("not noticed by all in %.2f s", took.Seconds())
		}
		want := fmt.Sprintf("allowed %.2f s, %s; and %.2f s for the machine", allowed.Seconds(), how.terms(c.shrink), slack.Seconds())
		all = append(all, timeliness{check{c.of, found, want, open || n.all && took <= allowed+slack}, open})
	}
	return all
}
