package quotient_test

import (
	"testing"

	"github.com/quotient-go/quotient/internal/house/floors"
)

// TestFloors holds that a file uses what stands on its floor or below, so that the package can be read from
// the ground up. go run ./internal/house -update takes off the list what runs up no more.
func TestFloors(t *testing.T) {
	p, err := floors.Load(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range p.Check(floors.Names, floors.Root).Compare(floors.Known()) {
		t.Error(fault)
	}
}
