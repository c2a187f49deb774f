package real

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// required is the environment variable that lists, with commas, what must be there: a test fails without it
// rather than be skipped.
const required = "QUOTIENT_REQUIRE"

// findNginx returns nginx, and skips the test where there is none.
func findNginx(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"nginx", "/usr/sbin/nginx"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const missing = "nginx is not installed: nothing is known about a real upstream (apt-get install nginx)"
	if strings.Contains(","+os.Getenv(required)+",", ",nginx,") {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}

// config is the whole configuration of nginx. One process does everything; a file is served, because an
// answer by return would not pass limit_req.
const config = `
daemon off;
master_process off;
pid nginx.pid;
events { worker_connections 512; }
http {
  client_body_temp_path tmp1; proxy_temp_path tmp2; fastcgi_temp_path tmp3; uwsgi_temp_path tmp4; scgi_temp_path tmp5;
  log_format what '$msec $status';
  access_log access.log what;
  keepalive_requests 1000000;
  limit_req_zone $binary_remote_addr zone=all:1m rate=%dr/s;
  server {
    listen 127.0.0.1:%d;
    location / { root .; limit_req zone=all burst=%d nodelay; limit_req_status 429; }
  }
}
`

// nginx is a running server.
type nginx struct{ url, dir string }

// startNginx starts nginx with a limit of so many requests a second on a port of the loopback interface. The port is looked
// for first, so somebody else may take it meanwhile: it is tried again.
func startNginx(t *testing.T, rate, burst int) nginx {
	t.Helper()
	exe := findNginx(t)
	for range 3 {
		port := freePort(t)
		n := nginx{url: fmt.Sprintf("http://127.0.0.1:%d/ok", port), dir: t.TempDir() + "/"}
		write(t, n.dir+"nginx.conf", fmt.Sprintf(config, rate, port, burst))
		write(t, n.dir+"ok", "ok\n")
		p := start(t, nil, keeperArg, exe, "-p", n.dir, "-c", n.dir+"nginx.conf", "-e", n.dir+"error.log")
		if serves(p, port) {
			return n
		}
		errors, _ := os.ReadFile(n.dir + "error.log")
		t.Logf("nginx did not start: %v\n%s", p.stop(), errors)
	}
	t.Fatal("nginx did not start three times")
	return nginx{}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Clean(file), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// serves waits until somebody answers on the port, and tells whether that is before the process ends.
func serves(p *process, port int) bool {
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for deadline := time.After(10 * time.Second); ; {
		if conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			_ = conn.Close()
			return true
		}
		select {
		case <-look.C:
		case <-p.done:
			return false
		case <-deadline:
			return false
		}
	}
}

// answers reads what nginx has answered from an instant on.
func (n nginx) answers(t *testing.T, begin time.Time) (all []answer) {
	t.Helper()
	log, err := os.ReadFile(n.dir + "access.log")
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(log)); lines.Scan(); {
		var msec float64
		var status int
		if _, err := fmt.Sscan(lines.Text(), &msec, &status); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		at := time.UnixMilli(int64(msec * 1000)).Sub(begin)
		all = append(all, answer{at, status})
	}
	return all
}
