package otel

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/quotient-go/quotient"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// The events that Spans adds.
const (
	waitEvent    = "quotient.wait"
	refusalEvent = "quotient.refusal"
)

// Spans adds an event to the span of a context whose call a limiter has held back: "quotient.wait" for one that was
// admitted, or given up, after a wait, and "quotient.refusal" for one that was refused. Its attributes, where they are
// known, are
//
//	quotient.limiter        the name
//	quotient.rule           the rule that held the call back
//	quotient.unit           what that counts, if not requests
//	quotient.wait.duration  for how long, in seconds
//	quotient.reason         of a refusal, as in metrics
//	quotient.retry_after    of a refusal: when to come again, in seconds
//	error.type              as OpenTelemetry has it: quotient.LimitedError, context.Canceled, context.DeadlineExceeded
//
// Texts are cut at 256 bytes, and U+FFFD replaces what is not UTF-8. The span's status is the program's. A span that is
// not recorded costs nothing but the look at it, and no allocation. The zero value is ready, and safe for concurrent
// use.
type Spans struct {
	// Keys adds the attribute quotient.key. Keys may be personal, such as addresses and names, and traces are often
	// kept for long and shown to many.
	Keys bool
}

// Option returns the option for the limiter of a name: use it in Registry.Options, or in a call of Registry.Limiter. It
// sees the calls of Limiter.Acquire, and so those of Do, httplimit.Transport and waiting adapters; for calls without a
// context, see Refused.
func (s Spans) Option(name string) quotient.Option {
	return quotient.OnHeldBack(func(ctx context.Context, h quotient.HeldBack) {
		span := trace.SpanFromContext(ctx)
		if !span.IsRecording() {
			return
		}
		var limited *quotient.LimitedError
		if errors.As(h.Err, &limited) {
			s.refused(span, name, h.Key, limited.Decision, h.Waited)
			return
		}
		attrs := append(s.common(name, h.Key, h.Rule), seconds("quotient.wait.duration", h.Waited))
		switch {
		case h.Err == nil:
		case errors.Is(h.Err, context.DeadlineExceeded):
			attrs = append(attrs, attribute.String("error.type", "context.DeadlineExceeded"))
		default:
			attrs = append(attrs, attribute.String("error.type", "context.Canceled"))
		}
		span.AddEvent(waitEvent, trace.WithAttributes(attrs...))
	})
}

// Refused adds the event of a refusal that the program has from a call without a context, such as TryAcquire, or from
// httplimit.OnRefuse of a Middleware that lets no request wait. Nothing is added for a Decision that is OK.
func (s Spans) Refused(ctx context.Context, name, key string, d quotient.Decision) {
	if span := trace.SpanFromContext(ctx); !d.OK && span.IsRecording() {
		s.refused(span, name, key, d, 0)
	}
}

func (s Spans) refused(span trace.Span, name, key string, d quotient.Decision, waited time.Duration) {
	attrs := append(s.common(name, key, d.Rule), attribute.String("quotient.reason", d.Reason.String()),
		seconds("quotient.wait.duration", waited), attribute.String("error.type", "quotient.LimitedError"))
	if d.RetryAfter > 0 {
		attrs = append(attrs, seconds("quotient.retry_after", d.RetryAfter))
	}
	span.AddEvent(refusalEvent, trace.WithAttributes(attrs...))
}

// common are the attributes of all events.
func (s Spans) common(name, key string, r quotient.Rule) []attribute.KeyValue {
	attrs := make([]attribute.KeyValue, 0, 8)
	if attrs = append(attrs, text("quotient.limiter", name)); s.Keys {
		attrs = append(attrs, text("quotient.key", key))
	}
	if r.Name != "" {
		attrs = append(attrs, text("quotient.rule", r.Name))
	}
	if r.Unit != "" {
		attrs = append(attrs, text("quotient.unit", r.Unit))
	}
	return attrs
}

// longestText is the most bytes of a text: a stranger may choose the key.
const longestText = 256

// text is a text that every exporter takes: one that is not UTF-8 would cost OTLP the whole batch.
func text(name, value string) attribute.KeyValue {
	return attribute.String(name, strings.ToValidUTF8(value[:min(len(value), longestText)], "\uFFFD"))
}

func seconds(name string, d time.Duration) attribute.KeyValue {
	return attribute.Float64(name, d.Seconds())
}
