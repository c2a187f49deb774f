package proxy

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/internal/needed"
)

// leasesBase has the manifests that run the lease server.
const leasesBase = "../leases/kustomize/base"

// leaseConnections is how many clients a lease server takes, as cmd/quotient has it.
const leaseConnections = 1 << 16

// lookLeases builds the base of the lease server and returns its Deployment. It checks that the Service
// chooses its pods, that the file keeps its name, and that there is nothing else.
func lookLeases(t *testing.T) *appsv1.Deployment {
	t.Helper()
	var d *appsv1.Deployment
	var service *corev1.Service
	for _, object := range build(t, leasesBase) {
		switch o := object.(type) {
		case *appsv1.Deployment:
			d = o
		case *corev1.Service:
			service = o
		case *corev1.ConfigMap:
			if o.Name != "quotient-leases" ||
				o.Data["quotient.toml"] != read(t, leasesBase+"/quotient.toml") {
				t.Errorf("the ConfigMap is %q: %v", o.Name, o.Data)
			}
		default:
			t.Errorf("%T is not looked at", o)
		}
	}
	if d == nil || service == nil {
		t.Fatalf("Deployment %v, Service %v", d, service)
	}
	labels := d.Spec.Template.Labels
	if !within(service.Spec.Selector, labels) || !within(d.Spec.Selector.MatchLabels, labels) {
		t.Errorf("the Service selects %v, the Deployment %v, the pods have %v",
			service.Spec.Selector, d.Spec.Selector.MatchLabels, labels)
	}
	if got := service.Spec.Ports[0].TargetPort.StrVal; got != "leases" {
		t.Errorf("the Service sends to the port %q", got)
	}
	return d
}

// leasesOf returns what a file says of leases.
func leasesOf(t *testing.T, path string) *config.Leases {
	t.Helper()
	f, err := config.Parse(path, []byte(read(t, path)))
	if err != nil || f.Leases == nil {
		t.Fatalf("%s: %v, [leases] %v", path, err, f)
	}
	return f.Leases
}

// TestLeasePodsAgreeWithTheirFile checks that port, probes, arguments and mounts are those of the file.
func TestLeasePodsAgreeWithTheirFile(t *testing.T) {
	c, set := lookLeases(t).Spec.Template.Spec.Containers[0], leasesOf(t, leasesBase+"/quotient.toml")
	_, listens, err := net.SplitHostPort(set.Listen) // the address is a flag
	if got := port(c, "leases"); err != nil || got != listens {
		t.Errorf("listens on %s, the port leases is %s", listens, got)
	}
	args := []string{
		"leases", "--address", "$(POD_IP)", "--admin", "127.0.0.1:4042", "-c", "/etc/quotient/quotient.toml",
	}
	checkContainer(t, c, "leases", args, map[string]string{"/etc/quotient": "config"})
	env := c.Env[0]
	if env.Name != "POD_IP" || env.ValueFrom == nil || env.ValueFrom.FieldRef.FieldPath != "status.podIP" {
		t.Errorf("POD_IP is %+v", env)
	}
}

// TestLeasePodsTakeOver checks that two pods elect one, that a roll-out ends although one pod is never
// ready, and that a pod has the time to end.
func TestLeasePodsTakeOver(t *testing.T) {
	d := lookLeases(t)
	set := leasesOf(t, leasesBase+"/quotient.toml")
	if set.Election == nil || len(set.Election.Endpoints) == 0 || set.Grace <= set.Election.TTL {
		t.Errorf("grace %v, election %+v: a holder cannot restore before a waiter comes", set.Grace,
			set.Election)
	}
	replicas, roll := *d.Spec.Replicas, d.Spec.Strategy.RollingUpdate
	if replicas != 2 || roll.MaxUnavailable.IntVal < replicas || roll.MaxSurge.IntVal < replicas {
		t.Errorf("%d replicas, of which %v may be missing and %v be added", replicas, roll.MaxUnavailable,
			roll.MaxSurge)
	}
	pod := d.Spec.Template.Spec
	memory := pod.Containers[0].Resources.Limits.Memory().Value()
	if need := int64(leaseConnections) * (20 << 10); need > memory*9/10 {
		t.Errorf("%d MiB may be needed, the limit is %d MiB", need>>20, memory>>20)
	}
	grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second
	if before := sleep(pod.Containers[0]); before < 5*time.Second || grace < before+5*time.Second {
		t.Errorf("%v for a pod to end, its hook takes %v", grace, before)
	}
}

// TestLeaseMetricsOfThePage compares the metrics of the page with those of a server.
func TestLeaseMetricsOfThePage(t *testing.T) {
	listen := free(t)
	host, port, _ := net.SplitHostPort(listen)
	cmd := exec.Command(binary(t), "leases", "-s", "A=1", "--address", host, "--port", port)
	cmd.Dir = t.TempDir()
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		must(t, cmd.Wait())
	})
	ready(t, "http://"+listen)
	_, scrape := get(t, "http://"+listen+"/metrics")
	names := func(pattern, text string) (all []string) {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			all = append(all, m[1])
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	has := names(`(?m)^# TYPE ((?:throttle|quotient_lease)_\w+) `, scrape)
	shown := names("`((?:throttle|quotient_lease)_\\w+)`", read(t, leasesPage))
	if len(has) < 16 || !slices.Equal(has, shown) {
		t.Errorf("only in the program %q, only on the page %q", without(has, shown), without(shown, has))
	}
}

// leasesPage is for those who run a server: it has files, commands and metrics.
const leasesPage = "../leases/README.md"

// TestLeasesTour plays each command of docs/leases.md and of leasesPage with the real program, all in one shell and
// in order, and compares what it prints with the pages.
func TestLeasesTour(t *testing.T) {
	for _, program := range []string{"bash", "curl", "etcd"} {
		if _, err := exec.LookPath(program); err != nil {
			needed.Without(t, program, program+" is not installed: the tour is not played")
		}
	}
	moved, back := ports(t)
	typed := slices.Concat(commands(t, "../../docs/leases.md"), commands(t, leasesPage))
	clients, peers := moved.Replace("http://127.0.0.1:2379"), moved.Replace("http://127.0.0.1:2380")
	for name, value := range map[string]string{
		"LISTEN_CLIENT_URLS": clients, "ADVERTISE_CLIENT_URLS": clients, "LISTEN_PEER_URLS": peers,
		"INITIAL_ADVERTISE_PEER_URLS": peers, "INITIAL_CLUSTER": "default=" + peers,
	} {
		t.Setenv("ETCD_"+name, value)
	}
	dir := t.TempDir()
	for _, text := range blocks(t, leasesPage, "toml") { // each is named in its first line
		name, _, _ := strings.Cut(strings.TrimPrefix(text, "# "), "\n")
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(moved.Replace(text)), 0o600))
	}
	printed := play(t, dir, typed, moved)
	for i, c := range typed {
		if got := back.Replace(printed[i]); plainNumbers(got) != plainNumbers(c.answer) {
			t.Errorf("%s prints\n%s\nthe pages have\n%s", c.line, got, c.answer)
		}
	}
	if least := 40; len(typed) < least {
		t.Errorf("%d commands, want %d at least", len(typed), least)
	}
}

// ports returns what replaces the ports of the page by some that are free, and what does the opposite.
func ports(t *testing.T) (moved, back *strings.Replacer) {
	t.Helper()
	var there, here []string
	for _, p := range []string{"8000", "8001", "8002", "4042", "2379", "2380"} {
		_, port, err := net.SplitHostPort(free(t))
		must(t, err)
		there, here = append(there, p, port), append(here, port, p)
	}
	there = append(there, `grace = "9s"`, `grace = "4s"`) // which a reader has the time to wait for
	return strings.NewReplacer(there...), strings.NewReplacer(here...)
}

// prelude is what a shell needs so that it can go on where a reader would look and wait. A listener has 20
// s.
const prelude = `
trap 'kill -9 $(jobs -p) 2>/dev/null' EXIT
curl() { command curl -m 15 "$@"; }
await() { for _ in $(seq 400); do curl -sf "localhost:$1/health" >/dev/null && return; sleep .05; done; }
`

// mark stands between what two commands print.
const mark = "@@@ next @@@\n"

var (
	portOfLine = regexp.MustCompile(`^quotient leases .*--port (\d+)`)
	long16     = regexp.MustCompile(`\d{16,}`)
)

// play types lines into one shell, and returns what each prints.
func play(t *testing.T, dir string, typed []command, moved *strings.Replacer) []string {
	t.Helper()
	script := prelude
	for _, c := range typed {
		line := c.line
		if strings.HasPrefix(line, "quotient leases") && !portOfLine.MatchString(line) {
			line = strings.Replace(line, "quotient leases", "quotient leases --port 8000", 1)
		}
		script += moved.Replace(line) + "\n"
		if m := portOfLine.FindStringSubmatch(line); m != nil {
			script += moved.Replace("await " + m[1] + "\n")
		} else if strings.HasPrefix(line, "etcd ") {
			script += moved.Replace("await 2379\n")
		}
		script += "printf '" + strings.ReplaceAll(mark, "\n", `\n`) + "'\n"
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	shell := exec.CommandContext(ctx, "bash", "-c", script)
	shell.Dir, shell.WaitDelay = dir, 5*time.Second
	// it ends what it has started
	shell.Cancel = func() error { return shell.Process.Signal(syscall.SIGTERM) }
	shell.Env = append(os.Environ(), "PATH="+filepath.Dir(binary(t))+string(filepath.ListSeparator)+
		os.Getenv("PATH"))
	var out, log bytes.Buffer
	shell.Stdout, shell.Stderr = &out, &log
	err := shell.Run()
	printed := strings.Split(out.String(), mark)
	if len(printed) != len(typed)+1 {
		t.Fatalf("%v: %d of %d commands have ended: %s%s", err, len(printed)-1, len(typed), out.String(),
			log.String())
	}
	t.Logf("the shell: %s", log.String())
	return printed
}

// plainNumbers is text with one name for each long number: tokens, and the ids of peers.
func plainNumbers(s string) string { return long16.ReplaceAllString(squeeze(s), "N") }
