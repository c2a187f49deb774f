package front

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// passes returns what framing passes on of a text that comes in parts of some size, and the places where a
// request ends.
func passes(text string, size int) (passed string, ends []int) {
	var f framing
	for part := range slices.Chunk([]byte(text), size) {
		n := len(part)
		_ = f.check(part, &n)
		passed += string(part[:n])
		if f.err != nil {
			break
		}
		if size == 1 && f.later && f.state == atStart {
			ends = append(ends, len(passed))
		}
	}
	return passed, ends
}

// FuzzFraming checks that it does not matter in which parts the bytes come. And net/http, which reads what
// is passed on, finds the end of each request where framing does.
func FuzzFraming(f *testing.F) {
	for _, row := range smuggling {
		f.Add(row.sent + canary)
	}
	f.Fuzz(func(t *testing.T, text string) {
		passed, ends := passes(text, 1)
		for _, size := range []int{2, 7, max(1, len(text))} {
			// More or less of a request line that is refused may have gone, but never its end.
			other, _ := passes(text, size)
			a, b := strings.LastIndexByte(passed, '\n'), strings.LastIndexByte(other, '\n')
			if passed[:a+1] != other[:b+1] {
				t.Fatalf("in parts of %d bytes\n%q passes, else\n%q", size, other, passed)
			}
		}
		under := strings.NewReader(passed)
		in := bufio.NewReader(under)
		for {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			if r.Method == "PRI" {
				return
			}
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return
			}
			if end := len(passed) - under.Len() - in.Buffered(); !slices.Contains(ends, end) {
				t.Fatalf("net/http takes %q for a request; framing finds ends at %v, not at %d", passed[:end],
					ends, end)
			}
		}
	})
}

// TestHappyPathAllocatesNothing holds for a request without a body that comes in one piece.
func TestHappyPathAllocatesNothing(t *testing.T) {
	head := []byte("GET /a/b?c=d HTTP/1.1\r\nHost: h\r\nUser-Agent: x\r\nAccept: */*\r\n" +
		"Accept-Encoding: gzip\r\nX-Y: z\r\n\r\n")
	var f framing
	if n := testing.AllocsPerRun(100, func() {
		n := len(head)
		if err := f.check(head, &n); err != nil || n != len(head) || f.state != atStart {
			t.Fatal(err, n, f.state)
		}
	}); n > 0 {
		t.Errorf("framing allocates %v times", n)
	}
	r := httptest.NewRequest("GET", "/a/b?c=d", nil)
	r.Header = http.Header{
		"User-Agent":      {"x"},
		"Accept":          {"*/*"},
		"Accept-Encoding": {"gzip"},
		"Connection":      {"keep-alive"},
	}
	if n := testing.AllocsPerRun(100, func() {
		if status, why := refusal(r, false); status != 0 {
			t.Fatal(why)
		}
	}); n > 0 {
		t.Errorf("refusal allocates %v times", n)
	}
}

func BenchmarkFraming(b *testing.B) {
	head := []byte("GET /a/b?c=d HTTP/1.1\r\nHost: h\r\nUser-Agent: x\r\nAccept: */*\r\n" +
		"Accept-Encoding: gzip\r\nX-Y: z\r\n\r\n")
	var f framing
	b.SetBytes(int64(len(head)))
	b.ReportAllocs()
	for b.Loop() {
		n := len(head)
		_ = f.check(head, &n)
	}
}

// BenchmarkServer compares with net/http alone, over 32 connections of loopback.
func BenchmarkServer(b *testing.B) {
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	run := func(b *testing.B, addr string) {
		transport := &http.Transport{MaxIdleConnsPerHost: 32, MaxConnsPerHost: 32}
		defer transport.CloseIdleConnections()
		client := &http.Client{Transport: transport}
		b.SetParallelism(16)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				r, err := client.Get("http://" + addr + "/")
				if err != nil {
					b.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				r.Body.Close()
			}
		})
	}
	b.Run("bare", func(b *testing.B) {
		s := httptest.NewServer(hello)
		defer s.Close()
		run(b, s.Listener.Addr().String())
	})
	b.Run("front", func(b *testing.B) { run(b, serve(b, section(), hello).addr) })
}
