package pods

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/quotient-go/quotient/internal/tested"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var must = tested.Must

// found returns a Lookup of a name that has these addresses.
func found(name string, addrs ...string) Lookup {
	return func(_ context.Context, asked string) (all []netip.Addr, err error) {
		if asked != name {
			return nil, fmt.Errorf("%s is asked for", asked)
		}
		for _, a := range addrs {
			all = append(all, netip.MustParseAddr(a))
		}
		return all, nil
	}
}

// TestLists: what each list has, each pod once, or what is wrong with it. A text that cannot be a list is refused by
// Parse, and the rest by each look at it.
func TestLists(t *testing.T) {
	dir := t.TempDir()
	file := func(text string) string {
		path := filepath.Join(dir, fmt.Sprint(len(text)))
		must(t, os.WriteFile(path, []byte(text), 0o600))
		return "file:" + path
	}
	many := strings.Repeat("http://a,", Most) + "http://b"
	var most []string
	for i := range Most + 1 {
		most = append(most, fmt.Sprintf("10.0.%d.%d", i/250, i%250))
	}
	lookups := map[string]Lookup{
		"dns":  found("api", "10.0.0.2", "fd00::1", "::ffff:10.0.0.2", "10.0.0.1"),
		"kube": found("api", most[:Most]...), "more": found("api", most...), "none": found("api"),
		"bad": func(context.Context, string) ([]netip.Addr, error) { return nil, errors.New("no such host") },
	}
	const want = " is not http://host:port, https://host:port or unix:///path"
	for _, r := range []struct{ text, pods, err string }{
		{"dns:api:9091", "http://10.0.0.1:9091/ http://10.0.0.2:9091/ http://[fd00::1]:9091/", ""},
		{"dns:https://api:9091/ops", "https://10.0.0.1:9091/ops/ https://10.0.0.2:9091/ops/ https://[fd00::1]:9091/ops/", ""},
		{"kube:api:9091", "1000", ""},
		{"http://A:80,http://a, https://a:443/ ,http://a:1/x,http://a:1/x/", "http://a/ https://a/ http://a:1/x/", ""},
		{"unix:///run/q.sock,unix:///run/Q.sock", "unix:///run/q.sock unix:///run/Q.sock", ""},
		{many, "http://a/ http://b/", ""},
		{file("# ours\n\nhttp://a:1 # the first\r\n unix:///run/q\n"), "http://a:1/ unix:///run/q", ""},

		{"", "", `pods: ""` + want},
		{"http://a:1,", "", `pods: ""` + want},
		{"a:9091", "", `pods: "a:9091"` + want},
		{"http://a:0", "", `pods: "http://a:0"` + want},
		{"http://u:p@a", "", want},
		{"http://a?x", "", want},
		{"http://a?", "", want},
		{"http://a#x", "", want},
		{"unix://run/q", "", want},
		{"file:", "", want},
		{"http://" + strings.Repeat("a", 1000) + ":x", "", "aaa…\"" + want},
		{"dns:api", "", `pods: "dns:api": want dns:NAME:PORT or dns:https://NAME:PORT`},
		{"dns::9091", "", "want dns:NAME:PORT"},
		{"dns:unix:///run/q", "", "want dns:NAME:PORT"},
		{"kube:api:x", "", "want kube:NAME:PORT or kube:https://NAME:PORT"},
		{"more:api:9091", "", "pods: more:api:9091: there are 1001, and at most 1000 can be asked"},
		{"none:api:9091", "", "pods: none:api:9091: it has no pods"},
		{"bad:api:9091", "", "pods: bad:api:9091: no such host"},
		{file("http://a\n\nhttp://\x1b[2J\n"), "", `:3: "http://\x1b[2J"` + want},
		{file("#"), "", ": it has no pods"},
		{file(strings.Repeat("#", mostFile+1)), "", "it is larger than 262144 bytes"},
		{"file:" + dir + "/none", "", "none: no such file"},
	} {
		var all []Pod
		l, err := Parse(r.text, lookups)
		if err == nil {
			all, err = l.Pods(t.Context())
		}
		if (err == nil) != (r.err == "") || err != nil && !strings.Contains(err.Error(), r.err) {
			t.Errorf("%.60q: %v, want %q", r.text, err, r.err)
		}
		var got []string
		for _, p := range all {
			got = append(got, p.URL)
		}
		if text := strings.Join(got, " "); text != r.pods && fmt.Sprint(len(all)) != r.pods && r.err == "" {
			t.Errorf("%.60q: %s, want %s", r.text, text, r.pods)
		}
	}
}

// TestFileIsReadAnew: a pod that is written into the file is there the next time.
func TestFileIsReadAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pods")
	l, err := Parse("file:"+path, nil)
	must(t, err)
	for n := range 3 {
		must(t, os.WriteFile(path, []byte(strings.Repeat("http://a:1\n", min(n, 1))+strings.Repeat("http://b:1/x\n", n/2)), 0o600))
		all, err := l.Pods(t.Context())
		if len(all) != n || (err == nil) != (n > 0) {
			t.Errorf("%v, %v; want %d pods", all, err, n)
		}
		if n == 2 && (all[0].Address != "a:1" || all[1].Address != "b:1/x") {
			t.Errorf("addresses: %v", all)
		}
	}
}

// TestTransport: each certificate must be for the name that the list has, and for the URL's host without a name.
func TestTransport(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	u, err := url.Parse(server.URL)
	must(t, err)
	here := func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr(u.Hostname())}, nil
	}
	trusting := server.Client().Transport.(*http.Transport).TLSClientConfig
	for _, r := range []struct{ text, err string }{
		{"dns:https://example.com:" + u.Port(), ""}, // which the certificate is for
		{"dns:https://other.example:" + u.Port(), "certificate is valid for"},
		{server.URL, ""},
	} {
		l, err := Parse(r.text, map[string]Lookup{"dns": here})
		must(t, err)
		all, err := l.Pods(t.Context())
		must(t, err)
		transport := l.Transport(trusting)
		resp, err := (&http.Client{Transport: transport}).Get(all[0].URL)
		if err == nil {
			must(t, resp.Body.Close())
		}
		transport.CloseIdleConnections()
		if (err == nil) != (r.err == "") || err != nil && !strings.Contains(err.Error(), r.err) {
			t.Errorf("%s: %v, want %q", r.text, err, r.err)
		}
	}
	l, err := Parse(server.URL, nil)
	must(t, err)
	if _, err := (&http.Client{Transport: l.Transport(nil)}).Get(server.URL); err == nil {
		t.Error("an unknown authority is trusted without a configuration")
	}
}

// TestAskSideBySide: 16 at once, each with its deadline, and none after the end of all.
func TestAskSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := make([]Pod, 4*atOnce)
		for i := range all {
			all[i].Address = fmt.Sprint("pod", i)
		}
		var mu sync.Mutex
		now, most, calls := 0, 0, 0
		add := func(n int) { mu.Lock(); now += n; most = max(most, now); calls += max(n, 0); mu.Unlock() }
		silent := func(ctx context.Context, _ Pod) (Process, int, error) {
			add(1)
			<-ctx.Done()
			add(-1)
			return Process{}, 0, ctx.Err()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		start := time.Now()
		answers := Ask(ctx, all, time.Second, silent)
		if took := time.Since(start); took != 2500*time.Millisecond || most != atOnce || calls != 3*atOnce {
			t.Errorf("%d calls, %d at once, in %v", calls, most, took)
		}
		for i, a := range answers {
			want := "no answer in 1s"
			if i >= 2*atOnce {
				want = context.DeadlineExceeded.Error()
			}
			if a.Err == nil || a.Err.Error() != want || a.Name != all[i].Address {
				t.Errorf("%d: %s: %v, want %s", i, a.Name, a.Err, want)
			}
		}
	})
}

// TestNames: a pod is called what it says it is, and its address where others say the same or it says nothing. An
// address of each family is one process.
func TestNames(t *testing.T) {
	start, later := time.Unix(1000, 0), time.Unix(1001, 0)
	says := []Process{{"a", start}, {"a", start.UTC()}, {"b", start}, {"b", later}, {"c\x1b", start}, {"d", time.Time{}}, {}, {}}
	var all []Pod
	for i := range says {
		all = append(all, Pod{Address: fmt.Sprint("h:", i)})
	}
	answers := Ask(t.Context(), all, time.Minute, func(_ context.Context, p Pod) (Process, string, error) {
		i := slices.Index(all, p)
		return says[i], p.Address, map[bool]error{true: errors.New("away")}[i == len(says)-1]
	})
	var got []string
	for _, a := range answers {
		if got = append(got, a.Name); (a.Err != nil) != (a.Address == "h:7") || a.Value != a.Address {
			t.Errorf("%s: %q, %v", a.Name, a.Value, a.Err)
		}
	}
	if want := []string{"a", "b (h:2)", "b (h:3)", `c\x1b`, "d", "h:6", "h:7"}; !slices.Equal(got, want) {
		t.Errorf("names: %q, want %q", got, want)
	}
}
