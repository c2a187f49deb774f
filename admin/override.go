package admin

import (
	"encoding/base64"
	"log/slog"
	"strconv"

	"github.com/quotient-go/quotient"
)

// override is what PUT /override asks for: a limit of the key's own, or none.
type override struct {
	key   string
	limit *quotient.Limit
}

func parseOverride(body []byte) (change, *Problem) {
	v, bad := readOverride(body)
	return change{what: "override set", field: "key", show: v.show, apply: v.apply, try: v.try}, bad
}

// readOverride reads {"key":"K","limit":{...}}; the limit may be null: none. Both must be there; "key_base64"
// may stand in place of "key".
func readOverride(body []byte) (override, *Problem) {
	f := readForm(body, `{"key":"K","limit":{"rates":[{"events":100,"per_seconds":1}]}}`, "key", "key_base64", "limit")
	v := override{key: readKey(&f)}
	v.limit = readLimitOrNull(&f)
	return result(f, v)
}

// readLimitOrNull reads "limit", nil for null. It must be there.
func readLimitOrNull(f *form) *quotient.Limit {
	switch {
	case !f.has("limit"):
		f.wrong("limit", "", "a limit, or null for none")
		return nil
	case f.null("limit"):
		return nil
	}
	inner := f.object("limit", limitFields...)
	limit := readLimit(&inner)
	return &limit
}

// readKey reads exactly one of "key" and "key_base64", which also carries keys that are not UTF-8.
func readKey(f *form) string {
	if !f.has("key_base64") {
		return f.text("key", longestKey)
	}
	text := f.text("key_base64", base64.StdEncoding.EncodedLen(longestKey))
	key, ok := fromBase64(text)
	switch {
	case f.has("key"):
		f.wrong("key_base64", "there is a key already", "one of key and key_base64")
	case !ok:
		f.wrong("key_base64", "not a key in base64", keyRange)
	}
	return key
}

func (v override) apply(l *quotient.Limiter) error { return l.Override(v.key, v.limit) }

// show is the override of the key for the log.
func (v override) show(l *quotient.Limiter) slog.Value {
	e := l.Explain(v.key)
	value := slog.StringValue("none")
	if e.Overridden {
		value = limitValue(e.Limit)
	}
	return slog.GroupValue(slog.String("key", strconv.QuoteToASCII(v.key)), slog.Attr{Key: "limit", Value: value})
}
