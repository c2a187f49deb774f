package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/policy"
)

// detailsOf is the rule and the time of a refusal, as its client reads them.
func detailsOf(err error) (rule string, wait time.Duration) {
	for _, detail := range status.Convert(err).Details() {
		switch d := detail.(type) {
		case *errdetails.RetryInfo:
			wait = d.GetRetryDelay().AsDuration()
		case *errdetails.QuotaFailure:
			rule = d.GetViolations()[0].GetSubject()
		}
	}
	return rule, wait
}

func TestServerRefuses(t *testing.T) {
	l := limiter(t, once)
	served := 0
	s := &service{
		unary:  func(context.Context) error { served++; return nil },
		duplex: func(pb.TestService_FullDuplexCallServer) error { served++; return nil },
	}
	client := connect(t, s, Server(l, FullMethod()))
	call := map[string]func() error{
		"unary": func() error { _, err := client.UnaryCall(deadline(t), &pb.SimpleRequest{}); return err },
		"stream": func() error {
			stream, err := client.FullDuplexCall(deadline(t))
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		},
	}
	for name, ask := range call {
		if err := ask(); err != nil && status.Code(err) != codes.Unknown { // io.EOF
			t.Fatalf("%s: %v", name, err)
		}
		err := ask()
		rule, wait := detailsOf(err)
		if status.Code(err) != codes.ResourceExhausted || rule != "interval" || wait < 59*time.Minute ||
			wait > time.Hour {
			t.Errorf("%s: %v with rule %q and a wait of %v", name, err, rule, wait)
		}
	}
	if served != 2 {
		t.Errorf("%d calls were served, want 2", served)
	}
}

func TestStatusOfARefusal(t *testing.T) {
	for _, tt := range []struct {
		err  quotient.LimitedError
		code codes.Code
		rule string
		wait time.Duration
	}{
		{quotient.LimitedError{Decision: quotient.Decision{Reason: quotient.ReasonRate, Rule: "minute",
			RetryAfter: 1500 * time.Millisecond}}, codes.ResourceExhausted, "minute",
			1500 * time.Millisecond},
		{quotient.LimitedError{Decision: quotient.Decision{Reason: quotient.ReasonInFlight,
			Rule: "in-flight"}}, codes.ResourceExhausted, "in-flight", unknownWait},
		{quotient.LimitedError{Decision: quotient.Decision{Reason: quotient.ReasonQueue, Rule: "minute",
			RetryAfter: time.Hour}}, codes.ResourceExhausted, "minute", time.Hour},
		{quotient.LimitedError{Decision: quotient.Decision{Reason: quotient.ReasonWait, Rule: "minute",
			RetryAfter: time.Hour}}, codes.ResourceExhausted, "minute", time.Hour},
		{quotient.LimitedError{Decision: quotient.Decision{Reason: quotient.ReasonDeadline, Rule: "minute",
			RetryAfter: time.Hour}}, codes.ResourceExhausted, "minute", time.Hour},
		{quotient.LimitedError{Decision: quotient.Decision{Reason: quotient.ReasonDenied}},
			codes.ResourceExhausted, "", 0},
		{quotient.LimitedError{Decision: quotient.Decision{Reason: quotient.ReasonTooLarge, Rule: "minute"}},
			codes.ResourceExhausted, "minute", 0},
		{quotient.LimitedError{Decision: quotient.Decision{Reason: quotient.ReasonShare, Rule: "in-flight"}},
			codes.Unavailable, "in-flight", unknownWait},
		{quotient.LimitedError{Decision: quotient.Decision{Reason: quotient.ReasonKeys}}, codes.Unavailable,
			"", unknownWait},
		{quotient.LimitedError{Decision: quotient.Decision{Reason: quotient.ReasonKeys, Rule: "minute",
			RetryAfter: time.Hour}}, codes.Unavailable, "minute", time.Hour},
		{quotient.LimitedError{Decision: quotient.Decision{Reason: quotient.ReasonPool}}, codes.Unavailable,
			"", unknownWait},
		{quotient.LimitedError{Decision: quotient.Decision{Reason: quotient.ReasonBadRequest}},
			codes.ResourceExhausted, "", 0},
		{quotient.LimitedError{Decision: quotient.Decision{Reason: quotient.ReasonRate, Rule: "minute",
			Unit: "\xff", RetryAfter: 1}}, codes.ResourceExhausted, "minute", 1},
		{quotient.LimitedError{Decision: quotient.Decision{Reason: quotient.ReasonRate,
			Rule: "not \xff UTF-8", RetryAfter: time.Second}}, codes.ResourceExhausted, "not \uFFFD UTF-8",
			time.Second},
	} {
		tt.err.Key = "a secret"
		err := errorOf(fmt.Errorf("wrapped: %w", &tt.err))
		rule, wait := detailsOf(err)
		if status.Code(err) != tt.code || rule != tt.rule || wait != tt.wait {
			t.Errorf("%v: %v with rule %q and a wait of %v; want %v, %q, %v", tt.err.Reason, err, rule, wait,
				tt.code, tt.rule, tt.wait)
		}
		var limited *quotient.LimitedError
		if !errors.As(err, &limited) || limited != &tt.err ||
			errors.Is(err, quotient.ErrLimited) != (tt.err.Reason != quotient.ReasonBadRequest) {
			t.Errorf("%v: the limiter's error is not in %v", tt.err.Reason, err)
		}
		s := status.Convert(err)
		if strings.Contains(s.String(), "secret") || strings.Contains(fmt.Sprint(s.Details()), "secret") {
			t.Errorf("the status %v names the key", s)
		}
		message := "the limit is reached: " + tt.err.Reason.String()
		if tt.rule != "" {
			message = fmt.Sprintf("the limit %q is reached: %v", tt.rule, tt.err.Reason)
		}
		if s.Message() != message {
			t.Errorf("the message is %q, want %q", s.Message(), message)
		}
	}
}

func TestContextsThatEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, oneSlot)
		held, _ := l.TryAcquire("m")
		ask := UnaryServer(l, FullMethod(), Wait(Forever))
		info := &grpc.UnaryServerInfo{FullMethod: "m"}
		never := func(context.Context, any) (any, error) { panic("served") }
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := ask(ctx, nil, info, never); status.Code(err) != codes.Canceled {
			t.Errorf("cancelled: %v", err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := ask(ctx, nil, info, never); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("too late: %v", err)
		}
		held.Release()
		idle(t, l)
	})
}

func TestServerPanicReleasesOnce(t *testing.T) {
	l, heard := learning(t)
	for name, ask := range map[string]func(){
		"unary": func() {
			_, _ = UnaryServer(l, FullMethod())(t.Context(), nil, &grpc.UnaryServerInfo{},
				func(context.Context, any) (any, error) { panic("a bug") })
		},
		"stream": func() {
			_ = StreamServer(l, FullMethod())(nil, contextOnly{ctx: t.Context()}, &grpc.StreamServerInfo{},
				func(any, grpc.ServerStream) error { panic("a bug") })
		},
	} {
		func() {
			defer func() {
				if got := recover(); got != "a bug" {
					t.Errorf("%s: recovered %v", name, got)
				}
			}()
			ask()
		}()
		heard.learned(t, policy.Feedback{Outcome: policy.Failed})
		idle(t, l)
	}
}

// contextOnly is a server's stream with nothing but a context.
type contextOnly struct {
	grpc.ServerStream
	ctx context.Context
}

func (s contextOnly) Context() context.Context { return s.ctx }

func TestServerStreamHoldsThePermit(t *testing.T) {
	l := limiter(t, oneSlot)
	s := &service{duplex: func(stream pb.TestService_FullDuplexCallServer) error {
		for {
			if _, err := stream.Recv(); err != nil {
				return nil // the client has closed its side
			}
			if err := stream.Send(&pb.StreamingOutputCallResponse{}); err != nil {
				return err
			}
		}
	}}
	client := connect(t, s, Server(l, FullMethod()))
	stream, err := client.FullDuplexCall(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := stream.Send(&pb.StreamingOutputCallRequest{}); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		inFlight(t, l, 1)
	}
	second, err := client.FullDuplexCall(deadline(t))
	if err == nil {
		_, err = second.Recv()
	}
	if rule, _ := detailsOf(err); rule != "in-flight" {
		t.Errorf("a second stream beside the first: %v", err)
	}
	_ = stream.CloseSend()
	if _, err := stream.Recv(); status.Code(err) != codes.Unknown { // io.EOF
		t.Errorf("the end is %v", err)
	}
	if got := l.Stats().Refused[quotient.ReasonInFlight]; got != 1 {
		t.Errorf("refused %d, want 1", got)
	}
	idle(t, l)
}

// with is a status with a time to wait.
func with(code codes.Code, wait time.Duration, message ...string) error {
	s, err := status.New(code, strings.Join(message, "")).WithDetails(&errdetails.ErrorInfo{},
		&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
	if err != nil {
		panic(err)
	}
	return s.Err()
}

func TestFeedback(t *testing.T) {
	throttled, unavailable := policy.Throttled, policy.Unavailable
	for _, tt := range []struct {
		err  error
		want policy.Feedback
	}{
		{nil, policy.Feedback{Outcome: policy.Success}},
		{errors.New("no status"), policy.Feedback{Outcome: policy.Success}},
		{status.Error(codes.NotFound, ""), policy.Feedback{Outcome: policy.Success}},
		{with(codes.NotFound, time.Second), policy.Feedback{Outcome: policy.Success}},
		{status.Error(codes.Canceled, ""), policy.Feedback{Outcome: policy.Failed}},
		{status.Error(codes.DeadlineExceeded, ""), policy.Feedback{Outcome: policy.Failed}},
		{status.Error(codes.ResourceExhausted, ""), policy.Feedback{Outcome: throttled}},
		{with(codes.ResourceExhausted, 1500*time.Millisecond),
			policy.Feedback{Outcome: throttled, RetryAfter: 1500 * time.Millisecond}},
		{with(codes.ResourceExhausted, -time.Second), policy.Feedback{Outcome: throttled}},
		{with(codes.ResourceExhausted, 1000*time.Hour),
			policy.Feedback{Outcome: throttled, RetryAfter: maxRetryAfter}},
		{context.DeadlineExceeded, policy.Feedback{Outcome: policy.Failed}},
		{fmt.Errorf("the handler: %w", context.Canceled), policy.Feedback{Outcome: policy.Failed}},
		{&quotient.LimitedError{Decision: quotient.Decision{Reason: quotient.ReasonRate}},
			policy.Feedback{Outcome: policy.Failed}},
		{status.Error(codes.ResourceExhausted, "trying to send message larger than max (104 vs. 10)"),
			policy.Feedback{Outcome: policy.Success}},
		{status.Error(codes.ResourceExhausted,
			"grpc: received message after decompression larger than max 10"),
			policy.Feedback{Outcome: policy.Success}},
		{with(codes.ResourceExhausted, time.Minute, "message larger than max"),
			policy.Feedback{Outcome: throttled, RetryAfter: time.Minute}},
		{with(codes.Unavailable, time.Minute),
			policy.Feedback{Outcome: unavailable, RetryAfter: time.Minute}},
	} {
		if got := feedbackOf(tt.err); got != tt.want {
			t.Errorf("%v: %+v, want %+v", tt.err, got, tt.want)
		}
	}
	bad, err := status.New(codes.ResourceExhausted,
		"").WithDetails(&errdetails.RetryInfo{RetryDelay: &durationpb.Duration{Seconds: 1 << 62}})
	if err != nil {
		t.Fatal(err)
	}
	if got := feedbackOf(bad.Err()); got != (policy.Feedback{Outcome: throttled}) {
		t.Errorf("a time that is none: %+v", got)
	}
}

func TestServerFeedback(t *testing.T) {
	l, heard := learning(t)
	client := connect(t, &service{unary: func(context.Context) error {
		return with(codes.ResourceExhausted, time.Minute)
	}}, Server(l, FullMethod()))
	_, err := client.UnaryCall(deadline(t), &pb.SimpleRequest{})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("the handler's own error came as %v", err)
	}
	idle(t, l)
	heard.learned(t, policy.Feedback{Outcome: policy.Throttled, RetryAfter: time.Minute})
}

func TestKeys(t *testing.T) {
	in := metadata.NewIncomingContext(t.Context(), metadata.Pairs("token", "in", "token", "second"))
	out := metadata.NewOutgoingContext(in, metadata.Pairs("token", "out"))
	addr := func(text string) context.Context {
		a, err := net.ResolveTCPAddr("tcp", text)
		if err != nil {
			t.Fatal(err)
		}
		return peer.NewContext(t.Context(), &peer.Peer{Addr: a})
	}
	unix := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.UnixAddr{Name: "/s"}})
	for _, tt := range []struct {
		name string
		key  KeyFunc
		call Call
		want string
	}{
		{"method", FullMethod(), Call{in, "/p.S/M", ""}, "/p.S/M"},
		{"target of a client", Target(), Call{out, "/p.S/M", "dns:///h:1"}, "dns:///h:1"},
		{"target on a server", Target(), Call{in, "/p.S/M", ""}, ""},
		{"metadata that came", Metadata("Token"), Call{in, "", ""}, "in"},
		{"metadata that is sent", Metadata("Token"), Call{out, "", "t"}, "out"},
		{"only what is sent", Metadata("Token"), Call{in, "", "t"}, ""},
		{"no metadata", Metadata("Token"), Call{t.Context(), "", ""}, ""},
		{"IPv4", Peer(), Call{addr("203.0.113.9:5"), "", ""}, "203.0.113.9"},
		{"IPv4 in IPv6", Peer(), Call{addr("[::ffff:203.0.113.9]:5"), "", ""}, "203.0.113.9"},
		{"IPv6", Peer(), Call{addr("[2001:db8::1]:5"), "", ""}, "2001:db8::/64"},
		{"Unix socket", Peer(), Call{unix, "", ""}, "(no address)"},
		{"no peer", Peer(), Call{t.Context(), "", ""}, "(no address)"},
		{"peer of a client", Peer(), Call{addr("203.0.113.9:5"), "", "t"}, "(no address)"},
	} {
		if got := tt.key(tt.call); got != tt.want {
			t.Errorf("%s: key %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestKeysOfCalls(t *testing.T) {
	server, behindIt := limiter(t, oneSlot), limiter(t, oneSlot)
	long := strings.Repeat("x", 1000)
	client := connect(t, &service{}, Server(server, FullMethod()),
		Client(behindIt, func(c Call) string { return c.Target + long })...)
	if _, err := client.UnaryCall(deadline(t), &pb.SimpleRequest{}); err != nil {
		t.Fatal(err)
	}
	var keys []string
	for state := range server.Keys() {
		key := state.Key
		keys = append(keys, key)
	}
	for state := range behindIt.Keys() {
		key := state.Key
		keys = append(keys, key[:7])
	}
	if want := []string{"/grpc.testing.TestService/UnaryCall", "sha256:"}; !slices.Equal(keys, want) {
		t.Errorf("keys %q, want %q", keys, want)
	}
}

func TestMistakesPanicAtOnce(t *testing.T) {
	l := limiter(t, oneSlot)
	for _, mistake := range []func(){
		func() { UnaryServer(nil, FullMethod()) }, func() { UnaryServer(l, nil) },
		func() { StreamServer(nil, FullMethod()) }, func() { StreamServer(l, nil) },
		func() { UnaryClient(nil, FullMethod()) }, func() { UnaryClient(l, nil) },
		func() { StreamClient(nil, FullMethod()) }, func() { StreamClient(l, nil) },
	} {
		func() {
			defer func() {
				if text := fmt.Sprint(recover()); !strings.Contains(text, "nil") {
					t.Errorf("panic %s", text)
				}
			}()
			mistake()
		}()
	}
}
