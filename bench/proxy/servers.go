package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/quotient-go/quotient/admin"
)

// A server is a process that listens on an address.
type server struct {
	*process
	name  string
	addr  string
	admin *admin.Client // of quotient; nil for others
	url   string        // of the admin interface
	web   *http.Client  // for its metrics
	file  string        // its configuration
}

// freePort finds a port that nothing listens on. It looks where the system takes no ports for connections
// from.
func freePort() (int, error) {
	var errs []error
	for range 20 {
		port := 20_000 + rand.IntN(10_000)
		l, err := net.Listen("tcp", at(port))
		if err == nil {
			return port, l.Close()
		}
		errs = append(errs, err)
	}
	return 0, errors.Join(errs...)
}

func at(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }

// A commandLine makes the configuration of a server in a folder, and returns its command line.
type commandLine func(dir string, port int) ([]string, error)

// launch starts a server on a free port. Another program may take the port first, so it tries three times.
func launch(ctx context.Context, name string, c commandLine) (*server, error) {
	var errs []error
	for range 3 {
		dir, err := os.MkdirTemp("", "quotient-proxy-")
		if err != nil {
			return nil, err
		}
		s, err := tryLaunch(ctx, name, dir, c)
		if err == nil {
			return s, nil
		}
		errs = append(errs, err, os.RemoveAll(dir))
		if ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("%s does not start: %w", name, errors.Join(errs...))
}

func tryLaunch(ctx context.Context, name, dir string, c commandLine) (*server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	args, err := c(dir, port)
	if err != nil {
		return nil, err
	}
	p, err := start(dir, args...)
	if err != nil {
		return nil, err
	}
	s := &server{process: p, name: name, addr: at(port), file: filepath.Join(dir, "conf")}
	if err := p.serves(ctx, s.addr); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return s, nil
}

// end ends a server and forgets it.
func (s *server) end() error {
	err := s.stop()
	if err != nil {
		err = fmt.Errorf("%s: %w", s.name, err)
	}
	return errors.Join(err, s.forget())
}

// forget closes the connections to a server that has ended, and removes its folder.
func (s *server) forget() error {
	if s.admin != nil {
		s.admin.Close()
		s.web.CloseIdleConnections()
	}
	return os.RemoveAll(filepath.Dir(s.file))
}

// startQuotient starts the proxy with the text of a file; LISTEN, ADMIN and UPSTREAM in it are filled in.
func (b *bench) startQuotient(ctx context.Context, name, text string, u *upstream, args ...string) (
	*server, error,
) {
	var adminAddr string
	s, err := launch(ctx, name, func(dir string, port int) ([]string, error) {
		adminPort, err := freePort()
		if err != nil {
			return nil, err
		}
		adminAddr = at(adminPort)
		filled := strings.NewReplacer("LISTEN", at(port), "ADMIN", adminAddr, "UPSTREAM",
			u.addr).Replace(text)
		file := filepath.Join(dir, "conf")
		return append([]string{b.quotient, "proxy", "--config", file}, args...), os.WriteFile(file,
			[]byte(filled), 0o600)
	})
	if err != nil {
		return nil, err
	}
	s.url, s.web = "http://"+adminAddr, &http.Client{Transport: &http.Transport{}}
	if s.admin, err = admin.NewClient(s.url); err != nil {
		return nil, errors.Join(err, s.end())
	}
	if err := s.serves(ctx, adminAddr); err != nil {
		return nil, errors.Join(err, s.end())
	}
	return s, nil
}

// endpoints is the head of every file of the proxy.
const endpoints = `
[proxy]
listen = "LISTEN"
upstreams = ["http://UPSTREAM"]
[proxy.admin]
listen = "ADMIN"
`

// find returns the path of a program; Debian keeps servers outside of the PATH of users.
func find(program string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/" + program)
	}
	if err != nil {
		return "", fmt.Errorf("%s is not installed (apt-get install %s): %w", program, program, err)
	}
	return path, nil
}

// nginxConf is the whole configuration of nginx but its upstream and server.
const nginxConf = `
daemon off;
pid nginx.pid;
worker_processes %d;
worker_rlimit_nofile 16384;
events { worker_connections 8192; }
http {
  client_body_temp_path tmp1; proxy_temp_path tmp2; fastcgi_temp_path tmp3;
  uwsgi_temp_path tmp4; scgi_temp_path tmp5;
  access_log off;
  keepalive_requests 100000000;
  proxy_http_version 1.1;
  proxy_set_header Connection "";
%s}
`

// startNginx starts nginx with what stands between the braces of http; LISTEN in it is filled in.
func startNginx(ctx context.Context, name string, workers int, http string) (*server, error) {
	exe, err := find("nginx")
	if err != nil {
		return nil, err
	}
	return launch(ctx, name, func(dir string, port int) ([]string, error) {
		conf := fmt.Sprintf(nginxConf, workers, strings.ReplaceAll(http, "LISTEN", at(port)))
		file := filepath.Join(dir, "conf")
		return []string{exe, "-p", dir + "/", "-c", file, "-e",
			filepath.Join(dir, "error.log")}, os.WriteFile(file, []byte(conf), 0o600)
	})
}

// limitReq is nginx as a limiter that never has to refuse here.
const limitReq = `
  limit_req_zone $uri zone=paths:10m rate=100000r/s;
  upstream up { server UPSTREAM; keepalive 64; keepalive_requests 100000000; }
  server {
    listen LISTEN;
    location / { limit_req zone=paths burst=10000 nodelay; limit_req_status 429; proxy_pass http://up; }
  }
`

func nginxLimiter(ctx context.Context, u *upstream) (*server, error) {
	return startNginx(ctx, "nginx, limit_req", 2, strings.ReplaceAll(limitReq, "UPSTREAM", u.addr))
}

// haproxyConf is HAProxy as a limiter that never has to refuse here.
const haproxyConf = `
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

func haproxyLimiter(ctx context.Context, u *upstream) (*server, error) {
	exe, err := find("haproxy")
	if err != nil {
		return nil, err
	}
	return launch(ctx, "HAProxy, stick-table", func(dir string, port int) ([]string, error) {
		file := filepath.Join(dir, "conf")
		conf := strings.NewReplacer("LISTEN", at(port), "UPSTREAM", u.addr).Replace(haproxyConf)
		return []string{exe, "-db", "-q", "-f", file}, os.WriteFile(file, []byte(conf), 0o600)
	})
}

func bareProxy(ctx context.Context, u *upstream) (*server, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return launch(ctx, "bare ReverseProxy", func(_ string, port int) ([]string, error) {
		return []string{exe, bareArg, at(port), u.addr}, nil
	})
}
