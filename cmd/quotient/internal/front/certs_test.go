package front

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/quotient-go/quotient/internal/tested"
)

// TestCertificatesAreReadWhole checks that what is half written never counts and is logged once, and
// that a pair counts when two looks have found it.
func TestCertificatesAreReadWhole(t *testing.T) {
	var log bytes.Buffer
	files := writePair(t, t.TempDir(), "none")
	put := func(file string, text []byte) { must(t, os.WriteFile(file, text, 0o600)) }
	first, firstKey := tested.Certificate(t, "first")
	second, secondKey := tested.Certificate(t, "second")
	other, _ := tested.Certificate(t, "other")
	chain := append(bytes.Clone(second), other...)
	put(files.Cert, first)
	put(files.Key, firstKey)
	c, err := NewCerts("proxy.tls", *files, new(tls.Config), slog.New(slog.NewTextHandler(&log, nil)))
	must(t, err)
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
		{"too much", files.Key, make([]byte, 1<<20+1), 3, "second 2", 5},
	} {
		put(step.file, step.text)
		for range step.looks {
			c.look(t.Context())
		}
		if got := inForce(); got != step.want {
			t.Errorf("%s: %s is in force, want %s", step.name, got, step.want)
		}
		if n := strings.Count(log.String(), "\n"); n != step.lines {
			t.Errorf("%s: %d lines, want %d:\n%s", step.name, n, step.lines, log.String())
		}
	}
}

func TestTLS(t *testing.T) {
	for kind, want := range map[string]string{"HTTP/1.1 with TLS": "HTTP/1.1 true", "h2": "HTTP/2.0 true"} {
		p := &sectionOf{Proxy: section(), kind: kind}
		s := p.serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, r.Proto, " ", r.TLS != nil && r.TLS.HandshakeComplete)
		}))
		if _, text := fetch(p.client(t), "GET", p.url(s), nil); text != want {
			t.Errorf("%s: %s, want %s", kind, text, want)
		}
		old := trusting()
		old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
		if _, err := tls.Dial("tcp", s.addr, old); err == nil {
			t.Error("TLS 1.1 is spoken")
		}
		if text := s.said(t, crlf(get+"~")); strings.Contains(text, "200") {
			t.Errorf("without TLS the answer is %q", text)
		}
		agreed, err := tls.Dial("tcp", s.addr, trusting("h2"))
		must(t, err)
		send(t, agreed, crlf(get+"~"))
		if text, _ := io.ReadAll(agreed); strings.Contains(string(text), "200") {
			t.Errorf("HTTP/1.1 where HTTP/2 was agreed on: %q", text)
		}
		agreed.Close()
	}
}

// TestClientCertificates checks that without a certificate of ClientCA no request is served.
func TestClientCertificates(t *testing.T) {
	pairOf := func(name string) (ca string, of []tls.Certificate) {
		files := writePair(t, t.TempDir(), name)
		pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
		must(t, err)
		return files.Cert, []tls.Certificate{pair}
	}
	ca, client := pairOf("client")
	_, stranger := pairOf("stranger")
	p := section()
	p.TLS = writePair(t, t.TempDir(), "server")
	p.TLS.ClientCA = ca
	s := serve(t, p, ok)
	for name, certs := range map[string][]tls.Certificate{"none": nil, "stranger": stranger, "client": client} {
		with := trusting()
		with.Certificates = certs
		transport := &http.Transport{TLSClientConfig: with}
		client := &http.Client{Transport: transport, Timeout: tested.Patience}
		if status, text := fetch(client, "GET", "https://"+s.addr, nil); (status != "") != (name == "client") {
			t.Errorf("%s: %s", name, text)
		}
		transport.CloseIdleConnections()
	}
}
