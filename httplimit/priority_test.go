package httplimit

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/quotient-go/quotient"
)

func TestPriorities(t *testing.T) {
	byHeader := func(r *http.Request) quotient.Priority {
		for p := quotient.PriorityLow; p <= quotient.PriorityCritical; p++ {
			if p.String() == r.Header.Get("Class") {
				return p
			}
		}
		return quotient.PriorityNormal
	}
	wild := func(*http.Request) quotient.Priority { return 100 }
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, oneSlot)
		var order []string
		record := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			order = append(order, r.Header.Get("Class"))
		})
		held, _ := l.TryAcquire("k")
		h := Middleware(l, Constant("k"), PriorityBy(byHeader), Wait(Forever))(record)
		base := recorder{record}
		tr := &Transport{Base: base, Limiter: l, Key: Constant("k"), Priority: byHeader}
		done := make(chan struct{})
		for _, class := range []string{"low", "normal", "high", "critical"} {
			r := get(t, "/")
			r.Header.Set("Class", class)
			go func() { h.ServeHTTP(httptest.NewRecorder(), r); done <- struct{}{} }()
			synctest.Wait()
			unread := post(t, newBody("text"))
			unread.Header.Set("Class", class)
			go func() { h.ServeHTTP(httptest.NewRecorder(), unread); done <- struct{}{} }()
			synctest.Wait()
			out := request(t, "http://h/", nil)
			out.Header.Set("Class", class)
			go func() { roundTrip(t, tr, out); done <- struct{}{} }()
			synctest.Wait()
		}
		held.Release()
		for range 12 {
			<-done
		}
		if got := strings.Join(order[:6], " "); got != "critical critical critical high high high" {
			t.Errorf("served in the order %s", got)
		}
		if w := ask(Middleware(l, Path(), PriorityBy(wild))(ok), get(t, "/")); w.Code != 204 {
			t.Errorf("status %d for a priority beyond the classes, want 204", w.Code)
		}
		idle(t, l)
	})
}
