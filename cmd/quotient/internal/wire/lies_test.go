package wire

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// lies are answers whose last byte but for what is behind "|" is in the packet of that. BODY is what the request has
// asked for, in chunks CHUNKS.
var lies = []string{
	"HTTP/1.1 200 OK\nContent-Length: 8\n\nBODY|",
	"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\nCHUNKS0\n\n|",
	"HTTP/1.1 200 OK\nContent-Length: 8\n\nBODY|" + stolen,
	"HTTP/1.1 200 OK\nContent-Length: 8\n\nBODY|x",
	"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\nCHUNKS0\n\n|" + stolen,
	"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\nCHUNKS0;ext=\"a\"\nX-Trailer: y\n\n|" + stolen,
	"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\nContent-Length: 3\n\nCHUNKS0\n\n|" + stolen,
	"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\nTransfer-Encoding: chunked\n\nCHUNKS0\n\n|" + stolen,
	"HTTP/1.1 200 OK\nContent-Length: 8\nContent-Length: 8\n\nBODY|" + stolen,
	"HTTP/1.1 200 OK\nContent-Length: 8\nConnection: x, CLOSE\n\nBODY|" + stolen,
	"HTTP/1.1 200 OK\nContent-Length: 8\nConnection: keep-alive\nConnection: close\n\nBODY|",
	"HTTP/1.0 200 OK\nContent-Length: 8\nConnection: keep-alive\n\nBODY|" + stolen,
	"HTTP/1.0 200 OK\nContent-Length: 8\nConnection: keep-alive\n\nBODY|",
	"HTTP/1.1 100 Continue\n\nHTTP/1.1 103 Early\nLink: </>\n\nHTTP/1.1 200 OK\nContent-Length: 8\n\nBODY|" + stolen,
	"HTTP/1.1 204 No Content\nContent-Length: 8\n|\n" + stolen,
	"HTTP/1.1 304 Not Modified\nTransfer-Encoding: chunked\n|\n" + stolen,
	"HTTP/1.1 101 Switching\nConnection: upgrade\nUpgrade: x\n|\n" + stolen,
}

// Whatever servers say behind their answers, and wherever their packets end: no client reads what is for another.
func TestNothingCrosses(t *testing.T) {
	each := 30
	if testing.Short() {
		each = 20
	}
	for _, secure := range []bool{false, true} {
		s := listen(t, secure, func(n int, c net.Conn, r *bufio.Reader) {
			for seed := uint64(0); ; seed++ {
				req, err := http.ReadRequest(r)
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, req.Body)
				id := req.URL.Path[1:]
				draw := rand.New(rand.NewPCG(uint64(n), seed))
				answer := strings.NewReplacer("BODY", id, "CHUNKS", fmt.Sprintf("3\n%s\n5;x\n%s\n", id[:3], id[3:])).
					Replace(lies[draw.IntN(len(lies))])
				own, more, _ := strings.Cut(strings.ReplaceAll(answer, "\n", "\r\n"), "|")
				for draw.IntN(3) == 0 && len(own) > 1 {
					at := 1 + draw.IntN(len(own)-1)
					_, _ = io.WriteString(c, own[:at])
					own = own[at:]
				}
				_, _ = io.WriteString(c, own+more)
			}
		})
		tr := s.transport(t)
		var failed atomic.Int32
		var clients sync.WaitGroup
		for client := range 16 {
			clients.Go(func() {
				for n := range each {
					id := fmt.Sprintf("%03d-%04d", client, n)
					method, body := "GET", io.Reader(nil)
					if n%3 == 0 {
						method, body = "POST", strings.NewReader("abc")
					}
					req := request(t, method, body)
					req.URL.Path = "/" + id
					resp, err := tr.RoundTrip(req)
					if err != nil {
						failed.Add(1)
						continue
					}
					if resp.StatusCode == http.StatusSwitchingProtocols {
						_ = resp.Body.Close()
						continue
					}
					got, err := io.ReadAll(resp.Body)
					if text := string(got); text != id && resp.StatusCode == http.StatusOK || text != "" && text != id {
						t.Errorf("TLS %v: %s has read %q, %v", secure, id, text, err)
					}
					_ = resp.Body.Close()
				}
			})
		}
		clients.Wait()
		t.Logf("TLS %v: %d connections, %d failed of %d", secure, s.opened.Load(), failed.Load(), 16*each)
		free(t, tr)
	}
}
