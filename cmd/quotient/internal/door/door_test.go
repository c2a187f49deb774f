package door

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/internal/tested"
)

// TestProfiles: what real proxies send, also where a client has tried to describe its request itself. nginx 1.22, Caddy
// 2.6 and HAProxy 2.6 have sent these; Traefik 3 and Envoy send them by their sources.
func TestProfiles(t *testing.T) {
	const target = "/path/a%2Fb//d;x?hold=1m&q=%7c"
	for _, c := range []struct{ name, profile, text, key string }{
		{"nginx", "nginx", `GET /decide HTTP/1.0
X-Original-Method: POST
X-Original-Host: shop.example:81
X-Original-URI: /other
X-Real-IP: 192.0.2.7
Host: 127.0.0.1:8080
Connection: close
X-Forwarded-For: 6.6.6.6
X-Forwarded-Uri: /evil
X-Forwarded-Method: GET
X-Forwarded-Host: evil
X-Tenant: a
X-Tenant: b`, `all "192.0.2.7"`},
		{"nginx behind a trusted one", "nginx", `GET /decide HTTP/1.0
X-Original-Method: GET
X-Original-Host: a.example
X-Original-URI: /
X-Real-IP: 10.0.0.9
X-Forwarded-For: 6.6.6.6, 192.0.2.8
Host: 127.0.0.1:8080`, `all "192.0.2.8"`},
		{"nginx at a Unix socket", "nginx", `GET /decide HTTP/1.0
X-Original-Method: GET
X-Original-Host: a.example
X-Original-URI: /
X-Real-IP: unix:
X-Forwarded-For: 192.0.2.9
Host: 127.0.0.1:8080`, `all "192.0.2.9"`},
		{"Caddy", "forward-auth", `GET /decide?hold=1m&q=%7c HTTP/1.1
Host: shop.example:81
User-Agent: curl/7.88.1
X-Forwarded-For: 192.0.2.7
X-Forwarded-Host: shop.example:81
X-Forwarded-Method: POST
X-Forwarded-Proto: http
X-Forwarded-Uri: ` + target + `
X-Real-Ip: 6.6.6.6
Accept-Encoding: gzip`, `all "/path/a/b/d"`},
		{"Traefik", "forward-auth", `GET /decide HTTP/1.1
Host: 127.0.0.1:8080
X-Forwarded-For: 192.0.2.7
X-Forwarded-Proto: https
X-Forwarded-Method: GET
X-Forwarded-Host: a.example
X-Forwarded-Port: 443
X-Forwarded-Uri: /x
Accept-Encoding: gzip`, `all "192.0.2.7"`},
		{"Traefik that trusts a CDN", "forward-auth", `GET /decide HTTP/1.1
Host: 127.0.0.1:8080
X-Forwarded-For: 6.6.6.6, 2001:db8::1, 10.0.0.9
X-Forwarded-Proto: https
X-Forwarded-Method: GET
X-Forwarded-Host: a.example
X-Forwarded-Uri: /x`, `all "2001:db8::/64"`},
		{"HAProxy", "haproxy", `GET /decide HTTP/1.1
x-original-uri: ` + target + `
x-original-method: POST
x-original-host: shop.example:81
x-real-ip: 192.0.2.7
host: shop.example:81
connection: X-Forwarded-For, X-Original-URI
x-forwarded-for: 6.6.6.6`, `all "/path/a/b/d"`},
		{"Envoy", "envoy", `POST /decide` + target + ` HTTP/1.1
Host: shop.example
Content-Length: 0
X-Real-Ip: 192.0.2.7
X-Envoy-Internal: true
X-Forwarded-For: 10.1.1.1`, `all "/path/a/b/d"`},
		{"Envoy for a client that is trusted, as Envoy is", "envoy", `GET /decide/ HTTP/1.1
Host: shop.example
Content-Length: 0
X-Real-Ip: 10.0.0.9
X-Forwarded-For: 10.1.1.1`, `all "10.0.0.9"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, c.profile)
			want(t, "status", do(w.door, read(t, asker, c.text)).StatusCode, 200)
			want(t, "keys", w.keys(), c.key)
			refusal := do(w.door, read(t, asker, c.text))
			want(t, "decision on the same", decision(refusal), "429")
			want(t, "hint", refusal.Header.Get("Retry-After") != "", true)
		})
	}
}

// TestStatuses: a refusal never has a status that lets a request through, and says which one it would have.
func TestStatuses(t *testing.T) {
	twice := func(s sent) []sent { return []sent{s, s} }
	plain := sent{"GET", "a.example", "/", "192.0.2.7", http.Header{}}
	at := func(method, target string, field ...string) sent {
		s := sent{method, "a.example", target, "192.0.2.7", http.Header{}}
		for _, line := range field {
			name, value, _ := strings.Cut(line, ": ")
			s.header.Add(name, value)
		}
		return s
	}
	for _, c := range []struct {
		name                         string
		ask                          []sent
		forwardAuth, haproxy, ng, ev string // status, and the true one
	}{
		{"admitted", []sent{plain}, "200", "200", "200", "200"},
		{"refused", twice(plain), "429", "429", "403 429", "429"},
		{"in the rule's words", twice(at("POST", "/pay/", "X-Tenant: a")), "503", "503", "403 503", "403 503"},
		{"a field twice", []sent{at("POST", "/pay/", "X-Tenant: a", "X-Tenant: b")}, "400", "400", "403 400", "400"},
		{"an ambiguous path", []sent{at("GET", "/x%2f..%2fpath/a")}, "400", "400", "403 400", "400"},
		{"a method that is not passed on", []sent{at("TRACE", "/")}, "405", "405", "403 405", "405"},
		{"a call of gRPC", twice(at("POST", "/", "Content-Type: application/grpc")), "429", "429", "403 429", "429"},
		{"exempt", twice(at("GET", "/free/")), "200", "200", "200", "200"},
	} {
		for profile, wanted := range map[string]string{
			"forward-auth": c.forwardAuth, "haproxy": c.haproxy, "nginx": c.ng, "envoy": c.ev,
		} {
			t.Run(c.name+" "+profile, func(t *testing.T) {
				w := newWorld(t, profile)
				var res *http.Response
				for _, s := range c.ask {
					res = do(w.door, s.described(profile))
				}
				got := fmt.Sprint(res.StatusCode, " ", res.Header.Get("Quotient-Status"))
				want(t, "answer", strings.TrimSpace(got), wanted)
				if res.StatusCode == 200 {
					want(t, "length", res.Header.Get("Content-Length"), "0")
				}
			})
		}
	}
}

// TestDrained: requests that would wait are refused with 503, which nginx and Envoy would take for a failure.
func TestDrained(t *testing.T) {
	for profile, wanted := range map[string]int{"forward-auth": 503, "haproxy": 503, "nginx": 403, "envoy": 403} {
		w := newWorld(t, profile)
		w.proxy = nil
		w.door.SetHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
		}))
		res := do(w.door, sent{"GET", "a.example", "/", "192.0.2.7", http.Header{}}.described(profile))
		want(t, profile, res.StatusCode, wanted)
		want(t, "decision", decision(res), "503")
	}
}

// TestFieldsOfAnAdmission: where a client stands is there to copy, and nothing else is.
func TestFieldsOfAnAdmission(t *testing.T) {
	w := newWorld(t, "forward-auth")
	res := do(w.door, sent{"GET", "a.example", "/", "192.0.2.7", http.Header{}}.described("forward-auth"))
	for name := range res.Header {
		want(t, name+" is expected", strings.HasPrefix(name, "Ratelimit") || name == "Content-Length", true)
	}
	want(t, "fields", len(res.Header), 3)
	want(t, "requests with an overhead", w.proxy.Overhead().Count, 1)
}

// TestFaultsAreLogged: the operator learns of questions that are not decided, once a second at most.
func TestFaultsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines tested.Buffer
		d := New(slog.New(slog.NewTextHandler(&lines, nil)))
		d.now.Store(&settings{profile: profiles["nginx"]})
		for range 2 {
			for range 5 {
				_ = do(d, read(t, asker, "GET /decide HTTP/1.0\nHost: a"))
			}
			time.Sleep(time.Second)
		}
		want(t, "lines", strings.Count(lines.String(), "the field X-Original-Method is missing"), 2)
	})
}

// TestDescriptionsAreWhole: a question that lacks a part, or has it twice, is no decision.
func TestDescriptionsAreWhole(t *testing.T) {
	type change func(h http.Header)
	without := func(name string) change { return func(h http.Header) { h.Del(name) } }
	add := func(name, value string) change { return func(h http.Header) { h.Add(name, value) } }
	set := func(name, value string) change { return func(h http.Header) { h.Set(name, value) } }
	for _, c := range []struct {
		profile string
		change  change
		text    string
	}{
		{"forward-auth", without("X-Forwarded-Method"), "the field X-Forwarded-Method is missing"},
		{"forward-auth", without("X-Forwarded-Host"), "the field X-Forwarded-Host is missing"},
		{"forward-auth", set("X-Forwarded-Host", ""), "the field X-Forwarded-Host is missing"},
		{"forward-auth", without("X-Forwarded-Uri"), "the field X-Forwarded-Uri is missing"},
		{"forward-auth", without("X-Forwarded-For"), "the field X-Forwarded-For is missing"},
		{"forward-auth", add("X-Forwarded-Uri", "/b"), "the field X-Forwarded-Uri is there 2 times"},
		{"forward-auth", add("X-Forwarded-For", "1.2.3.4"), "the field X-Forwarded-For is there 2 times"},
		{"forward-auth", set("X-Forwarded-For", "192.0.2.7, "), `X-Forwarded-For is "", want an address`},
		{"forward-auth", set("X-Forwarded-For", "192.0.2.7, evil"), `X-Forwarded-For is "evil", want an address`},
		{"forward-auth", set("X-Forwarded-Uri", "*"), `X-Forwarded-Uri is "*", want a path`},
		{"forward-auth", set("X-Forwarded-Uri", "http://a/b"), `X-Forwarded-Uri is "http://a/b", want a path`},
		{"forward-auth", set("X-Forwarded-Uri", "/%zz"), `X-Forwarded-Uri is "/%zz", want a path`},
		{"forward-auth", set("X-Forwarded-Host", "a b"), `X-Forwarded-Host is "a b", want a host`},
		{"forward-auth", set("X-Forwarded-Host", "a@b"), `X-Forwarded-Host is "a@b", want a host`}, // another to some
		{"forward-auth", set("X-Forwarded-Method", "G T"), `X-Forwarded-Method is "G T", want a method`},
		{"nginx", without("X-Original-Method"), "the field X-Original-Method is missing"},
		{"nginx", without("X-Original-Host"), "the field X-Original-Host is missing"},
		{"nginx", without("X-Original-Uri"), "the field X-Original-Uri is missing"},
		{"nginx", without("X-Real-Ip"), "the field X-Real-Ip is missing"},
		{"nginx", set("X-Real-Ip", "192.0.2.7, 192.0.2.8"), "want an address"},
		{"haproxy", add("X-Real-Ip", "192.0.2.8"), "the field X-Real-Ip is there 2 times"},
		{"envoy", without("X-Real-Ip"), "the field X-Real-Ip is missing"},
	} {
		t.Run(c.profile+" "+c.text, func(t *testing.T) {
			w := newWorld(t, c.profile)
			r := sent{"GET", "a.example", "/", "192.0.2.7", http.Header{}}.described(c.profile)
			c.change(r.Header)
			status := map[bool]int{false: 400, true: 403}[c.profile == "nginx"] // to which 400 is a failure
			wantRefusal(t, do(w.door, r), status, c.text)
			want(t, "keys", w.keys(), "")
		})
	}
	w := newWorld(t, "envoy")
	for _, target := range []string{"/decide", "/decide?x"} {
		wantRefusal(t, do(w.door, read(t, asker, "GET "+target+" HTTP/1.1\nHost: a\nX-Real-Ip: 192.0.2.7")), 400,
			"the path behind /decide is")
	}
}

func wantRefusal(t *testing.T, res *http.Response, status int, text string) {
	t.Helper()
	body, err := io.ReadAll(res.Body)
	must(t, err)
	want(t, "status", res.StatusCode, status)
	tested.Not(t, !strings.Contains(string(body), text), "the text is %q, want %q in it", body, text)
}

// TestAnswered: what the server refuses before the door has it is a refusal to the caller, too.
func TestAnswered(t *testing.T) {
	for profile, wanted := range map[string][2]int{
		"forward-auth": {431, 503}, "haproxy": {431, 503}, "nginx": {403, 403}, "envoy": {431, 403},
	} {
		for i, status := range []int{431, 503} {
			h := http.Header{}
			want(t, profile, newWorld(t, profile).door.Answered(h, status), wanted[i])
			want(t, profile+" notes it", h.Get(trueStatus) != "", wanted[i] != status)
		}
	}
	want(t, "before a file", New(nil).Answered(nil, 431), 431)
}

// TestStrangersMayNotAsk: a peer that is not trusted could name any client.
func TestStrangersMayNotAsk(t *testing.T) {
	for _, c := range []struct {
		from   string
		local  net.Addr
		status int
	}{
		{"127.0.0.1:1", nil, 200},
		{"127.9.9.9:1", nil, 200},
		{"[::1]:1", nil, 200},
		{"[::ffff:127.0.0.1]:1", nil, 200},
		{"10.2.3.4:1", nil, 200},
		{"[fd00::2%eth0]:1", nil, 200},
		{"192.0.2.7:1", nil, 403},
		{"[2001:db8::1]:1", nil, 403},
		{"", nil, 403},
		{"@", nil, 403},
		{"@", &net.UnixAddr{Net: "unix", Name: "/run/quotient.sock"}, 200},
		{"192.0.2.7:1", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, 403},
	} {
		w := newWorld(t, "forward-auth")
		r := sent{"GET", "a.example", "/", "192.0.2.7", http.Header{}}.described("forward-auth")
		r.RemoteAddr = c.from
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, c.local))
		res := do(w.door, r)
		want(t, "status of "+c.from, res.StatusCode, c.status)
		if c.status == 403 {
			wantRefusal(t, res, 403, "proxy.trusted")
		} else { // the caller is not the client
			want(t, "keys", w.keys(), `all "192.0.2.7"`)
		}
	}
}

// TestPathsOfTheDoor: what is not asked for is not there, also if the path of Envoy's client says so.
func TestPathsOfTheDoor(t *testing.T) {
	for target, status := range map[string]int{
		"/": 404, "/decided": 404, "/release/": 404, "/DECIDE": 404, "/release": 405, "/release?token=x": 405,
		"/decide/release": 200, "/decide/../release": 200,
	} {
		w := newWorld(t, "envoy")
		text := fmt.Sprintf("GET %s HTTP/1.1\nHost: a.example\nX-Real-Ip: 192.0.2.7", target)
		want(t, target, do(w.door, read(t, asker, text)).StatusCode, status)
	}
	d := New(nil)
	want(t, "before a file", do(d, read(t, asker, "GET /decide HTTP/1.1\nHost: a")).StatusCode, 503)
	_, err := d.Prepare(new(config.File))
	want(t, "a file without [decide] is refused", err != nil, true)
}
