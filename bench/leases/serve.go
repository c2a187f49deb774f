package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"time"

	"github.com/quotient-go/quotient/lease"
)

// serveArg is the first argument of this program as a server.
const serveArg = "serve"

// addresses are those of a serving program: of leases, of a handler that does nothing, and of its heap.
type addresses struct{ Leases, Nothing, Heap string }

// serveMain serves until its input ends: a lease.Server, and beside it in a server of the same settings a
// handler that does nothing. The argument is the lease.Config.
func serveMain(args []string, in io.Reader, stdout, stderr io.Writer) int {
	if err := serve(args, in, stdout); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

func serve(args []string, in io.Reader, stdout io.Writer) error {
	var c lease.Config
	if len(args) != 1 {
		return fmt.Errorf("%d arguments, want one", len(args))
	}
	if err := json.Unmarshal([]byte(args[0]), &c); err != nil {
		return err
	}
	s, err := lease.NewServer(c, lease.ServerOptions{Version: "bench"})
	if err != nil {
		return err
	}
	defer s.Close()
	var a addresses
	for _, one := range []struct {
		at *string
		h  http.Handler
	}{{&a.Leases, s}, {&a.Nothing, http.HandlerFunc(nothing)}, {&a.Heap, http.HandlerFunc(heap)}} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		*one.at = l.Addr().String()
		server := &http.Server{Handler: one.h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
		go func() { _ = server.Serve(l) }()
		defer server.Close()
	}
	if err := json.NewEncoder(stdout).Encode(a); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, in)
	return err
}

// nothing reads a request and answers as an acquire or a release would, and does nothing else.
func nothing(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	if r.Method == http.MethodPut {
		w.Header()["Fencing-Token"] = []string{"1800000000000000000"}
		w.Header()["Content-Type"] = []string{"application/json"}
		_, _ = io.WriteString(w, "18000000000000000000")
		return
	}
	w.Header()["Content-Type"] = []string{"text/plain; charset=utf-8"}
	_, _ = io.WriteString(w, "Ok")
}

// heap answers with the bytes of the heap that are in use after a collection.
func heap(w http.ResponseWriter, _ *http.Request) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	_, _ = io.WriteString(w, strconv.FormatUint(m.HeapAlloc, 10))
}

// pair is this program as a server.
type pair struct {
	addresses
	cmd *exec.Cmd
	in  io.Closer
}

// servePair starts this program as a server. It ends with its input, so it cannot outlive this one.
func servePair(c lease.Config) (*pair, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	p := &pair{cmd: exec.Command(exe, serveArg, string(text))}
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	if err := json.NewDecoder(out).Decode(&p.addresses); err != nil {
		return nil, fmt.Errorf("serve: %w", err)
	}
	return p, nil
}

func (p *pair) stop() error {
	_ = p.in.Close() // it may have ended already
	return p.cmd.Wait()
}

// heapBytes is what the server's heap holds.
func (p *pair) heapBytes() (float64, error) {
	w := &wire{addr: p.Heap}
	defer w.close()
	a, err := w.want(200, "GET", "/", "")
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(string(a.text), 64)
}
