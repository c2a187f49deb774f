package front

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/quotient-go/quotient/internal/held"
)

// passes returns what framing passes on of a text that comes in parts of some size, and the places where a
// request ends.
func passes(text string, size int) (passed string, ends []int) {
	f := framing{share: &held.Share{Room: new(held.Room), Free: 1 << 40}}
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
		f.Add(crlf(row.sent) + canary)
	}
	for _, text := range []string{
		"0\"\"", "0 * HTTP/1.0~0: ", "0 * HTTP/1.0~0:~:~ 0", "0  HTTP/0.A", strings.Repeat("\x99", 16),
		"000 000000000000 HTTP/1.0~~" + strings.Repeat("0", 50),
	} {
		f.Add(crlf(text))
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
			if err != nil || r.Method == "PRI" {
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

var happy = []byte(crlf("GET /a/b?c=d HTTP/1.1~Host: h~User-Agent: x~Accept: */*~Accept-Encoding: gzip~X-Y: z~~"))

// TestHappyPathAllocatesNothing holds for a request without a body that comes in one piece.
func TestHappyPathAllocatesNothing(t *testing.T) {
	f := framing{share: &held.Share{Room: new(held.Room), Free: 1 << 40}}
	if n := testing.AllocsPerRun(100, func() {
		n := len(happy)
		if err := f.check(happy, &n); err != nil || n != len(happy) || f.state != atStart {
			t.Fatal(err, n, f.state)
		}
	}); n > 0 {
		t.Errorf("framing allocates %v times", n)
	}
	r := httptest.NewRequest("GET", "/a/b?c=d", nil)
	for _, field := range []string{"User-Agent", "Accept", "Accept-Encoding"} {
		r.Header.Set(field, "x")
	}
	r.Header.Set("Connection", "keep-alive")
	if n := testing.AllocsPerRun(100, func() {
		if status, why := refusal(r, false); status != 0 {
			t.Fatal(why)
		}
	}); n > 0 {
		t.Errorf("refusal allocates %v times", n)
	}
}
