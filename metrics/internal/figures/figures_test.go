package figures

import "testing"

func TestSourceIsOneOfAFewWords(t *testing.T) {
	for s, want := range map[string]string{
		"configured": "configured", "set": "set", "followed": "followed", "awaited": "awaited", "": "other",
		"10.0.0.1:6379": "other",
	} {
		if got := source(s); got != want {
			t.Errorf("%q: got %q, want %q", s, got, want)
		}
	}
}
