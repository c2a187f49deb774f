package ctl

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/admin"
	"github.com/quotient-go/quotient/admin/pods"
	"github.com/quotient-go/quotient/cmd/quotient/internal/cmdline"
	"github.com/quotient-go/quotient/internal/shown"
)

// changeFlags are those of each change.
type changeFlags struct {
	Partial bool `help:"${help_ctl_partial}"`
}

// timedFlags are those of a change that may end by itself.
type timedFlags struct {
	changeFlags
	For  time.Duration `placeholder:"D" help:"${help_ctl_for}"`
	Keep bool          `help:"${help_ctl_keep}"`
	Look time.Duration `default:"3s" placeholder:"D" help:"${help_ctl_look}"`
}

type overrideCmd struct {
	timedFlags
	Key   string `arg:"" help:"The key, as the limiter has it."`
	Limit string `arg:"" help:"${help_ctl_limit}"`
}

// howChanges are made, for the help of each.
const howChanges = `First all pods check the change, and none is changed unless all would take it. If a pod fails
after that, the exit code is 1 and the pods are named; the others keep the change, for it is
not taken back.`

// Help shows an example.
func (overrideCmd) Help() string {
	return howChanges + `

Examples:

    quotient ctl override /customers/7 10/s --for 10m
    quotient ctl override /customers/7 "100/min, burst 20, 5 in flight" --for 1h --keep
    quotient ctl override /customers/7 none`
}

// Run changes the override on all pods.
func (c *overrideCmd) Run(ctx context.Context, ctl *Command, s cmdline.Streams) error {
	limit, err := limitOf(c.Limit)
	if err != nil {
		return err
	}
	return c.override(ctx, ctl, s, c.Key, limit)
}

func (c *timedFlags) override(
	ctx context.Context, ctl *Command, s cmdline.Streams, key string, limit *quotient.Limit,
) error {
	if limit == nil && c.For != 0 {
		return cmdline.Usagef("--for does not go with none: what is removed has no end")
	}
	send := func(ctx context.Context, p put) error {
		_, err := p.Override(ctx, p.limiter, key, limit, p.ttl, p.opts...)
		return err
	}
	what := "override of " + strconv.Quote(key) + ": " + limitWords(limit)
	return c.make(ctx, ctl, s, change{what, true, limit, send})
}

func limitWords(l *quotient.Limit) string {
	if l == nil {
		return "none"
	}
	return l.String()
}

type denyCmd struct {
	timedFlags
	Key string `arg:"" help:"The key, as the limiter has it."`
}

// Help shows an example.
func (denyCmd) Help() string {
	return howChanges + `

Examples:

    quotient ctl deny /customers/7 --for 10m
    quotient ctl override /customers/7 none        # ends it`
}

// Run denies a key on all pods.
func (c *denyCmd) Run(ctx context.Context, ctl *Command, s cmdline.Streams) error {
	return c.override(ctx, ctl, s, c.Key, &quotient.Limit{Deny: true})
}

type planCmd struct {
	changeFlags
	Name  string `arg:"" help:"The plan."`
	Limit string `arg:"" help:"${help_ctl_limit}"`
}

// Help shows an example.
func (planCmd) Help() string {
	return howChanges + `

Examples:

    quotient ctl plan free 30/min
    quotient ctl plan trial none`
}

// Run sets the plan on all pods.
func (c *planCmd) Run(ctx context.Context, ctl *Command, s cmdline.Streams) error {
	limit, err := limitOf(c.Limit)
	if err != nil {
		return err
	}
	send := func(ctx context.Context, p put) error {
		_, err := p.SetPlan(ctx, p.limiter, c.Name, limit, p.opts...)
		return err
	}
	what := "plan " + strconv.Quote(c.Name) + ": " + limitWords(limit)
	timed := timedFlags{changeFlags: c.changeFlags}
	return timed.make(ctx, ctl, s, change{what, true, limit, send})
}

type replicasCmd struct {
	timedFlags
	N int `arg:"" name:"n" help:"How many there are."`
}

// Help shows an example.
func (replicasCmd) Help() string {
	return howChanges + `
The pods have no ordinals then: each has the same share.

Example:

    quotient ctl replicas 4 --for 10m`
}

// Run sets the size of the pool on all pods.
func (c *replicasCmd) Run(ctx context.Context, ctl *Command, s cmdline.Streams) error {
	send := func(ctx context.Context, p put) error {
		_, err := p.SetReplicas(ctx, p.limiter, quotient.Pool{Replicas: c.N}, p.ttl, p.opts...)
		return err
	}
	return c.make(ctx, ctl, s, change{"replicas: " + strconv.Itoa(c.N), false, nil, send})
}

// change is what is sent to each pod.
type change struct {
	what  string // in words
	one   bool   // it is for one limiter, and not for all where none is named
	limit *quotient.Limit
	send  func(ctx context.Context, p put) error
}

// checked is what a pod answers to a change: nothing, or an error.
type checked = pods.Answer[struct{}]

// put is the client of the pod that a change is sent to, and how.
type put struct {
	*admin.Client
	limiter string
	ttl     time.Duration
	opts    []admin.PutOption
}

// make has all pods check a change, and then sends it to all that would take it.
func (c *timedFlags) make(ctx context.Context, ctl *Command, s cmdline.Streams, ch change) error {
	if c.For < 0 || c.Keep && c.For == 0 {
		return cmdline.Usagef("--for is %v, want more than 0", c.For)
	}
	if c.Keep && c.Look <= 0 {
		return cmdline.Usagef("--look is %v, want more than 0", c.Look)
	}
	ctx, stop := cmdline.UntilSignal(ctx) // what was sent by then is reported
	defer stop()
	f, states, err := ctl.begin(ctx, s)
	if err != nil {
		return err
	}
	limiter, err := ch.limiter(f, states)
	if err != nil {
		return err
	}
	checks := each(ctx, f, states, func(ctx context.Context, api *admin.Client, _ seen) (struct{}, error) {
		return struct{}{}, ch.send(ctx, put{api, limiter, c.For, []admin.PutOption{admin.ValidateOnly()}})
	})
	bad := failed(checks)
	complain(f, checks, "it cannot be changed on")
	switch {
	case len(bad) == len(checks):
		return errors.New("nothing was changed")
	case len(bad) > 0 && !c.Partial:
		return errors.New("nothing was changed: --partial changes the others")
	}
	until := time.Now().Add(c.For)
	made := each(ctx, f, checks, func(ctx context.Context, api *admin.Client, _ checked) (struct{}, error) {
		return struct{}{}, ch.send(ctx, put{api, limiter, c.For, nil})
	})
	if err := c.report(f, ch, made, until, len(bad)); err != nil || !c.Keep {
		return err
	}
	return c.keep(ctx, f, ch, limiter, until, made)
}

// limiter is the one that the change is for; "" for all.
func (ch change) limiter(f *fleet, states []seen) (string, error) {
	if !ch.one {
		return f.Limiter, nil
	}
	name, err := f.one(states)
	if err != nil {
		return "", err
	}
	return name, counted(states, name, ch.limit)
}

// counted refuses a limit in a unit that no rate of the limiter counts: "100 requests/min" would limit nothing.
func counted(states []seen, limiter string, l *quotient.Limit) error {
	if l == nil {
		return nil
	}
	units := map[string]bool{"": true} // calls
	add := func(s admin.LimitState) {
		for _, r := range s.Rates {
			units[r.Unit] = true
		}
	}
	for _, a := range states {
		s := a.Value.Limiters[limiter]
		add(s.Limit)
		for _, p := range s.Plans {
			add(p.Limit)
		}
		for _, o := range s.Overrides {
			add(o.Limit)
		}
	}
	for _, r := range l.Rates {
		if !units[r.Unit] {
			return cmdline.Usagef("no rate of limiter %q counts %q: a limit on calls has no unit, such as 10/s",
				limiter, r.Unit)
		}
	}
	return nil
}

// report says what was changed where. Expected is how many pods were known to fail.
func (c *timedFlags) report(f *fleet, ch change, made []checked, until time.Time, expected int) error {
	changed := len(made) - len(failed(made))
	text := fmt.Sprintf("%s: on %d of %s", shown.Line(ch.what), changed, cmdline.Count(len(made), "pod"))
	out := struct {
		Change  string    `json:"change"`
		Changed int       `json:"changed"`
		Until   time.Time `json:"until,omitzero"`
		Pods    []podJSON `json:"pods"`
	}{Change: ch.what, Changed: changed, Pods: newPods(made, nil)}
	if c.For > 0 {
		out.Until = until.UTC().Truncate(time.Second)
		text += ", for " + c.For.String() + ", until " + out.Until.Format(time.RFC3339)
	}
	var err error
	if f.JSON {
		err = f.printJSON(out)
	} else {
		_, err = fmt.Fprintln(f.Out, text)
	}
	if len(failed(made)) == expected {
		return err
	}
	complain(f, made, "it failed on")
	return errors.Join(err, fmt.Errorf("changed on %d of %s, which keep it: send it again, or take it back",
		changed, cmdline.Count(len(made), "pod")))
}

// keep sends the change, with the rest of its time, to processes that have come since. One that has taken it and has
// lost it was changed by somebody else, and stays as it is.
func (c *timedFlags) keep(
	ctx context.Context, f *fleet, ch change, limiter string, until time.Time, made []checked,
) error {
	taken, said := make(map[process]string), ""
	for _, a := range made {
		if a.Err == nil {
			taken[processOf(a.Process, a.URL)] = a.URL
		}
	}
	look := time.NewTicker(c.Look)
	defer look.Stop()
	ends := time.NewTimer(time.Until(until))
	defer ends.Stop()
	for {
		select {
		case <-ctx.Done():
			fmt.Fprintf(f.Err, "ended; the pods keep it for %v\n", time.Until(until).Round(time.Second))
			return nil
		case <-ends.C:
			return nil
		case <-look.C:
		}
		text := c.again(ctx, f, ch, limiter, until, taken)
		if text != said && ctx.Err() == nil {
			fmt.Fprint(f.Err, text)
		}
		said = text
	}
}

// process is one that a change is sent to once, by whichever of its addresses. A pod that does not say which process
// it is counts as one for its URL.
type process struct {
	pods.Process
	url string
}

func processOf(p pods.Process, url string) process {
	if p.Replica == "" || p.Started.IsZero() {
		return process{url: url}
	}
	return process{Process: p}
}

// again looks the list up, sends the change to processes that have not taken it, and returns what has failed.
func (c *timedFlags) again(
	ctx context.Context, f *fleet, ch change, limiter string, until time.Time, taken map[process]string,
) string {
	states, err := f.survey(ctx)
	if err != nil {
		return shown.Lines(err.Error()) + "\n"
	}
	made := each(ctx, f, states, func(ctx context.Context, api *admin.Client, a seen) (sent bool, err error) {
		if taken[processOf(a.Process, a.URL)] != "" {
			return false, nil
		}
		return true, ch.send(ctx, put{api, limiter, max(time.Until(until), time.Millisecond), nil})
	})
	answers := make(map[string]process) // those that do not answer are there, and may come back
	for _, a := range made {
		is := processOf(a.Process, a.URL)
		answers[a.URL] = is
		if a.Value && a.Err == nil {
			fmt.Fprintf(f.Err, "%s has come and has taken it, for %v\n", a.Name, time.Until(until).Round(time.Second))
		}
		if a.Err == nil {
			taken[is] = a.URL
		}
	}
	maps.DeleteFunc(taken, func(p process, url string) bool {
		is, listed := answers[url]
		return !listed || is != p && is.Replica != ""
	})
	return complaint(made, "it is not on")
}
