package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSteppedClock: a step moves what a Time says about the wall, and nothing else.
func TestSteppedClock(t *testing.T) {
	t.Cleanup(func() { WallStep.Store(0) })
	before := time.Now()
	for _, by := range []time.Duration{
		0, 1, -1, sec, -sec, 999_999_999, -999_999_999, time.Hour + 7, -time.Hour - 7,
		30 * 365 * 24 * time.Hour,
	} {
		now := time.Now()
		WallStep.Store(int64(by))
		for i, real := range []time.Time{now, now.Round(0), now.Add(400 * ms)} {
			got := stepped(real)
			if got.UnixNano() != real.UnixNano()+int64(by) {
				t.Errorf("%d, %v: %v is stepped to %v", i, by, real, got)
			}
			monotonic := strings.Contains(real.String(), " m=")
			if monotonic != strings.Contains(got.String(), " m=") {
				t.Errorf("%d, %v: %v is stepped to %v", i, by, real, got)
			} else if monotonic &&
				(got.Sub(real) != 0 || got.Sub(before) != real.Sub(before) || got.After(real)) {
				t.Errorf("%d, %v: the monotonic reading moves by %v", i, by, got.Sub(real))
			}
			if later := got.Add(time.Minute); later.UnixNano() != got.UnixNano()+int64(time.Minute) {
				t.Errorf("%d, %v: a minute after %v is %v", i, by, got, later)
			}
		}
	}
}

// TestOverlayWantsOneClock: a limiter that reads the wall clock elsewhere would not be stepped, which must
// be reported.
func TestOverlayWantsOneClock(t *testing.T) {
	for text, ok := range map[string]bool{
		"":                                 false,
		clockReading:                       true,
		clockReading + "\n" + clockReading: false,
	} {
		root, dir := t.TempDir(), t.TempDir()
		if err := os.WriteFile(filepath.Join(root, clockFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay, err := writeOverlay(root, dir)
		if (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
		if !ok {
			continue
		}
		for name, want := range map[string]string{
			overlay:                           filepath.Join(root, "wallstep.go"),
			filepath.Join(dir, clockFile):     "t := stepped(time.Now())",
			filepath.Join(dir, "wallstep.go"): "package quotient\n",
		} {
			if got, err := os.ReadFile(name); err != nil || !strings.Contains(string(got), want) {
				t.Errorf("%s: %v, no %q in %s", filepath.Base(name), err, want, got)
			}
		}
	}
}
