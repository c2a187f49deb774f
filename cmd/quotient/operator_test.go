//go:build unix

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/admin"
	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/internal/tested"
)

func TestAccess(t *testing.T) {
	_, err := access(config.Admin{TokenFile: "nosuch"}, "proxy.admin")
	fails(t, err, "proxy.admin.token-file")
	_, err = access(config.Admin{ReadOnlyTokenFile: "nosuch"}, "proxy.admin")
	fails(t, err, "proxy.admin.read-only-token-file")
	opts, err := access(config.Admin{TLS: &config.TLS{ClientCA: "ca"}, Hosts: []string{"ops"}}, "proxy.admin")
	if err != nil || len(opts) != 2 {
		t.Errorf("got %d options, %v", len(opts), err)
	}
}

// pair writes a certificate of its own for a name.
func pair(t *testing.T, dir, name string) *config.TLS {
	t.Helper()
	cert, key := tested.Certificate(t, name)
	files := &config.TLS{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	must(t, os.WriteFile(files.Cert, cert, 0o600))
	must(t, os.WriteFile(files.Key, key, 0o600))
	return files
}

// TestOperatorTLSFollowsItsFiles: the listener for operators has the certificate that its files have, whichever they
// are, and asks for one of the client's where there is a CA for it.
func TestOperatorTLSFollowsItsFiles(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	defer end()
	dir := t.TempDir()
	files := pair(t, dir, "old")
	files.ClientCA = files.Cert
	a := config.Admin{Listen: "127.0.0.1:0", TLS: files}
	o, err := openOperator(ctx, a, "proxy.admin", new(quotient.Registry), slog.New(slog.DiscardHandler))
	must(t, err)
	equal(t, "the client's certificate", o.certs.Config().ClientAuth, tls.VerifyClientCertIfGiven)
	ended := make(chan error, 1)
	go func() { ended <- o.serve(ctx) }()
	name := func() string {
		c, err := tls.Dial("tcp", o.l.Addr().String(), &tls.Config{InsecureSkipVerify: true})
		must(t, err)
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].DNSNames[0]
	}
	equal(t, "the name", name(), "old")
	pair(t, dir, "new")
	for end := time.Now().Add(tested.Patience); name() != "new"; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the certificate stays")
		}
	}
	end()
	must(t, <-ended)
	for _, row := range []struct{ tls, says string }{
		{files.Key, "proxy.admin.tls.client-ca: " + files.Key + " has no certificate"}, {"nosuch", "client-ca: nosuch: "},
	} {
		files.ClientCA = row.tls
		_, err := openOperator(t.Context(), a, "proxy.admin", new(quotient.Registry), slog.New(slog.DiscardHandler))
		fails(t, err, row.says)
	}
}

// TestPeersOfTheFile: the listener for operators shows the pods of its list, over TLS with the files of peers-tls.
func TestPeersOfTheFile(t *testing.T) {
	files := pair(t, t.TempDir(), "pods")
	files.ClientCA = files.Cert
	open := func(a config.Admin) (operator, error) {
		a.Listen = "127.0.0.1:0"
		return openOperator(t.Context(), a, "proxy.admin", new(quotient.Registry), slog.New(slog.DiscardHandler))
	}
	pod, err := open(config.Admin{TLS: files})
	must(t, err)
	a := config.Admin{Peers: pod.url, PeersTLS: config.UpstreamTLS{
		CA: files.Cert, Cert: files.Cert, Key: files.Key, ServerName: "pods",
	}}
	o, err := open(a)
	must(t, err)
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- together(ctx, pod.serve, o.serve) }()
	c, err := admin.NewClient(o.url)
	must(t, err)
	got, err := c.Peers(t.Context())
	must(t, err)
	equal(t, "pods: "+fmt.Sprint(got), len(got.Pods), 1) // both are this process
	equal(t, "its error", got.Pods[0].Error, "")
	c.Close()
	end()
	must(t, <-ended)
	for field, wrong := range map[string]func(*config.Admin){
		"peers":          func(a *config.Admin) { a.Peers = "pods" },
		"peers-tls.ca":   func(a *config.Admin) { a.PeersTLS.CA = "nosuch" },
		"peers-tls.cert": func(a *config.Admin) { a.PeersTLS.Key = files.Cert },
	} {
		b := a
		wrong(&b)
		_, err := open(b)
		fails(t, err, "proxy.admin."+field+": ")
	}
}

func TestSuspicious(t *testing.T) {
	f := &config.File{
		Pool: config.Pool{Replicas: 3},
		Limiters: map[string]config.Limiter{
			"dry": {DryRun: true}, "few": {Limit: quotient.Limit{InFlight: 2}},
			"well": {Limit: quotient.Limit{InFlight: 3}},
		},
		Proxy: &config.Proxy{Listen: "127.0.0.1:1", Upstreams: []*url.URL{
			{Scheme: "http", Host: "127.0.0.1:1"},
			{Scheme: "http", Host: "127.0.0.1:2"},
		}},
	}
	equal(t, "what is suspicious", suspicious(f), []string{
		"limiter dry is in a dry run: everything is admitted",
		"limiter few has 2 slots for 3 replicas: some refuse everything",
		"upstream http://127.0.0.1:1 is the proxy's own address: requests would go round",
	})
}

// TestOverridesLastOverARestart: what operators set of single keys, also right before a crash.
func TestOverridesLastOverARestart(t *testing.T) {
	up, dir := hold(t), t.TempDir()
	path := filepath.Join(dir, "quotient.toml")
	begin := func() (*process, *admin.Client) {
		p := start(t, "--config", path)
		c, err := admin.NewClient(p.page, admin.HTTPClient(client))
		must(t, err)
		return p, c
	}
	set := func(c *admin.Client, key string, limit *quotient.Limit, ttl time.Duration) admin.LimiterState {
		s, err := c.Override(t.Context(), "api", key, limit, ttl)
		must(t, err)
		return s
	}
	written(t, path, up.URL, 1, "overrides = \"overrides.json\"\n")
	p, c := begin()
	deny, two := &quotient.Limit{Deny: true}, &quotient.Limit{InFlight: 2}
	set(c, "/denied", deny, time.Hour)
	set(c, "/removed", deny, 0)
	set(c, "/short", deny, time.Millisecond)
	was := set(c, "/two", two, 0).Overrides
	set(c, "/removed", nil, 0)
	second := launch(t, "proxy", "--log", "json", "--config", path)
	second.ends(exitFailed)
	if !second.has("overrides.json: another process has it: ") {
		t.Errorf("a second process is not refused: %v", second.log)
	}
	p.signal(syscall.SIGKILL)
	p.ends(-1)
	_, c = begin()
	s, err := c.Limiter(t.Context(), "api")
	must(t, err)
	was = slices.DeleteFunc(was, func(o admin.OverrideState) bool { return o.Key == "/removed" || o.Key == "/short" })
	for i := range min(len(was), len(s.Overrides)) {
		if d := was[i].Until.Sub(s.Overrides[i].Until); d.Abs() < time.Second { // it was written a little before it was set
			was[i].Until = s.Overrides[i].Until
		}
	}
	equal(t, "overrides after the crash", s.Overrides, was)
}
