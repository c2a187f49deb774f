package proxy

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	code := m.Run()
	dropMade()
	os.Exit(code)
}
