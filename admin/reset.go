package admin

import (
	"errors"
	"log/slog"
	"math"
	"strconv"

	"github.com/quotient-go/quotient"
)

// keyReset is what PUT /reset asks for: the key starts fresh.
type keyReset struct{ key string }

func parseReset(body []byte) (change, *Problem) {
	v, bad := readReset(body)
	return change{what: "key reset", field: "key", show: v.show, apply: v.apply, try: v.try}, bad
}

// readReset reads {"key":"K"}; "key_base64" may stand in place of "key".
func readReset(body []byte) (keyReset, *Problem) {
	f := readForm(body, `{"key":"K"}`, "key", "key_base64")
	return result(f, keyReset{key: readKey(&f)})
}

// apply leaves a key as it is that is not remembered, for it starts fresh when it comes. A key that shares a
// gate does not.
func (v keyReset) apply(l *quotient.Limiter) error {
	if !l.Reset(v.key) && l.Explain(v.key).Overflow {
		return errShares
	}
	return nil
}

var errShares = errors.New("MaxKeys keys are busy: the key shares one limit with others, " +
	"which would start fresh with it")

// try returns the error that apply would return, and changes nothing.
func (v keyReset) try(l *quotient.Limiter) error {
	if l.Explain(v.key).Overflow {
		return errShares
	}
	return nil
}

// show is where the key stands, for the log.
func (v keyReset) show(l *quotient.Limiter) slog.Value {
	e := l.Explain(v.key)
	return slog.GroupValue(slog.String("key", strconv.QuoteToASCII(v.key)), slog.Bool("remembered", e.Remembered),
		slog.Float64("used", math.Round(1000*finite(e.Used))/1000), slog.Int("waiting", e.Waiting), slog.Int("in_flight", e.InFlight))
}
