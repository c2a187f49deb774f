package quotient

import (
	"encoding/binary"
	"hash/fnv"
	"slices"
	"time"

	"github.com/quotient-go/quotient/internal/meter"
)

// rate is this replica's part of a rate: a bucket, a window, or a bucket whose replicas take turns.
func (o *options) rate(r Rate, i int, pool Pool, units []string) rule {
	n, part := pool.parts(), meter.Part{Replicas: pool.Replicas, Ordinal: pool.Ordinal, Weight: pool.weight()}
	burst := r.burst()
	x := rule{
		id:     id{name: r.name(i), unit: r.Unit},
		unitID: 1 + slices.Index(units, r.Unit), reason: ReasonRate, timed: true, ctrl: noController,
		limit: r.Events, share: r.Events / n, window: r.Per,
		Rule: meter.Rule{Fill: meter.Fill{Interval: float64(r.Per) * n / r.Events, Size: max(1, burst/n)}},
		most: mostOf(burst), here: mostOf(burst), // more than the share waits for a full bucket
		grace: graceOf(r), burst: max(1, burst/n),
	}
	if x.unitID > 0 {
		x.kind = kindCost
	}
	if r.Kind == Paced && !r.NoTurns && !o.learns {
		x.Turn = meter.NewTurn(float64(r.Per)/r.Events, part)
	}
	if r.windowed() {
		x.kind, x.per, x.burst = kindWindow, int64(r.Per), 0
		x.Schedule = meter.NewSchedule(r.Per, r.Events, part, o.chance.Phase)
		x.zone = r.Zone
		x.Schedule.Days, _ = r.days() // Validate has found them
		if r.Kind == CountedWindow {
			x.Counted, x.countID = true, countedID(x.id)
		}
	}
	return x
}

// mostOf returns how many events of a burst a call may ask for.
func mostOf(burst float64) int { return int(min(burst, maxAmount)) }

// divisor is the pool that limits are divided by: with BeyondShare only controllers go by the true one.
func (o *options) divisor(b belief) Pool {
	if o.beyond && o.learns && !b.awaits {
		return Pool{Replicas: 1}
	}
	return b.pool
}

// oneTurn leaves only the turns of the slowest paced rate, since those of two rates might never be open at
// one instant. Nor might a turn and a window, so there are no turns beside a window.
func (st *setting) oneTurn() {
	var slowest *rule
	windows := false
	for i := range st.rules {
		r := &st.rules[i]
		windows = windows || r.Schedule != nil
		if r.Turn != nil && (slowest == nil || r.Turn.Cycle > slowest.Turn.Cycle) {
			slowest = r
		}
	}
	for i := range st.rules {
		switch r := &st.rules[i]; {
		case r.Turn == nil:
		case windows || r != slowest:
			r.Turn = nil
		default:
			r.kind, r.strict, r.Size = kindTurn, true, r.Turn.Size
		}
	}
}

// meet makes sure that the windows of several rates are open together at some instant. Those of two sparse
// rates might never be. So of the sparse ones only that with the longest period is strict. The others keep
// the event of a window until it is used.
func (st *setting) meet() {
	var strict *rule
	for i := range st.rules {
		r := &st.rules[i]
		if r.Schedule == nil || !r.Schedule.Sparse() {
			continue
		}
		r.Schedule.Keeps = true
		if strict == nil || r.Schedule.Per > strict.Schedule.Per {
			strict = r
		}
	}
	if strict != nil {
		strict.strict, strict.Schedule.Keeps = true, false
	}
}

// countedID tells the counted rules of a fleet apart by 64 bits. It is never 0.
func countedID(x id) uint64 {
	h := fnv.New64a()
	var text []byte
	for _, s := range []string{x.name, x.unit} {
		text = append(binary.AppendUvarint(text, uint64(len(s))), s...)
	}
	_, _ = h.Write(append(binary.AppendVarint(text, x.per), x.zone...)) // it never fails
	return h.Sum64() | 1
}

// minExpiring is the shortest interval of a paced rate whose permits expire: see wait.go.
const minExpiring = time.Second

// graceOf returns how late the caller of a rate may wake; 0 is as late as it likes.
func graceOf(r Rate) time.Duration {
	interval := float64(r.Per) / r.Events
	if r.Kind != Paced || interval < float64(minExpiring) {
		return 0
	}
	return time.Duration(min(interval*meter.TurnPart, float64(meter.LongWait)))
}
