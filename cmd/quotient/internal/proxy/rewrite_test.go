package proxy

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quotient-go/quotient/httplimit"
	"github.com/quotient-go/quotient/internal/tested"
)

// TestTargetGoesOnAsItCame: the upstream gets the client's target, whatever the key is.
func TestTargetGoesOnAsItCame(t *testing.T) {
	w := newWorld(t, loose+all, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.RequestURI)
	})
	for _, row := range []struct{ sent, upstream string }{
		{"/a/b", "/a/b"},
		{"/A/B/", "/A/B/"},
		{"//a//b", "//a//b"},
		{"/a/./b/../c", "/a/./b/../c"},
		{"/a%2Fb", "/a%2Fb"},
		{"/a%2fb", "/a%2fb"},
		{"//a%2Fb\"", "//a%2Fb%22"},
		{"/%61;x=1/b", "/%61;x=1/b"},
		{"/a?", "/a?"},
		{"/a?b=1;c=2&&d=%zz&e=a+b", "/a?b=1;c=2&&d=%zz&e=a+b"},
		{"/a|b/%7C", "/a%7Cb/%7C"},
		{"/a%2F{b}^", "/a%2F%7Bb%7D%5E"},
		{"/\xc3\xa9", "/%C3%A9"},
		{"/a#b", "/a%23b"},
		{"/a[1]!$&'()*+,;=:@-._~", "/a[1]!$&'()*+,;=:@-._~"},
		{"http://other/a%2Fb?c", "/a%2Fb?c"},
		{"http://other", "/"},
		{"http://other?c", "/?c"},
		{"http://user:word@other/a", "/a"},
		{"HTTP://other/a|b", "/a%7Cb"},
	} {
		resp, got := w.raw("GET " + row.sent + " HTTP/1.1\nHost: other\nConnection: close\n\n")
		want(t, "status of "+row.sent, resp.StatusCode, 200)
		want(t, "target of "+row.sent, got, row.upstream)
	}
}

// TestHopByHop: fields of one hop do not go on, in either direction.
func TestHopByHop(t *testing.T) {
	got := make(chan http.Header, 1)
	w := newWorld(t, loose+all, func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header.Clone()
		w.Header().Set("Connection", "X-Hop")
		w.Header().Set("X-Hop", "1")
		w.Header().Set("Keep-Alive", "timeout=5")
		w.Header().Set("X-End", "1")
		w.Header()["Content-Type"] = nil
		fmt.Fprint(w, "<html>")
	})
	resp, _ := w.get("/", "Connection", "X-Mine, close", "X-Mine", "1", "Keep-Alive", "1", "Te",
		"trailers, gzip", "Proxy-Authorization", "secret", "Proxy-Connection", "keep-alive", "X-Stays", "1")
	header := tested.Event(t, got)
	for _, name := range []string{"X-Mine", "Keep-Alive", "Proxy-Authorization", "Proxy-Connection",
		"Connection"} {
		if header[name] != nil {
			t.Errorf("%s went on: %q", name, header[name])
		}
	}
	want(t, "Te", header.Get("Te"), "trailers")
	want(t, "X-Stays", header.Get("X-Stays"), "1")
	want(t, "X-Hop", resp.Header.Get("X-Hop"), "")
	want(t, "X-End", resp.Header.Get("X-End"), "1")
	want(t, "a type that nobody gave", resp.Header.Get("Content-Type"), "")
}

// TestConnectionNamesManyFields: an upstream may name as many fields as fit into a head, beside as many that are there.
func TestConnectionNamesManyFields(t *testing.T) {
	from, names := http.Header{}, make([]string, 30_000)
	for i := range names {
		names[i] = fmt.Sprintf("x%x", i)
		from.Set(fmt.Sprintf("Y%x", i), "")
	}
	from.Set("X0", "")
	from["Connection"] = []string{"close, " + strings.Join(names, ", ")}
	to, start := http.Header{}, time.Now()
	moveEndToEnd(to, from)
	want(t, "fields that go on", len(to), len(names))
	if d := time.Since(start); d > tested.Patience/4 { // some 10 ms, and a minute if each is compared with each
		t.Errorf("it took %v", d)
	}
}

// TestForwarded: what a client says of addresses counts only from a trusted network.
func TestForwarded(t *testing.T) {
	sent := []string{"X-Forwarded-For", "192.0.2.1", "X-Forwarded-For", "192.0.2.2",
		"X-Forwarded-Proto", "https",
		"X-Forwarded-Host", "first.host", "X-Forwarded-Port", "444", "X-Real-Ip", "192.0.2.9", "Forwarded",
		"for=192.0.2.1"}
	for _, row := range []struct {
		trusted string
		sent    []string
		want    map[string]string
	}{
		{`["127.0.0.0/8"]`, sent, map[string]string{
			"X-Forwarded-For": "192.0.2.1, 192.0.2.2, 127.0.0.1", "X-Forwarded-Proto": "https",
			"X-Forwarded-Host": "first.host",
			"X-Forwarded-Port": "444", "X-Real-Ip": "192.0.2.9", "Forwarded": "for=192.0.2.1, for=127.0.0.1",
		}},
		{`["10.0.0.0/8"]`, sent, map[string]string{
			"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Proto": "http", "X-Forwarded-Host": "the.host",
			"X-Forwarded-Port": "", "X-Real-Ip": "", "Forwarded": "",
		}},
		{`["127.0.0.0/8"]`, nil, map[string]string{
			"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Proto": "http", "X-Forwarded-Host": "the.host",
			"Forwarded": "",
		}},
		{`[]`, sent, map[string]string{"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Host": "the.host"}},
		// CGI and its heirs have one variable for both spellings.
		{`[]`, []string{"X_Forwarded_For", "192.0.2.1", "X-Forwarded_Proto", "https", "X_real-ip",
			"192.0.2.9", "x_y", "z"},
			map[string]string{
				"X-Forwarded-For": "127.0.0.1", "X_forwarded_for": "", "X-Forwarded_proto": "",
				"X_real-Ip": "", "X_y": "z",
			}},
	} {
		got, hosts := make(chan http.Header, 2), make(chan string, 2)
		w := newWorld(t, "[proxy]\nupstreams = [\"UPSTREAM\"]\ntrusted = "+row.trusted+loose+all,
			func(_ http.ResponseWriter, r *http.Request) { got <- r.Header.Clone(); hosts <- r.Host })
		var log strings.Builder
		w.proxy.log = slog.New(slog.NewTextHandler(&log, nil))
		for range 2 {
			w.get("/", append([]string{"Host", "the.host"}, row.sent...)...)
		}
		doubts := 0
		if !strings.Contains(row.trusted, "127") && slices.Contains(row.sent, "Forwarded") {
			doubts = 1
		}
		want(t, "warnings of "+row.trusted, strings.Count(log.String(), `add="proxy.trusted = [\"127.0.0.1\"]"`), doubts)
		header := tested.Event(t, got)
		want(t, "Host", tested.Event(t, hosts), "the.host")
		for name, value := range row.want {
			want(t, name+" when "+row.trusted+" is trusted", strings.Join(header[name], " | "), value)
		}
	}
}

// TestForwardedHostOfNone: a client of HTTP/1.0 may name no host, and then none is given.
func TestForwardedHostOfNone(t *testing.T) {
	w := newWorld(t, loose+all, func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, r.Header["X-Forwarded-Host"], r.Header["X-Forwarded-Proto"])
	})
	_, got := w.raw("GET / HTTP/1.0\n\n")
	want(t, "host and protocol", got, "[] [http]")
}

// TestForwardedHostBesideTheUpstreams: an upstream that gets its own host learns the client's all the same.
func TestForwardedHostBesideTheUpstreams(t *testing.T) {
	w := newWorld(t, "[proxy]\nupstreams = [\"UPSTREAM\"]\nhost = \"upstream\"\n"+loose+all,
		func(w http.ResponseWriter, r *http.Request) {
			_, _ = fmt.Fprint(w, "http://"+r.Host, r.Header["X-Forwarded-Host"])
		})
	_, got := w.get("/", "Host", "the.host")
	want(t, "hosts", got, w.conf.File().Proxy.Upstreams[0].String()+"[the.host]")
}

// FuzzTarget: what goes upstream is the target of the client but for bytes that no URI may hold, and it has
// the same key there.
func FuzzTarget(f *testing.F) {
	for _, target := range []string{
		"/", "//", "/a%2Fb\"", "/A/../b;x=1", "/a?b#c", "/\xff", "/%zz", "http://h/a|b", "http://h?c",
		"//h/{", "/[",
	} {
		f.Add(target)
	}
	f.Fuzz(func(t *testing.T, target string) {
		u, err := url.ParseRequestURI(target)
		if err != nil || strings.ContainsAny(target, " \t") {
			return // no server takes it
		}
		in := &http.Request{Method: http.MethodGet, URL: u, RequestURI: target}
		if misfit(in) != 0 {
			return
		}
		own := *u
		out := &http.Request{URL: &own}
		keepTarget(out, in)
		sent := out.URL.RequestURI()
		if out.URL.Scheme != "" { // of an absolute form; the transport sets its own
			out.URL.Scheme, out.URL.Host = "http", "up"
			sent = out.URL.RequestURI()
		}
		again, err := url.ParseRequestURI(sent)
		if err != nil {
			t.Fatalf("%q goes on as %q: %v", target, sent, err)
		}
		if was, is := httplimit.CanonicalPath(u.Path), httplimit.CanonicalPath(again.Path); was != is {
			t.Errorf("%q goes on as %q, of the key %q and not %q", target, sent, is, was)
		}
		if again.RawQuery != u.RawQuery {
			t.Errorf("%q goes on as %q", target, sent)
		}
		path, _, _ := strings.Cut(target, "?")
		if target[0] == '/' && !unfit.MatchString(path) && sent != target {
			t.Errorf("%q goes on as %q", target, sent)
		}
	})
}
