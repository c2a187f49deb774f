package redis

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// agreeOn lets two processors join and one leave.
func agreeOn(t *testing.T, a, b redis.UniversalClient) {
	t.Helper()
	sa, sb := source(a, "a"), source(b, "b")
	sa.Ceiling = func() float64 { return .5 }
	wa, wb := watch(t, sa), watch(t, sb)
	wa.wants(t, 2, 1)
	wb.wants(t, 2, 2)
	wa.leave(t)
	wb.wants(t, 1, 1)
	if got, err := sa.Left(t.Context()); err != nil || got != .5 {
		t.Errorf("left is %v, %v", got, err)
	}
	wb.leave(t)
}

// documentedACL returns the rights that the package's page names, and those besides for a Cluster.
func documentedACL(t *testing.T) (rights, cluster []string) {
	t.Helper()
	page, err := os.ReadFile("doc.go")
	must(t, err)
	text := strings.NewReplacer("//", " ", "\n", " ").Replace(string(page))
	_, text, ok := strings.Cut(text, "ACL SETUSER quotient on >password ")
	if !ok {
		t.Fatal("the page names no ACL")
	}
	text, besides, ok := strings.Cut(text, "A Cluster also needs")
	if !ok {
		t.Fatal("the page names no rights for a Cluster")
	}
	besides, _, _ = strings.Cut(besides, ":")
	return strings.Fields(text), strings.FieldsFunc(besides, func(r rune) bool {
		return !strings.ContainsRune("+|abcdefghijklmnopqrstuvwxyz", r)
	})
}

// allow makes the documented user.
func allow(t *testing.T, admin *redis.Client, rights ...string) {
	t.Helper()
	args := []any{"ACL", "SETUSER", "quotient", "on", ">password"}
	for _, r := range rights {
		if strings.ContainsAny(r, "+~") {
			args = append(args, r)
		}
	}
	must(t, admin.Do(t.Context(), args...).Err())
}

// The rights that the page names are enough, and each of them is needed.
func TestACL(t *testing.T) {
	t.Parallel()
	needReal(t)
	srv := start(t)
	admin := clientOf(t, srv, nil)
	rights, _ := documentedACL(t)
	allow(t, admin, rights...)
	user := func() *redis.Client {
		return clientOf(t, srv, &redis.Options{Username: "quotient", Password: "password"})
	}
	agreeOn(t, user(), user())
	refused, err := admin.ACLLog(t.Context(), 100).Result()
	must(t, err)
	for _, r := range refused {
		if r.Object != "client|setinfo" && r.Object != "client" {
			t.Errorf("the server refused %+v", r)
		}
	}
	for _, r := range rights {
		must(t, admin.FlushAll(t.Context()).Err())
		must(t, admin.Do(t.Context(), "ACL", "DELUSER", "quotient").Err())
		allow(t, admin, remove(rights, r)...)
		must(t, admin.ScriptFlush(t.Context()).Err())
		if err := wholeSync(t, user()); err == nil {
			t.Errorf("%s is not needed", r)
		}
	}
}

func remove(list []string, item string) (rest []string) {
	for _, s := range list {
		if s != item {
			rest = append(rest, s)
		}
	}
	return rest
}

// wholeSync walks through each branch of the script.
func wholeSync(t *testing.T, c *redis.Client) error {
	s, err := source(c, "a").complete()
	must(t, err)
	a, b := s.store("a"), s.store("b")
	a.weight, b.weight = 2, 3
	for _, st := range []*store{a, b, a, b} {
		st.expiry = time.Millisecond
		if _, err := st.sync(t.Context(), 2, ".5"); err != nil {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err := c.Do(t.Context(), "ZADD", a.sizes, 1, "nobody").Err(); err != nil {
		return err
	}
	if _, err = a.sync(t.Context(), 1, ""); err != nil {
		return err
	}
	a.expiry = time.Minute
	for range 2 { // they agree
		if _, err = a.sync(t.Context(), 2, ""); err != nil {
			return err
		}
	}
	return nil
}

func TestTLS(t *testing.T) {
	t.Parallel()
	needReal(t)
	cert, pool := certificate(t)
	port := freePort(t)
	start(t, "--tls-port", port, "--tls-cert-file", cert+".crt", "--tls-key-file", cert+".key",
		"--tls-ca-cert-file", cert+".crt", "--tls-auth-clients", "no")
	secure := &redis.Options{Addr: "127.0.0.1:" + port,
		TLSConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	agreeOn(t, clientOf(t, nil, secure), clientOf(t, nil, secure))
	//nolint:gosec // the least
	stranger := watch(t,
		source(clientOf(t, nil, &redis.Options{Addr: secure.Addr, TLSConfig: &tls.Config{}}), "c"))
	// on a busy machine the handshake may take longer than a sync may
	for range 10 {
		if stranger.fails(t); strings.Contains(stranger.lastError().Error(), "certificate") {
			break
		}
	}
	if pools, _ := stranger.counts(); pools > 0 ||
		!strings.Contains(stranger.lastError().Error(), "certificate") {
		t.Errorf("without the authority: %d pools, %v", pools, stranger.lastError())
	}
}

// certificate writes a self-signed certificate for 127.0.0.1, and returns its path without ending.
func certificate(t *testing.T) (string, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour),
		NotAfter:    time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	base := filepath.Join(t.TempDir(), "redis")
	crt := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	must(t, os.WriteFile(base+".crt", crt, 0o600))
	must(t,
		os.WriteFile(base+".key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(crt)
	return base, pool
}

// freePort returns a port without a listener.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	must(t, l.Close())
	_, port, err := net.SplitHostPort(l.Addr().String())
	must(t, err)
	return port
}

// Failure mode 20: a master fails, Sentinel makes its replica the master, and no processor believes in a
// smaller pool meanwhile.
func TestSentinel(t *testing.T) {
	t.Parallel()
	needReal(t)
	master := start(t)
	replica := start(t, "--replicaof", "127.0.0.1 "+fmt.Sprint(master.Port()),
		"--repl-diskless-sync-delay", "0")
	sentinel := start(t, "--sentinel").Addr()
	knows := redis.NewSentinelClient(&redis.Options{Addr: sentinel})
	t.Cleanup(func() { must(t, knows.Close()) })
	must(t, knows.Monitor(t.Context(), "main", "127.0.0.1", fmt.Sprint(master.Port()), "1").Err())
	for option, value := range map[string]string{
		"down-after-milliseconds": "500",
		"failover-timeout":        "5000",
	} {
		must(t, knows.Set(t.Context(), "main", option, value).Err())
	}
	wait(t, "Sentinel knows the replica", func() bool {
		r, err := knows.Replicas(t.Context(), "main").Result()
		return err == nil && len(r) == 1 && r[0]["master-link-status"] == "ok"
	})
	client := func() redis.UniversalClient {
		c := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "main",
			SentinelAddrs: []string{sentinel}, ContextTimeoutEnabled: true})
		t.Cleanup(func() { must(t, c.Close()) })
		return c
	}
	agreeOn(t, client(), client())
	sa, sb := source(client(), "a"), source(client(), "b")
	a, b := watch(t, sa), watch(t, sb)
	a.wants(t, 2, 1)
	b.wants(t, 2, 2)
	before, _ := a.counts()
	must(t, master.Kill())
	promoted := clientOf(t, replica, nil)
	wait(t, "the replica is the master", func() bool {
		role, err := promoted.Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(role, "role:master")
	})
	since, _ := a.counts()
	a.until(t, "the new master answers", func() bool { n, _ := a.counts(); return n > since+10 })
	a.wants(t, 2, 1)
	b.wants(t, 2, 2)
	if n := a.least(before); n < 2 {
		t.Errorf("it believed in %d", n)
	}
}

// wait polls until something holds.
func wait(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); <-time.After(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not after %v", what, patience)
		}
	}
}
