package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quotient-go/quotient/bench/rig"
	"github.com/quotient-go/quotient/internal/kept"
)

// The files of the proxies. Each has a limit for each path that is out of reach; what is in capitals is
// filled in, here and in command lines.
const (
	quotientFile = `
[proxy]
listen = "LISTEN"
upstreams = ["http://UPSTREAM"]
[proxy.admin]
listen = "ADMIN"
[[proxy.rules]]
pattern = "/"
limiter = "paths"
[limiters.paths]
rates = [{ events = 10000000, per = "1m", kind = "window" }]
in-flight = 100000
`
	nginxFile = `
daemon off;
pid nginx.pid;
worker_processes 2;
events { worker_connections 4096; }
http {
  client_body_temp_path tmp1; proxy_temp_path tmp2; fastcgi_temp_path tmp3;
  uwsgi_temp_path tmp4; scgi_temp_path tmp5;
  access_log off;
  keepalive_requests 100000000;
  proxy_http_version 1.1;
  proxy_set_header Connection "";
  limit_req_zone $uri zone=paths:10m rate=100000r/s;
  upstream up { server UPSTREAM; keepalive 64; keepalive_requests 100000000; }
  server {
    listen LISTEN;
    location / { limit_req zone=paths burst=10000 nodelay; limit_req_status 429; proxy_pass http://up; }
  }
}
`
	haproxyFile = `
global
  nbthread 2
  maxconn 4096
defaults
  mode http
  timeout connect 5s
  timeout client 5m
  timeout server 5m
  http-reuse always
backend paths
  stick-table type string len 64 size 100k expire 1m store http_req_rate(1m)
frontend all
  bind LISTEN
  http-request track-sc0 path table paths
  http-request deny deny_status 429 if { sc_http_req_rate(0,paths) gt 1000000 }
  default_backend up
backend up
  server one UPSTREAM
`
	// Caddy's module keeps a time for each event that a key may have: a higher limit takes all memory.
	caddyFile = `
{
  admin off
  persist_config off
  auto_https off
  order rate_limit before reverse_proxy
}
http://:PORT {
  bind 127.0.0.1
  rate_limit {
    zone paths {
      key {path}
      events 1000
      window 1s
    }
  }
  reverse_proxy UPSTREAM
}
`
)

const bareArg = "bare" // the first argument of a bare proxy

// proxies are all of them: how they are called, what is started, and their file.
func (b *bench) proxies() [][3]string {
	all := [][3]string{
		{"quotient proxy", b.quotient + " proxy --config FILE", quotientFile},
		{"bare ReverseProxy", "SELF " + bareArg + " LISTEN UPSTREAM", ""},
		{"nginx, limit_req", "nginx -p DIR/ -c FILE -e DIR/error.log", nginxFile},
		{"HAProxy, stick-table", "haproxy -db -q -f FILE", haproxyFile},
		{"Caddy, rate_limit", "env XDG_DATA_HOME=DIR XDG_CONFIG_HOME=DIR " + b.caddy +
			" run --config FILE --adapter caddyfile", caddyFile},
	}
	if b.caddy == "" {
		all = all[:len(all)-1]
	}
	return all
}

// build builds quotient, and Caddy where that can be had, once for all parts.
func (b *bench) build(ctx context.Context) error {
	exe := filepath.Join(b.dir, "quotient")
	if b.quotient == exe {
		return nil
	}
	if err := rig.Build(ctx, exe, "", quotientPackage); err != nil {
		return err
	}
	if b.quotient = exe; !b.withCaddy {
		return nil
	}
	where, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", benchPackage).Output()
	if err != nil {
		return err
	}
	file, folder := filepath.Join(b.dir, "caddy"), filepath.Join(strings.TrimSpace(string(where)), "caddy")
	if err := rig.Build(ctx, file, folder, ".", "GOWORK=off"); err != nil {
		fmt.Fprintln(b.stderr, "Caddy is left out:", err)
		return ctx.Err()
	}
	b.caddy = file
	return nil
}

// A server is a process that listens on an address; none, where clients ask the upstream itself.
type server struct {
	*kept.Process
	name, addr, admin string
	dir               string // with its file
}

// launch starts a proxy on a free port.
func (b *bench) launch(ctx context.Context, u *upstream, proxy [3]string) (*server, error) {
	listen, err1 := rig.FreePort()
	admin, err2 := rig.FreePort()
	dir, err3 := os.MkdirTemp(b.dir, "server-")
	self, err4 := os.Executable()
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, err
	}
	s := &server{name: proxy[0], addr: rig.At(listen), admin: rig.At(admin), dir: dir}
	file := filepath.Join(dir, "conf")
	filled := strings.NewReplacer("DIR", dir, "FILE", file, "LISTEN", s.addr, "PORT", fmt.Sprint(listen),
		"ADMIN", s.admin, "UPSTREAM", u.addr, "SELF", self)
	if err := os.WriteFile(file, []byte(filled.Replace(proxy[2])), 0o600); err != nil {
		return nil, err
	}
	args := strings.Fields(filled.Replace(proxy[1]))
	var err error
	if args[0], err = rig.Find(args[0]); err != nil {
		return nil, err
	}
	if s.Process, err = kept.Start(dir, args...); err != nil {
		return nil, err
	}
	if err := s.Serves(ctx, rig.Dials(s.addr)); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (s *server) end() error {
	if s.Process == nil {
		return nil
	}
	if err := s.Stop(); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	return nil
}

// bare makes this process a proxy without any limits if it has been started as one: httputil.ReverseProxy with the
// transport of quotient proxy, whose settings are in cmd/quotient/internal/upstream.
func bare() {
	if at := slices.Index(os.Args, bareArg); at != 1 || len(os.Args) != 4 {
		return
	}
	to := &url.URL{Scheme: "http", Host: os.Args[3]}
	h := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.SetXForwarded()
			r.Out.Host = r.In.Host
		},
		Transport: &http.Transport{
			DialContext:            (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
			TLSHandshakeTimeout:    5 * time.Second,
			ResponseHeaderTimeout:  time.Minute,
			ExpectContinueTimeout:  time.Second,
			IdleConnTimeout:        4 * time.Second,
			MaxIdleConnsPerHost:    4096,
			MaxResponseHeaderBytes: 256 << 10,
			DisableCompression:     true,
			WriteBufferSize:        4 << 10,
			ReadBufferSize:         4 << 10,
		},
		BufferPool: &buffers{sync.Pool{New: func() any { return new([32 << 10]byte) }}},
	}
	s := &http.Server{Addr: os.Args[2], Handler: h, ReadHeaderTimeout: 10 * time.Second}
	fmt.Fprintln(os.Stderr, s.ListenAndServe())
	os.Exit(1)
}

// buffers are those of bodies, used again and again.
type buffers struct{ sync.Pool }

// Get returns a buffer.
func (p *buffers) Get() []byte { return p.Pool.Get().(*[32 << 10]byte)[:] }

// Put takes it back.
func (p *buffers) Put(b []byte) { p.Pool.Put((*[32 << 10]byte)(b)) }
