package proxy

import (
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/quotient-go/quotient/config"
)

// These manifests run the lease server.
const (
	leasesBase = "../leases/kustomize/base"
	leasesFile = "../leases/quotient.toml"
)

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
	pod := lookLeases(t).Spec.Template.Spec
	c, set := pod.Containers[0], leasesOf(t, leasesBase+"/quotient.toml")
	_, listens, err := net.SplitHostPort(set.Listen) // the address is a flag
	if got := port(c, "leases"); err != nil || got != listens {
		t.Errorf("listens on %s, the port leases is %s", listens, got)
	}
	for probe, path := range map[*corev1.Probe]string{
		c.StartupProbe: "/health", c.LivenessProbe: "/health", c.ReadinessProbe: "/ready",
	} {
		if get := probe.HTTPGet; get == nil || get.Path != path || get.Port.StrVal != "leases" {
			t.Errorf("the probe is %+v, want %s", get, path)
		}
	}
	args := []string{
		"leases", "--address", "$(POD_IP)", "--admin", "127.0.0.1:4042", "-c", "/etc/quotient/quotient.toml",
	}
	if !slices.Equal(c.Args, args) {
		t.Errorf("arguments %q, want %q", c.Args, args)
	}
	env := c.Env[0]
	if env.Name != "POD_IP" || env.ValueFrom == nil || env.ValueFrom.FieldRef.FieldPath != "status.podIP" {
		t.Errorf("POD_IP is %+v", env)
	}
	if m := c.VolumeMounts; len(m) != 1 || m[0].MountPath != "/etc/quotient" || m[0].Name != "config" {
		t.Errorf("mounts %+v", m)
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
	if need := int64(leaseConnections * connectionCost); need > memory*9/10 {
		t.Errorf("%d MiB may be needed, the limit is %d MiB", need>>20, memory>>20)
	}
	grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second
	if before := sleep(pod.Containers[0]); before < 5*time.Second || grace < before+5*time.Second {
		t.Errorf("%v for a pod to end, its hook takes %v", grace, before)
	}
}

// TestLeaseUnitAgreesWithItsFile checks that the service reads the file that its comment installs, and ends
// in time.
func TestLeaseUnitAgreesWithItsFile(t *testing.T) {
	set := settings(read(t, units[1]))
	want := map[string]string{
		"ExecStart":  program + " leases --admin 127.0.0.1:4042 -c /etc/quotient/leases.toml",
		"ExecReload": "/bin/kill -HUP $MAINPID",
	}
	for name, value := range want {
		if got := set[name]; len(got) != 1 || got[0] != value {
			t.Errorf("%s is %q, want %q", name, got, value)
		}
	}
	if stop, err := strconv.Atoi(set["TimeoutStopSec"][0]); err != nil || stop < 2 {
		t.Errorf("TimeoutStopSec is %d, a shutdown takes up to 1 s: %v", stop, err)
	}
	if files, err := strconv.Atoi(set["LimitNOFILE"][0]); err != nil || files < leaseConnections+1000 {
		t.Errorf("LimitNOFILE is %d for %d connections: %v", files, leaseConnections, err)
	}
	l := leasesOf(t, leasesFile)
	if l.Grace <= 0 || l.Election != nil || len(l.Semaphores) == 0 {
		t.Errorf("the file has grace %v, election %v, %d semaphores", l.Grace, l.Election, len(l.Semaphores))
	}
}
