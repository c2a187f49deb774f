package front

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quotient-go/quotient/config"
)

// TestCertificatesAreReadWhole checks that what is half written never counts and is logged once, and
// that a pair counts when two looks have found it.
func TestCertificatesAreReadWhole(t *testing.T) {
	var log bytes.Buffer
	dir := t.TempDir()
	files := config.TLS{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	first, firstKey := makePair(t, "first")
	second, secondKey := makePair(t, "second")
	other, _ := makePair(t, "other")
	chain := append(bytes.Clone(second), other...)
	writeFile(t, files.Cert, first)
	writeFile(t, files.Key, firstKey)
	c, err := newCerts(files, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	inForce := func() string {
		cert := c.now.Load().config.Certificates[0]
		return fmt.Sprint(cert.Leaf.Subject.CommonName, " ", len(cert.Certificate))
	}
	for _, step := range []struct {
		name, file string
		text       []byte
		looks      int
		want       string
		lines      int // in the log, in all
	}{
		{"nothing", files.Cert, first, 3, "first 1", 0},
		{"a part of the certificate", files.Cert, chain[:100], 4, "first 1", 1},
		{"the first of the chain, once", files.Cert, second, 1, "first 1", 1},
		{"the chain without its key", files.Cert, chain, 4, "first 1", 2},
		{"a part of the key", files.Key, secondKey[:50], 4, "first 1", 3},
		{"the key, once", files.Key, secondKey, 1, "first 1", 3},
		{"the key", files.Key, secondKey, 1, "second 2", 4},
		{"nothing more", files.Key, secondKey, 3, "second 2", 4},
		{"too much", files.Key, make([]byte, maxPEM+1), 3, "second 2", 5},
	} {
		writeFile(t, step.file, step.text)
		for range step.looks {
			c.look()
		}
		if got := inForce(); got != step.want {
			t.Errorf("%s: %s is in force, want %s", step.name, got, step.want)
		}
		if n := strings.Count(log.String(), "\n"); n != step.lines {
			t.Errorf("%s: %d lines, want %d:\n%s", step.name, n, step.lines, log.String())
		}
	}
}

// TestCertificateChangesUnderway checks that handshakes use what was written a moment ago.
func TestCertificateChangesUnderway(t *testing.T) {
	p := &sectionOf{Proxy: section(), kind: "h2"}
	s := p.serve(t, ok)
	named := func() string {
		//nolint:gosec // loopback
		c, err := tls.Dial("tcp", s.addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	if name := named(); name != "first" {
		t.Errorf("the certificate is of %s", name)
	}
	writePair(t, filepath.Dir(p.TLS.Cert), "second")
	waitFor(t, "the second certificate", func() bool { return named() == "second" })
}

func TestTLS(t *testing.T) {
	for _, kind := range []string{"HTTP/1.1 with TLS", "h2"} {
		p := &sectionOf{Proxy: section(), kind: kind}
		s := p.serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, r.Proto, " ", r.TLS != nil && r.TLS.HandshakeComplete)
		}))
		r, err := p.client(t).Get(p.url(s))
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(r.Body)
		r.Body.Close()
		want := map[bool]string{true: "HTTP/2.0 true", false: "HTTP/1.1 true"}[kind == "h2"]
		if string(text) != want {
			t.Errorf("%s: %s, want %s", kind, text, want)
		}
		//nolint:gosec // refused
		old := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10,
			MaxVersion: tls.VersionTLS11}
		if _, err := tls.Dial("tcp", s.addr, old); err == nil {
			t.Error("TLS 1.1 is spoken")
		}
		c := dial(t, s.addr)
		send(t, c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		if text, _ := io.ReadAll(c); strings.Contains(string(text), "200") {
			t.Errorf("without TLS the answer is %q", text)
		}
		//nolint:gosec // loopback
		agreed, err := tls.Dial("tcp", s.addr,
			&tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		if err != nil {
			t.Fatal(err)
		}
		send(t, agreed, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		if text, _ := io.ReadAll(agreed); strings.Contains(string(text), "200") {
			t.Errorf("HTTP/1.1 where HTTP/2 was agreed on: %q", text)
		}
		agreed.Close()
	}
}

// TestClientCertificates checks that without a certificate of ClientCA no request is served.
func TestClientCertificates(t *testing.T) {
	dir := t.TempDir()
	writePair(t, dir, "server")
	cert, key := makePair(t, "client")
	writeFile(t, filepath.Join(dir, "ca.pem"), cert)
	p := section()
	p.TLS = &config.TLS{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"),
		ClientCA: filepath.Join(dir, "ca.pem")}
	s := serve(t, p, ok)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	strange, strangeKey := makePair(t, "stranger")
	stranger, err := tls.X509KeyPair(strange, strangeKey)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		certs []tls.Certificate
		want  bool
	}{{nil, false}, {[]tls.Certificate{stranger}, false}, {[]tls.Certificate{pair}, true}} {
		//nolint:gosec // loopback
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true,
			Certificates: c.certs}}
		r, err := (&http.Client{Transport: transport, Timeout: patience}).Get("https://" + s.addr)
		if (err == nil) != c.want {
			t.Errorf("%d certificates: %v", len(c.certs), err)
		}
		if err == nil {
			r.Body.Close()
		}
		transport.CloseIdleConnections()
	}
}
