package main

import (
	"bytes"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// TestAMesh: what one seat sends another comes there, now and then, and under the sender's public address.
func TestAMesh(t *testing.T) {
	m := newMesh()
	defer m.close() //nolint:errcheck // checked below
	a, b := openSeat(t, m, 1), openSeat(t, m, 2)
	here, there := listenAt(t, a), listenAt(t, b)
	if !arrives(t, here, b, there, a) || !arrives(t, there, a, here, b) {
		t.Error("nothing comes through the whole mesh")
	}
	oneWay := []cut{{1, 2}}
	m.part(oneWay)
	if arrives(t, here, b, there, a) || !arrives(t, there, a, here, b) {
		t.Error("a cut of one way stops something else")
	}
	m.part(oneWay)
	m.heal(oneWay)
	if arrives(t, here, b, there, a) {
		t.Error("one of two cuts was mended, and something comes through")
	}
	m.heal(oneWay)
	if !arrives(t, here, b, there, a) {
		t.Error("nothing comes through the mesh that was mended")
	}
	if n := m.counts(); n.Sent == 0 || n.Cut == 0 || n.Sent < n.Cut+n.Lost {
		t.Errorf("%+v", n)
	}
	if err := m.close(); err != nil {
		t.Error(err)
	}
}

func openSeat(t *testing.T, m *mesh, number int) *seat {
	t.Helper()
	s, err := m.open(number)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// listenAt is a replica's socket.
func listenAt(t *testing.T, s *seat) *net.UDPConn {
	t.Helper()
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(s.bind))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// arrives sends some datagrams, of which a few are lost by chance, and reports whether one has come.
func arrives(t *testing.T, out *net.UDPConn, to *seat, in *net.UDPConn, from *seat) bool {
	t.Helper()
	for range 20 {
		if _, err := out.WriteToUDPAddrPort([]byte("word"), to.public); err != nil {
			t.Fatal(err)
		}
	}
	_ = in.SetReadDeadline(time.Now().Add(20 * mostLate))
	came := false
	for buf := make([]byte, 10); ; {
		n, addr, err := in.ReadFromUDPAddrPort(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return came
		}
		if err != nil || string(buf[:n]) != "word" || addr != from.public {
			t.Fatalf("%q from %v, %v; want it from %v", buf[:n], addr, err, from.public)
		}
		came = true
	}
}

// TestConnectionsOfAMesh: a connection carries both ways, and nothing more after a cut.
func TestConnectionsOfAMesh(t *testing.T) {
	m := newMesh()
	defer m.close() //nolint:errcheck // it is empty
	a, b := openSeat(t, m, 1), openSeat(t, m, 2)
	listener, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(b.bind))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close() //nolint:errcheck // nothing is lost
	from := &net.TCPAddr{IP: a.bind.Addr().AsSlice()}
	out, err := net.DialTCP("tcp", from, net.TCPAddrFromAddrPort(b.public))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close() //nolint:errcheck // nothing is lost
	in, err := listener.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close() //nolint:errcheck // nothing is lost
	for i, c := range []struct {
		from, to *net.TCPConn
		cut, ok  bool
	}{{out, in, false, true}, {in, out, false, true}, {in, out, true, false}, {out, in, true, true}} {
		if c.cut {
			m.part([]cut{{2, 1}})
		}
		if _, err := c.from.Write([]byte("word")); err != nil {
			t.Fatal(err)
		}
		patience := 10 * time.Second
		if !c.ok {
			patience = 10 * mostLate
		}
		_ = c.to.SetReadDeadline(time.Now().Add(patience))
		buf := make([]byte, 10)
		n, err := c.to.Read(buf)
		if got := err == nil && bytes.Equal(buf[:n], []byte("word")); got != c.ok {
			t.Errorf("step %d: %q, %v", i, buf[:n], err)
		}
	}
}

func TestStrokes(t *testing.T) {
	for seed := range uint64(50) {
		var count [strokes]int
		for _, x := range strokesOf(config{Duration: 10 * time.Minute, Seed: seed}) {
			count[x.what]++
			if in := x.at % cycle; in > storm || in+x.lasts > storm && x.what != strokeCalm {
				t.Fatalf("seed %d: %+v is not over before the calm", seed, x)
			}
		}
		if want := [strokes]int{15, 15, 60, 30, 15, 120, 30}; count != want {
			t.Fatalf("seed %d: %v, want %v", seed, count, want)
		}
	}
}

// TestAFleetThatGossips is the command's claim about such a fleet, in little.
func TestAFleetThatGossips(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if got := run(t.Context(), []string{"-gossip", "-duration", "20s"}, &stdout, &stderr); got != exitHeld {
		t.Fatalf("exit status %d\n%s%s", got, stdout.String(), stderr.String())
	}
	for _, want := range []string{
		"s  kill -9 of replica", "s  SIGSTOP of replica", "do not reach each other", "the partition heals",
		"Everything held.",
		"1 partitions, 0 that go one way only, 2 times kill -9", "8 processes ended in order, 0 of them left",
	} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %q in\n%s", want, stdout.String())
		}
	}
}
