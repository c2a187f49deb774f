package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/bench/arena/sim"
	"github.com/quotient-go/quotient/bench/rig"
	"github.com/quotient-go/quotient/policy"
)

// Six processes of eight callers each, which never rest, share an upstream for five minutes.
const (
	processes, callers = 6, 8
	recipeTime         = 5 * time.Minute
)

// recipes are the ways to make a limiter that docs/adaptive.md compares. A limit that is not known is told as ten
// times what it is.
var recipes = []struct {
	name    string
	told    float64
	options []quotient.Option
}{
	{"`Tracking`, `BeyondShare`", 10, []quotient.Option{quotient.Policy(policy.Tracking{}), quotient.BeyondShare()}},
	{"... and the limit", 1, []quotient.Option{quotient.Policy(policy.Tracking{}), quotient.BeyondShare()}},
	{"... and `Replicas`", 1,
		[]quotient.Option{quotient.Policy(policy.Tracking{}), quotient.BeyondShare(), quotient.Replicas(processes)}},
	{"`Tracking`, `Replicas`", 1, []quotient.Option{quotient.Policy(policy.Tracking{}), quotient.Replicas(processes)}},
	{"`Fixed`, `Replicas`", 1, []quotient.Option{quotient.Replicas(processes)}},
	{"`AIMD`, `BeyondShare`", 10, []quotient.Option{quotient.Policy(policy.AIMD{}), quotient.BeyondShare()}},
}

// An upstream judges a request that costs so many tokens, and says for how long it holds a slot.
type judge func(now time.Duration, cost int) (f policy.Feedback, held time.Duration)

// kitchen is an upstream: what it allows in a second, how many processes call it, and how a user tells a limit.
type kitchen struct {
	name  string
	limit float64
	busy  int
	tell  func(limit float64) quotient.Limit
	judge func(limit float64) judge
}

var kitchens = []kitchen{
	{"bans for 5 s", 30, processes, rate("", time.Second), bans},
	{"bucket", 30, processes, rate("", time.Second), counts(sim.TokenBucket)},
	{"bucket, one is busy", 30, 1, rate("", time.Second), counts(sim.TokenBucket)},
	{"windows of a minute", 10, processes, rate("", time.Minute), counts(sim.Window60)},
	{"tokens", 10 * meanCost, processes, rate("tokens", time.Minute), tokens},
	{"slots", 120, processes, func(l float64) quotient.Limit { return quotient.Limit{InFlight: int(l / 5)} },
		counts(sim.Concurrency)},
}

const meanCost = 1000 // tokens of a request

func rate(unit string, per time.Duration) func(limit float64) quotient.Limit {
	return func(limit float64) quotient.Limit {
		return quotient.Rates(quotient.Rate{Unit: unit, Events: limit * per.Seconds(), Per: per})
	}
}

func counts(kind sim.Kind) func(float64) judge {
	return func(limit float64) judge {
		up, taken := sim.NewUpstream(kind, sim.RetryAfter, limit, 0), []time.Duration{}
		return func(now time.Duration, _ int) (policy.Feedback, time.Duration) {
			for len(taken) > 0 && taken[0] <= now {
				up.Release()
				taken = taken[1:]
			}
			ok, held := up.Admit(now), time.Duration(0)
			if ok && kind == sim.Concurrency {
				held, taken = 200*time.Millisecond, append(taken, now+200*time.Millisecond)
			}
			return up.Answer(now, ok), held
		}
	}
}

func refuse(wait time.Duration) policy.Feedback {
	return policy.Feedback{Outcome: policy.Throttled, RetryAfter: (wait + time.Second - 1).Truncate(time.Second)}
}

// bans refuses everything for five seconds after each excess.
func bans(limit float64) judge {
	up, until := counts(sim.TokenBucket)(limit), time.Duration(0)
	return func(now time.Duration, cost int) (policy.Feedback, time.Duration) {
		if now >= until {
			if f, _ := up(now, cost); f.Outcome == policy.Success {
				return f, 0
			}
			until = now + 5*time.Second
		}
		return refuse(until - now), 0
	}
}

// tokens has a bucket that holds what flows in within ten seconds.
func tokens(limit float64) judge {
	left, last := 10*limit, time.Duration(0)
	return func(now time.Duration, cost int) (policy.Feedback, time.Duration) {
		left, last = min(10*limit, left+limit*(now-last).Seconds()), now
		if missing := float64(cost) - left; missing > 0 {
			return refuse(time.Duration(missing / limit * float64(time.Second))), 0
		}
		left -= float64(cost)
		return policy.Feedback{Outcome: policy.Success}, 0
	}
}

// TestRecipes prints the table of recipes, what was served as a part of the limit and which part was refused, and
// holds docs/adaptive.md to it.
func TestRecipes(t *testing.T) {
	if underRace() {
		t.Skip("seconds, and a minute under the race detector")
	}
	page := file(t, "../../docs/adaptive.md")
	table := rig.Table{Header: []string{"served %, refused %"}}
	for _, up := range kitchens {
		table.Header = append(table.Header, up.name)
	}
	for _, r := range recipes {
		cells, told := []any{r.name}, row(t, page, r.name)
		for k := range kitchens {
			served, refused, _, _ := kitchens[k].thrice(t, r.told, r.options)
			cells = append(cells, fmt.Sprintf("%.0f, %.1f", served, refused))
			var s, x float64
			_, err := fmt.Sscanf(told[k], "%f, %f", &s, &x)
			if err != nil || math.Abs(s-served) > 4 || math.Abs(x-refused) > max(3, x/2) {
				t.Errorf("%s, %s: %v, the page has %s", r.name, kitchens[k].name, cells[k+1], told[k])
			}
		}
		table.Add(cells...)
	}
	t.Log("\n" + table.String())
}

// dish is what came of it.
type dish struct {
	most          float64   // that could be served
	served, late  []float64 // by process; in the last minute
	sent, refused float64
	pressed       int // requests within a pause of more than a second that was announced to the process
}

// thrice is the mean of three plays, since the controllers draw other seeds each time: what was served and refused in
// percent, Jain's index of the last minute, and how many requests were sent in pauses.
func (u kitchen) thrice(t *testing.T, told float64, options []quotient.Option) (
	served, refused, jain float64, pressed int) {
	for range 3 {
		synctest.Test(t, func(t *testing.T) {
			d := u.cook(t, told, options)
			for _, x := range d.served {
				served += 100 * x / d.most / 3
			}
			refused, jain = refused+100*d.refused/d.sent/3, jain+sim.Fairness(d.late)/3
			pressed += d.pressed
		})
	}
	return served, refused, jain, pressed
}

// cook plays one recipe against one upstream.
func (u kitchen) cook(t *testing.T, told float64, options []quotient.Option) dish {
	ctx, stop := context.WithTimeout(t.Context(), recipeTime)
	defer stop()
	var mu sync.Mutex
	var work sync.WaitGroup
	rng, begin, up := rand.New(rand.NewPCG(1, 1)), time.Now(), u.judge(u.limit)
	d := dish{most: u.limit * recipeTime.Seconds(), served: make([]float64, u.busy), late: make([]float64, u.busy)}
	paused := make([]time.Duration, u.busy)
	call := func(i int, l *quotient.Limiter) {
		mu.Lock()
		cost, way := 1, time.Duration(10+rng.IntN(30))*time.Millisecond // there, and back
		var of []quotient.CallOption
		if u.limit > meanCost {
			cost = meanCost/2 + rng.IntN(meanCost)
			of = []quotient.CallOption{quotient.Cost("tokens", cost)}
		}
		mu.Unlock()
		p, err := l.Acquire(ctx, "upstream", of...)
		if err != nil { // there is no turn before the end
			<-ctx.Done()
			return
		}
		mu.Lock()
		if time.Since(begin) < paused[i] {
			d.pressed++
		}
		mu.Unlock()
		time.Sleep(way)
		mu.Lock()
		f, held := up(time.Since(begin), cost)
		if d.sent++; f.Outcome == policy.Success {
			d.served[i] += float64(cost)
			if time.Since(begin) > recipeTime-time.Minute {
				d.late[i]++
			}
		} else {
			d.refused++
		}
		mu.Unlock()
		time.Sleep(held + way)
		p.Done(f)
		mu.Lock()
		if f.RetryAfter > time.Second {
			paused[i] = max(paused[i], time.Since(begin)+f.RetryAfter)
		}
		mu.Unlock()
	}
	for i := range u.busy {
		l, err := quotient.New(u.tell(told*u.limit), options...)
		if err != nil {
			t.Fatal(err)
		}
		for range callers {
			work.Go(func() {
				for ctx.Err() == nil {
					call(i, l)
				}
			})
		}
	}
	work.Wait()
	return d
}

// TestNoHarm: a ceiling far above the limit, an upstream that bans, windows of a minute and counts that are wrong
// cost few refusals and leave equal processes equal in the end; nothing is sent in an announced pause.
func TestNoHarm(t *testing.T) {
	if underRace() {
		t.Skip("seconds, and a minute under the race detector")
	}
	for _, x := range []struct {
		kitchen
		told    float64
		count   int
		refused float64 // percent at most
		jain    float64 // of the last minute, at least
	}{
		{kitchen{"a ceiling of 250 times the limit, and a true count", 20, 1, rate("", time.Second), counts(sim.GCRA)}, 250, 1, 10, 1},
		{kitchen{"a ban", 30, 1, rate("", time.Second), bans}, 10, 0, 2, 1},
		{kitchen{"bans", 30, 6, rate("", time.Second), bans}, 10, 0, 5, .9},
		{kitchen{"windows of a minute, a true count", 10, 10, rate("", time.Minute), counts(sim.Window60)}, 1, 10, 2, .98},
		{kitchen{"windows of a minute, no count", 10, 10, rate("", time.Minute), counts(sim.Window60)}, 1, 0, 5, .9},
		{kitchen{"a hint that is twice too high", 50, 4, rate("", time.Second), counts(sim.GCRA)}, 1, 2, 3, .9},
		{kitchen{"a hint that is four times too high", 50, 4, rate("", time.Second), counts(sim.GCRA)}, 1, 1, 3, .9},
	} {
		options := []quotient.Option{quotient.Policy(policy.Tracking{}), quotient.BeyondShare()}
		if x.count > 0 {
			options = append(options, quotient.Replicas(x.count))
		}
		served, refused, jain, pressed := x.thrice(t, x.told, options)
		t.Logf("%s: %.0f %% served, %.1f %% refused, Jain %.3f, %d in pauses", x.name, served, refused, jain, pressed)
		if pressed > 0 || refused > x.refused || jain < x.jain-1e-9 {
			t.Errorf("want at most %v %% refused, Jain %v", x.refused, x.jain)
		}
	}
}
