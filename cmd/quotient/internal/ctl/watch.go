package ctl

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/quotient-go/quotient/admin"
	"github.com/quotient-go/quotient/admin/pods"
	"github.com/quotient-go/quotient/cmd/quotient/internal/cmdline"
	"github.com/quotient-go/quotient/internal/shown"
)

type watchCmd struct {
	Interval time.Duration `default:"1s" placeholder:"D" help:"${help_ctl_interval}"`
	Times    int           `placeholder:"N" help:"${help_ctl_times}"`
}

// Help shows an example.
func (watchCmd) Help() string {
	return `A line has the calls a second of all pods together since the line before. Lines that begin
with a star are changes of a pod: it has come, gone or started again, or its replicas or its
configuration are not what they were.

Examples:

    quotient ctl watch
    quotient ctl watch --limiter api --interval 10s --times 6 --json`
}

// view is what watch compares of one look with the next.
type view struct {
	at   time.Time
	pods map[string]podView // by URL
}

type podView struct {
	name              string
	process           pods.Process
	err               string            // "" of one that answers
	settings          map[string]string // in words, by what they are
	admitted, refused uint64
	waiting           int
}

// watchLine is what --json prints of one look. The rates are calls a second.
type watchLine struct {
	Time     time.Time `json:"time"`
	Pods     int       `json:"pods"`
	Answer   int       `json:"answer"` // of the pods
	Admitted float64   `json:"admitted"`
	Refused  float64   `json:"refused"`
	Waiting  int       `json:"waiting"`
	Changes  []string  `json:"changes"`
}

// Run prints a line for each look until it is interrupted.
func (c *watchCmd) Run(ctx context.Context, ctl *Command, s cmdline.Streams) error {
	if c.Interval < 10*time.Millisecond || c.Times < 0 {
		return cmdline.Usagef("--interval is %v and --times %d, want 10ms or more, and 0 or more", c.Interval, c.Times)
	}
	ctx, stop := cmdline.UntilSignal(ctx)
	defer stop()
	f, states, err := ctl.begin(ctx, s)
	if err != nil {
		return err
	}
	if _, err := f.chosen(states); err != nil {
		return err
	}
	complain(f, states, "no answer from")
	was := f.view(states)
	tick := time.NewTicker(c.Interval)
	defer tick.Stop()
	for n := 0; c.Times == 0 || n < c.Times; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		states, err := f.survey(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && len(states) == 0 { // the list: it may be back the next time
			fmt.Fprintln(f.Err, plain(err))
			continue
		}
		now := f.view(states)
		if err := f.printLine(line(was, now)); err != nil {
			return err
		}
		was = now
	}
	return nil
}

func (f *fleet) printLine(l watchLine) error {
	if f.JSON {
		return f.printJSON(l)
	}
	for i, change := range l.Changes {
		if i == mostLines {
			change = fmt.Sprintf("and %d more changes", len(l.Changes)-mostLines)
		}
		if _, err := fmt.Fprintln(f.Out, "* "+shown.Line(change)); err != nil || i == mostLines {
			return err
		}
	}
	_, err := fmt.Fprintf(f.Out, "%s  %d of %d pods  admitted %.1f/s  refused %.1f/s  waiting %d\n",
		l.Time.Format(time.TimeOnly), l.Answer, l.Pods, l.Admitted, l.Refused, l.Waiting)
	return err
}

func (f *fleet) view(states []seen) view {
	v := view{time.Now(), make(map[string]podView)}
	for _, a := range states {
		p := podView{name: a.Name, process: a.Process, settings: make(map[string]string)}
		if a.Err != nil {
			p.err = plain(a.Err)
		}
		for name, l := range a.Value.Limiters {
			if f.Limiter == "" || f.Limiter == name {
				p.add(name, l)
			}
		}
		v.pods[a.URL] = p
	}
	return v
}

func (p *podView) add(limiter string, l admin.LimiterState) {
	p.admitted += l.Admitted
	for _, n := range l.Refused {
		p.refused += n
	}
	p.waiting += l.Waiting
	for what, is := range map[string]string{
		"replicas": strconv.Itoa(l.Pool.Replicas), "limit": limitOfState(l.Limit).String(), "plans": plansOf(l.Plans),
		"overrides": strconv.Itoa(l.OverrideCount), "dry run": strconv.FormatBool(l.DryRun),
	} {
		p.settings[limiter+" "+what] = is
	}
}

// line compares two looks. A process that was not there before has no rate yet.
func line(was, now view) watchLine {
	l := watchLine{Time: now.at, Pods: len(now.pods), Changes: []string{}}
	per := now.at.Sub(was.at).Seconds()
	for _, url := range cmdline.SortedKeys(now.pods) {
		p := now.pods[url]
		before, there := was.pods[url]
		l.Changes = append(l.Changes, p.since(before, there)...)
		if p.err != "" {
			continue
		}
		l.Answer++
		l.Waiting += p.waiting
		if before.process == p.process && before.err == "" {
			l.Admitted += float64(p.admitted-min(p.admitted, before.admitted)) / per
			l.Refused += float64(p.refused-min(p.refused, before.refused)) / per
		}
	}
	for _, url := range cmdline.SortedKeys(was.pods) {
		if _, there := now.pods[url]; !there {
			l.Changes = append(l.Changes, was.pods[url].name+" is no longer listed")
		}
	}
	return l
}

// since is what has changed of a pod.
func (p podView) since(before podView, there bool) (changes []string) {
	switch {
	case !there:
		return []string{p.name + " has come"}
	case p.err != "" && p.err != before.err:
		return []string{p.name + " does not answer: " + p.err}
	case p.err != "":
		return nil
	case before.err != "":
		return []string{p.name + " answers"}
	case p.process != before.process:
		return []string{p.name + " has started again"}
	}
	for _, what := range cmdline.SortedKeys(p.settings) {
		if is, old := p.settings[what], before.settings[what]; is != old {
			changes = append(changes, fmt.Sprintf("%s: %s %s, was %s", p.name, what, is, old))
		}
	}
	return changes
}
