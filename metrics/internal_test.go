package metrics

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/quotient-go/quotient"
)

// TestNamesThatComeAndGoLeaveNothing: a process that makes limiters under ever new names keeps the histograms
// of those that live.
func TestNamesThatComeAndGoLeaveNothing(t *testing.T) {
	var reg quotient.Registry
	c := New(new(quotient.Registry)) // a scrape would keep what reg has
	reg.Options = func(name string) []quotient.Option {
		return []quotient.Option{quotient.MaxKeys(1), c.Observe(name)}
	}
	observed := func(name string) *quotient.Limiter {
		l, err := reg.Limiter(name, quotient.Limit{InFlight: 1})
		if err != nil {
			t.Fatal(err)
		}
		reg.Remove(name)
		return l
	}
	kept := observed("kept")
	for i := range 1000 {
		observed(fmt.Sprint(i))
		if i%100 == 0 {
			runtime.GC()
		}
	}
	runtime.GC()
	observed("last")
	if n := len(c.hists.byName); n != 2 {
		t.Errorf("%d names, want those of the kept one and of the last", n)
	}
	if c.hists.byName["kept"].Value() == nil {
		t.Error("the histograms of a limiter in use are gone")
	}
	runtime.KeepAlive(kept)
}
