//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/admin"
	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/internal/tested"
)

func TestItServesWithNoConfiguration(t *testing.T) {
	up := hold(t)
	p := start(t, anywhere(strings.TrimPrefix(up.URL, "http://"))...)
	if a := get(t, p.url+"/a//b"); a.status != http.StatusOK || a.body != "from upstream /a//b" {
		t.Errorf("got %v", a)
	}
	contains(t, fmt.Sprint(p.logged("limiter")["limit"]), "100 per 1m")
	p.logged("pool")
	s := p.state()
	l := s.Limiters[limiterName]
	if len(l.Limit.Rates) != 1 || !l.Limit.Rates[0].Aligned || l.Limit.Rates[0].Events != 100 ||
		l.Limit.InFlight != 100 || l.Admitted != 1 {
		t.Errorf("got %+v", l)
	}
	if s.File != nil {
		t.Errorf("the page shows the file %+v, and there is none", s.File)
	}
	ops, err := admin.NewClient(p.page)
	must(t, err)
	_, err = ops.Override(t.Context(), limiterName, "/V1/Slow", &quotient.Limit{Deny: true}, 0)
	contains(t, fmt.Sprint(err), `no request has the key "/V1/Slow" by any rule of`, `(did you mean "/v1/slow"?)`)
	var titles []string
	for _, table := range s.Tables {
		titles = append(titles, table.Title)
	}
	equal(t, "tables of the page", titles,
		[]string{"Overhead of requests within their limits", "Upstreams", "Connections of clients"})
	contains(t, get(t, p.page).body, "<html")
	p.says("health", http.StatusOK, "alive\n")
	contains(t, get(t, p.page+"metrics").body,
		"\nquotient_requests_total", "\ngo_goroutines", "\nprocess_open_fds")
	// Nothing is exempt on the proxy's own port.
	for _, path := range []string{"/health", "/ready", "/metrics", "/state"} {
		equal(t, path, get(t, p.url+path).body, "from upstream "+path)
	}
	// docs/file.md lists the proxy's own metrics, no more and no less.
	names := func(pattern, text string) (all []string) {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			all = append(all, m[1])
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	page, err := os.ReadFile("../../docs/file.md")
	must(t, err)
	_, section, _ := strings.Cut(string(page), "\n### Metrics\n")
	section, _, _ = strings.Cut(section, "\n## ")
	const own = `quotient_(?:proxy|upstream_up|upstream_in_flight|upstream_resent)[a-z_]*`
	want := names("(?m)^\\| `("+own+")`", section)
	if equal(t, "/metrics", names(`(?m)^# TYPE (`+own+`) `, get(t, p.page+"metrics").body), want); want == nil {
		t.Error("the page has no metrics")
	}
}

// written writes a file of one limiter and one rule, with lines of its own in some tables.
func written(t *testing.T, path, upstream string, inflight int, more string) {
	t.Helper()
	text := fmt.Sprintf(`
[limiters.api]
in-flight = %d

[proxy]
listen = "127.0.0.1:0"
upstreams = [%q]

[[proxy.rules]]
pattern = "/"
limiter = "api"

[proxy.admin]
listen = "127.0.0.1:0"
%s`, inflight, upstream, more)
	renamed(t, path, text)
}

// renamed puts a text in the place of a file at once, as editors do.
func renamed(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path+".new", []byte(text), 0o600))
	must(t, os.Rename(path+".new", path))
}

func TestItReadsTheFileAgain(t *testing.T) {
	up := hold(t)
	path := filepath.Join(t.TempDir(), "quotient.toml")
	written(t, path, up.URL, 1, "")
	p := start(t, "--config", path)
	first := later(t, p.url+"/held")
	up.arrived(t)
	second := later(t, p.url+"/held")
	p.until("one waits", func(s admin.State) bool { return s.Limiters["api"].Waiting == 1 })

	// An old file that is the same is read when a hangup asks for it, and changes nothing.
	p.signal(syscall.SIGHUP)
	p.until("read at the hangup", func(s admin.State) bool { return s.File.Reloads == 1 })
	equal(t, "waiting", p.state().Limiters["api"].Waiting, 1)

	refused := func(text string) {
		t.Helper()
		p.signal(syscall.SIGHUP)
		p.until("the broken file is shown", func(s admin.State) bool {
			return s.File.Failures > 0 && strings.Contains(s.File.Error, text)
		})
		if l := p.state().Limiters["api"]; l.Limit.InFlight != 1 || l.Waiting != 1 {
			t.Errorf("%d slots and %d that wait, want the old 1 and 1", l.Limit.InFlight, l.Waiting)
		}
	}
	renamed(t, path, "[limiters.api]\nin-flight = 3\nrate = 5\n")
	refused("quotient.toml:3:1: limiters.api.rate")
	contains(t, get(t, p.page+"metrics").body, "quotient_config_last_reload_successful 0")
	p.logged("file refused")
	written(t, path, up.URL, 7, `hosts = ["ops.example"]`+"\n")
	refused("proxy.admin: a change requires a restart")

	// The change of a limit lets the one that waits through.
	written(t, path, up.URL, 2, "")
	p.signal(syscall.SIGHUP)
	up.arrived(t)
	p.until("well again", func(s admin.State) bool {
		return s.File.Error == "" && s.Limiters["api"].Limit.InFlight == 2
	})
	up.release()
	equal(t, "the first", (<-first).status, http.StatusOK)
	equal(t, "the second", (<-second).status, http.StatusOK)
}

func TestItEndsInOrder(t *testing.T) {
	up := hold(t)
	p := start(t, anywhere("--rpm", "0", "--inflight", "1", up.URL)...)
	first := later(t, p.url+"/held")
	up.arrived(t)
	second := later(t, p.url+"/held")
	p.until("one waits", func(s admin.State) bool { return s.Limiters[limiterName].Waiting == 1 })
	p.says("ready", http.StatusOK, "ready\n")
	p.signal(syscall.SIGTERM)
	if a := <-second; a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
		t.Errorf("the one that waits got %v", a)
	}
	p.says("ready", http.StatusServiceUnavailable, "shutting down\n")
	p.says("health", http.StatusOK, "alive\n")
	up.release()
	equal(t, "the one in flight", (<-first).status, http.StatusOK)
	p.ends(exitOK)
	equal(t, "in flight at the end", p.logged("stopping")["in_flight"], 2.) // one of them waits
	equal(t, "requests in the summary", p.logged("overhead")["requests"], 1.)
	p.logged("stopped")
}

func TestASecondSignalEndsItAtOnce(t *testing.T) {
	up := hold(t)
	p := start(t, anywhere(up.URL)...)
	go func() { // it breaks off
		if resp, err := client.Get(p.url + "/held"); err == nil {
			_ = resp.Body.Close()
		}
	}()
	up.arrived(t)
	p.signal(syscall.SIGTERM)
	await(t, "it is not ready any more", func() bool {
		return get(t, p.page+"ready").status == http.StatusServiceUnavailable
	})
	p.signal(syscall.SIGTERM)
	p.ends(-1) // of the signal
}

// TestAFileThatBecomesAPipe: a certificate, a key and a key of tokens that cannot be read leave the old ones in force,
// with an error that names the file. The end is as soon as ever, and what can be read again is.
func TestAFileThatBecomesAPipe(t *testing.T) {
	for _, name := range []string{"cert.pem", "key.pem", "jwt.pem"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			files, path := pair(t, dir, "old"), filepath.Join(dir, "quotient.toml")
			cert, err := tls.LoadX509KeyPair(files.Cert, files.Key)
			must(t, err)
			public, err := x509.MarshalPKIXPublicKey(cert.Leaf.PublicKey)
			must(t, err)
			jwt := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})
			must(t, os.WriteFile(filepath.Join(dir, "jwt.pem"), jwt, 0o600))
			written(t, path, "http://"+nowhere, 1, `[proxy.tls]
cert = "cert.pem"
key = "key.pem"
[proxy.jwt]
key-file = "jwt.pem"
`)
			p := start(t, "--config", path)
			file := filepath.Join(dir, name)
			must(t, os.Rename(file, file+".old"))
			must(t, syscall.Mkfifo(file, 0o600))
			p.signal(syscall.SIGHUP)
			p.until("the error is shown", func(s admin.State) bool { return strings.Contains(s.File.Error, file) })
			before := p.state().File.Reloads
			must(t, os.Rename(file+".old", file))
			p.signal(syscall.SIGHUP)
			p.until("it is read again", func(s admin.State) bool { return s.File.Reloads > before && s.File.Error == "" })
			must(t, os.Remove(file))
			must(t, syscall.Mkfifo(file, 0o600))
			if name != "jwt.pem" { // which is read with the file
				p.logged("the certificate stays as it was")
			}
			p.signal(syscall.SIGHUP)
			p.until("the error is shown", func(s admin.State) bool { return strings.Contains(s.File.Error, file) })
			p.signal(syscall.SIGTERM)
			p.ends(exitOK)
		})
	}
}

// TestWhatHangsIsCutOff: the end has its time, though the log hangs, whose reader reads no more.
func TestWhatHangsIsCutOff(t *testing.T) {
	r, w, err := os.Pipe()
	must(t, err)
	t.Cleanup(func() { r.Close(); w.Close() })
	must(t, w.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
	for err == nil {
		_, err = w.Write(make([]byte, 1<<12))
	}
	for what, args := range map[string][]string{"proxy": {"--config"}, "leases": {"--port"}} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			must(t, err)
			addr := l.Addr().String()
			must(t, l.Close())
			path := filepath.Join(t.TempDir(), "quotient.toml")
			written(t, path, "http://"+nowhere, 1, "[proxy.timeouts]\nshutdown = \"1ms\"\n")
			text, err := os.ReadFile(path)
			must(t, err)
			renamed(t, path, strings.Replace(string(text), "127.0.0.1:0", addr, 1))
			_, port, _ := net.SplitHostPort(addr)
			p := program(t, what, args[0], map[string]string{"proxy": path, "leases": port}[what])
			p.Stderr = w
			p.Env = append(p.Env, "THROTTLE_LOG=INFO")
			must(t, p.Start())
			defer p.Process.Kill() //nolint:errcheck // it has ended
			await(t, "it listens", func() bool {
				c, err := net.Dial("tcp", addr)
				return err == nil && c.Close() == nil
			})
			must(t, p.Process.Signal(syscall.SIGTERM))
			began := time.Now()
			_ = p.Wait()
			if code, after := p.ProcessState.ExitCode(), time.Since(began); code != exitFailed ||
				after < overtime || after > tested.Patience {
				t.Errorf("exit %d after %v", code, after)
			}
		})
	}
}

// TestTheEndHasItsTime: it counts from whatever begins the end, while another part hangs.
func TestTheEndHasItsTime(t *testing.T) {
	var hangs chan struct{}
	hang := func(context.Context) error { <-hangs; return nil }
	broken := errors.New("a part broke")
	for name, row := range map[string]struct {
		ends func(context.Context) error // after a minute
		want error
	}{
		"a part fails":          {func(context.Context) error { return broken }, broken},
		"a demo is over":        {hang, errLate},
		"a part ends by itself": {func(context.Context) error { return nil }, errLate},
		"a part of a part fails": {func(ctx context.Context) error {
			return together(ctx, hang, func(context.Context) error { return broken })
		}, broken},
		"a hangup without a file": {func(ctx context.Context) error {
			file, err := config.Parse("flags", []byte("limiters.a.in-flight = 1"))
			must(t, err)
			conf, err := config.New(file, new(quotient.Registry))
			must(t, err)
			hangups := make(chan os.Signal, 1)
			hangups <- syscall.SIGHUP
			return (&service{conf: conf}).reloads(ctx, hangups)
		}, errLate},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hangs = make(chan struct{})
				defer close(hangs)
				began := time.Now()
				most := func() time.Duration { return time.Hour }
				err := cutOff(t.Context(), most, func(ctx context.Context) error {
					if name == "a demo is over" {
						over, cancel := context.WithTimeout(ctx, time.Minute)
						defer cancel()
						ctx = over
					}
					return together(ctx, hang, func(ctx context.Context) error { time.Sleep(time.Minute); return row.ends(ctx) })
				})
				if took := time.Since(began); took != time.Minute+time.Hour+overtime ||
					!errors.Is(err, row.want) || !errors.Is(err, errLate) {
					t.Errorf("it ended after %v with %v", took, err)
				}
			})
		})
	}
}

func TestReadyTurnsWithTheUpstream(t *testing.T) {
	up := hold(t)
	path := filepath.Join(t.TempDir(), "quotient.toml")
	written(t, path, up.URL, 1, "[proxy.health]\nevery = \"20ms\"\nunhealthy = 1\n")
	p := start(t, "--config", path)
	await(t, "ready", func() bool { return get(t, p.page+"ready").status == http.StatusOK })
	up.Close()
	await(t, "not ready", func() bool { return get(t, p.page+"ready").body == "no upstream is healthy\n" })
	if a := get(t, p.url+"/x"); a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
		t.Errorf("without an upstream: %v", a)
	}
}

// TestWhatIsSuspiciousIsSaid: at the start, and of an upstream that is not there.
func TestWhatIsSuspiciousIsSaid(t *testing.T) {
	path := filepath.Join(t.TempDir(), "quotient.toml")
	written(t, path, "http://"+nowhere, 1, "[pool]\nreplicas = 2\n")
	p := start(t, "--config", path)
	equal(t, "the level", p.logged("limiter api has 1 slots for 2 replicas")["level"], "WARN")
	equal(t, "the level", p.logged("upstream does not answer")["level"], "WARN")
}

// TestAdminOff: without a page and without a file. A hangup is the end then, as for most programs.
func TestAdminOff(t *testing.T) {
	up := hold(t)
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGHUP} {
		p := start(t, "--listen", "127.0.0.1:0", "--admin", "off", up.URL)
		equal(t, "the page", p.page, "")
		equal(t, "an answer", get(t, p.url+"/").status, http.StatusOK)
		p.signal(signal)
		p.ends(exitOK)
	}
}

func TestAPoolFromAFile(t *testing.T) {
	up := hold(t)
	size := filepath.Join(t.TempDir(), "replicas")
	p := start(t, anywhere("--pool", "file:"+size, up.URL)...)
	p.says("ready", http.StatusServiceUnavailable, "") // before the first count
	blocked := later(t, p.url+"/x")
	p.until("it waits for the first count", func(s admin.State) bool {
		return s.Limiters[limiterName].Waiting == 1
	})
	renamed(t, size, "4")
	p.until("one of four", func(s admin.State) bool {
		l := s.Limiters[limiterName]
		return l.Pool.Replicas == 4 && l.Pool.Source == "followed"
	})
	p.says("ready", http.StatusOK, "ready\n")
	p.signal(syscall.SIGTERM) // aligned windows open with the next minute
	if a := <-blocked; a.status != http.StatusServiceUnavailable && a.status != http.StatusOK {
		t.Errorf("got %v", a)
	}
	p.ends(exitOK)
}

// TestSecretsAreShownNowhere: a store lets the proxy in once its file has the password, and a reload has read it.
// Neither that nor a wrong one is shown.
func TestSecretsAreShownNowhere(t *testing.T) {
	const wrong, right = "wrong/sesame", "open@%sesame"
	store := miniredis.RunT(t)
	store.RequireUserAuth("me", right)
	dir := t.TempDir()
	path, password := filepath.Join(dir, "quotient.toml"), filepath.Join(dir, "password")
	renamed(t, password, wrong)
	t.Setenv("STORE_USER", "me")
	source := "redis://${STORE_USER}:${file:password}@" + store.Addr() + "?fleet=a"
	written(t, path, "http://"+nowhere, 1, "[pool]\nsource = \""+source+"\"\n")
	p := start(t, "--config", path)
	equal(t, "the source", p.logged("pool")["source"], source)
	shown := func() string {
		return get(t, p.page).body + get(t, p.page+"state").body + get(t, p.page+"metrics").body
	}
	p.until("the store refuses it", func(s admin.State) bool {
		return strings.Contains(s.Limiters["api"].Pool.LastError, "WRONGPASS")
	})
	all := shown()
	renamed(t, password, right+"\n")
	p.signal(syscall.SIGHUP)
	equal(t, "the source", p.logged("the source of the pool's size is opened again")["source"], source)
	p.until("the store lets it in", func(s admin.State) bool { return s.Limiters["api"].Pool.Reports > 0 })
	must(t, os.Remove(password))
	p.signal(syscall.SIGHUP)
	p.until("the file is missed", func(s admin.State) bool { return strings.Contains(s.File.Error, password+": no such file") })
	all += shown()
	p.signal(syscall.SIGTERM)
	p.ends(exitOK)
	p.mu.Lock()
	defer p.mu.Unlock()
	all += fmt.Sprint(p.log)
	all += ran(t, exitOK, "", "proxy", "--print-config", "--pool", source, "localhost:8080")
	if contains(t, all, source, "file:password}"); strings.Contains(all, "sesame") {
		t.Error("a secret is shown: " + all)
	}
}

// TestTheLogHasOneForm checks that nothing else writes to stderr: the client of a store has a log of its
// own.
func TestTheLogHasOneForm(t *testing.T) {
	up := hold(t)
	p := start(t, anywhere("--pool", "redis://user:opensesame@"+nowhere+"/0?fleet=a", up.URL)...)
	p.logged("pool hint failed")
	p.signal(syscall.SIGTERM)
	p.ends(exitOK)
	for _, line := range p.log {
		if line["level"] == nil || strings.Contains(fmt.Sprint(line), "opensesame") {
			t.Errorf("the log has %v", line)
		}
	}
}

func TestAnAddressThatIsTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	taken := l.Addr().String()
	ran(t, exitFailed, "proxy.listen: listen tcp "+taken, "proxy", "--listen", taken, "--admin",
		"127.0.0.1:0", "u:1")
	ran(t, exitFailed, "proxy.admin.listen: admin: Listen: listen tcp "+taken, "proxy", "--listen",
		"127.0.0.1:0", "--admin", taken, "u:1")
}

// TestClientsBehindAUnixSocket: the clients of a proxy on the same machine are told apart, if it is trusted.
func TestClientsBehindAUnixSocket(t *testing.T) {
	got := make(chan http.Header, 9)
	up := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header }))
	t.Cleanup(up.Close)
	for _, row := range []struct {
		settings, head string // of the file, and before each request
		second         string // status of another client's request
		forwarded      [2]string
	}{
		{"trust-unix = true", "", "200", [2]string{"6.6.6.6, 192.0.2.1", "for=192.0.2.1, for=unknown"}},
		{"trust-unix = true\nproxy-protocol = true", "PROXY UNKNOWN\r\n", "200",
			[2]string{"6.6.6.6, 192.0.2.1", "for=192.0.2.1, for=unknown"}},
		{"", "", "429", [2]string{}},
	} {
		dir := t.TempDir()
		t.Chdir(dir)
		path := filepath.Join(dir, "q.toml")
		must(t, os.WriteFile(path, []byte(`limiters.all = { mode = "refuse", rates = [{ events = 1, per = "1h" }] }
[proxy]
listen = "unix:s"
upstreams = ["`+up.URL+`"]
rules = [{ pattern = "/", limiter = "all", key = "client" }]
admin.listen = "off"
`+row.settings), 0o600))
		left, err := net.Listen("unix", filepath.Join(dir, "s")) // by a process that did not end in order
		must(t, err)
		left.(*net.UnixListener).SetUnlinkOnClose(false)
		must(t, left.Close())
		_, stop := serving(t, path)
		status := func(client string) string {
			own := &net.UnixAddr{Net: "unix", Name: "8.8.8.8:5"} // which looks like an address
			c, err := net.DialUnix("unix", own, &net.UnixAddr{Net: "unix", Name: "s"})
			must(t, err)
			defer os.Remove(own.Name)
			defer c.Close()
			_, err = fmt.Fprintf(c, "%sGET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"+
				"X-Forwarded-For: 6.6.6.6, %[2]s\r\nForwarded: for=%[2]s\r\n\r\n", row.head, client)
			must(t, err)
			text, err := io.ReadAll(c)
			must(t, err)
			return strings.Fields(string(text) + "- none")[1]
		}
		equal(t, "the status of one client, "+row.settings, status("192.0.2.1"), "200")
		h := <-got
		equal(t, "what is forwarded, "+row.settings,
			[2]string{h.Get("X-Forwarded-For"), h.Get("Forwarded")}, row.forwarded)
		equal(t, "the status of another client, "+row.settings, status("192.0.2.2"), row.second)
		if row.second == "200" {
			<-got
			equal(t, "the status of the first again", status("192.0.2.1"), "429")
		}
		if _, err := fromFile(t, path).open(t.Context(), slog.New(slog.DiscardHandler)); err == nil {
			t.Error("two listen at one socket")
		}
		if _, err := os.Stat("s.lock"); err != nil {
			t.Errorf("another that starts now could remove the socket: %v", err)
		}
		stop()
	}
}

func TestDemo(t *testing.T) {
	cmd := program(t, "proxy", "--demo", "--demo-for", "2s", "--listen", "127.0.0.1:0", "--admin",
		"127.0.0.1:0")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	must(t, cmd.Run())
	contains(t, out.String(), "The page: http://127.0.0.1:", "/rush, and wait", "longest wait")
	if lines := strings.Count(out.String()+errs.String(), "\n"); lines > 24 {
		t.Errorf("%d lines are more than a screen:\n%s%s", lines, &out, &errs)
	}
}

// serving serves a file in this process until stop is called.
func serving(t *testing.T, path string) (s *service, stop func()) {
	t.Helper()
	s, err := fromFile(t, path).open(t.Context(), slog.New(slog.DiscardHandler))
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.run(ctx, nil) }()
	return s, func() { cancel(); must(t, <-ended) }
}

// held is the memory of this process that is live, its goroutines and, where the system tells, its open files.
func held() (memory uint64, goroutines, files int) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	open, _ := os.ReadDir("/proc/self/fd")
	return m.HeapAlloc + m.StackInuse, runtime.NumGoroutine(), len(open)
}

// busy counts the requests of each path that are at an upstream, and their highest number.
type busy struct {
	mu        sync.Mutex
	now, most map[string]int
}

func (b *busy) add(path string, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now[path] += n
	b.most[path] = max(b.most[path], b.now[path])
}

const (
	reloads  = 200
	slots    = 4 // of each path
	once     = 5 // requests that /once may have in the test's life
	visiting = 8 // clients, more than there are slots
)

// changing is the n-th file. Its change touches nothing that /once or the slots of / depend on; those of
// /moving are fewer in each second one. Every tenth is broken.
func changing(n int, upstream string) string {
	more := ""
	if n%10 == 9 {
		more = "nosuch = 1\n"
	}
	return fmt.Sprintf(`
[limiters.all]
in-flight = %d
max-wait = "%ds"
%s
[limiters.all.plans.n%d]
in-flight = %d

[limiters.moving]
in-flight = %d
mode = "refuse"

[limiters.once]
rates = [{ events = %d, per = "1000h" }]
mode = "refuse"

[proxy]
listen = "127.0.0.1:0"
upstreams = [%q]
admin.listen = "off"
rules = [
  { pattern = "/once", limiter = "once" },
  { pattern = "/moving", limiter = "moving" },
  { pattern = "/n%d/", limiter = "all", key = "pattern" },
  { pattern = "/", limiter = "all" },
]
`, slots, 30+n%7, more, n%5, 1+n, slots-n%2, once, upstream, n%3)
}

// TestReloadsUnderLoad checks that reloads, every tenth of them of a broken file, lose no request, exceed no
// limit, forget nothing and leave nothing behind.
func TestReloadsUnderLoad(t *testing.T) {
	at := &busy{now: map[string]int{}, most: map[string]int{}}
	var onces atomic.Int64
	upstream := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/once" {
			onces.Add(1)
			return
		}
		at.add(r.URL.Path, 1)
		at.add(r.URL.Path, -1)
	}))
	defer upstream.Close()
	path := filepath.Join(t.TempDir(), "quotient.toml")
	put := func(n int) { must(t, os.WriteFile(path, []byte(changing(n, upstream.URL)), 0o600)) }
	put(0)
	s, stop := serving(t, path)
	load := newLoad("http://" + s.listener.Addr().String())
	var memory uint64
	var goroutines, files int
	for n := 1; n <= reloads; n++ {
		put(n)
		if err := s.conf.Reload(); (err != nil) != (n%10 == 9) {
			t.Errorf("reload %d: %v", n, err)
		}
		await(t, "requests between reloads", func() bool { return load.total.Load() >= int64(5*n) })
		if n == reloads/5 {
			memory, goroutines, files = held()
		}
	}
	memory2, goroutines2, files2 := held()
	load.end()
	stop()
	good := []string{"/ 200", "/once 200", "/once 429", "/moving 200", "/moving 429"}
	for status, n := range load.all {
		if !slices.Contains(good, status) {
			t.Errorf("%d times %s", n, status)
		}
	}
	if at.most["/"] > slots || at.most["/moving"] > slots {
		t.Errorf("%v were in flight, the limit is %d", at.most, slots)
	}
	equal(t, "requests for /once", onces.Load(), int64(once))
	if memory2 > memory+4<<20 || goroutines2 > goroutines+2*visiting || files2 > files+2*visiting {
		t.Errorf("memory %d, then %d bytes; goroutines %d, then %d; files %d, then %d", memory, memory2, goroutines,
			goroutines2, files, files2)
	}
	// Watch may have seen a change before Reload did.
	if f := s.conf.State(); f.Failures < reloads/10 || f.Error != "" {
		t.Errorf("%d failures, want at least %d; the last error is %q, want none", f.Failures,
			reloads/10, f.Error)
	}
}

// limited writes a file with one limiter for all paths, in one line of TOML.
func limited(t *testing.T, upstream, limiter string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "quotient.toml")
	renamed(t, path, "limiters.all = { "+limiter+" }\n[proxy]\nlisten = \"127.0.0.1:0\"\nupstreams = [\""+upstream+
		"\"]\nadmin.listen = \"off\"\nrules = [{ pattern = \"/\", limiter = \"all\" }]\n")
	return path
}

// early are answers that an upstream gives to the head of a request, by path. All begin with a body "much".
var early = map[string]string{
	"/length":  "HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\n\r\nmuch",
	"/close":   "HTTP/1.1 413 Too Large\r\nConnection: close\r\n\r\nmuch",
	"/chunks":  "HTTP/1.1 413 Too Large\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nmuch\r\n0\r\n\r\n",
	"/endless": "HTTP/1.1 413 Too Large\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nmuch\r\n",
	"/large":   "HTTP/1.1 413 Too Large\r\nContent-Length: 40000\r\n\r\n" + strings.Repeat("much", 10000),
}

// TestEarlyAnswers checks that an answer to a request that is not at its end reaches a client that sends no more, and
// that what the client sends then is no request.
func TestEarlyAnswers(t *testing.T) {
	var mu sync.Mutex
	asked := map[string]int{}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	ctx, end := context.WithCancel(t.Context())
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			context.AfterFunc(ctx, func() { _ = c.Close() })
			go func() {
				defer c.Close()
				in := bufio.NewReader(c)
				for { // a client may send all of its body after all, and the connection is used again
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					mu.Lock()
					asked[r.URL.Path]++
					mu.Unlock()
					_, _ = io.WriteString(c, early[r.URL.Path])
					if _, err = io.Copy(io.Discard, r.Body); err != nil || r.URL.Path == "/close" {
						return
					}
				}
			}()
		}
	}()
	s, stop := serving(t, limited(t, "http://"+l.Addr().String(), "in-flight = 1000"))
	defer stop()
	defer end() // net/http does not see a client go whose body nobody reads
	const tries = 20
	for path := range early {
		for _, fields := range []string{
			"Content-Length: 1000000\r\n\r\n", "Content-Length: 1000\r\n\r\nsome", "Transfer-Encoding: chunked\r\n\r\n",
			"Transfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n", "Content-Length: 1000\r\nExpect: 100-continue\r\n\r\n",
		} {
			for range tries {
				c, err := net.Dial("tcp", s.listener.Addr().String())
				must(t, err)
				_, err = io.WriteString(c, "POST "+path+" HTTP/1.1\r\nHost: h\r\n"+fields)
				must(t, err)
				_ = c.SetReadDeadline(time.Now().Add(4 * time.Second)) // less than a body may stop for
				resp, err := http.ReadResponse(bufio.NewReader(c), nil)
				if err != nil {
					t.Fatalf("%s, %q: %v", path, fields, err)
				}
				text := make([]byte, 4)
				_, err = io.ReadFull(resp.Body, text)
				must(t, err)
				equal(t, path+", "+fields, resp.Status+" "+string(text), "413 Request Entity Too Large much")
				_, _ = io.WriteString(c, strings.Repeat("GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n", 100))
				_ = c.Close()
			}
		}
		mu.Lock()
		equal(t, "requests for "+path, asked[path], 5*tries)
		mu.Unlock()
	}
	mu.Lock()
	defer mu.Unlock()
	if len(asked) != len(early) {
		t.Errorf("paths that were asked for: %v", asked)
	}
}

// TestHostilePaths checks that a flood of paths that are asked for once is answered, takes no more than the
// memory of max-keys, and neither spends nor renews the quota of a good path.
func TestHostilePaths(t *testing.T) {
	const hostile, limit, most = 10_000, 4, 1000
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer upstream.Close()
	s, stop := serving(t, limited(t, upstream.URL, fmt.Sprintf(
		`mode = "refuse", max-keys = %d, rates = [{ events = %d, per = "1000h", kind = "window" }]`, most, limit)))
	defer stop()
	target := "http://" + s.listener.Addr().String()
	equal(t, "the first good request", get(t, target+"/good").status, http.StatusOK)
	before, _, _ := held()
	var all sync.WaitGroup
	var good, answered, next atomic.Int64
	for range visiting {
		all.Go(func() {
			transport := new(http.Transport)
			defer transport.CloseIdleConnections()
			client := &http.Client{Transport: transport}
			for i := next.Add(1); i <= hostile; i = next.Add(1) {
				status := statusOf(client, fmt.Sprintf("%s/h/%d", target, i))
				if status == "200" || status == "503" { // keys beyond max-keys share what one has
					answered.Add(1)
				}
				if i%100 == 0 && statusOf(client, target+"/good") == "200" {
					good.Add(1)
				}
			}
		})
	}
	all.Wait()
	after, _, _ := held()
	equal(t, "hostile requests that were answered", answered.Load(), int64(hostile))
	equal(t, "further good requests", good.Load(), int64(limit-1))
	l, _ := s.reg.Get("all")
	if n := l.Stats().Keys; n > most {
		t.Errorf("%d keys, want at most %d", n, most)
	}
	if after > before+16<<20 {
		t.Errorf("%d bytes, then %d", before, after)
	}
}

// TestBlockedRequests checks that requests that wait cost little, are answered in the order of their arrival, and are
// forgotten when their clients go.
func TestBlockedRequests(t *testing.T) {
	const paths, waves, most = 10, 41, 40 << 10 // bytes of one, with its client
	var mu sync.Mutex
	arrived, order, open := 0, map[string][]string{}, make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		arrived++
		order[r.URL.Path] = append(order[r.URL.Path], r.URL.RawQuery)
		mu.Unlock()
		<-open
	}))
	defer upstream.Close()
	s, stop := serving(t, limited(t, upstream.URL, "in-flight = 1"))
	defer stop()
	l, _ := s.reg.Get("all")
	before, goroutines, _ := held()
	var all []net.Conn
	for wave := range waves { // the next one comes when the one before waits
		for path := range paths {
			c, err := net.Dial("tcp", s.listener.Addr().String())
			must(t, err)
			_, err = fmt.Fprintf(c, "GET /%d?%02d HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", path, wave)
			must(t, err)
			all = append(all, c)
		}
		await(t, "they wait", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return arrived == paths && l.Stats().Waiting == wave*paths
		})
	}
	full, _, _ := held()
	if each := (int64(full) - int64(before)) / int64(len(all)); each > most {
		t.Errorf("a blocked request takes %d bytes, want at most %d", each, most)
	}
	for _, c := range all[len(all)/2:] {
		must(t, c.Close())
	}
	await(t, "half of them wait", func() bool { return l.Stats().Waiting == len(all)/2-paths })
	close(open)
	for _, c := range all[:len(all)/2] {
		text, err := io.ReadAll(c)
		must(t, err)
		contains(t, string(text), "HTTP/1.1 200 OK")
		must(t, c.Close())
	}
	for path, queries := range order {
		if !slices.IsSorted(queries) {
			t.Errorf("%s: the order is %v", path, queries)
		}
	}
	equal(t, "requests at the upstream, without those whose clients had gone", arrived, len(all)/2)
	await(t, "goroutines have ended", func() bool { // but for those of idle connections to the upstream
		_, n, _ := held()
		return n <= goroutines+4*paths+8
	})
}

// load is clients that call for /, /moving and /once in turn, one request after the other.
type load struct {
	stop    context.CancelFunc
	clients sync.WaitGroup
	total   atomic.Int64
	mu      sync.Mutex
	all     map[string]int // by path and status
}

func newLoad(target string) *load {
	ctx, stop := context.WithCancel(context.Background())
	l := &load{stop: stop, all: map[string]int{}}
	for range visiting {
		l.clients.Go(func() {
			transport := new(http.Transport)
			defer transport.CloseIdleConnections()
			client := &http.Client{Transport: transport}
			for n := 0; ctx.Err() == nil; n++ {
				p := [8]string{"/once", "/moving", "/moving", "/moving", "/", "/", "/", "/"}[n%8]
				status := statusOf(client, target+p)
				l.mu.Lock()
				l.all[p+" "+status]++
				l.mu.Unlock()
				l.total.Add(1)
			}
		})
	}
	return l
}

func statusOf(client *http.Client, url string) string {
	resp, err := client.Get(url)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err.Error()
	}
	return fmt.Sprint(resp.StatusCode)
}

func (l *load) end() { l.stop(); l.clients.Wait() }

type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	url   string // of the proxy
	page  string // of the operator; empty when it is off
	ended chan struct{}

	mu  sync.Mutex
	log []map[string]any
}

// start runs quotient proxy on free ports and waits until it has said where it listens.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := launch(t, append([]string{"proxy", "--log", "json"}, args...)...)
	p.url = p.logged("proxy listens")["url"].(string)
	if page, ok := p.logged("operator's page")["url"]; ok {
		p.page = page.(string)
	}
	return p
}

func launch(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{t: t, ended: make(chan struct{})}
	p.cmd = program(t, args...)
	p.cmd.Env = append(p.cmd.Env, asProgram+"="+endsWithInput)
	_, err := p.cmd.StdinPipe()
	must(t, err)
	if args[0] == "leases" { // which ends within a second: the race detector would sleep as long
		p.cmd.Env = append(p.cmd.Env, "GORACE=atexit_sleep_ms=0")
	}
	stderr, err := p.cmd.StderrPipe()
	must(t, err)
	must(t, p.cmd.Start())
	go p.read(stderr)
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
		_ = p.cmd.Wait()
		if t.Failed() {
			t.Logf("log: %v", p.log)
		}
	})
	return p
}

// anywhere are the flags of a proxy on free ports.
func anywhere(args ...string) []string {
	return append([]string{"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, args...)
}

func (p *process) read(stderr io.Reader) {
	defer close(p.ended)
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		var line map[string]any
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			line = map[string]any{"msg": lines.Text()}
		}
		p.mu.Lock()
		p.log = append(p.log, line)
		p.mu.Unlock()
	}
}

// logged waits for a line of the log whose message begins so.
func (p *process) logged(msg string) (found map[string]any) {
	p.t.Helper()
	await(p.t, fmt.Sprintf("%q is logged", msg), func() (ended bool) {
		select {
		case <-p.ended:
			ended = true
		default:
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, line := range p.log {
			if text, _ := line["msg"].(string); found == nil && strings.HasPrefix(text, msg) {
				found = line
			}
		}
		return ended || found != nil
	})
	if found == nil {
		p.t.Fatalf("it ended before it logged %q", msg)
	}
	return found
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	must(p.t, p.cmd.Process.Signal(s))
}

// wait waits for the end and returns the exit code, -1 for a signal.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(tested.Patience):
		p.t.Fatal("it does not end")
	}
	_ = p.cmd.Wait()
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) ends(code int) {
	p.t.Helper()
	equal(p.t, "the exit code", p.wait(), code)
}

func (p *process) has(text string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Contains(fmt.Sprint(p.log), text)
}

// says requires an answer of the operator's page.
func (p *process) says(path string, status int, body string) {
	p.t.Helper()
	if a := get(p.t, p.page+path); a.status != status || body != "" && a.body != body {
		p.t.Errorf("/%s: %v, want %d %q", path, a, status, body)
	}
}

func later(t *testing.T, url string) <-chan answer {
	c := make(chan answer, 1)
	go func() { c <- get(t, url) }()
	return c
}

func (p *process) state() admin.State {
	p.t.Helper()
	var s admin.State
	must(p.t, json.Unmarshal([]byte(get(p.t, p.page+"state").body), &s))
	return s
}

func (p *process) until(what string, ok func(admin.State) bool) {
	p.t.Helper()
	await(p.t, what, func() bool { return ok(p.state()) })
}

// await asks until the answer is as it should be: a process is another one, and there is no event for it.
var await = tested.Until

// holding is an upstream that holds each request for /held until release is called.
type holding struct {
	*httptest.Server
	held    chan string // the path of each request that is held
	release func()
}

func hold(t *testing.T) *holding {
	t.Helper()
	gate := make(chan struct{})
	h := &holding{held: make(chan string, 1000), release: sync.OnceFunc(func() { close(gate) })}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/held") {
			h.held <- r.URL.Path
			<-gate
		}
		_, _ = io.WriteString(w, "from upstream "+r.URL.Path)
	}))
	t.Cleanup(h.Close)
	t.Cleanup(h.release)
	return h
}

func (h *holding) arrived(t *testing.T) {
	t.Helper()
	select {
	case <-h.held:
	case <-time.After(tested.Patience):
		t.Fatal("no request has arrived")
	}
}
