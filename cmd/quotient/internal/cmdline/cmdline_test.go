package cmdline

import (
	"math"
	"testing"
	"time"
)

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 999: "999ns", 1234: "1.23µs", 12345: "12.3µs", 123456: "123µs", 1234567890: "1.23s",
		math.MaxInt64: "2561944h26m40s", math.MinInt64: "-2562047h47m16.854775808s",
	} {
		if got := Short(d); got != want {
			t.Errorf("%d: %s, want %s", d, got, want)
		}
	}
}
