package proxy

import (
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/quotient-go/quotient/config"
)

// At most these hold memory: a request that waits, and a connection that is idle.
const (
	blockedCost    = 40 << 10
	connectionCost = 20 << 10
)

// parse returns what the file of a variant says.
func (d deployed) parse(t *testing.T, dir string) *config.File {
	t.Helper()
	f, err := config.Parse(dir+"/quotient.toml", []byte(d.text))
	if err != nil || f.Proxy == nil {
		t.Fatalf("%v, [proxy] %v", err, f)
	}
	return f
}

// port returns the number of a container's port by its name.
func port(c corev1.Container, name string) string {
	for _, p := range c.Ports {
		if p.Name == name {
			return strconv.Itoa(int(p.ContainerPort))
		}
	}
	return "none"
}

// portOf returns the port of an address that is open to other machines.
func portOf(t *testing.T, address string) string {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsUnspecified() {
		t.Errorf("%s is not open to the pod's network: %v", address, err)
	}
	return port
}

// TestPodsAgreeWithTheirFile checks that ports, probes and mounts are those of the file in the ConfigMap.
func TestPodsAgreeWithTheirFile(t *testing.T) {
	for dir := range variants {
		d := look(t, dir)
		f := d.parse(t, dir)
		if a, b := portOf(t, f.Proxy.Listen), port(d.quotient, "http"); a != b {
			t.Errorf("%s: listens on %s, the port http is %s", dir, a, b)
		}
		if a, b := portOf(t, f.Proxy.Admin.Listen), port(d.quotient, "admin"); a != b {
			t.Errorf("%s: the admin listens on %s, the port admin is %s", dir, a, b)
		}
		for probe, path := range map[*corev1.Probe]string{
			d.quotient.StartupProbe: "/health", d.quotient.LivenessProbe: "/health",
			d.quotient.ReadinessProbe: "/ready",
		} {
			get := probe.HTTPGet
			if get == nil || get.Path != path || get.Port.StrVal != "admin" {
				t.Errorf("%s: the probe is %+v, want %s", dir, get, path)
			}
		}
		args := []string{"proxy", "--config", "/etc/quotient/quotient.toml"}
		if !slices.Equal(d.quotient.Args, args) {
			t.Errorf("%s: arguments %q, want %q", dir, d.quotient.Args, args)
		}
		mounted := map[string]string{}
		for _, m := range d.quotient.VolumeMounts {
			mounted[m.MountPath] = m.Name
		}
		token, in := strings.CutPrefix(f.Proxy.Admin.TokenFile, "/etc/quotient-admin/")
		want := map[string]string{"/etc/quotient": "config", "/etc/quotient-admin": "admin"}
		if !maps.Equal(mounted, want) || !in || token != "token" {
			t.Errorf("%s: mounts %v, token in %s", dir, mounted, f.Proxy.Admin.TokenFile)
		}
	}
}

// TestPool checks that the file counts the pods by a Service that exists. While that is silent, as many
// count as there may be.
func TestPool(t *testing.T) {
	for dir, kind := range variants {
		d := look(t, dir)
		p := d.parse(t, dir).Pool
		name, dns := strings.CutPrefix(p.Source, "dns:")
		name, uncapped := strings.CutSuffix(name, "?uncapped") // Kubernetes lists all
		if d.services[name] == nil || !dns || !uncapped || !p.Await {
			t.Errorf("%s: the pool is %+v, the Services %v", dir, p, d.services)
		}
		if most := int(d.replicas + d.surge); p.Replicas < most {
			t.Errorf("%s: %d replicas while DNS is silent, there may be %d", dir, p.Replicas, most)
		}
		if p.HoldDown < 40*time.Second {
			t.Errorf("%s: a hold-down of %v is no longer than answers of DNS live", dir, p.HoldDown)
		}
		i := slices.IndexFunc(d.quotient.Env, func(e corev1.EnvVar) bool {
			return e.Name == "QUOTIENT_ORDINAL"
		})
		if (i >= 0) != (kind == "StatefulSet") {
			t.Errorf("%s: an ordinal %v, in a %s", dir, i >= 0, kind)
		}
		const index = "metadata.labels['apps.kubernetes.io/pod-index']"
		if i >= 0 && d.quotient.Env[i].ValueFrom.FieldRef.FieldPath != index {
			t.Errorf("%s: the ordinal is %+v, want %s", dir, d.quotient.Env[i].ValueFrom, index)
		}
	}
}

// sleep is how long the hook before the end of a container sleeps.
func sleep(c corev1.Container) time.Duration {
	if c.Lifecycle == nil || c.Lifecycle.PreStop == nil || c.Lifecycle.PreStop.Sleep == nil {
		return 0
	}
	return time.Duration(c.Lifecycle.PreStop.Sleep.Seconds) * time.Second
}

// TestPodsEndInOrder checks that a pod has the time for its hook, and for what the file gives to a shutdown.
func TestPodsEndInOrder(t *testing.T) {
	for dir := range variants {
		d := look(t, dir)
		f := d.parse(t, dir)
		grace := time.Duration(*d.pod.TerminationGracePeriodSeconds) * time.Second
		before := sleep(d.quotient)
		if d.sidecar { // the service's hook, and its own end
			before = sleep(d.pod.Containers[0]) + 20*time.Second
		}
		if end := f.Proxy.Timeouts.Shutdown; before < 5*time.Second || grace <= before+end {
			t.Errorf("%s: %v for a pod to end, its hooks take %v and a shutdown %v", dir, grace, before, end)
		}
		for name, l := range f.Limiters {
			if stays := sleep(d.pod.Containers[0]); d.sidecar && (l.MaxWait == 0 || l.MaxWait > stays) {
				t.Errorf("%s: requests of %s wait for %v, the service stays for %v", dir, name,
					l.MaxWait, stays)
			}
		}
	}
}

// TestMemory checks that all that may wait and connect fits into the memory of the container.
func TestMemory(t *testing.T) {
	for dir := range variants {
		d := look(t, dir)
		f := d.parse(t, dir)
		limit := d.quotient.Resources.Limits.Memory().Value()
		var goLimit resource.Quantity
		for _, e := range d.quotient.Env {
			if e.Name == "GOMEMLIMIT" {
				goLimit = resource.MustParse(strings.TrimSuffix(e.Value, "B"))
			}
		}
		if at := float64(goLimit.Value()) / float64(limit); at < .8 || at > .95 {
			t.Errorf("%s: GOMEMLIMIT is %.2f of the limit of memory", dir, at)
		}
		need := int64(f.Proxy.Max.Connections) * connectionCost
		for _, l := range f.Limiters {
			need += int64(l.Queue)*blockedCost + int64(l.MaxKeys)*400
		}
		if need > goLimit.Value() {
			t.Errorf("%s: %d MiB may be needed, GOMEMLIMIT is %d MiB", dir, need>>20, goLimit.Value()>>20)
		}
		if !d.quotient.Resources.Limits.Cpu().IsZero() {
			t.Errorf("%s: a limit of the CPU stops the process", dir)
		}
	}
}

// TestSidecar checks that the proxy is a sidecar in front of a service that only the pod reaches.
func TestSidecar(t *testing.T) {
	d := look(t, "kustomize/overlays/sidecar")
	f := d.parse(t, "sidecar")
	if p := d.quotient.RestartPolicy; !d.sidecar || p == nil || *p != corev1.ContainerRestartPolicyAlways {
		t.Errorf("sidecar %v, restart policy %v", d.sidecar, p)
	}
	if len(d.pod.InitContainers) != 1 || len(d.pod.Containers) != 1 || d.pod.Containers[0].Name != "app" {
		t.Fatalf("containers %v and %v", d.pod.InitContainers, d.pod.Containers)
	}
	want := fmt.Sprintf("http://127.0.0.1:%d", d.pod.Containers[0].Ports[0].ContainerPort)
	if got := f.Proxy.Upstreams; len(got) != 1 || got[0].String() != want {
		t.Errorf("upstreams %v, want %v", got, want)
	}
}

// TestUnitAgreesWithItsFile checks that the service gets the time, descriptors and memory that its file
// needs.
func TestUnitAgreesWithItsFile(t *testing.T) {
	text, err := os.ReadFile("quotient.toml")
	if err != nil {
		t.Fatal(err)
	}
	f, err := config.Parse("quotient.toml", text)
	if err != nil {
		t.Fatal(err)
	}
	set := settings(unit(t))
	number := func(name string) int {
		if len(set[name]) != 1 {
			t.Fatalf("%s is %q, want one value", name, set[name])
		}
		n, err := strconv.Atoi(set[name][0])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if stop := time.Duration(number("TimeoutStopSec")) * time.Second; stop <= f.Proxy.Timeouts.Shutdown {
		t.Errorf("TimeoutStopSec is %v, a shutdown may take %v", stop, f.Proxy.Timeouts.Shutdown)
	}
	if files, need := number("LimitNOFILE"), 2*f.Proxy.Max.Connections+1000; files < need {
		t.Errorf("LimitNOFILE is %d, %d connections need %d", files, f.Proxy.Max.Connections, need)
	}
	memory := resource.MustParse(set["MemoryMax"][0] + "i")
	most := memory.Value()
	need := int64(f.Proxy.Max.Connections) * connectionCost
	for _, l := range f.Limiters {
		need += int64(l.Queue) * blockedCost
	}
	if need > most*9/10 {
		t.Errorf("MemoryMax is %d MiB, %d MiB may be needed", most>>20, need>>20)
	}
	if got := set["ExecReload"]; len(got) != 1 || got[0] != "/bin/kill -HUP $MAINPID" {
		t.Errorf("ExecReload is %q", got)
	}
}
