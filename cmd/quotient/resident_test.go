//go:build unix

package main

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/quotient-go/quotient/internal/tested"
)

// The first row of the table under [proxy.max] in docs/file.md.
const (
	residentMiB   = 256
	residentLimit = "200MiB" // GOMEMLIMIT
	residentConns = 1500
	residentHeld  = 32 << 20
)

// strangers hold as much as they can in one way, each on a connection of its own.
type strangers struct {
	name   string
	many   int // connections; 0: as many as may be
	tls    bool
	attack func(c net.Conn)
}

func says(text string) func(net.Conn) {
	return func(c net.Conn) { _, _ = io.WriteString(c, strings.ReplaceAll(text, "~", "\r\n")) }
}

// hello is a message of a handshake that lacks its end: two bytes of a record's length go before each of its parts.
func hello(c net.Conn) {
	message := append([]byte{1, 0, 0xff, 0}, make([]byte, 65_000)...)
	for part := range slices.Chunk(message, 16_000) {
		_, _ = c.Write(append([]byte{22, 3, 1, byte(len(part) >> 8), byte(len(part))}, part...))
	}
}

func residents() []strangers {
	big := strings.Repeat("x", 62_000)
	fields := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "%x:~", 0x1000+i)
		}
		return b.String()
	}
	const get, post = "GET /held HTTP/1.1~Host: h~", "POST /held HTTP/1.1~Host: h~"
	const open = "GET /endless HTTP/1.1~Host: h~"
	return []strangers{
		{name: "a field without an end", attack: says(get + "X: " + big)},
		{name: "fields without an end", attack: says(get + fields(7_500))},
		{name: "few fields without an end", attack: says(get + fields(250))},
		{name: "heads that wait", attack: says("GET /held?" + strings.Repeat("%61", 20_000) + " HTTP/1.1~Host: h~~")},
		{name: "bodies that wait", attack: says(post + "Content-Length: 60000~~" + big[:59_999])},
		{name: "answers that are not read", attack: says(open + "X: " + big[:4_000] + "~~")},
		{name: "upgraded", many: residentConns / 3, attack: says(open + "Connection: Upgrade~Upgrade: echo~X: " + big[:4_000] + "~~")},
		{name: "HTTP2: heads that wait", many: 100, attack: overHTTP2(100, 60_000, 0, true)},
		{name: "HTTP2: answers that are not read", many: residentConns / 3, attack: overHTTP2(20, 100, 0, true)},
		{name: "HTTP2: bodies", attack: overHTTP2(1, 100, 250_000, true)},
		{name: "HTTP2: heads without an end", attack: overHTTP2(1, 60_000, 0, false)},
		{name: "TLS: a message without an end", tls: true, attack: hello},
	}
}

// overHTTP2 opens requests over HTTP/2 with heads and bodies of so many bytes.
func overHTTP2(many, head, body int, ends bool) func(net.Conn) {
	return func(c net.Conn) {
		_, _ = io.WriteString(c, http2.ClientPreface)
		var frames bytes.Buffer
		f := http2.NewFramer(&frames, nil)
		_ = f.WriteSettings()
		var block bytes.Buffer
		pack := hpack.NewEncoder(&block)
		method := map[bool]string{true: "POST", false: "GET"}[body > 0]
		path := map[bool]string{true: "/held", false: "/endless"}[head > 1000]
		for i := range uint32(many) {
			block.Reset()
			for _, pair := range [][2]string{
				{":method", method}, {":scheme", "http"}, {":authority", "h"}, {":path", path},
			} {
				_ = pack.WriteField(hpack.HeaderField{Name: pair[0], Value: pair[1]})
			}
			for k := range head / 4_000 {
				field := hpack.HeaderField{Name: fmt.Sprint("x", k), Value: strings.Repeat("~", 4_000), Sensitive: true}
				_ = pack.WriteField(field)
			}
			parts := slices.Collect(slices.Chunk(block.Bytes(), 16_000))
			last := len(parts) - 1
			_ = f.WriteHeaders(http2.HeadersFrameParam{
				StreamID: 2*i + 1, BlockFragment: parts[0], EndHeaders: last == 0 && ends, EndStream: body == 0,
			})
			for k, part := range parts[1:] {
				_ = f.WriteContinuation(2*i+1, k+1 == last && ends, part)
			}
			for sent := 0; sent < body; sent += 10_000 {
				_ = f.WriteData(2*i+1, false, make([]byte, 10_000))
			}
			if _, err := frames.WriteTo(c); err != nil {
				return
			}
		}
	}
}

// TestResidentMemory has strangers hold as much as they can, at a program with the settings of docs/file.md for a
// container of 256 MiB. It looks at what the kernel says, not at what we count.
func TestResidentMemory(t *testing.T) {
	measured(t)
	for _, row := range residents() {
		t.Run(row.name, func(t *testing.T) {
			p := startResident(t, row.tls)
			for _, c := range row.come(t, strings.TrimPrefix(strings.TrimPrefix(p.url, "http://"), "https://")) {
				defer c.Close()
			}
			most, now := settle(t, p)
			t.Logf("resident: %d MiB, %d at most", now, most)
			if most > residentMiB {
				t.Errorf("it had %d MiB in memory, want %d", most, residentMiB)
			}
		})
	}
}

// measured skips a test where the kernel does not say how much memory a process has, or too many have some.
func measured(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: it opens thousands of connections")
	}
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skipf("the kernel does not say how much memory a process has: %v", err)
	}
	race := debug.BuildSetting{Key: "-race", Value: "true"}
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, race) {
		t.Skip("the race detector has memory of its own")
	}
	var files syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files))
	if need := uint64(2*residentConns + 500); files.Max < need {
		t.Skipf("a process may open %d files, and this opens %d (ulimit -Hn)", files.Max, need)
	}
}

// come connects strangers, some at a time, and lets them say what they say.
func (s strangers) come(t *testing.T, addr string) (open []net.Conn) {
	many := s.many
	if many == 0 {
		many = residentConns
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range many / 8 {
				c, err := (&net.Dialer{Timeout: tested.Patience, Control: deaf}).Dial("tcp", addr)
				if err != nil {
					t.Error(err)
					return
				}
				_ = c.(*net.TCPConn).SetLinger(0)
				_ = c.SetWriteDeadline(time.Now().Add(2 * time.Second))
				s.attack(c)
				mu.Lock()
				open = append(open, c)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return open
}

// deaf has the kernel take next to nothing that is not read.
func deaf(_, _ string, raw syscall.RawConn) error {
	return raw.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4<<10)
	})
}

// settle waits until the program takes no more memory, and returns what it had at most, and what it has.
func settle(t *testing.T, p *process) (most, now int) {
	last, same := 0, 0
	for end := time.Now().Add(tested.Patience); same < 5 && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
		must(t, err)
		for line := range strings.Lines(string(text)) {
			switch f := strings.Fields(line); f[0] {
			case "VmHWM:":
				most, _ = strconv.Atoi(f[1])
			case "VmRSS:":
				now, _ = strconv.Atoi(f[1])
			}
		}
		if same++; now > last*101/100 {
			last, same = now, 0
		}
	}
	return most >> 10, now >> 10
}

// startResident starts the program with a rule whose requests wait, and one that lets all through.
func startResident(t *testing.T, secure bool) *process {
	up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", "echo")
			w.WriteHeader(http.StatusSwitchingProtocols)
			c, _, err := http.NewResponseController(w).Hijack()
			must(t, err)
			defer c.Close()
			_, _ = io.Copy(c, rand.Reader)
			return
		}
		if r.URL.Path != "/endless" {
			_, _ = io.Copy(io.Discard, r.Body) // or net/http does not see it go
			<-r.Context().Done()
			return
		}
		for part := make([]byte, 64<<10); ; {
			if _, err := w.Write(part); err != nil {
				return
			}
		}
	}))
	up.Config.ConnState = func(c net.Conn, state http.ConnState) {
		if state == http.StateNew {
			_ = c.(*net.TCPConn).SetWriteBuffer(64 << 10)
		}
	}
	up.Start()
	t.Cleanup(up.Close)
	dir := t.TempDir()
	text := fmt.Sprintf(`
limiters.held.in-flight = 1
limiters.free.in-flight = 1000000
[proxy]
listen = "127.0.0.1:0"
h2c = %v
upstreams = [%q]
max = { connections = %d, held-bytes = %d }
timeouts = { read-header = "1m" }
admin.listen = "off"
rules = [
	{ pattern = "/held", limiter = "held" },
	{ pattern = "/", limiter = "free" },
]
`, !secure, up.URL, residentConns, residentHeld)
	if secure {
		files := pair(t, dir, "resident")
		text += fmt.Sprintf("tls = { cert = %q, key = %q }\n", files.Cert, files.Key)
	}
	path := filepath.Join(dir, "quotient.toml")
	must(t, os.WriteFile(path, []byte(text), 0o600))
	t.Setenv("GOMEMLIMIT", residentLimit)
	p := launch(t, "proxy", "--log", "json", "--config", path)
	p.url = p.logged("proxy listens")["url"].(string)
	return p
}

func withBody(line string, length int, body []byte) []byte {
	const head = "%s HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
	return fmt.Appendf(nil, head, line, length, body)
}

// TestLeasesHoldLittleForStrangers has 300 strangers let a server keep as much as it will, and measures that.
func TestLeasesHoldLittleForStrangers(t *testing.T) {
	measured(t)
	const many, mostMiB, body = 304, 100, 2 << 20
	blanks := bytes.Repeat([]byte(" "), body)
	var names bytes.Buffer
	names.WriteString(`{"expires_in":"5m","peer_id":1,"acquired":{`)
	for i := 0; names.Len() < body-64; i++ {
		fmt.Fprintf(&names, `"%x":1,`, i)
	}
	names.WriteString(`"A":1}}`)
	chunk := []byte("POST /restore HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n" +
		"Transfer-Encoding: chunked\r\n\r\n1fffff\r\n" + string(blanks[1:]))
	var semaphores []string
	for i := range 300 {
		semaphores = append(semaphores, "-s", fmt.Sprintf("%s-%d=1", strings.Repeat("n", 40), i))
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
		"metrics that nobody reads":    {semaphores, 0, []byte("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")},
		"heads of the greatest length": {nil, 0, []byte("GET / HTTP/1.1\r\nHost: a\r\nA: " + strings.Repeat("a", 60_000))},
	} {
		t.Run(name, func(t *testing.T) {
			p := startLeases(t, append(row.args, "-s", "A=1")...)
			p.fill(row.peers)
			before, _ := settle(t, p)
			all := strangers{many: many, attack: func(c net.Conn) { _, _ = c.Write(row.sent) }}
			for _, c := range all.come(t, strings.TrimPrefix(p.url, "http://")) {
				defer c.Close()
			}
			p.wants(p.peer()+"/A", 1, http.StatusOK)
			after, _ := settle(t, p)
			t.Logf("%d MiB, and %d MiB before", after, before)
			if after-before > mostMiB {
				t.Errorf("%d strangers take %d MiB, want at most %d", many, after-before, mostMiB)
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
	_ = c.SetDeadline(time.Now().Add(tested.Patience))
	one := withBody("POST /new_peer", 19, []byte(`{"expires_in":"5m"}`))
	go func() { _, _ = c.Write(bytes.Repeat(one, peers)); _ = c.(*net.TCPConn).CloseWrite() }()
	_, err = io.Copy(io.Discard, c)
	must(p.t, err)
}
