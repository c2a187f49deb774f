package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/quotient-go/quotient"
)

// received is the error of a call whose server answers with these details.
func received(t testing.TB, code codes.Code, details ...protoadapt.MessageV1) error {
	t.Helper()
	s, err := status.New(code, "no").WithDetails(details...)
	if err != nil {
		t.Fatal(err)
	}
	return s.Err()
}

// ofRate is what a server's status says of a rate.
func ofRate() *errdetails.ErrorInfo { return &errdetails.ErrorInfo{Reason: "RATE", Domain: Domain} }

func ruled(subjects ...string) *errdetails.QuotaFailure {
	q := &errdetails.QuotaFailure{}
	for _, s := range subjects {
		q.Violations = append(q.Violations, &errdetails.QuotaFailure_Violation{Subject: s})
	}
	return q
}

func again(wait time.Duration) *errdetails.RetryInfo {
	return &errdetails.RetryInfo{RetryDelay: durationpb.New(wait)}
}

// A refusal reads the same whether a limiter of this process refused or that of the server did.
func TestRefusedHereAndThere(t *testing.T) {
	rate := quotient.Decision{
		Reason: quotient.ReasonRate, Rule: "minute", Unit: "tokens", Limit: 100, Share: 100. / 3,
		Window: time.Minute, RetryAfter: 1234567891,
	}
	for _, tt := range []struct {
		d    quotient.Decision
		want time.Duration
	}{
		{rate, rate.RetryAfter},
		{quotient.Decision{Reason: quotient.ReasonInFlight, Rule: "in-flight", Limit: 5, Share: 2},
			unknownWait},
		{quotient.Decision{Reason: quotient.ReasonShare, Rule: "in-flight", Limit: 1}, unknownWait},
		{quotient.Decision{Reason: quotient.ReasonKeys, Rule: "hour", Limit: 1, Share: 1, Window: time.Hour},
			unknownWait},
		{quotient.Decision{Reason: quotient.ReasonPool}, unknownWait},
		{quotient.Decision{Reason: quotient.ReasonQueue}, unknownWait},
		{quotient.Decision{Reason: quotient.ReasonWait}, unknownWait},
		{quotient.Decision{Reason: quotient.ReasonDeadline, Rule: "hour", RetryAfter: time.Hour}, time.Hour},
		{quotient.Decision{Reason: quotient.ReasonDenied}, 0},
		{quotient.Decision{Reason: quotient.ReasonTooLarge, Rule: "minute"}, 0},
		{quotient.Decision{Reason: quotient.ReasonBadRequest}, 0},
	} {
		here := errorOf(&quotient.LimitedError{Key: "k", Decision: tt.d})
		there := status.Convert(here).Err()
		tt.d.RetryAfter = tt.want
		for end, err := range map[string]error{
			"here": here, "there": there, "wrapped here": fmt.Errorf("get: %w", here),
			"wrapped there": fmt.Errorf("get: %w", there),
		} {
			want := tt.d
			if strings.HasSuffix(end, "there") {
				want.Unit, want.Limit, want.Share, want.Window = "", 0, 0, 0
			}
			if got, ok := Refused(err); !ok || got != want {
				t.Errorf("%s: %+v, %v\nwant %+v", end, got, ok, want)
			}
		}
	}
}

// A server of another version, or not of ours, may send these.
func TestRefusedByStrangers(t *testing.T) {
	rate := quotient.Decision{Reason: quotient.ReasonRate}
	with := func(change func(*quotient.Decision)) quotient.Decision {
		d := quotient.Decision{
			Reason: quotient.ReasonRate, Rule: "r",
		}
		change(&d)
		return d
	}
	whole := with(func(*quotient.Decision) {})
	for name, tt := range map[string]struct {
		details []protoadapt.MessageV1
		want    quotient.Decision // of no reason: unknown
	}{
		"whole": {[]protoadapt.MessageV1{ofRate(), ruled("r")}, whole},
		"in another order": {[]protoadapt.MessageV1{again(time.Second), ruled("r"), ofRate()},
			with(func(d *quotient.Decision) { d.RetryAfter = time.Second })},
		"beside others": {[]protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: "X",
			Domain: "googleapis.com"}, &errdetails.Help{}, ofRate(), ruled("r")}, whole},
		"two refusals": {[]protoadapt.MessageV1{ofRate(), ruled("r", "s"),
			&errdetails.ErrorInfo{Reason: "KEYS", Domain: Domain}, ruled("q")}, whole},
		"no rule":      {[]protoadapt.MessageV1{ofRate()}, rate},
		"no violation": {[]protoadapt.MessageV1{ofRate(), ruled()}, rate},
		"an empty one": {[]protoadapt.MessageV1{ofRate(), ruled("", "r")}, whole},
		"a new reason": {[]protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: "MOON", Domain: Domain},
			again(time.Second)}, quotient.Decision{RetryAfter: time.Second}},
		"no reason": {[]protoadapt.MessageV1{&errdetails.ErrorInfo{Domain: Domain}}, quotient.Decision{}},
		"the reason none": {[]protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: "NONE", Domain: Domain}},
			quotient.Decision{}},
		"invalid": {[]protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: "INVALID",
			Domain: Domain}}, quotient.Decision{}},
		"a long wait": {[]protoadapt.MessageV1{ofRate(), ruled("r"), again(1000 * time.Hour)},
			with(func(d *quotient.Decision) { d.RetryAfter = maxRetryAfter })},
		"a wait before now": {[]protoadapt.MessageV1{ofRate(), ruled("r"), again(-time.Hour)}, whole},
		"a wait that is none": {
			[]protoadapt.MessageV1{ofRate(), ruled("r"),
				&errdetails.RetryInfo{RetryDelay: &durationpb.Duration{Seconds: 1 << 62}}}, whole,
		},
		"a forged line": {[]protoadapt.MessageV1{ofRate(), ruled("r\n2026 level=ERROR \x1b[31m\u202e")},
			with(func(d *quotient.Decision) { d.Rule = "r2026 level=ERROR [31m" })},
		"long texts": {
			[]protoadapt.MessageV1{ofRate(), ruled("x" + strings.Repeat("ü", 1000))},
			with(func(d *quotient.Decision) {
				d.Rule = "x" + strings.Repeat("ü", 63)
			}),
		},
	} {
		for _, code := range []codes.Code{codes.ResourceExhausted, codes.Unavailable, codes.Code(99)} {
			if got, ok := Refused(received(t, code, tt.details...)); !ok || got != tt.want {
				t.Errorf("%s: %+v, %v\nwant %+v", name, got, ok, tt.want)
			}
		}
	}
}

func TestNotRefused(t *testing.T) {
	var none *quotient.LimitedError
	for name, err := range map[string]error{
		"nil":           nil,
		"no refusal":    none,
		"another error": errors.New("the limit is reached: rate"),
		"no details":    status.Error(codes.ResourceExhausted, "the limit is reached: rate"),
		"another domain": received(t, codes.ResourceExhausted,
			&errdetails.ErrorInfo{Reason: "RATE", Domain: "example.com"}, ruled("r"), again(1)),
		"without ErrorInfo": received(t, codes.ResourceExhausted, ruled("r"), again(1)),
	} {
		if d, ok := Refused(err); ok || d != (quotient.Decision{}) {
			t.Errorf("%s: %+v, %v", name, d, ok)
		}
	}
}

// Over a real connection the decision arrives.
func TestRefusedOverAConnection(t *testing.T) {
	tenants := quotient.Rates(quotient.Rate{Name: "tenant", Events: 8, Per: time.Hour, Burst: 4})
	client := connect(t, &service{}, Server(limiter(t, tenants, quotient.Replicas(4)), FullMethod()))
	_ = unary(deadline(t), client)
	err := unary(deadline(t), client)
	d, ok := Refused(err)
	wait := d.RetryAfter
	d.RetryAfter = 0
	want := quotient.Decision{Reason: quotient.ReasonRate, Rule: "tenant"}
	if !ok || d != want || wait < 29*time.Minute || wait > 30*time.Minute {
		t.Errorf("%v: %+v in %v, %v; want %+v", err, d, wait, ok, want)
	}
	if text, want := status.Convert(err).Message(), `the limit "tenant" is reached: rate`; text != want {
		t.Errorf("the message is %q, want %q", text, want)
	}
}

// Not even an interceptor in front that wraps the refusal sends the key: gRPC makes the error's text the
// message.
func TestKeyIsNotSent(t *testing.T) {
	wraps := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo,
		next grpc.UnaryHandler) (any, error) {
		if _, err := next(ctx, req); err != nil {
			return nil, fmt.Errorf("in front: %w", err)
		}
		return nil, nil
	}
	key := func(Call) string { return "a secret" }
	options := append([]grpc.ServerOption{grpc.ChainUnaryInterceptor(wraps)},
		Server(limiter(t, quotient.Limit{Deny: true}), key)...)
	err := unary(deadline(t), connect(t, &service{}, options))
	if d, ok := Refused(err); !ok || d.Reason != quotient.ReasonDenied {
		t.Errorf("%v: %+v, %v", err, d, ok)
	}
	if got, want := status.Convert(err).Message(), "in front: quotient: refused: denied"; got != want {
		t.Errorf("the message is %q, want %q", got, want)
	}
}

func FuzzRefused(f *testing.F) {
	f.Fuzz(func(t *testing.T, raw []byte) {
		p := &spb.Status{}
		if proto.Unmarshal(raw, p) != nil || p.GetCode() == 0 {
			return // no status of an error
		}
		d, ok := Refused(status.FromProto(p).Err())
		if !ok {
			if d != (quotient.Decision{}) {
				t.Fatalf("no refusal is %+v", d)
			}
			return
		}
		if d.OK || d.Limit != 0 || d.Share != 0 || d.Window != 0 || d.Unit != "" || d.RetryAfter < 0 ||
			d.RetryAfter > 24*time.Hour || d.Reason.String() == "invalid" {
			t.Fatalf("%+v", d)
		}
		if !utf8.ValidString(d.Rule) || len(d.Rule) > 128 || strings.ContainsFunc(d.Rule, unicode.IsControl) {
			t.Fatalf("rule %q", d.Rule)
		}
		_ = d.String()
		d.RetryAfter = waitOf(&quotient.LimitedError{Decision: d})
		sent := statusOf(&quotient.LimitedError{Decision: d})
		if got, ok := Refused(sent.Err()); !ok || got != d {
			t.Fatalf("%+v, sent again, is %+v, %v", d, got, ok)
		}
	})
}

// A server may pass on the refusal of another one.
func TestRefusedBehindTheServer(t *testing.T) {
	far := connect(t, &service{}, Server(limiter(t, quotient.Limit{Deny: true}), FullMethod()))
	near := &service{duplex: func(pb.TestService_FullDuplexCallServer) error {
		return unary(deadline(t), far)
	}}
	_, err := duplex(deadline(t), connect(t, near, nil))
	if d, ok := Refused(err); !ok || d.Reason != quotient.ReasonDenied {
		t.Errorf("%v: %+v, %v", err, d, ok)
	}
}
