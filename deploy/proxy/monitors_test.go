package proxy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"

	"github.com/quotient-go/quotient/config"
)

// podMonitor returns the PodMonitor of a name, which has one endpoint.
func podMonitor(t *testing.T, name string) *monitoringv1.PodMonitor {
	t.Helper()
	const file = "../prometheus/podmonitor.yaml"
	for _, object := range decodeAll(t, file, []byte(read(t, file))) {
		m, ok := object.(*monitoringv1.PodMonitor)
		if !ok || len(m.Spec.PodMetricsEndpoints) != 1 {
			t.Fatalf("%s: %T, want PodMonitors with one endpoint", file, object)
		}
		if m.Name == name {
			return m
		}
	}
	t.Fatalf("no PodMonitor %s", name)
	return nil
}

// mounted returns the folder of a container in which a Secret is mounted.
func mounted(d deployed, secret string) string {
	for _, v := range d.pod.Volumes {
		for _, at := range d.quotient.VolumeMounts {
			if v.Secret != nil && v.Secret.SecretName == secret && at.Name == v.Name {
				return at.MountPath
			}
		}
	}
	return ""
}

// TestPodMonitorOfTheProxy checks that the monitor chooses the pods of each variant, and scrapes their admin
// port with the token that the pods read.
func TestPodMonitorOfTheProxy(t *testing.T) {
	m := podMonitor(t, "quotient")
	end := m.Spec.PodMetricsEndpoints[0]
	each(t, func(t *testing.T, d deployed, f *config.File) {
		if !within(m.Spec.Selector.MatchLabels, d.labels) {
			t.Errorf("the selector %v chooses no pod of %v", m.Spec.Selector.MatchLabels, d.labels)
		}
		admin := f.Proxy.Admin
		if a, b := portOf(t, admin.Listen), port(d.quotient, *end.Port); a != b {
			t.Errorf("the admin listens on %s, the port %s is %s", a, *end.Port, b)
		}
		token := end.Authorization.Credentials
		if at := mounted(d, token.Name) + "/" + token.Key; at != admin.TokenFile || end.Path != "/metrics" {
			t.Errorf("the pods read %s, Prometheus has %s for %s", admin.TokenFile, at, end.Path)
		}
	})
}

// TestPodMonitorOfLeases checks that the monitor chooses the lease servers and a port that they have.
func TestPodMonitorOfLeases(t *testing.T) {
	m := podMonitor(t, "quotient-leases")
	pods := lookLeases(t).Spec.Template
	number := port(pods.Spec.Containers[0], *m.Spec.PodMetricsEndpoints[0].Port)
	if !within(m.Spec.Selector.MatchLabels, pods.Labels) || number != "8000" {
		t.Errorf("the selector is %v, the labels are %v, port %s", m.Spec.Selector, pods.Labels, number)
	}
}

// TestServiceMonitor checks that the monitor presents a client certificate over TLS.
func TestServiceMonitor(t *testing.T) {
	const name = "../prometheus/servicemonitor.yaml"
	objects := decodeAll(t, name, []byte(read(t, name)))
	m, ok := objects[0].(*monitoringv1.ServiceMonitor)
	if len(objects) != 1 || !ok || len(m.Spec.Endpoints) != 1 {
		t.Fatalf("%v", objects)
	}
	end := m.Spec.Endpoints[0]
	if end.Scheme == nil || *end.Scheme != "https" || end.Path != "/metrics" || end.TLSConfig == nil ||
		end.TLSConfig.Cert.Secret == nil || end.TLSConfig.KeySecret == nil || end.TLSConfig.CA.Secret == nil {
		t.Errorf("%+v", end)
	}
	if err := end.TLSConfig.Validate(); err != nil {
		t.Error(err)
	}
}

// TestRulesAsAnObject runs the shell lines of deploy/README.md, with cat in place of kubectl.
func TestRulesAsAnObject(t *testing.T) {
	block := regexp.MustCompile("(?s)```sh\n(.*?)```").FindStringSubmatch(read(t, "../README.md"))
	if block == nil {
		t.Fatal("no shell block")
	}
	dir := t.TempDir()
	stub := "#!/bin/sh\nif [ \"$3\" = - ]; then exec cat; fi\ncat \"$3\" >/dev/null\n"
	must(t, os.WriteFile(filepath.Join(dir, "kubectl"), []byte(stub), 0o700))
	cmd := exec.CommandContext(t.Context(), "sh", "-eu", "-c", block[1])
	cmd.Dir, cmd.Env = "..", []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
	out, err := cmd.Output()
	must(t, err)
	object, err := decode(out)
	must(t, err)
	rules := 0
	for _, g := range object.(*monitoringv1.PrometheusRule).Spec.Groups {
		rules += len(g.Rules)
	}
	if want := strings.Count(read(t, "../prometheus/rules.yaml"), "- alert: "); rules != want || want == 0 {
		t.Errorf("the object has %d rules, the file %d", rules, want)
	}
}
