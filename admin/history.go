package admin

import (
	"maps"
	"math"
	"sync"
	"time"

	"github.com/quotient-go/quotient"
)

const (
	sampleEvery = time.Second
	mostSamples = 120 // of each limiter: two minutes
	// sampleAfter is how long a handler that Serve does not serve goes on taking samples after the last reader.
	sampleAfter = 5 * time.Minute
	oldestShown = (mostSamples + 5) * sampleEvery // a process that was suspended has older samples
)

// History is what the limiters did in the last two minutes: at most 120 samples, one a second, oldest first.
// It has nothing of the time before the handler was served or read: see Handler.
type History struct {
	AgeSeconds []float64                 `json:"age_seconds"` // of each sample, at State.Time
	Limiters   map[string]LimiterHistory `json:"limiters"`    // by name
}

// LimiterHistory has one number for each sample. A limiter that was added since has fewer: the last number
// of each list belongs to the last of History.AgeSeconds.
type LimiterHistory struct {
	Admitted  []float64            `json:"admitted"`  // requests a second since the sample before
	Throttled []float64            `json:"throttled"` // 429s of the upstream, a second
	Refused   map[string][]float64 `json:"refused"`   // requests a second, by reason; absent reasons: none
	Waiting   []uint32             `json:"waiting"`   // callers, at the sample
	InFlight  []uint32             `json:"in_flight"` // weight of permits, at the sample
}

// recorder samples all limiters of a registry once a second, by a timer, while a Serve runs or a client has
// read lately. The zero value with a registry is ready. It needs about 4 KiB for each limiter.
type recorder struct {
	reg *quotient.Registry

	mu      sync.Mutex
	serving int         // calls of Serve
	read    time.Time   // by the last reader
	timer   *time.Timer // nil while no samples are taken
	round   uint64      // counts starts, so that the timer of an earlier one does nothing
	ticks   uint64      // looks since the start, but for the first, which has none before it
	last    time.Time   // of the looks
	at      [mostSamples]time.Time
	took    [mostSamples]time.Duration // since the look before
	of      map[string]*track
}

// track is the samples of one limiter. Counts are what was added since the sample before.
type track struct {
	l     *quotient.Limiter
	since uint64 // its first look, which is no sample
	old   quotient.Stats

	admitted, throttled, waiting, inFlight series
	refused                                map[quotient.Reason]*series
}

type series [mostSamples]uint32

// serve takes samples until the returned function is called.
func (r *recorder) serve() (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.serving++
	r.start()
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.serving--; r.serving == 0 {
			r.stop()
		}
	}
}

// seen notes a reader.
func (r *recorder) seen() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read = time.Now()
	r.start()
}

// start starts the timer, unless it runs. Call it with r.mu held.
func (r *recorder) start() {
	if r.timer != nil {
		return
	}
	r.of, r.ticks, r.last = make(map[string]*track), 0, time.Now()
	r.look()
	r.round++
	round := r.round
	r.timer = time.AfterFunc(sampleEvery, func() { r.tick(round) })
}

// stop forgets all samples. Call it with r.mu held.
func (r *recorder) stop() {
	r.timer.Stop()
	r.timer, r.of = nil, nil
}

// tick is what the timer of a round does.
func (r *recorder) tick(round uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.timer == nil || r.round != round: // stopped since
	case r.serving == 0 && time.Since(r.read) > sampleAfter:
		r.stop()
	default:
		r.ticks++
		r.look()
		r.timer.Reset(sampleEvery)
	}
}

// look takes the sample of r.ticks. Call it with r.mu held.
func (r *recorder) look() {
	now, place := time.Now(), r.ticks%mostSamples
	r.at[place], r.took[place], r.last = now, now.Sub(r.last), now
	there := maps.Collect(r.reg.All())
	for name, l := range there {
		t := r.of[name]
		if t == nil || t.l != l {
			r.of[name] = &track{l: l, since: r.ticks, old: l.Stats(), refused: make(map[quotient.Reason]*series)}
			continue
		}
		t.add(place, l.Stats())
	}
	maps.DeleteFunc(r.of, func(name string, _ *track) bool { return there[name] == nil })
}

func (t *track) add(place uint64, s quotient.Stats) {
	t.admitted[place] = grown(s.Admitted, t.old.Admitted)
	t.throttled[place] = grown(s.Throttled, t.old.Throttled)
	t.waiting[place] = grown(uint64(max(0, s.Waiting)), 0)
	t.inFlight[place] = grown(uint64(max(0, s.InFlight)), 0)
	for reason, n := range s.Refused {
		if t.refused[reason] == nil {
			t.refused[reason] = new(series)
		}
		t.refused[reason][place] = grown(n, t.old.Refused[reason])
	}
	t.old = s
}

// grown is by how much a count has grown, as far as it can be kept.
func grown(now, before uint64) uint32 {
	if now <= before {
		return 0
	}
	return uint32(min(now-before, math.MaxUint32))
}

// history is the samples at an instant, of the limiters that are named.
func (r *recorder) history(now time.Time, names map[string]LimiterState) *History {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := r.first(now)
	h := &History{AgeSeconds: make([]float64, 0, mostSamples), Limiters: make(map[string]LimiterHistory)}
	if r.timer == nil {
		return h
	}
	for i := first; i <= r.ticks; i++ {
		age := max(0, now.Sub(r.at[i%mostSamples])) // one may be younger than a state that took long to read
		h.AgeSeconds = append(h.AgeSeconds, rounded(age.Seconds()))
	}
	for name, t := range r.of {
		if _, named := names[name]; named {
			h.Limiters[name] = r.ofLimiter(t, max(first, t.since+1))
		}
	}
	return h
}

// first is the oldest sample to show.
func (r *recorder) first(now time.Time) uint64 {
	first := max(r.ticks, mostSamples) - mostSamples + 1
	for first <= r.ticks && now.Sub(r.at[first%mostSamples]) > oldestShown {
		first++
	}
	return first
}

func (r *recorder) ofLimiter(t *track, first uint64) LimiterHistory {
	h := LimiterHistory{
		Admitted: r.rates(&t.admitted, first), Throttled: r.rates(&t.throttled, first),
		Refused: make(map[string][]float64, len(t.refused)), Waiting: []uint32{}, InFlight: []uint32{},
	}
	for reason, counts := range t.refused {
		h.Refused[reason.String()] = r.rates(counts, first)
	}
	for i := first; i <= r.ticks; i++ {
		h.Waiting = append(h.Waiting, t.waiting[i%mostSamples])
		h.InFlight = append(h.InFlight, t.inFlight[i%mostSamples])
	}
	return h
}

func (r *recorder) rates(counts *series, first uint64) []float64 {
	rates := make([]float64, 0, mostSamples)
	for i := first; i <= r.ticks; i++ {
		rates = append(rates, rounded(float64(counts[i%mostSamples])/r.took[i%mostSamples].Seconds()))
	}
	return rates
}

// rounded is a number to a hundredth; a thousand limiters have half a million of them.
func rounded(x float64) float64 { return finite(math.Round(x*100) / 100) }
