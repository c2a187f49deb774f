package etcd

import (
	"testing"
	"time"

	"github.com/quotient-go/quotient/internal/etcdtest"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// clientOf returns a client of servers with the options that the package's page names.
func clientOf(t testing.TB, servers ...*etcdtest.Server) *clientv3.Client {
	t.Helper()
	var addrs []string
	for _, s := range servers {
		addrs = append(addrs, s.Addr())
	}
	return clientAt(t, addrs...)
}

func clientAt(t testing.TB, addrs ...string) *clientv3.Client {
	t.Helper()
	return clientWith(t, clientv3.Config{Endpoints: addrs,
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second})
}

func clientWith(t testing.TB, config clientv3.Config) *clientv3.Client {
	t.Helper()
	config.Logger = zap.NewNop() // the client's own words about servers that tests have killed
	c, err := clientv3.New(config)
	must(t, err)
	t.Cleanup(func() { c.Close() }) //nolint:errcheck // a test may have closed it
	return c
}
