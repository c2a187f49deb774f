package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const (
	ms  = time.Millisecond
	sec = time.Second
)

// calm is a run of ten seconds in which four replicas, who know it, send what they may, on every path.
func calm() record { return calmFor(10 * sec) }

func calmFor(length time.Duration) record {
	r := record{config: config{Duration: length, Replicas: 4, Limit: 100, Burst: 4}, Length: length}
	for id := 1; id <= 4; id++ {
		l := life{ID: id, Born: 1, Died: never, End: &ending{}}
		for s := range sources {
			l.believes(s, 4, 0, 0)
			l.Places[s] = []placed{{span{0, 0}, id}}
			r.Logs[s] = append(r.Logs[s], r.usual(s, id)...)
		}
		r.Lives = append(r.Lives, l)
	}
	for s := range sources {
		r.Truth[s] = []turn{{0, 4}}
	}
	return r
}

// usual is what one of four replicas does on a path. It sends 25 requests a second, or holds one or two
// slots all the time, or has one aligned window in four, or one turn in 400 ms.
func (r *record) usual(s source, id int) (log []entry) {
	first, gap := time.Duration(0), 40*ms
	switch s {
	case onSlots:
		for from := time.Duration(0); from < r.Length; from += 100 * ms {
			for range 1 + min(1, r.ctrl(s).slots%4/id) {
				log = append(log, entry{int32(id), from + 100*ms, from, from})
			}
		}
		return log
	case onWindows:
		first, gap = time.Duration(id-1)*windowPer, 4*windowPer
	case onTurns:
		first, gap = time.Duration(id-1)*turnEvery, 4*turnEvery
	}
	for t := first; t < r.Length; t += gap {
		log = append(log, sentAt(id, t))
	}
	return log
}

func sentAt(id int, t time.Duration) entry { return entry{int32(id), t, t, t} }

// send adds requests of a replica to a path, one each gap.
func (r *record) send(s source, id int, from, to, gap time.Duration) {
	for t := from; t < to; t += gap {
		r.Logs[s] = append(r.Logs[s], sentAt(id, t))
	}
}

// silence takes requests of a replica out of a path.
func (r *record) silence(s source, id int, in span) {
	r.Logs[s] = slices.DeleteFunc(r.Logs[s],
		func(e entry) bool { return int(e.Replica) == id && in.holds(e.Sent) })
}

func (r *record) changed(s source, at time.Duration, n int) {
	r.Truth[s] = append(r.Truth[s], turn{at, n})
	r.happened(s, at)
}

func (r *record) happened(s source, at time.Duration) {
	e := event{At: at, Kind: "test"}
	e.On[s] = true
	r.Events = append(r.Events, e)
}

// joined lets a fifth replica join at 5 s, which the others notice so much later.
func joined(r *record, late time.Duration) {
	l := life{ID: 5, Born: 5 * sec, Died: never, End: &ending{}}
	l.believes(fromFile, 5, 5*sec, 5*sec)
	r.Lives = append(r.Lives, l)
	r.changed(fromFile, 5*sec, 5)
	for i := range r.Lives[:4] {
		r.Lives[i].believes(fromFile, 5, 5*sec, 5*sec+late)
	}
	for id := 1; id <= 4; id++ {
		r.silence(fromFile, id, span{5*sec + late, never})
		r.send(fromFile, id, 5*sec+late+50*ms, r.Length, 50*ms)
	}
	r.send(fromFile, 5, 5*sec+50*ms, r.Length, 50*ms)
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*record)
		want   []string // parts of what is broken, one after the other; none: everything holds
	}{
		{"calm", func(*record) {}, nil},
		{"a replica sends one too many", func(r *record) { r.send(fromDNS, 2, 3010*ms, 3011*ms, ms) },
			[]string{"bounds 2 and 3, dns", "bound 1, dns, replica 2"}},
		{"all send a little too fast", func(r *record) { r.send(fromRedis, 5, 0, 10*sec, 900*ms) },
			[]string{"bounds 2 and 3, redis", "redis: a request of replica 5, which there is not"}},
		{"the first request was asked for before there was a share", func(r *record) {
			joined(r, 10*ms)
			r.Logs[fromFile] = append(r.Logs[fromFile], entry{5, 5*sec + ms, 5*sec + ms, 5*sec - 2*ms})
		}, nil},
		{"a request before there was a share", func(r *record) {
			joined(r, 10*ms)
			r.Logs[fromFile] = append(r.Logs[fromFile], sentAt(5, 5*sec-2*ms))
		}, []string{"bound 1, file, replica 5: 1 left from 4.998 s to 4.998 s, 0.00 allowed"}},
		{"somebody unknown sends", func(r *record) { r.send(fromFile, 77, 0, sec, 20*ms) },
			[]string{"bounds 2 and 3, file", "file: a request of replica 77, which there is not"}},
		{"somebody unknown sends in a growth seen late", func(r *record) {
			joined(r, 10*ms)
			r.Lives[0].Beliefs[fromFile][1].From = 7 * sec
			for range 30 {
				r.Logs[fromFile] = append(r.Logs[fromFile], sentAt(77, 6*sec))
			}
		}, []string{"file: a request of replica 77, which there is not"}},
		{"no requests", func(r *record) { r.Logs[fromFile] = nil }, []string{"file: 0.0 % of the limit"}},
		{"all fall silent", func(r *record) {
			for id := 1; id <= 4; id++ {
				r.silence(fromDNS, id, span{sec / 10, never})
			}
		}, []string{"dns: 1.2 % of the limit"}},
		{"nobody is answered", func(r *record) {
			r.Lives[0].End = &ending{Failed: 1_000_000, LastError: "refused"}
		}, []string{"1000000 requests of "}},
		{"a leak", func(r *record) { r.Lives[1].End = &ending{Leak: "goroutine 7"} },
			[]string{"replica 2 leaks: goroutine 7"}},
		{"no last words", func(r *record) { r.Lives[1].End = nil }, []string{"replica 2 did not say"}},
		{"killed", func(r *record) {
			r.Lives[1].End, r.Lives[1].Died = nil, 9*sec
			for s := range sources {
				r.changed(s, 9*sec, 3)
				r.silence(s, 2, span{9 * sec, never})
			}
		}, nil},
		{"a join seen late", func(r *record) { joined(r, 400*ms) }, nil},
		{"a join seen later than allowed", func(r *record) { joined(r, 4*sec) },
			[]string{"bounds 2 and 3, file", "file: from"}},
		{"a smaller pool than there is, out of nowhere",
			func(r *record) { r.Lives[3].believes(fromFile, 3, 5*sec, 5*sec) },
			[]string{"file: from 5.000 s to 10.000 s not all of 4"}},
		{"a broken source does not excuse a smaller pool", func(r *record) {
			r.Lives[3].believes(fromFile, 3, 5*sec, 5*sec)
			r.Lives[3].believes(fromFile, 4, 6*sec, 6*sec)
			r.Faults[fromFile] = []span{{4 * sec, 7 * sec}}
		}, []string{"file: from 5.000 s to 6.000 s"}},
		{"a mended one does not either", func(r *record) {
			r.Lives[3].believes(fromFile, 3, 5*sec, 5*sec)
			r.Lives[3].believes(fromFile, 4, 6*sec, 6*sec)
			r.Faults[fromFile] = []span{{4 * sec, 5 * sec}}
			r.happened(fromFile, 5*sec)
			r.Events[0].Mend = true
		}, []string{"file: from 5.000 s to 6.000 s"}},
		{"what changed while it was broken is learned later", func(r *record) {
			r.Faults[fromFile] = []span{{1 * sec, 6 * sec}}
			joined(r, 3*sec)
		}, nil},
		{"nothing excuses fewer than there were", func(r *record) {
			joined(r, 400*ms)
			r.Lives[0].Beliefs[fromFile] = slices.Insert(r.Lives[0].Beliefs[fromFile], 1,
				believed{5*sec + 100*ms, 3})
		}, []string{"bounds 2 and 3, file", "file: from 5.100 s to 5.400 s"}},
		{"but not for ever", func(r *record) {
			r.Faults[fromFile] = []span{{4 * sec, 5*sec + ms}}
			joined(r, 4*sec)
		}, []string{"bounds 2 and 3, file", "file: from 7.551 s to 9.000 s"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := calm()
			c.change(&r)
			finds(t, judge(r), c.want)
		})
	}
}

// finds fails unless exactly these promises are broken.
func finds(t *testing.T, v verdict, want []string) {
	t.Helper()
	ok := len(v.Broken) == len(want)
	for i := range min(len(want), len(v.Broken)) {
		ok = ok && strings.Contains(v.Broken[i], want[i])
	}
	if !ok {
		t.Errorf("broken: %q, want %q", v.Broken, want)
	}
}

// TestJudgeStops is about a replica that is stopped from 5 s to 8 s.
func TestJudgeStops(t *testing.T) {
	const from, to = 5 * sec, 8 * sec
	for _, c := range []struct {
		name  string
		after []entry // of it, when it goes on
		want  []string
	}{
		{"goes on with its bucket", []entry{sentAt(1, to)}, nil},
		{"what was on its way", []entry{{1, to, 5*sec - 10*ms, 5*sec - 10*ms}, sentAt(1, to)}, nil},
		{"one turn that came as it was stopped", []entry{{1, to, to, 5*sec - 10*ms}, sentAt(1, to)}, nil},
		{"a burst", []entry{sentAt(1, to), sentAt(1, to+ms)},
			[]string{"bounds 2 and 3, file", "bound 1, file, replica 1"}},
		{"a burst that says it was late", []entry{
			{1, to, to, 5 * sec}, {1, to, to, 5500 * ms}, {1, to, to, 6 * sec}, {1, to, to, 6500 * ms},
			{1, to, to, 7 * sec},
		}, []string{"bounds 2 and 3, file", "bound 1, file, replica 1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := calm()
			for s := range sources {
				r.silence(s, 1, span{4950 * ms, 8*sec + 20*ms})
			}
			r.Lives[0].Stops = []span{{from, to}}
			r.Lives[0].Stalls = []span{{from - ms, to + ms}}
			r.Logs[fromFile] = append(r.Logs[fromFile], c.after...)
			r.silence(fromFile, 1, span{8*sec + 30*ms, 8*sec + 50*ms})
			finds(t, judge(r), c.want)
		})
	}
}

// TestJudgeComesBack: a replica that others have given up comes back with a full bucket, and they notice 400
// ms later.
func TestJudgeComesBack(t *testing.T) {
	for late, want := range map[time.Duration][]string{
		400 * ms:  nil,
		4600 * ms: {"bounds 2 and 3, redis", "redis: from"},
	} {
		r := calm()
		r.Lives[0].Stops = []span{{2 * sec, 5 * sec}}
		for s := range sources {
			r.silence(s, 1, span{2 * sec, 5 * sec})
		}
		r.changed(fromRedis, 2*sec, 3)
		r.changed(fromRedis, 5*sec, 4)
		for i, id := range []int{2, 3, 4} {
			r.Lives[id-1].believes(fromRedis, 3, 4*sec, 4*sec)
			r.Lives[id-1].believes(fromRedis, 4, 5*sec, 5*sec+late)
			r.silence(fromRedis, id, span{4 * sec, 5*sec + late + 20*ms})
			r.send(fromRedis, id, 4*sec+time.Duration(4+i)*10*ms, 5*sec+late-10*ms, 31*ms)
		}
		t.Run(fmt.Sprint(late), func(t *testing.T) { finds(t, judge(r), want) })
	}
}

// TestJudgeOldReports: a replica that was stopped while the pool grew goes on with what it knew, for two
// periods.
func TestJudgeOldReports(t *testing.T) {
	for late, want := range map[time.Duration][]string{
		300 * ms:  nil,
		2600 * ms: {"file: from 9.550 s to 9.600 s"},
	} {
		r := calm()
		r.Truth[fromFile] = []turn{{0, 4}, {3 * sec, 3}, {5 * sec, 4}}
		r.happened(fromFile, 3*sec)
		r.happened(fromFile, 5*sec)
		r.Lives[3].Stops = []span{{4 * sec, 7 * sec}}
		r.Lives[3].Beliefs[fromFile] = []believed{{0, 4}, {3900 * ms, 3}, {7*sec + late, 4}}
		for s := range sources {
			r.silence(s, 4, span{4 * sec, 7 * sec})
		}
		r.happened(fromFile, 7*sec)
		r.Events[2].Slept = 3 * sec
		t.Run(fmt.Sprint(late), func(t *testing.T) { finds(t, judge(r), want) })
	}
}

func TestRowsHoldWhatFollowed(t *testing.T) {
	r := calm()
	joined(&r, 400*ms)
	v := judge(r)
	row := v.row("test", fromFile)
	if row.Count != 1 || len(row.Took) != 1 || row.Took[0] != 400*ms {
		t.Errorf("%+v", row)
	}
	if want := 100 * .4 * (5./4 - 1); math.Abs(row.Bound3-want) > 1e-9 || row.Over <= 0 || row.Over > want {
		t.Errorf("over %v, bound 3 %v, want at most %v", row.Over, row.Bound3, want)
	}
	text := v.text(r)
	for _, want := range []string{"| test | file | 1 | 0 | 0.40 s | 0.40 s | 2.40 s |", "Everything held."} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	v.broken("a leg")
	if text := v.text(r); !strings.Contains(text, "1 promises were BROKEN") ||
		!strings.Contains(text, "- a leg") {
		t.Error(text)
	}
}

// TestPropertyWorst holds the one pass against all windows.
func TestPropertyWorst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		instant := rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.IntRange(0, 10_000).Draw(t, "ms")) * ms
		})
		var paces []pace
		for _, at := range slices.Sorted(slices.Values(rapid.SliceOfN(instant, 0, 4).Draw(t, "paces"))) {
			paces = append(paces, pace{from: at, rate: rapid.Float64Range(0, 50).Draw(t, "rate"),
				burst: rapid.Float64Range(0, 10).Draw(t, "burst")})
		}
		paces = append([]pace{{rate: 10, burst: 3}}, paces...)
		var growths []growth
		for range rapid.IntRange(0, 4).Draw(t, "growths") { // they may overlap
			from, to := instant.Draw(t, "from"), instant.Draw(t, "to")
			in := span{min(from, to), max(from, to)}
			growths = append(growths, growth{span: in, extra: rapid.Float64Range(0, 20).Draw(t, "extra")})
		}
		b := newBudget(paces, growths)
		var sent []departure
		for _, left := range slices.Sorted(slices.Values(rapid.SliceOfN(instant, 1, 30).Draw(t, "left"))) {
			sent = append(sent,
				departure{may: left - time.Duration(rapid.IntRange(0, 500).Draw(t, "late"))*ms, left: left})
		}
		most, opens := math.Inf(-1), openings(sent)
		for i := range sent {
			for j := i; j < len(sent); j++ {
				most = max(most, float64(j-i+1)-b.slowly(opens[i], sent[j].left))
			}
		}
		if got := b.worst(sent); math.Abs(got.excess()-most) > 1e-6 {
			t.Fatalf("worst is %v with an excess of %v, want %v", got, got.excess(), most)
		}
	})
}

// slowly is allowed, written as the words of budget have it.
func (b budget) slowly(from, to time.Duration) float64 {
	n := b.at(from).burst
	for i, s := range b.paces {
		in := span{s.from, never}
		if i == 0 {
			in.From = math.MinInt64 / 2
		}
		if i+1 < len(b.paces) {
			in.To = b.paces[i+1].from
		}
		n += s.rate * in.overlap(span{from, to}).Seconds()
	}
	for _, g := range b.growths {
		if g.From <= to && g.To >= from {
			n += g.extra
		}
	}
	return n
}

func TestBeliefsAreTakenOnTheSafeSide(t *testing.T) {
	var l life
	l.Died = 9 * sec
	l.believes(fromDNS, 4, 1*sec, 2*sec)
	l.believes(fromDNS, 5, 3*sec, 4*sec) // a smaller share: at the latest
	l.believes(fromDNS, 3, 5*sec, 6*sec) // a larger one: at the earliest
	for at, want := range map[time.Duration]int{0: 0, 1 * sec: 4, 3500 * ms: 4, 4 * sec: 5, 5 * sec: 3,
		8 * sec: 3, 9 * sec: 0} {
		if got := l.belief(fromDNS, at); got != want {
			t.Errorf("at %v: %d, want %d", at, got, want)
		}
	}
}
