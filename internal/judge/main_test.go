package judge

import (
	"log/slog"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // where sources fail without a Logger
	goleak.VerifyTestMain(m)
}
