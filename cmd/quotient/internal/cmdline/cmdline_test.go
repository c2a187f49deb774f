package cmdline

import (
	"testing"
	"time"
)

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 999: "999ns", 1234: "1.23µs", 12345: "12.3µs", 123456: "123µs", 1234567890: "1.23s",
	} {
		if got := Short(d); got != want {
			t.Errorf("%d: %s, want %s", d, got, want)
		}
	}
}
