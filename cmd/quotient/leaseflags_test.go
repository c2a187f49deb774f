package main

import (
	"testing"

	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/lease"
)

// TestListenOfFlagsAndFile: a flag changes its part of the address, and leaves the other one to the file.
func TestListenOfFlagsAndFile(t *testing.T) {
	for _, row := range []struct {
		flags []string
		want  string
	}{
		{nil, "10.0.0.7:80"},
		{[]string{"port"}, "10.0.0.7:9000"},
		{[]string{"address"}, "[::1]:80"},
		{[]string{"address", "port"}, "[::1]:9000"},
	} {
		c, g := leasesCmd{Address: "::1", Port: 9000}, given{}
		for _, name := range row.flags {
			g[name] = "--" + name
		}
		if err := c.complete(g, func(string) (string, bool) { return "", false }); err != nil {
			t.Fatal(err)
		}
		f := &config.File{Leases: &config.Leases{Listen: "10.0.0.7:80"}}
		if err := c.adjust(f); err != nil || f.Leases.Listen != row.want {
			t.Errorf("%v: listens at %s, %v, want %s", row.flags, f.Leases.Listen, err, row.want)
		}
	}
}

func TestSemaphoreOfAFlagKeepsItsLevel(t *testing.T) {
	f := &config.File{Leases: &config.Leases{Semaphores: map[string]lease.Semaphore{"A": {Max: 1, Level: 3}}}}
	c := &leasesCmd{more: map[string]lease.Semaphore{"A": {Max: 5}}}
	if err := c.adjust(f); err != nil {
		t.Fatal(err)
	}
	if got, want := f.Leases.Semaphores["A"], (lease.Semaphore{Max: 5, Level: 3}); got != want {
		t.Errorf("A is %+v, want %+v", got, want)
	}
}
