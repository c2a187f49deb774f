package door

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	rpc "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/quotient-go/quotient/cmd/quotient/internal/grpcanswer"
)

// attributes are what Envoy says of a request, for errors.
var attributes = parts{"the method", "the host", "the path", "the source address"}

// Check answers a question of Envoy's ext_authz. The client is the source of the connection; X-Forwarded-For is read as
// quotient proxy reads it. A request that has not been admitted is denied, also if its own head is why it cannot be
// decided on: where Envoy lets requests through when Check fails (failure_mode_allow), no client may choose that. An
// error is only for what clients have no part in: PermissionDenied for a peer that may not ask, InvalidArgument for a
// question without a request or a source, and Unavailable before a file is in force.
//
// The fields of RateLimit are those of the response, beside the upstream's own: X-RateLimit in place of them. A denied
// call of gRPC has its grpc-status among the fields, which Envoy lets stand.
func (d *Door) Check(ctx context.Context, in *authv3.CheckRequest) (*authv3.CheckResponse, error) {
	s := d.now.Load()
	if s == nil {
		return nil, status.Error(codes.Unavailable, "no file is in force yet")
	}
	from := "nobody"
	by, ok := peer.FromContext(ctx)
	if ok && by.Addr != nil {
		from = by.Addr.String()
		ok = by.Addr.Network() == "unix" || s.trustsAddr(from)
	}
	if !ok {
		return nil, d.fault(from, codes.PermissionDenied, errStranger)
	}
	asked := in.GetAttributes().GetRequest().GetHttp()
	client := sourceOf(in.GetAttributes().GetSource().GetAddress())
	switch {
	case asked == nil:
		return nil, d.fault(from, codes.InvalidArgument, errors.New("the question has no request.http"))
	case client == "":
		return nil, d.fault(from, codes.InvalidArgument, errors.New("the question has no source address"))
	}
	is := parts{asked.GetMethod(), asked.GetHost(), asked.GetPath(), client}
	q, err := newQuestion(ctx, is, attributes, headerOf(asked))
	if err != nil {
		d.warn(from, err)
		return denied(http.StatusBadRequest, nil, err.Error()), nil
	}
	r := &q.request // Envoy takes a request for a call of gRPC by its content type alone
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/2.0", 2, 0
	d.ask.ServeHTTP(q, r)
	switch {
	case q.ok():
		ok := &authv3.OkHttpResponse{ResponseHeadersToAdd: options(q.answered, true)}
		return &authv3.CheckResponse{
			Status: &rpc.Status{}, HttpResponse: &authv3.CheckResponse_OkResponse{OkResponse: ok},
		}, nil
	case grpcanswer.Asked(r):
		return denied(http.StatusForbidden, q.answered, ""), nil // Envoy makes 200 of it
	}
	return denied(cmp.Or(q.status, http.StatusServiceUnavailable), q.answered, string(q.body)), nil
}

// fault is the error of a question that the operator has to mend.
func (d *Door) fault(asker string, code codes.Code, err error) error {
	d.warn(asker, err)
	return status.Error(code, err.Error())
}

// sourceOf is the address of a peer, "" if it has none.
func sourceOf(at *corev3.Address) string {
	if at.GetPipe() != nil {
		return ofUnix
	}
	return at.GetSocketAddress().GetAddress()
}

// headerOf is the header of a request. Lines of one name are one line, unless Envoy sends raw headers.
func headerOf(asked *authv3.AttributeContext_HttpRequest) http.Header {
	raw := asked.GetHeaderMap().GetHeaders()
	h := make(http.Header, len(raw)+len(asked.GetHeaders()))
	add := func(name, value string) {
		if name = http.CanonicalHeaderKey(name); !hop(name) {
			h[name] = append(h[name], value)
		}
	}
	for name, value := range asked.GetHeaders() {
		add(name, value)
	}
	for _, one := range raw {
		if value := one.GetRawValue(); len(value) > 0 {
			add(one.GetKey(), string(value))
		} else {
			add(one.GetKey(), one.GetValue())
		}
	}
	return h
}

// denied is the answer to a request that does not go on. Status is that of the answer which the client gets.
func denied(code int, h http.Header, body string) *authv3.CheckResponse {
	if typev3.StatusCode_name[int32(code)] == "" { // Envoy knows some only
		code = http.StatusForbidden
	}
	return &authv3.CheckResponse{
		Status: &rpc.Status{Code: int32(codes.PermissionDenied)},
		HttpResponse: &authv3.CheckResponse_DeniedResponse{DeniedResponse: &authv3.DeniedHttpResponse{
			Status:  &typev3.HttpStatus{Code: typev3.StatusCode(code)},
			Headers: options(h, false),
			Body:    strings.ToValidUTF8(body, "?"),
		}},
	}
}

// options are the fields of an answer for Envoy. The lists RateLimit and RateLimit-Policy stand beside those of an
// upstream if they may; any other field takes the place of its own.
func options(h http.Header, beside bool) []*corev3.HeaderValueOption {
	all := make([]*corev3.HeaderValueOption, 0, len(h))
	for name, lines := range h {
		if len(lines) == 0 || hop(name) {
			continue
		}
		action := corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD
		if beside && (name == "Ratelimit" || name == "Ratelimit-Policy") {
			action = corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD
		}
		all = append(all, &corev3.HeaderValueOption{
			Header:       &corev3.HeaderValue{Key: strings.ToLower(name), Value: strings.Join(lines, ", ")},
			AppendAction: action,
		})
	}
	return all
}
