// Package tested is what the tests of several packages share.
package tested

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// Patience bounds each wait for an event on real sockets: it is long for a machine that is busy.
const Patience = time.Minute

// TB is what a check needs of a test: each testing.TB has it, and the T of a property.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Must fails the test on an error.
func Must(t TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// Want fails the test unless what it got is what is wanted.
func Want[T comparable](t TB, what string, got, wanted T) {
	t.Helper()
	Not(t, got != wanted, "%s: got %v, want %v", what, got, wanted)
}

// Not fails the test where something holds that must not: the text says what.
func Not(t TB, holds bool, format string, args ...any) {
	t.Helper()
	if holds {
		t.Errorf(format, args...)
	}
}

// Is fails the test unless an error is the wanted one.
func Is(t TB, what string, err, wanted error) {
	t.Helper()
	Not(t, !errors.Is(err, wanted), "%s: error %v, want %v", what, err, wanted)
}

// Until waits for what no event tells of.
func Until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(Patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// Event returns what comes from a channel.
func Event[T any](t testing.TB, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(Patience):
		t.Fatal("no event")
	}
	return v
}

// FreeAddr returns an address on loopback without a listener. Its port is below those that connections get, and its
// host is one of 16 million where the system has them, or another server may take it while this one is stopped.
func FreeAddr(t testing.TB) string {
	t.Helper()
	host := fmt.Sprintf("127.%d.%d.%d", 1+mathrand.IntN(254), mathrand.IntN(256), 1+mathrand.IntN(254))
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprint(host, ":", 10_000+mathrand.IntN(20_000)))
		if err == nil {
			Must(t, l.Close())
			return l.Addr().String()
		}
		host = "127.0.0.1"
	}
	t.Fatal("no port is free")
	return ""
}

// Certificate returns a certificate of its own for a name and for loopback, good for both ends, and its key.
func Certificate(t testing.TB, name string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
		DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	Must(t, err)
	text, err := x509.MarshalPKCS8PrivateKey(private)
	Must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})
}

// Buffer is what is written, to be read while others write. The zero value is empty.
type Buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write adds to what was written.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String is all that was written.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
