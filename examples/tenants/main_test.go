package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		if err := run(t.Context(), &out); err != nil {
			t.Errorf("%v\n%s", err, out.String())
		}
		for _, want := range []string{
			"10 admitted at once. \"small.example\"", "(plan free)", "100 admitted at once. \"shop.example\"",
			"(plan paid)",
			"25 admitted at once. \"reports\"", "(plan internal)", "300 admitted at once. \"big.example\"",
			"(its own)",
			"0 admitted at once. \"abuser.example\"",
			"free to paid: 10, then 90 more, and back in free 0; paid halved: 50",
		} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("does not say %q:\n%s", want, out.String())
			}
		}
	})
}

func TestCheckOrder(t *testing.T) {
	for order, want := range map[string]bool{
		"pppppfffff": true,
		"ppfpppffff": true,
		"fpfppppfff": false,
		"fffffppppp": false,
		"ppppp":      false,
		"":           false,
	} {
		if err := checkOrder(order); (err == nil) != want {
			t.Errorf("%q: %v", order, err)
		}
	}
}

func TestCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := showPriorities(ctx, &bytes.Buffer{}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}
