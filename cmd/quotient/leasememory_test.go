//go:build linux && !race

package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// The race detector takes several times as much.

// resident is the most memory that the process has had, in MiB.
func (p *process) resident() int {
	p.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	must(p.t, err)
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	must(p.t, err)
	return kib >> 10
}

// stranger sends bytes on a connection of its own, at most so many that the server takes them, and reads nothing.
func (p *process) stranger(sent []byte) net.Conn {
	c, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		p.t.Error(err)
		return nil
	}
	p.t.Cleanup(func() { _ = c.Close() })
	_ = c.(*net.TCPConn).SetReadBuffer(4 << 10)
	_ = c.SetWriteDeadline(time.Now().Add(10 * time.Second))
	_, _ = c.Write(sent) // the server may have refused it
	return c
}

func withBody(line string, length int, body []byte) []byte {
	const head = "%s HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
	return fmt.Appendf(nil, head, line, length, body)
}

// TestLeasesHoldLittleForStrangers has 300 strangers let a server keep as much as it will, and measures that.
func TestLeasesHoldLittleForStrangers(t *testing.T) {
	const strangers, mostMiB, body = 300, 100, 2 << 20
	blanks := bytes.Repeat([]byte(" "), body)
	var names bytes.Buffer
	names.WriteString(`{"expires_in":"5m","peer_id":1,"acquired":{`)
	for i := 0; names.Len() < body-64; i++ {
		fmt.Fprintf(&names, `"%x":1,`, i)
	}
	names.WriteString(`"A":1}}`)
	chunk := []byte("POST /restore HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n" +
		"Transfer-Encoding: chunked\r\n\r\n1fffff\r\n" + string(blanks[1:]))
	var many []string
	for i := range 300 {
		many = append(many, "-s", fmt.Sprintf("%s-%d=1", strings.Repeat("n", 40), i))
	}
	for name, row := range map[string]struct {
		args  []string
		peers int
		sent  []byte
	}{
		"restores that lack a byte":    {nil, 0, withBody("POST /restore", body, blanks[1:])},
		"counts that lack a byte":      {nil, 0, withBody("PUT /peers/1/A", body, blanks[1:])},
		"heartbeats that lack a byte":  {nil, 0, withBody("PUT /peers/1", body, blanks[1:])},
		"restores without a length":    {nil, 0, chunk},
		"restores of many names":       {nil, 0, withBody("POST /restore", names.Len(), names.Bytes())},
		"lists that nobody reads":      {nil, 99_000, []byte("GET /peers/ HTTP/1.1\r\nHost: a\r\n\r\n")},
		"metrics that nobody reads":    {many, 0, []byte("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")},
		"heads of the greatest length": {nil, 0, []byte("GET / HTTP/1.1\r\nHost: a\r\nA: " + strings.Repeat("a", 60_000))},
	} {
		t.Run(name, func(t *testing.T) {
			p := startLeases(t, append(row.args, "-s", "A=1")...)
			p.fill(row.peers)
			before := p.resident()
			var all sync.WaitGroup
			for range strangers {
				all.Go(func() { p.stranger(row.sent) })
			}
			all.Wait()
			p.wants(p.peer()+"/A", 1, http.StatusOK)
			after := 0
			for was := -1; was != after; time.Sleep(300 * time.Millisecond) { // the kernel may hold some yet
				was, after = after, p.resident()
			}
			t.Logf("%d MiB, and %d MiB before", after, before)
			if after-before > mostMiB {
				t.Errorf("%d strangers take %d MiB, want at most %d", strangers, after-before, mostMiB)
			}
		})
	}
}

// fill makes so many peers, all by one connection.
func (p *process) fill(peers int) {
	p.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	must(p.t, err)
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	one := withBody("POST /new_peer", 19, []byte(`{"expires_in":"5m"}`))
	go func() { _, _ = c.Write(bytes.Repeat(one, peers)); _ = c.(*net.TCPConn).CloseWrite() }()
	_, err = io.Copy(io.Discard, c)
	must(p.t, err)
}
