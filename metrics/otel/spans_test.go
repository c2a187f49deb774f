package otel_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/metrics/otel"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	api "go.opentelemetry.io/otel/trace"
)

// traced is a context with a span, and what returns its events.
func traced(ctx context.Context, sampler trace.Sampler) (in context.Context, events func() []string) {
	exporter := tracetest.NewInMemoryExporter()
	tracer := trace.NewTracerProvider(trace.WithSyncer(exporter), trace.WithSampler(sampler)).Tracer("test")
	in, span := tracer.Start(ctx, "work")
	return in, func() (all []string) {
		span.End()
		for _, s := range exporter.GetSpans() {
			for _, e := range s.Events {
				var attrs []string
				for _, kv := range e.Attributes {
					attrs = append(attrs, fmt.Sprintf("%s=%s", kv.Key, kv.Value.String()))
				}
				slices.Sort(attrs)
				all = append(all, e.Name+" "+strings.Join(attrs, " "))
			}
		}
		return all
	}
}

// TestSpans: a call that was held back is one event of its span, with what is known of it, and with its key only if the
// program wants that.
func TestSpans(t *testing.T) {
	tokens := quotient.Rate{Name: "tokens", Unit: "tokens", Events: 1, Per: time.Second}
	slot := quotient.Limit{InFlight: 1}
	for _, c := range []struct {
		name  string
		spans otel.Spans
		limit quotient.Limit
		opts  []quotient.Option
		most  time.Duration // of the context
		want  string        // "": no event
	}{
		{"admitted at once", otel.Spans{}, quotient.Rates(quotient.PerSecond(2)), nil, 0, ""},
		{"a wait", otel.Spans{}, quotient.Rates(quotient.PerSecond(1)), nil, 0,
			"quotient.wait quotient.limiter=api quotient.rule=second quotient.wait.duration=1"},
		{"a wait for another unit, with the key", otel.Spans{Keys: true}, quotient.Rates(tokens), nil, 0,
			"quotient.wait quotient.key=k quotient.limiter=api quotient.rule=tokens quotient.unit=tokens quotient.wait.duration=1"},
		{"a wait that was given up", otel.Spans{}, slot, nil, 2 * time.Second,
			"quotient.wait error.type=context.DeadlineExceeded quotient.limiter=api quotient.rule=in-flight " +
				"quotient.wait.duration=2"},
		{"a refusal", otel.Spans{}, quotient.Rates(quotient.PerSecond(1)), []quotient.Option{quotient.MaxWait(1)}, 0,
			"quotient.refusal error.type=quotient.LimitedError quotient.limiter=api quotient.reason=max_wait " +
				"quotient.retry_after=1 quotient.rule=second quotient.wait.duration=0"},
		{"denied", otel.Spans{Keys: true}, quotient.Limit{Deny: true}, nil, 0,
			"quotient.refusal error.type=quotient.LimitedError quotient.key=k quotient.limiter=api quotient.reason=denied " +
				"quotient.wait.duration=0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := must(new(quotient.Registry).Limiter("api", c.limit, append(c.opts, c.spans.Option("api"))...))
				var opts []quotient.CallOption
				if strings.Contains(c.want, "unit") {
					opts = append(opts, quotient.Cost("tokens", 1))
				}
				_, _ = l.TryAcquire("k", opts...)
				ctx, events := traced(t.Context(), trace.AlwaysSample())
				if c.most > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.most)
					defer cancel()
				}
				_, _ = l.Acquire(ctx, "k", opts...)
				if got := strings.Join(events(), "\n"); got != c.want {
					t.Errorf("got\n%s, want\n%s", got, c.want)
				}
			})
		})
	}
}

// TestRefusedSpans: a refusal of a call without a context, for a key that is long and no text.
func TestRefusedSpans(t *testing.T) {
	l := must(quotient.New(quotient.Limit{Deny: true}))
	ctx, events := traced(t.Context(), trace.AlwaysSample())
	long := strings.Repeat("k", 255)
	otel.Spans{Keys: true}.Refused(ctx, "api", long+"\xffmore", l.Check("k"))
	otel.Spans{}.Refused(ctx, "api", "k", quotient.Decision{OK: true})
	want := "quotient.refusal error.type=quotient.LimitedError quotient.key=" + long + "\uFFFD " +
		"quotient.limiter=api quotient.reason=denied quotient.wait.duration=0"
	if got := strings.Join(events(), "\n"); got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
}

// TestSpansThatAreNotRecorded have no events, and cost no allocation: a call takes as many as without the option.
func TestSpansThatAreNotRecorded(t *testing.T) {
	limit := quotient.Limit{Deny: true}
	plain := must(quotient.New(limit))
	with := must(quotient.New(limit, otel.Spans{Keys: true}.Option("api")))
	dropped, events := traced(t.Context(), trace.NeverSample())
	remote := api.ContextWithRemoteSpanContext(t.Context(), api.SpanContextFromContext(dropped))
	for name, ctx := range map[string]context.Context{"no span": t.Context(), "dropped": dropped, "remote": remote} {
		want := testing.AllocsPerRun(1000, func() { _, _ = plain.Acquire(ctx, "k") })
		if n := testing.AllocsPerRun(1000, func() { _, _ = with.Acquire(ctx, "k") }); n != want {
			t.Errorf("%s: %v allocations, %v without the option", name, n, want)
		}
		d := plain.Check("k")
		if n := testing.AllocsPerRun(1000, func() { otel.Spans{}.Refused(ctx, "api", "k", d) }); n != 0 {
			t.Errorf("%s: %v allocations of Refused", name, n)
		}
	}
	if got := events(); got != nil {
		t.Errorf("events %q", got)
	}
}

func ExampleSpans() {
	exporter := tracetest.NewInMemoryExporter()
	tracer := trace.NewTracerProvider(trace.WithSyncer(exporter)).Tracer("example")
	var limiters quotient.Registry
	limit := quotient.Limit{Deny: true}
	traced := otel.Spans{}
	api, err := limiters.Limiter("api", limit, traced.Option("api"))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, span := tracer.Start(context.Background(), "work")
	_, err = api.Acquire(ctx, "alice")
	span.End()
	fmt.Println(err)
	for _, event := range exporter.GetSpans()[0].Events {
		fmt.Println(event.Name)
	}
	// Output:
	// quotient: "alice" refused: denied
	// quotient.refusal
}
