package browser

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/quotient-go/quotient/admin"
)

// staged serves the page, and the states that a test makes up. So a minute takes no time.
type staged struct {
	p      *tab
	state  admin.State
	begins time.Time
	frames chan []byte
	latest atomic.Pointer[[]byte] // what GET /state answers
}

// stage makes staged states of one second a step for limiters of these names.
func (p *tab) stage(names ...string) *staged {
	p.t.Helper()
	p.idle(names)
	s := &staged{p: p, begins: time.Now(), frames: make(chan []byte, 8)}
	answer, err := http.Get(p.origin + "state")
	must(p.t, err)
	defer answer.Body.Close()
	must(p.t, json.NewDecoder(answer.Body).Decode(&s.state))
	p.behind(map[string]http.HandlerFunc{
		"GET /state":  func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(*s.latest.Load()) },
		"GET /events": s.stream,
	})
	p.t.Cleanup(func() { close(s.frames) })
	return s
}

// at is the state of a second.
func (s *staged) at(second float64) []byte {
	s.state.Time = s.begins.Add(time.Duration(second * float64(time.Second)))
	text, err := json.Marshal(s.state)
	must(s.p.t, err)
	return text
}

// send sends the state of a second to the page.
func (s *staged) send(second float64) {
	s.p.t.Helper()
	s.state.Process.Version = fmt.Sprintf("of-second-%v", second)
	text := s.at(second)
	s.latest.Store(&text)
	s.frames <- fmt.Appendf(nil, "event: state\ndata: %s\n\n", text)
}

// show sends it, and waits until the page shows it.
func (s *staged) show(second float64) {
	s.p.t.Helper()
	s.send(second)
	s.p.until(fmt.Sprintf("second %v is shown", second),
		fmt.Sprintf(`document.getElementById("process").textContent.startsWith("of-second-%v ")`, second))
}

func (s *staged) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	for {
		select {
		case frame, more := <-s.frames:
			if !more {
				return
			}
			_, _ = w.Write(frame)
			_ = http.NewResponseController(w).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

// refuse adds refusals to a limiter's count.
func (s *staged) refuse(name string, n uint64) {
	l := s.state.Limiters[name]
	l.Refused = map[string]uint64{"rate": l.Refused["rate"] + n}
	s.state.Limiters[name] = l
}

// troubleOfAMinute: refusals count as trouble for a minute, and no longer.
func troubleOfAMinute(p *tab) {
	s := p.stage("a", "b")
	s.send(0)
	p.open()
	p.until("both are calm", order+` === "a,b" && `+unfolded+` === ""`)
	s.refuse("b", 5)
	s.show(1)
	p.until("refusals are trouble", order+` === "b,a" && `+unfolded+` === "b"`)
	s.show(2)
	s.show(60.5)
	p.until("they still are, after 59.5 s", order+` === "b,a" && `+unfolded+` === "b"`)
	s.refuse("a", 1)
	s.show(61.5)
	p.until("a minute later only others are", order+` === "a,b" && `+unfolded+` === "a"`)
	s.show(121)
	s.show(122)
	p.until("then both are calm again", unfolded+` === ""`)
	p.calm()
}

// historyIsTrouble: what happened before the page was opened counts, at its first look.
func historyIsTrouble(p *tab) {
	s := p.stage("a", "b")
	s.state.History = &admin.History{AgeSeconds: []float64{70, 30},
		Limiters: map[string]admin.LimiterHistory{}}
	for name, refused := range map[string][]float64{"a": {9, 0}, "b": {0, 9}} {
		s.state.History.Limiters[name] = admin.LimiterHistory{
			Admitted: []float64{1, 2}, Throttled: []float64{0, 0},
			Refused: map[string][]float64{"rate": refused},
			Waiting: []uint32{0, 0}, InFlight: []uint32{0, 0},
		}
	}
	s.send(0)
	p.open()
	p.until("the refusals of the last minute are trouble", order+` === "b,a" && `+unfolded+` === "b"`)
	p.calm()
}
