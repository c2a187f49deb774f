package dnstest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/quotient-go/quotient/internal/tested"
)

const truncationBit = 0x0200 // of the flags (RFC 1035, 4.1.1)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func started(t *testing.T) *Server {
	t.Helper()
	s, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), tested.Patience)
	t.Cleanup(cancel)
	return ctx
}

// run is the addresses from one on.
func run(first string, n int) []netip.Addr {
	a := make([]netip.Addr, n)
	for i := range a {
		a[i] = netip.MustParseAddr(first)
		if i > 0 {
			a[i] = a[i-1].Next()
		}
	}
	return a
}

func TestBothFamilies(t *testing.T) {
	s := started(t)
	s.Set("web.test", netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("::ffff:10.0.0.2"),
		netip.MustParseAddr("2001:db8::1"))
	for network, want := range map[string]int{"ip": 3, "ip4": 1} { // the one in IPv6 form is an AAAA record
		got, err := s.Resolver().LookupNetIP(patient(t), network, "web.test.")
		if err != nil || len(got) != want {
			t.Errorf("%s: %v, %v; want %d", network, got, err, want)
		}
	}
}

func TestSRV(t *testing.T) {
	s := started(t)
	var want []*net.SRV
	for i := range 60 {
		want = append(want, &net.SRV{Target: fmt.Sprintf("pod-%02d.web.test.", i), Port: uint16(8000 + i),
			Priority: uint16(i), Weight: 5})
	}
	s.SetSRV("_http._tcp.web.test", want...)
	_, got, err := s.Resolver().LookupSRV(patient(t), "http", "tcp", "web.test.")
	if err != nil || len(got) != len(want) {
		t.Fatalf("%d targets, %v; want %d", len(got), err, len(want))
	}
	for i := range got {
		if *got[i] != *want[i] {
			t.Errorf("target %d: %v, want %v", i, *got[i], *want[i])
		}
	}
	if _, err := s.Resolver().LookupNetIP(patient(t), "ip", "_http._tcp.web.test."); !notFound(err) {
		t.Errorf("addresses of a name that has targets alone: %v", err)
	}
}

func notFound(err error) bool {
	var d *net.DNSError
	return errors.As(err, &d) && d.IsNotFound
}

func temporary(err error) bool {
	var d *net.DNSError
	return errors.As(err, &d) && d.IsTemporary
}

func TestModes(t *testing.T) {
	s := started(t)
	s.Set("web.test", run("10.0.0.1", 4)...)
	failed := func(err error) bool { return err != nil }
	rows := []struct {
		mode Mode
		want func(error) bool
	}{
		{NXDomain, notFound}, {Empty, notFound}, {ServFail, temporary}, {Garbage, failed},
		{Silent, func(err error) bool {
			return errors.Is(err, context.DeadlineExceeded) || err != nil && err.(net.Error).Timeout()
		}},
	}
	for _, r := range rows {
		t.Run(r.mode.String(), func(t *testing.T) {
			s.Fail(r.mode)
			ctx, cancel := context.WithTimeout(patient(t), time.Second)
			if r.mode == Silent {
				ctx, cancel = context.WithTimeout(patient(t), 50*time.Millisecond)
			}
			defer cancel()
			if got, err := s.Resolver().LookupNetIP(ctx, "ip4", "web.test."); !r.want(err) {
				t.Errorf("%v, %v", got, err)
			}
			s.Fail(Healthy)
			if got, err := s.Resolver().LookupNetIP(patient(t), "ip4", "web.test."); err != nil ||
				len(got) != 4 {
				t.Errorf("healed: %v, %v", got, err)
			}
		})
	}
}

func TestServFailAAAA(t *testing.T) {
	s := started(t)
	s.Set("web.test", append(run("10.0.0.1", 2), run("2001:db8::1", 2)...)...)
	s.Fail(ServFailAAAA)
	if got, err := s.Resolver().LookupNetIP(patient(t), "ip4", "web.test."); err != nil || len(got) != 2 {
		t.Errorf("IPv4: %v, %v", got, err)
	}
	if got, err := s.Resolver().LookupNetIP(patient(t), "ip6", "web.test."); !temporary(err) {
		t.Errorf("IPv6: %v, %v", got, err)
	}
}

func TestUnknownNamesDoNotExist(t *testing.T) {
	s := started(t)
	s.Set("empty.test")
	for name, code := range map[string]dnsmessage.RCode{"none.test": dnsmessage.RCodeNameError, "empty.test": 0} {
		m := s.answer(ask(name, dnsmessage.TypeA, 0), false)
		if got := dnsmessage.RCode(m[3] & 15); got != code {
			t.Errorf("%s: code %d, want %d", name, got, code)
		}
	}
}

// ask is a question as a client writes it; size 0: without EDNS0.
func ask(name string, kind dnsmessage.Type, size int) []byte {
	q := dnsmessage.Question{Name: dnsmessage.MustNewName(name + "."), Type: kind, Class: dnsmessage.ClassINET}
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: 0x1234, RecursionDesired: true}, Questions: []dnsmessage.Question{q}}
	if size > 0 {
		head := dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName("."), Type: dnsmessage.TypeOPT, Class: dnsmessage.Class(size)}
		m.Additionals = []dnsmessage.Resource{{Header: head, Body: &dnsmessage.OPTResource{}}}
	}
	packed, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return packed
}

// Answers stay within what a question allows, and say so when they are cut, unless the mode is to break that.
func TestSizes(t *testing.T) {
	s := started(t)
	for _, r := range []struct {
		mode           Mode
		addresses      int
		size           int // that a question allows; 0: none
		stream         bool
		least, most    int // bytes of the answer
		truncated, all bool
	}{
		{Healthy, 5000, 0, false, 452, 512, true, false},
		{Healthy, 5000, 100, false, 452, 512, true, false},
		{Healthy, 5000, 900, false, 840, 900, true, false},
		{Healthy, 5000, 1232, false, 1172, 1232, true, false},
		{Healthy, 5000, 4096, false, 1172, 1232, true, false},
		{Healthy, 5000, 0, true, 65475, 65535, true, false},
		{Healthy, 5000, 1232, true, 65475, 65535, true, false},
		{Oversized, 1000, 1232, false, 16000, 65535, false, true},
		{Truncated, 5, 0, false, 0, 512, true, false},
		{Truncated, 5, 0, true, 0, 512, true, false},
	} {
		s.Set("web.test", run("10.0.0.1", r.addresses)...)
		s.Fail(r.mode)
		m := s.answer(ask("web.test", dnsmessage.TypeA, r.size), r.stream)
		truncated := binary.BigEndian.Uint16(m[2:])&truncationBit != 0
		records := int(binary.BigEndian.Uint16(m[6:]))
		if len(m) < r.least || len(m) > r.most || truncated != r.truncated || (records == r.addresses) != r.all {
			t.Errorf("%+v: %d bytes, %d records, truncated %v", r, len(m), records, truncated)
		}
	}
}

func TestSetPanics(t *testing.T) {
	s := started(t)
	rows := map[string]func(){
		"invalid address": func() { s.Set("web.test", netip.Addr{}) },
		"a label of 0":    func() { s.Set("web..test") },
		"64 bytes":        func() { s.Set(strings.Repeat("a", 64) + ".test") },
		"256 bytes":       func() { s.Set(strings.Repeat("abc.", 64)) },
		"target":          func() { s.SetSRV("web.test", &net.SRV{Target: "a..b"}) },
	}
	for name, f := range rows {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
	if mode, r, exists := s.find("web.test"); exists {
		t.Errorf("after refusals: %v %v", mode, r)
	}
}

// Connections beyond the bound are closed, and Close ends those that are open.
func TestConnectionsAreBounded(t *testing.T) {
	s := started(t)
	var d net.Dialer
	dial := func() net.Conn {
		c, err := d.DialContext(patient(t), "tcp", s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(tested.Patience))
		return c
	}
	// asks sends a question and reports whether an answer came.
	asks := func(c net.Conn) bool {
		q := ask("web.test", dnsmessage.TypeA, 0)
		c.Write(append([]byte{0, byte(len(q))}, q...))
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return false
		}
		_, err := io.ReadFull(c, make([]byte, binary.BigEndian.Uint16(size[:])))
		return err == nil
	}
	var open []net.Conn
	for range maxConns {
		c := dial()
		if !asks(c) {
			t.Fatalf("connection %d has no answer", len(open))
		}
		open = append(open, c)
	}
	if asks(dial()) {
		t.Errorf("connection %d has an answer", maxConns+1)
	}
	start := time.Now()
	s.Close()
	if d := time.Since(start); d > idle/2 {
		t.Errorf("Close has waited for connections: %v", d)
	}
	if asks(open[0]) {
		t.Error("a closed server answers")
	}
	if err := s.Close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
}

func TestModeString(t *testing.T) {
	for m, want := range map[Mode]string{Healthy: "healthy", Garbage: "garbage", 200: "Mode(200)"} {
		if m.String() != want {
			t.Errorf("%d: %q", m, m)
		}
	}
}

// FuzzAnswer checks that no message panics, and that an answer has the question's id, is marked as an
// answer, and fits. A question that was read stands in it unchanged, and its name can be written again.
func FuzzAnswer(f *testing.F) {
	s := &Server{names: map[string]records{}}
	s.Set("web.test", append(run("10.0.0.1", 100), netip.MustParseAddr("::1"))...)
	good := ask("web.test", dnsmessage.TypeA, 1232)
	for _, kind := range []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA, dnsmessage.TypeSRV} {
		f.Add(ask("web.test", kind, 1<<16-1), kind == dnsmessage.TypeA, byte(kind)) // in some mode
	}
	f.Add(ask("none.test", dnsmessage.TypeA, 1), false, byte(0))
	f.Add(ask(strings.Repeat("a.", 126)+"a", dnsmessage.TypeA, 512), false, byte(0)) // the longest name
	for _, n := range []int{0, 12, 20, len(good) - 3} {                              // cut in the header, in the name, in the OPT record
		f.Add(good[:n], false, byte(0))
	}
	f.Add(append(append(slices.Clone(good[:12]), strings.Repeat("\x01a", 150)...), 0, 0, 1, 0, 1), false, byte(0))
	f.Add([]byte(nil), false, byte(0))
	for at, b := range map[int]byte{2: 0x81, 3: 0x20, 5: 2, 12: 0xc0} { // an answer, two questions, a pointer
		m := slices.Clone(good)
		m[at] = b
		f.Add(m, false, byte(0))
	}
	f.Fuzz(func(t *testing.T, m []byte, stream bool, mode byte) {
		s.Fail(Mode(mode) % Mode(len(modeNames)))
		q, err := parseQuestion(m)
		a := s.answer(m, stream)
		if errors.Is(err, errNoQuestion) || s.mode == Silent {
			if a != nil {
				t.Fatalf("answer %x to no question", a)
			}
			return
		}
		limit := limit(q, s.mode, stream)
		if len(a) < 12 || len(a) > limit || a[2]&0x80 == 0 ||
			binary.BigEndian.Uint16(a) != binary.BigEndian.Uint16(m) {
			t.Fatalf("answer %x to %x, limit %d", a, m, limit)
		}
		if err != nil {
			if a[3]&15 != byte(dnsmessage.RCodeFormatError) || binary.BigEndian.Uint16(a[4:]) != 0 {
				t.Fatalf("answer %x to a malformed question", a)
			}
			return
		}
		var p dnsmessage.Parser
		_, _ = p.Start(a)
		if got, err := p.Question(); err != nil || got != q.Question || q.size < minDatagram || q.size > maxDatagram {
			t.Fatalf("question %v comes back as %v, %v, size %d", q.Question, got, err, q.size)
		}
	})
}
