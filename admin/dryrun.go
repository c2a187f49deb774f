package admin

import (
	"log/slog"

	"github.com/quotient-go/quotient"
)

func parseDryRun(body []byte) (change, *Problem) {
	on, bad := readDryRun(body)
	return change{
		what: "dry run set", field: "dry_run",
		show:  func(l *quotient.Limiter) slog.Value { return slog.BoolValue(l.Stats().DryRun) },
		apply: func(l *quotient.Limiter) error { l.SetDryRun(on); return nil },
	}, bad
}

// readDryRun reads {"dry_run":true}.
func readDryRun(body []byte) (bool, *Problem) {
	f := readForm(body, `{"dry_run":true}`, "dry_run")
	return result(f, f.truth("dry_run"))
}
