package etcd

import (
	"context"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// A wrong field of an Election is an error that names field and value.
func TestRunNamesFieldAndValue(t *testing.T) {
	c := clientAt(t, "127.0.0.1:1") // which is not called
	long := strings.Repeat("x", 201)
	for _, row := range []struct {
		change func(*Election)
		wants  string
	}{
		{func(*Election) {}, ""},
		{func(e *Election) { e.Client = nil }, "Election.Client is nil"},
		{func(e *Election) { e.Client = clientv3.NewCtxClient(t.Context()) },
			"Election.Client is nil, or has no connection"},
		{func(e *Election) { e.Server = nil }, "Election.Server is nil"},
		{func(e *Election) { e.Name = "" }, `Election.Name is "" of 0 bytes, want 1 to 200`},
		{func(e *Election) { e.Name = "a/b" }, `Election.Name is "a/b"`},
		{func(e *Election) { e.Name = long }, "of 201 bytes"},
		{func(e *Election) { e.TTL = 0 }, ""},
		{func(e *Election) { e.TTL = -time.Second }, "Election.TTL is -1s, want whole seconds, 2s to 1h0m0s"},
		{func(e *Election) { e.TTL = time.Second }, "Election.TTL is 1s"},
		{func(e *Election) { e.TTL = 2500 * time.Millisecond }, "Election.TTL is 2.5s"},
		{func(e *Election) { e.TTL = 2 * time.Hour }, "Election.TTL is 2h0m0s"},
		{func(e *Election) { e.URL = "" }, `Election.URL is "": want http:// or https:// and a host`},
		{func(e *Election) { e.URL = "a:8000" }, `Election.URL is "a:8000"`},
		{func(e *Election) { e.URL = "/locks" }, `Election.URL is "/locks"`},
		{func(e *Election) { e.URL = "ftp://a" }, `Election.URL is "ftp://a"`},
		{func(e *Election) { e.URL = "http://:80" }, `Election.URL is "http://:80"`},
		{func(e *Election) { e.URL = "http://a/?b" }, "want no user, query or fragment"},
		{func(e *Election) { e.URL = "http://a/#" }, "want no user, query or fragment"},
		{func(e *Election) { e.URL = "http://a:b@c" }, "want no user, query or fragment"},
		{func(e *Election) { e.URL = "http://a\n" },
			`Election.URL is "http://a\n": net/url: invalid control character in URL`},
		{func(e *Election) { e.URL = "http://a/" + strings.Repeat("x", 2000) },
			"it has 2009 bytes, want at most 2000"},
		{func(e *Election) { e.URL = "https://[::1]:8000/locks" }, ""},
	} {
		e := &Election{Client: c, Server: newJudge().server(t, "a"), URL: "http://a", Name: "locks",
			TTL: 2 * time.Second}
		row.change(e)
		_, err := e.complete()
		if row.wants == "" && err != nil || row.wants != "" &&
			(err == nil || !strings.Contains(err.Error(), row.wants)) {
			t.Errorf("got %v, want %q", err, row.wants)
		}
		if row.wants != "" {
			if got := e.Run(context.Background()); got == nil || got.Error() != err.Error() {
				t.Errorf("Run returned %v", got)
			}
		}
	}
}

// The zero TTL is the default one, and the Election itself stays as it was.
func TestDefaults(t *testing.T) {
	e := &Election{Client: clientAt(t, "127.0.0.1:1"), Server: newJudge().server(t, "a"), URL: "http://a",
		Name: "locks"}
	c, err := e.complete()
	must(t, err)
	if c.TTL != DefaultTTL || c.Log == nil || e.TTL != 0 || e.Log != nil {
		t.Errorf("got %+v of %+v", c, e)
	}
}

// clientAt returns a client with the options that the package's page names.
func clientAt(t testing.TB, addrs ...string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: addrs, Logger: zap.NewNop(),
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second})
	must(t, err)
	t.Cleanup(func() { c.Close() }) //nolint:errcheck // a test may have closed it
	return c
}
