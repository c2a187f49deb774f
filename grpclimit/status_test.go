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
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
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

// infoOf is the ErrorInfo of a refusal, as its client reads it.
func infoOf(err error) *errdetails.ErrorInfo {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return info
		}
	}
	return nil
}

// refusedBy fails unless a call was refused for a reason by a rule, as its client reads it.
func refusedBy(t *testing.T, err error, reason quotient.Reason, rule string) {
	t.Helper()
	got, _ := detailsOf(err)
	why := infoOf(err).GetReason()
	if status.Code(err) != exhausted || got != rule || why != strings.ToUpper(reason.String()) {
		t.Errorf("%v by the rule %q, want %v by %q", err, got, reason, rule)
	}
}

// The status of a refusal has its code, its rule, its time and its reason, and not the key. It reads the same
// whether a limiter of this process refused or that of the server did.
func TestStatusOfARefusal(t *testing.T) {
	of := func(reason quotient.Reason, rule string, wait time.Duration) quotient.Decision {
		return quotient.Decision{Reason: reason, Rule: quotient.Rule{Name: rule}, RetryAfter: wait}
	}
	rate := quotient.Decision{Reason: quotient.ReasonRate, RetryAfter: 1234567891, Rule: quotient.Rule{
		Name: "minute", Unit: "tokens", Limit: 100, Share: 100. / 3, Window: time.Minute}}
	slots := quotient.Decision{Reason: quotient.ReasonInFlight, Rule: quotient.Rule{Name: "in-flight", Limit: 5, Share: 2}}
	for _, tt := range []struct {
		d    quotient.Decision
		code codes.Code
		wait time.Duration
	}{
		{rate, exhausted, rate.RetryAfter},
		{slots, exhausted, unknownWait},
		{of(quotient.ReasonQueue, "", 0), exhausted, unknownWait},
		{of(quotient.ReasonWait, "minute", time.Hour), exhausted, time.Hour},
		{of(quotient.ReasonDeadline, "minute", time.Hour), exhausted, time.Hour},
		{of(quotient.ReasonDenied, "", 0), exhausted, 0},
		{of(quotient.ReasonTooLarge, "minute", 0), exhausted, 0},
		{of(quotient.ReasonBadRequest, "", 0), exhausted, 0},
		{of(quotient.ReasonShare, "in-flight", 0), codes.Unavailable, unknownWait},
		{of(quotient.ReasonKeys, "minute", time.Hour), codes.Unavailable, time.Hour},
		{of(quotient.ReasonPool, "", 0), codes.Unavailable, unknownWait},
		{quotient.Decision{Reason: quotient.ReasonRate, Rule: quotient.Rule{Name: "minute", Unit: "\xff"}, RetryAfter: 1},
			exhausted, 1},
		{of(quotient.ReasonRate, "not \xff UTF-8", time.Second), exhausted, time.Second},
	} {
		refused := &quotient.LimitedError{Key: "a secret", Decision: tt.d}
		err := errorOf(fmt.Errorf("wrapped: %w", refused))
		s, valid := status.Convert(err), strings.ToValidUTF8(tt.d.Rule.Name, "\uFFFD")
		rule, wait := detailsOf(err)
		if s.Code() != tt.code || rule != valid || wait != tt.wait {
			t.Errorf("%+v: %v with rule %q and a wait of %v; want %v, %v", tt.d, err, rule, wait, tt.code, tt.wait)
		}
		info := infoOf(err)
		if info.GetReason() != strings.ToUpper(tt.d.Reason.String()) || info.GetDomain() != Domain {
			t.Errorf("the status says %v, want %v of %s", info, tt.d.Reason, Domain)
		}
		var limited *quotient.LimitedError
		if !errors.As(err, &limited) || limited != refused ||
			errors.Is(err, quotient.ErrLimited) != (tt.d.Reason != quotient.ReasonBadRequest) {
			t.Errorf("%v: the limiter's error is not in %v", tt.d.Reason, err)
		}
		if strings.Contains(s.String(), "secret") || strings.Contains(fmt.Sprint(s.Details()), "secret") {
			t.Errorf("the status %v names the key", s)
		}
		message := "the limit is reached: " + tt.d.Reason.String()
		if rule != "" {
			message = fmt.Sprintf("the limit %q is reached: %v", rule, tt.d.Reason)
		}
		if s.Message() != message {
			t.Errorf("the message is %q, want %q", s.Message(), message)
		}
		here := tt.d
		here.RetryAfter = tt.wait
		there := quotient.Decision{Reason: here.Reason, Rule: quotient.Rule{Name: valid}, RetryAfter: here.RetryAfter}
		for err, want := range map[error]quotient.Decision{
			err: here, fmt.Errorf("get: %w", err): here, s.Err(): there, fmt.Errorf("get: %w", s.Err()): there,
		} {
			if want == there {
				want.Rule.Name = cut(valid)
			}
			if got, ok := Refused(err); !ok || got != want {
				t.Errorf("%v: %+v, %v\nwant %+v", err, got, ok, want)
			}
		}
	}
}

func TestFeedback(t *testing.T) {
	heard := func(o policy.Outcome, wait time.Duration) policy.Feedback {
		return policy.Feedback{Outcome: o, RetryAfter: wait}
	}
	for _, tt := range []struct {
		err  error
		want policy.Feedback
	}{
		{nil, heard(policy.Success, 0)},
		{errors.New("no status"), heard(policy.Success, 0)},
		{with(codes.NotFound, time.Second), heard(policy.Success, 0)},
		{status.Error(codes.Canceled, ""), heard(policy.Failed, 0)},
		{status.Error(codes.DeadlineExceeded, ""), heard(policy.Failed, 0)},
		{status.Error(exhausted, ""), heard(policy.Throttled, 0)},
		{with(exhausted, 1500*time.Millisecond), heard(policy.Throttled, 1500*time.Millisecond)},
		{with(exhausted, -time.Second), heard(policy.Throttled, 0)},
		{with(exhausted, 1000*time.Hour), heard(policy.Throttled, maxRetryAfter)},
		{context.DeadlineExceeded, heard(policy.Failed, 0)},
		{fmt.Errorf("the handler: %w", context.Canceled), heard(policy.Failed, 0)},
		{&quotient.LimitedError{Decision: quotient.Decision{Reason: quotient.ReasonRate}},
			heard(policy.Failed, 0)},
		{status.Error(exhausted, "trying to send message larger than max (104 vs. 10)"),
			heard(policy.Success, 0)},
		{status.Error(exhausted, "grpc: received message after decompression larger than max 10"),
			heard(policy.Success, 0)},
		{with(exhausted, time.Minute, "message larger than max"), heard(policy.Throttled, time.Minute)},
		{with(codes.Unavailable, time.Minute), heard(policy.Unavailable, time.Minute)},
	} {
		if got := feedbackOf(tt.err); got != tt.want {
			t.Errorf("%v: %+v, want %+v", tt.err, got, tt.want)
		}
	}
	never := &errdetails.RetryInfo{RetryDelay: &durationpb.Duration{Seconds: 1 << 62}}
	if got := feedbackOf(received(t, exhausted, never)); got != heard(policy.Throttled, 0) {
		t.Errorf("a time that is none: %+v", got)
	}
}

// received is the error of a call whose server answers with these details.
func received(t testing.TB, code codes.Code, details ...protoadapt.MessageV1) error {
	t.Helper()
	s, err := status.New(code, "no").WithDetails(details...)
	if err != nil {
		t.Fatal(err)
	}
	return s.Err()
}

func says(reason string) *errdetails.ErrorInfo {
	return &errdetails.ErrorInfo{Reason: reason, Domain: Domain}
}

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

// is are the details of a status.
type is = []protoadapt.MessageV1

// stranger is a status that a server of another version, or not of ours, may send, and the decision in it.
type stranger struct {
	details is
	want    quotient.Decision // of no reason: unknown
}

func strangers() map[string]stranger {
	of := func(rule string, wait time.Duration) quotient.Decision {
		return quotient.Decision{Reason: quotient.ReasonRate, Rule: quotient.Rule{Name: rule}, RetryAfter: wait}
	}
	rate, other := says("RATE"), &errdetails.ErrorInfo{Reason: "X", Domain: "googleapis.com"}
	never := &errdetails.RetryInfo{RetryDelay: &durationpb.Duration{Seconds: 1 << 62}}
	forged := ruled("r\n2026 level=ERROR \x1b[31m\u202e")
	return map[string]stranger{
		"whole":               {is{rate, ruled("r")}, of("r", 0)},
		"in another order":    {is{again(time.Second), ruled("r"), rate}, of("r", time.Second)},
		"beside others":       {is{other, &errdetails.Help{}, rate, ruled("r")}, of("r", 0)},
		"two refusals":        {is{rate, ruled("r", "s"), says("KEYS"), ruled("q")}, of("r", 0)},
		"no rule":             {is{rate}, of("", 0)},
		"no violation":        {is{rate, ruled()}, of("", 0)},
		"an empty one":        {is{rate, ruled("", "r")}, of("r", 0)},
		"a new reason":        {is{says("MOON"), again(time.Second)}, quotient.Decision{RetryAfter: time.Second}},
		"no reason":           {is{says("")}, quotient.Decision{}},
		"the reason none":     {is{says("NONE")}, quotient.Decision{}},
		"invalid":             {is{says("INVALID")}, quotient.Decision{}},
		"a long wait":         {is{rate, ruled("r"), again(1000 * time.Hour)}, of("r", maxRetryAfter)},
		"a wait before now":   {is{rate, ruled("r"), again(-time.Hour)}, of("r", 0)},
		"a wait that is none": {is{rate, ruled("r"), never}, of("r", 0)},
		"a forged line":       {is{rate, forged}, of("r2026 level=ERROR [31m", 0)},
		"long texts":          {is{rate, ruled("x" + strings.Repeat("ü", 1000))}, of("x"+strings.Repeat("ü", 63), 0)},
	}
}

func TestRefusedByStrangers(t *testing.T) {
	for name, tt := range strangers() {
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
	f.Add([]byte("\x08\x08\x1a\xff\xff\xff"))
	for _, s := range strangers() {
		for _, code := range []codes.Code{exhausted, codes.Code(1<<32 - 1)} {
			raw, err := proto.Marshal(status.Convert(received(f, code, s.details...)).Proto())
			if err != nil {
				f.Fatal(err)
			}
			f.Add(raw)
			f.Add(raw[:len(raw)-3]) // broken
		}
	}
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
		if !utf8.ValidString(d.Rule.Name) || len(d.Rule.Name) > 128 || strings.ContainsFunc(d.Rule.Name, unicode.IsControl) {
			t.Fatalf("rule %q", d.Rule.Name)
		}
		_ = d.String()
		d.RetryAfter = waitOf(&quotient.LimitedError{Decision: d})
		sent := statusOf(&quotient.LimitedError{Decision: d})
		if got, ok := Refused(sent.Err()); !ok || got != d {
			t.Fatalf("%+v, sent again, is %+v, %v", d, got, ok)
		}
	})
}
