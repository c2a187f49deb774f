package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/quotient-go/quotient/bench/rig"
)

// steppedClock is a file that the stepped program has besides. Its root package has export_test.go, as tests do.
const steppedClock = `package main
import ("time"; "github.com/quotient-go/quotient")
func init() {
	stepped = quotient.WithWallClock(func(t time.Time) int64 { return t.UnixNano() + wallStep.Load() })
}
`

// buildStepped builds this program once more into dir, with limiters whose wall clock can be stepped, and returns its
// name. The overlay changes nothing on disk. All but the root package and what imports it is in Go's cache.
func buildStepped(ctx context.Context, dir string) (exe string, err error) {
	list := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", "github.com/quotient-go/quotient")
	text, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("wall clocks that step take the go command and a checkout: %w", err)
	}
	root := strings.TrimSpace(string(text))
	clock, overlay := filepath.Join(dir, "clock.go"), filepath.Join(dir, "overlay.json")
	spec, err := json.Marshal(map[string]map[string]string{"Replace": {
		filepath.Join(root, "wallclock.go"):                   filepath.Join(root, "export_test.go"),
		filepath.Join(root, "bench", "chaos", "wallclock.go"): clock,
	}})
	err = errors.Join(err, os.WriteFile(clock, []byte(steppedClock), 0o600), os.WriteFile(overlay, spec, 0o600))
	if err != nil {
		return "", err
	}
	exe = filepath.Join(dir, "stepped")
	flags := os.Getenv("GOFLAGS") + " -buildvcs=false -overlay=" + overlay
	return exe, rig.Build(ctx, exe, filepath.Join(root, "bench"), "./chaos", "GOFLAGS="+flags)
}
