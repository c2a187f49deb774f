package kinds_test

import (
	"testing"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/kinds"
)

type older = map[string]bool

// All spellings of a kind give the same rate, and those that contradict each other give none.
func TestSpellings(t *testing.T) {
	for _, c := range []struct {
		kind   string
		older  older
		burst  int
		want   quotient.Kind
		holds  int    // the burst of the rate
		blamed string // the field, and why; none: no contradiction
	}{
		{"", nil, 0, quotient.Bucket, 0, ""},
		{"", older{"aligned": false, "counted": false, "paced": false}, 2, quotient.Bucket, 2, ""},
		{"bucket", older{"aligned": false, "counted": false, "paced": false}, 1, quotient.Bucket, 1, ""},
		{"", nil, 1, quotient.Paced, 0, ""},
		{"", older{"aligned": false, "counted": false, "paced": false}, 1, quotient.Paced, 0, ""},
		{"", older{"paced": true}, 0, quotient.Paced, 0, ""},
		{"", older{"paced": true}, 5, quotient.Paced, 5, ""}, // Validate refuses it
		{"paced", older{"aligned": false, "counted": false, "paced": true}, 1, quotient.Paced, 0, ""},
		{"", older{"aligned": true}, 0, quotient.Window, 0, ""},
		{"", older{"aligned": true}, 1, quotient.Window, 1, ""}, // so it does with this one
		{"window", older{"aligned": true, "counted": false}, 0, quotient.Window, 0, ""},
		{"", older{"aligned": true, "counted": true}, 0, quotient.CountedWindow, 0, ""},
		{"counted-window", nil, 0, quotient.CountedWindow, 0, ""},
		{"counted-window", older{"aligned": true, "counted": true}, 0, quotient.CountedWindow, 0, ""},

		{"", older{"counted": true}, 0, 0, 0, "counted: true on a rate that is not aligned"},
		{"", older{"paced": true, "aligned": true}, 0, 0, 0, "paced: true beside aligned: a window has no pace"},
		{"bucket", older{"paced": true}, 0, 0, 0, `paced: true beside kind = "bucket"`},
		{"paced", older{"paced": false}, 0, 0, 0, `paced: false beside kind = "paced"`},
		{"paced", older{"aligned": true}, 0, 0, 0, `aligned: true beside kind = "paced"`},
		{"window", older{"aligned": false}, 0, 0, 0, `aligned: false beside kind = "window"`},
		{"window", older{"counted": true}, 0, 0, 0, `counted: true beside kind = "window"`},
		{"counted-window", older{"counted": false}, 0, 0, 0, `counted: false beside kind = "counted-window"`},
	} {
		r := quotient.Rate{Events: 1, Per: 1e9, Burst: c.burst}
		field, fault := kinds.Set(&r, c.kind, c.older)
		blamed := ""
		if field != "" {
			blamed, r.Kind, r.Burst = field+": "+fault, 0, 0
		}
		if blamed != c.blamed || r.Kind != c.want || r.Burst != c.holds {
			t.Errorf("%q %v, burst %d: %v, burst %d, %q", c.kind, c.older, c.burst, r.Kind, r.Burst, blamed)
		}
	}
}
