package admin

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/internal/tested"
)

// A badBody is a body that must be refused, and the field that is to blame.
type badBody struct{ path, body, field string }

// wrong values for each type, as JSON; all of them are bad for a field of that type whatever its range.
var (
	notNumbers = []string{`null`, `true`, `"4"`, `""`, `[]`, `{}`, `[4]`, `{"a":1}`, `1e400`, `-1e400`}
	notWholes  = append([]string{`1.5`, `4e0`, `-1`, `9223372036854775808`, `-9223372036854775809`,
		`1` + strings.Repeat("0", 400)}, notNumbers...)
	notStrings = []string{`null`, `true`, `4`, `[]`, `{}`, `["a"]`, `"\ud800"`, `"\udc00x"`, `"\ud800\ud800"`,
		`"a\\\ud83d"`}
	notTruths  = []string{`null`, `0`, `1`, `"true"`, `""`, `[]`, `{}`}
	notLists   = []string{`null`, `true`, `4`, `"[]"`, `{}`}
	notObjects = []string{`null`, `true`, `4`, `"{}"`, `[]`}
	notDigits  = slices.Concat(notStrings, []string{`16045690984503098046`, `""`, `"x"`, `"01"`, `"+1"`, `"-1"`,
		`"1.0"`, `"1e3"`, `" 1"`, `"0x1"`, `"1_000"`, `"18446744073709551616"`, `"١"`,
		`"` + strings.Repeat("9", 1000) + `"`})
)

// tooSlow are events a second that are too few.
var tooSlow = []string{`1e-13`, `5e-324`}

// fields are all fields of all bodies: a body with a hole, and what must not stand in it.
var fields = []struct {
	path, body, field string
	bad               []string
}{
	{"/replicas", `{"replicas":%s}`, "replicas", slices.Concat(notWholes, []string{`0`, `1000001`})},
	{"/replicas", `{"replicas":4,"ordinal":%s}`, "ordinal", slices.Concat(notWholes, []string{`5`})},
	{"/replicas", `{"replicas":4,"weight":2,"ordinal":%s}`, "ordinal",
		slices.Concat(notWholes, []string{`4`})},
	{"/replicas", `{"replicas":4,"weight":%s}`, "weight", slices.Concat(notWholes, []string{`0`, `5`})},
	{"/replicas", `{"replicas":4,"ttl_seconds":%s}`, "ttl_seconds",
		slices.Concat(notNumbers, []string{`0`, `-1`, `0.0001`, `31536001`, `1e300`})},
	{"/limit", `{"rates":%s}`, "rates", notLists},
	{"/limit", `{"rates":[{"events":1,"per_seconds":1},%s]}`, "rates[1]", notObjects},
	{"/limit", `{"rates":[{"events":1,"per_seconds":1,"burst":1},{"name":"b","events":%s,"per_seconds":1}]}`,
		"rates[1].events", slices.Concat(notNumbers, tooSlow, []string{`0`, `-1`, `1.1e12`, `1e308`})},
	{"/limit", `{"rates":[{"events":1,"per_seconds":%s}]}`, "rates[0].per_seconds",
		slices.Concat(notNumbers, []string{`0`, `-1`, `1e-10`, `9.3e9`, `-9.3e9`, `1e308`})},
	{"/limit", `{"rates":[{"events":1,"per_seconds":1,"burst":%s}]}`, "rates[0].burst",
		append(slices.Clone(notWholes), fmt.Sprint(int64(mostBurst)+1))},
	{"/limit", `{"rates":[{"events":1,"per_seconds":1,"name":%s}]}`, "rates[0].name",
		slices.Concat(notStrings, []string{`"` + strings.Repeat("n", 129) + `"`})},
	{"/limit", `{"rates":[{"events":1,"per_seconds":1,"unit":%s}]}`, "rates[0].unit",
		slices.Concat(notStrings, []string{`"` + strings.Repeat("é", 65) + `"`})},
	{"/limit", `{"rates":[{"events":1,"per_seconds":1,"aligned":%s}]}`, "rates[0].aligned", notTruths},
	{"/limit", `{"rates":[{"events":1,"per_seconds":1,"kind":%s}]}`, "rates[0].kind",
		append(slices.Clone(notStrings), `""`, `"Paced"`, `"aligned"`)},
	{"/limit", `{"rates":[{"events":1,"per_seconds":1,"no_turns":%s}]}`, "rates[0].no_turns", notTruths},
	{"/limit", `{"rates":[{"events":1,"per_seconds":86400,"kind":"window","zone":%s}]}`, "rates[0].zone",
		append(slices.Clone(notStrings), `"`+strings.Repeat("Z", 129)+`"`)},
	{"/limit", `{"rates":[],"in_flight":%s}`, "in_flight", slices.Concat(notWholes, []string{`1073741825`})},
	{"/limit", `{"rates":[],"deny":%s}`, "deny", notTruths},
	{"/limit", `{"rates":[],"unlimited":%s}`, "unlimited", notTruths},
	{"/plan", `{"plan":%s,"limit":{"deny":true}}`, "plan", slices.Concat(notStrings, []string{
		`""`, `"Paid"`, `"pa id"`, `"paid\n"`, `"ä"`, `"` + strings.Repeat("p", 65) + `"`,
	})},
	{"/plan", `{"plan":"paid","limit":%s}`, "limit", notObjects[1:]},
	{"/plan", `{"plan":"paid","limit":{"rates":%s}}`, "limit.rates", notLists},
	{"/plan", `{"plan":"paid","limit":{"rates":[],"in_flight":%s}}`, "limit.in_flight", notWholes},
	{"/override", `{"key":%s,"limit":{"deny":true}}`, "key",
		slices.Concat(notStrings, []string{`"` + strings.Repeat("k", 4097) + `"`})},
	{"/override", `{"key":"K","limit":%s}`, "limit", notObjects[1:]},
	{"/override", `{"key":"K","limit":{"rates":%s}}`, "limit.rates", notLists},
	{"/override", `{"key":"K","limit":{"rates":[{"events":%s,"per_seconds":1}]}}`, "limit.rates[0].events",
		slices.Concat(notNumbers, tooSlow)},
	{"/override", `{"key":"K","limit":{"rates":[],"in_flight":%s}}`, "limit.in_flight", notWholes},
	{"/override", `{"key":"K","limit":{"deny":true},"ttl_seconds":%s}`, "ttl_seconds",
		slices.Concat(notNumbers, []string{`0`, `-1`, `0.0001`, `31536001`, `1e300`})},
	{"/reset", `{"key":%s}`, "key",
		slices.Concat(notStrings, []string{`"` + strings.Repeat("k", 4097) + `"`})},
	{"/dry-run", `{"dry_run":%s}`, "dry_run", notTruths},
	{"/leases/break", `{"semaphore":%s,"peer":"1","token":"1"}`, "semaphore",
		slices.Concat(notStrings, []string{`"` + strings.Repeat("s", 1025) + `"`})},
	{"/leases/break", `{"semaphore":"a","peer":%s,"token":"1"}`, "peer", notDigits},
	{"/leases/break", `{"semaphore":"a","peer":"1","token":%s}`, "token", append(notDigits, `"0"`)},
}

// oddBodies are bad as a whole, or by their names.
var oddBodies = []badBody{
	{"/replicas", `{"replicas":4,"replicas":4}`, "replicas"},
	{"/replicas", `{"replicas":4,"\u0072eplicas":5}`, "replicas"},
	{"/replicas", `{"REPLICAS":4}`, "REPLICAS"}, {"/replicas", `{"replica\u017f":4}`, "replicaſ"},
	{"/replicas", `{"":4}`, `""`}, {"/replicas", `{"":4,"":5}`, `""`},
	{"/replicas", strings.Repeat(`{"a":`, 9) + `1` + strings.Repeat(`}`, 9), "a"},
	{"/replicas", `{"replicas":4,"__proto__":{}}`, "__proto__"}, {"/replicas", `{"ordinal":1}`, "replicas"},
	{"/replicas", `{"replicas":4,"` + strings.Repeat("x", 1000) + `":1}`, strings.Repeat("x", 64) + "…"},
	{"/limit", `{}`, "rates"}, {"/limit", `{"in_flight":3}`, "rates"}, {"/limit", `{"deny":false}`, "rates"},
	{"/limit", `{"denies":true}`, "denies"},
	{"/limit", `{"rates":[],"rates":[]}`, "rates"}, {"/limit", `{"deny":true,"deny":true}`, "deny"},
	{"/limit", `{"rates":[{}]}`, "rates[0].events"},
	{"/limit", `{"rates":[{"events":1}]}`, "rates[0].per_seconds"},
	{"/limit", `{"rates":[{"per_seconds":1}]}`, "rates[0].events"},
	{"/limit", `{"rates":[{"events":1,"events":1,"per_seconds":1}]}`, "rates[0].events"},
	{"/limit", `{"rates":[{"events":1,"per_seconds":1,"Burst":1}]}`, "rates[0].Burst"},
	{"/limit", `{"rates":[{"events":1,"per_seconds":1,"per":1}]}`, "rates[0].per"},
	{"/limit", `{"rates":[{"events":1,"per_seconds":1,"aligned":true,"burst":2}]}`, "rates[0].burst"},
	{"/limit", `{"rates":[{"events":1,"per_seconds":1,"kind":"paced","burst":2}]}`, "rates[0].burst"},
	{"/limit", `{"rates":[{"events":1,"per_seconds":1,"kind":"window","aligned":false}]}`, "rates[0].aligned"},
	{"/limit", `{"rates":[{"events":1,"per_seconds":86400,"zone":"UTC"}]}`, "rates[0].zone"},
	{"/limit", `{"rates":[{"events":1,"per_seconds":86400,"kind":"window","zone":"../etc"}]}`, "rates[0].zone"},
	{"/limit", `{"rates":[{"events":1,"per_seconds":3600,"kind":"window","zone":"UTC"}]}`, "rates[0].zone"},
	{"/limit", `{"rates":[{"events":0.0001,"per_seconds":1,"aligned":true}]}`, "rates[0].events"},
	{"/limit", `{"rates":[{"events":1,"per_seconds":0.0001,"aligned":true}]}`, "rates[0].per_seconds"},
	{"/limit", `{"rates":[{"events":1e6,"per_seconds":1e-7}]}`, "rates[0].events"},
	{"/limit", `{"rates":[{"name":"a","events":1,"per_seconds":1},{"name":"a","events":2,"per_seconds":1}]}`,
		"rates[1].name"},
	{"/limit", `{"rates":[{"events":1,"per_seconds":1},{"name":"rate 1","events":2,"per_seconds":1}]}`,
		"rates[1].name"},
	{"/limit", `{"rates":[` + strings.Repeat(`{"events":1,"per_seconds":1},`, 16) +
		`{"events":1,"per_seconds":1}]}`, "rates"},
	{"/limit", `{"deny":true,"rates":[{"events":1,"per_seconds":1}]}`, "rates"},
	{"/limit", `{"deny":true,"in_flight":1}`, "in_flight"},
	{"/limit", `{"rates":[]}`, "rates"}, {"/limit", `{"rates":[],"in_flight":0,"unlimited":false}`, "rates"},
	{"/limit", `{"rates":[],"in_flight":1,"unlimited":true}`, "unlimited"},
	{"/limit", `{"rates":[{"events":1,"per_seconds":1}],"unlimited":true}`, "unlimited"},
	{"/limit", `{"deny":true,"unlimited":true}`, "unlimited"},
	{"/plan", `{"plan":"paid","limit":{"rates":[]}}`, "limit.rates"},
	{"/override", `{"key":"K","limit":{"rates":[]}}`, "limit.rates"},
	{"/override", `{"key":"K","limit":null,"ttl_seconds":1}`, "ttl_seconds"},
	{"/plan", `{}`, "plan"}, {"/plan", `{"limit":null}`, "plan"}, {"/plan", `{"plan":"paid"}`, "limit"},
	{"/plan", `{"plan":"paid","limit":{}}`, "limit.rates"},
	{"/plan", `{"plan":"paid","name":"paid","limit":null}`, "name"},
	{"/plan", `{"plan":"paid","plan":"free","limit":null}`, "plan"},
	{"/plan", `{"plan":"paid","limit":null,"limit":{"deny":true}}`, "limit"},
	{"/override", `{"key":"K"}`, "limit"}, {"/override", `{"limit":null}`, "key"}, {"/override", `{}`, "key"},
	{"/override", `{"key":"K","limit":{}}`, "limit.rates"},
	{"/override", `{"key":"K","limit":{"key":"K"}}`, "limit.key"},
	{"/override", `{"key":"K","limit":null,"limit":{"deny":true}}`, "limit"},
	{"/override", `{"key":"K","limit":{"rates":[{"events":1,"per_seconds":0}]}}`,
		"limit.rates[0].per_seconds"},
	{"/reset", `{}`, "key"}, {"/reset", `{"key":"K","key":"K"}`, "key"},
	{"/reset", `{"key":"K","limit":null}`, "limit"},
	{"/dry-run", `{}`, "dry_run"}, {"/dry-run", `{"dry_run":true,"dry_run":false}`, "dry_run"},
	{"/dry-run", `{"dryRun":true}`, "dryRun"},
	{"/leases/break", `{}`, "semaphore"}, {"/leases/break", `{"semaphore":"a"}`, "peer"},
	{"/leases/break", `{"semaphore":"a","peer":"1"}`, "token"},
	{"/leases/break", `{"semaphore":"a","peer":"1","token":"1","force":true}`, "force"},
	{"/leases/break", `{"semaphore":"a","peer":"1","peer":"1","token":"1"}`, "peer"},
	{"/leases/break", `{"semaphore":"a","Peer":"1","token":"1"}`, "Peer"},
}

// noJSON are bad bodies for every route: "body" is to blame.
var noJSON = []string{
	``, ` `, `null`, `true`, `4`, `"{}"`, `[]`, `[{}]`, `{`, `}`, `{]`, `{"replicas"}`, `{"replicas":}`,
	`{"replicas" 4}`, `{"replicas":4,}`, `{,}`, `{replicas:4}`,
	`{'replicas':4}`, `{"replicas":4}x`, `{"replicas":4} {}`, `{"replicas":4}` + "\x00", "\xef\xbb\xbf{}",
	"{\"\xff\":4}", `{"replicas":"` + "\xc3\x28" + `"}`,
	`{"replicas":0x4}`, `{"replicas":04}`, `{"replicas":+4}`, `{"replicas":.5}`, `{"replicas":4.}`,
	`{"replicas":NaN}`, `{"replicas":Infinity}`, `{"replicas":"\x41"}`,
	`{"replicas":"` + "\n" + `"}`, `{"a":` + strings.Repeat(`[`, 9),
	strings.Repeat(`[`, 30000), strings.Repeat(`[`, 30000) + strings.Repeat(`]`, 30000),
	`{"replicas":4} // four`, "replicas=4",
}

func badBodies() []badBody {
	all := slices.Clone(oddBodies)
	for _, f := range fields {
		for _, bad := range f.bad {
			all = append(all, badBody{f.path, fmt.Sprintf(f.body, bad), f.field})
		}
	}
	for _, rt := range routes {
		for _, body := range noJSON {
			if !slices.Contains(rt.methods, http.MethodGet) {
				all = append(all, badBody{rt.path, body, "body"})
			}
		}
	}
	return all
}

// configuration is all that an operator can change of a limiter.
type configuration struct {
	version   uint64
	limit     quotient.Limit
	pool      quotient.Pool
	plans     map[string]quotient.PlanStats
	overrides map[string]quotient.KeyLimit
	dryRun    bool
}

func configurationOf(l *quotient.Limiter) configuration {
	return configuration{l.Stats().Version, l.Stats().Limit, l.Stats().Pool.Pool, l.Stats().Plans,
		l.Overrides(), l.DryRun()}
}

func TestAttackBodies(t *testing.T) {
	l := newLimiter(t, quotient.StartPool(quotient.Pool{Replicas: 3, Ordinal: 1}))
	locks := newLeases("a")
	h := quiet(t, l, WithLeases(locks))
	before := configurationOf(l)
	for _, bad := range badBodies() {
		method := http.MethodPut
		if bad.path == "/leases/break" {
			method = http.MethodPost
		}
		rec := request{method: method, path: bad.path, body: bad.body}.send(t, h)
		tested.Not(t, rec.Body.Len() > 2000, "%s %.100q: an answer of %d bytes", bad.path, bad.body, rec.Body.Len())
		got := decode[Problem](t, rec)
		if rec.Code != 400 || got.Field != bad.field || got.Range == "" || got.Detail == "" {
			t.Errorf("%s %.100q: %d %+v, want field %q", bad.path, bad.body, rec.Code, got, bad.field)
		}
	}
	if after := configurationOf(l); !reflect.DeepEqual(before, after) || locks.breaks != 0 {
		t.Errorf("configuration was %+v and is %+v; %d locks are broken", before, after, locks.breaks)
	}
}

func TestAttackHostsAndOrigins(t *testing.T) {
	hosts := []string{
		"evil.example", "evil.example:9090", "ops.example", ":9090", "localhost.evil.example", "127.0.0.1.evil.example",
		"localhost:9090.evil.example", "localhost@evil.example",
		"evil.example#localhost", "evil.example/127.0.0.1", "xlocalhost", "localhostx", "local host",
		".localhost", "localhost..", "127.0.0.1x", "128.0.0.1",
		"0.0.0.0", "0", "0x7f000001", "2130706433", "127.1", "0177.0.0.1", "[::]", "[::2]", "[fe80::1]:80",
		"[::ffff:10.0.0.1]", "192.168.0.1", "10.0.0.7:9090", "169.254.169.254",
		"metadata.google.internal", "[::1", "::1]:x:y", ":", "ｌocalhost", "loc\u0430lhost", "[::1%eth0]",
	}
	headers := []http.Header{
		{"Origin": {"http://evil.example"}}, {"Origin": {"null"}}, {"Origin": {"https://127.0.0.1:9091"}},
		{"Origin": {"http://localhost:9090"}}, {"Origin": {"file://"}},
		{"Origin": {"http://127.0.0.1:9090.evil.example"}},
		{"Origin": {"http://127.0.0.1:9090@evil.example"}},
		{"Origin": {"http://evil.example#127.0.0.1:9090"}},
		{"Sec-Fetch-Site": {"cross-site"}}, {"Sec-Fetch-Site": {"same-site"}},
		{"Sec-Fetch-Site": {"CROSS-SITE"}}, {"Sec-Fetch-Site": {"garbage"}},
		{"Sec-Fetch-Site": {"cross-site"}, "Origin": {"http://127.0.0.1:9090"}},
		{"Sec-Fetch-Site": {"same-origin", "cross-site"}}, {"Sec-Fetch-Site": {"none", "none"}},
		{"Sec-Fetch-Site": {"", "cross-site"}}, {"Sec-Fetch-Site": {"same-origin, cross-site"}},
		{"Origin": {"http://127.0.0.1:9090", "http://evil.example"}}, {"Origin": {"", "http://evil.example"}},
	}
	l, locks := newLimiter(t), newLeases("a")
	h := quiet(t, l, WithLeases(locks))
	before := configurationOf(l)
	// in this order: a stream that is let in would not end
	data := []request{get("/state"), get("/events"), get("/keys"), get("/explain?key=K"), get("/leases"),
		{method: "PUT", path: "/dry-run", body: `{"dry_run":true}`}, goodBreak("a")}
	refused := func(req request, host string, header http.Header) {
		t.Helper()
		req.host, req.header = host, header
		rec := req.send(t, h)
		if rec.Code == 200 {
			t.Fatalf("%+v: 200", req)
		}
		if got := decode[Problem](t, rec); rec.Code != 403 || got.Field == "" {
			t.Errorf("%+v: %d %+v", req, rec.Code, got)
		}
	}
	for _, host := range hosts {
		for _, req := range append(data, get("/"), get("/openapi.json")) {
			refused(req, host, nil)
		}
	}
	for _, header := range headers {
		for _, req := range data {
			refused(req, "", header)
		}
	}
	if after := configurationOf(l); !reflect.DeepEqual(before, after) || locks.breaks != 0 {
		t.Errorf("configuration was %+v and is %+v; %d locks are broken", before, after, locks.breaks)
	}
	for _, header := range []http.Header{
		{}, {"Sec-Fetch-Site": {"same-origin"}}, {"Origin": {"http://127.0.0.1:9090"}},
	} {
		req := putReplicas(`{"replicas":4}`)
		req.header = header
		tested.Want(t, fmt.Sprintf("refused with %v", header), req.send(t, h).Code, 200)
	}
}

// TestAttackQueries: parameters are read as strictly as bodies.
func TestAttackQueries(t *testing.T) {
	tests := []struct {
		path, field string
		status      int
	}{
		{"/state?x=1", "x", 400}, {"/state?limiter=api&limiter=api", "limiter", 400},
		{"/state?limiter=%zz", "query", 400}, {"/state?a;b", "query", 400},
		{"/state?limiter=", "limiter", 404}, {"/state?limiter=API", "limiter", 404},
		{"/state?limiter=" + strings.Repeat("a", 9999), "limiter", 404},
		{"/state?history=0", "history", 400}, {"/state?history=", "history", 400},
		{"/state?history=true", "history", 400}, {"/state?history=1&history=1", "history", 400},
		{"/keys?top=", "top", 400}, {"/keys?top=0", "top", 400}, {"/keys?top=-1", "top", 400},
		{"/keys?top=1001", "top", 400}, {"/keys?top=1e2", "top", 400},
		{"/keys?top=99999999999999999999", "top", 400}, {"/keys?top=1&top=2", "top", 400},
		{"/keys?key=K", "key", 400}, {"/keys?by=", "by", 400}, {"/keys?by=hottest", "by", 400},
		{"/explain", "key", 400}, {"/explain?key=" + strings.Repeat("k", 4097), "key", 400},
		{"/explain?key=K&limiter=none", "limiter", 404}, {"/explain?Key=K", "Key", 400},
		{"/events?limiter=api", "limiter", 400}, {"/events?x=1&x=2", "x", 400}, {"/events?%", "query", 400},
	}
	h := quiet(t, newLimiter(t))
	for _, tt := range tests {
		rec := get(tt.path).send(t, h)
		size := rec.Body.Len()
		if got := decode[Problem](t, rec); rec.Code != tt.status || got.Field != tt.field || size > 1000 {
			t.Errorf("%.60s: %d %+v, want %d and field %q", tt.path, rec.Code, got, tt.status, tt.field)
		}
	}
}

// counted is a listener that counts the bytes that its connections read.
type counted struct {
	net.Listener
	read *atomic.Int64
}

func (l counted) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return countedConn{conn, l.read}, err
}

type countedConn struct {
	net.Conn
	read *atomic.Int64
}

func (c countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.read.Add(int64(n))
	return n, err
}

// blanks is a body of so many spaces that cannot be rewound.
type blanks struct{ left int64 }

func (b *blanks) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), b.left)
	copy(p, bytes.Repeat([]byte{' '}, int(n)))
	b.left -= n
	return int(n), nil
}

// TestAttackGigabyteBodies: of a body of 1 GB no more than the bound is read, whether its length is
// announced or not. If a request is refused for another reason, no more of it is read than net/http reads to
// keep a connection.
func TestAttackGigabyteBodies(t *testing.T) {
	const gigabyte, head, drain = 1 << 30, 16 << 10, 512 << 10
	tests := []struct {
		name, method, path, contentType string
		announced                       bool
		status, most                    int
	}{
		{"announced", "PUT", "/replicas", "application/json", true, 413, head},
		{"just above", "PUT", "/replicas", "application/json", true, 413, drain + head},
		{"chunked", "PUT", "/replicas", "application/json", false, 413, maxBody + head},
		{"other type", "PUT", "/replicas", "text/plain", false, 415, drain + head},
		{"other method", "POST", "/replicas", "application/json", false, 405, drain + head},
		{"other path", "PUT", "/other", "application/json", true, 404, drain + head},
		{"break", "POST", "/leases/break", "application/json", false, 413, maxBody + head},
		{"no token", "PUT", "/limit", "application/json", false, 401, drain + head},
		{"a read", "GET", "/state", "", false, 200, drain + head},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel() // the server waits before it hangs up
			var read atomic.Int64
			l := newLimiter(t)
			opts := []Option{WithLeases(newLeases("a"))}
			if tt.status == 401 {
				opts = append(opts, Token("0123456789abcdef"))
			}
			srv := httptest.NewUnstartedServer(quiet(t, l, opts...))
			srv.Listener = counted{srv.Listener, &read}
			srv.Start()
			defer srv.Close()
			req, err := http.NewRequestWithContext(t.Context(), tt.method, srv.URL+tt.path, &blanks{gigabyte})
			must(t, err)
			if tt.announced {
				req.ContentLength = gigabyte
				if tt.name == "just above" { // the server reads it, to hang up in an orderly way
					req.ContentLength, req.Body = maxBody+1, io.NopCloser(&blanks{maxBody + 1})
				}
			}
			req.Header.Set("Content-Type", tt.contentType)
			resp, err := srv.Client().Do(req)
			must(t, err)
			defer resp.Body.Close()
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				t.Fatal(err)
			}
			if n := read.Load(); resp.StatusCode != tt.status || n > int64(tt.most) {
				t.Errorf("status %d after %d bytes, want %d after at most %d", resp.StatusCode, n,
					tt.status, tt.most)
			} else {
				t.Logf("%d bytes read", n)
			}
			tested.Want(t, "version", l.Stats().Version, 0)
		})
	}
}

// TestAttackMarkup: markup in a key is escaped in every answer, and no answer can be read as a page.
func TestAttackMarkup(t *testing.T) {
	const key = `<script>alert(1)</script>&<!--`
	l := newLimiter(t)
	l.Allow(key)
	err := l.Override(key, &quotient.Limit{Rates: []quotient.Rate{{Name: "<b>", Events: 1, Per: 1e9}}}, 0)
	must(t, err)
	h := quiet(t, l)
	seen := 0
	for _, path := range []string{"/state", "/keys",
		"/explain?key=%3Cscript%3Ealert(1)%3C%2Fscript%3E%26%3C!--", "/%3Cscript%3E", "/state?%3Cscript%3E",
		"/keys?top=%3Cb%3E", "/state?limiter=%3Cb%3E"} {
		rec := get(path).send(t, h)
		tested.Not(t, bytes.ContainsAny(rec.Body.Bytes(), "<>&"), "%s: %s", path, rec.Body)
		if strings.Contains(rec.Body.String(), `\u003c`) {
			seen++
		}
		if rec.Header().Get("X-Content-Type-Options") != "nosniff" ||
			rec.Header().Get("Cache-Control") != "no-store" ||
			!strings.HasSuffix(rec.Header().Get("Content-Type"), "json") {
			t.Errorf("%s: fields %v", path, rec.Header())
		}
	}
	tested.Not(t, seen < 7, "only %d answers held the markup at all", seen)
}
