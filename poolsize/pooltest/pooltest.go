// Package pooltest is a conformance test for any quotient.Source. It watches the source alone, and through a Limiter
// that follows it. Meanwhile the test changes and breaks what the source reads, such as a file or a store: its world.
package pooltest

import (
	"cmp"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
	"go.uber.org/goleak"
)

// World is a source together with functions that change what it reads. They are called from the goroutine
// of the test.
type World struct {
	// Source returns a source that reads the world. It must not be nil.
	Source func(t testing.TB) quotient.Source
	// Set sets the number of live replicas to n, 2 to 7, this one included, each counted by its weight. Nil
	// means that the world always has Size replicas.
	Set func(t testing.TB, n int)
	// Weight is the number of replicas that this one counts as, 1 or 2, which the source must report. 0 means 1.
	Weight int
	// Size is the number of replicas of a world without Set.
	Size int
	// Break makes the world fail, and Garbage gives it contents that are no size; nil means that it cannot.
	// The source must then report errors, or pools that Pool.Validate refuses, and nothing else. Heal ends
	// both and restores the number of replicas.
	Break, Garbage, Heal func(t testing.TB)
	// Once declares that the source reads the world only when Watch begins. After each change the test then
	// ends Watch and calls it again.
	Once bool
	// Wrong holds sources with one wrong setting each, by words of the error: its field and value. A method
	// Validate must return that error, and so must Watch, at once and without a report. Nil is for a source
	// without settings, or whose constructor refuses them.
	Wrong map[string]quotient.Source
	// Within bounds how long the source may take to report a change, and to return when its context ends. 0
	// means a minute. Only a failing test takes that long.
	Within time.Duration
	// Ignore names goroutines that may outlive Watch, such as those of a server in the same process.
	// Those that run when the first Watch has ended are ignored anyway.
	Ignore []goleak.Option
}

// defaultWithin is enough for a source that looks once a second on a machine that is very busy.
const defaultWithin = time.Minute

// validate reports the first field that makes no sense.
func (w World) validate() error {
	switch {
	case w.Source == nil:
		return errors.New("pooltest: World.Source: nil")
	case w.Set == nil && w.Size < 1:
		return fmt.Errorf("pooltest: World.Size: %d in a world without Set", w.Size)
	case w.Heal == nil && (w.Break != nil || w.Garbage != nil):
		return errors.New("pooltest: World.Heal: nil, but the world can break")
	case w.Weight < 0 || w.Weight > 2:
		return fmt.Errorf("pooltest: World.Weight: %d is not between 0 and 2", w.Weight)
	case w.Within < 0:
		return fmt.Errorf("pooltest: World.Within: %v is below 0", w.Within)
	}
	return nil
}

func (w World) within() time.Duration { return cmp.Or(w.Within, defaultWithin) }

// set makes the world one of n replicas if that can be done, and returns how many there are.
func (w World) set(t testing.TB, n int) int {
	if w.Set == nil {
		return w.Size
	}
	w.Set(t, n)
	return n
}

// check is one requirement for every source.
type check struct {
	name  string
	needs string // the field that a world must have for it; "": none
	run   func(testing.TB, World)
}

var checks = []check{
	{"reports the size", "", reportsSize},
	{"follows the size", "Set", followsSize},
	{"larger counts at once, smaller does not", "Set", damps},
	{"smaller counts after the hold-down", "Set", holdsDown},
	{"failure keeps the last good pool", "Break", keepsWhenBroken},
	{"garbage keeps the last good pool", "Garbage", keepsWhenGarbage},
	{"one report at a time", "", reportsSerially},
	{"the context ends it", "", endsWithContext},
	{"the context ends it while it fails", "Break", endsWhenBroken},
	{"leaves nothing behind", "", leavesNothing},
	{"can be watched again", "", watchesAgain},
	{"two at a time work or fail", "", watchesTwice},
	{"wrong settings are refused", "Wrong", refusesWrong},
}

// Run checks a source, each requirement in a test of its own. It skips a check that needs more than the
// world can do, with a message. Run looks for goroutines that are left behind, so no other test may start
// any meanwhile: call it from a test that is not parallel.
func Run(t *testing.T, w World) {
	t.Helper()
	if err := w.validate(); err != nil {
		t.Fatal(err)
	}
	lacks := map[string]bool{"Set": w.Set == nil, "Break": w.Break == nil, "Garbage": w.Garbage == nil,
		"Wrong": w.Wrong == nil}
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			if lacks[c.needs] {
				t.Skipf("this world has no %s", c.needs)
			}
			c.run(t, w)
		})
	}
}
