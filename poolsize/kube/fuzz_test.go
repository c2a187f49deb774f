package kube

import (
	"fmt"
	"testing"
)

// A pod's name is a StatefulSet's only if it is written as one: its parts make the name again.
func FuzzSeries(f *testing.F) {
	for _, name := range []string{"web-0", "web-12", "web-012", "web", "-1", "web-", "web--1", "web-+1",
		"web-999999", "web-1000000", "web-٣"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		base, index, ok := series(name)
		if ok &&
			(base == "" || index < 0 || index >= maxEndpoints || fmt.Sprintf("%s-%d", base, index) != name) {
			t.Errorf("%q is %q and %d", name, base, index)
		}
	})
}
