package proxy

import (
	"bytes"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/quotient-go/quotient/config"
)

// kinds makes an object of each kind that the manifests may have.
var kinds = map[string]func() any{
	"v1/ConfigMap":                             func() any { return new(corev1.ConfigMap) },
	"v1/Service":                               func() any { return new(corev1.Service) },
	"v1/ServiceAccount":                        func() any { return new(corev1.ServiceAccount) },
	"apps/v1/Deployment":                       func() any { return new(appsv1.Deployment) },
	"apps/v1/StatefulSet":                      func() any { return new(appsv1.StatefulSet) },
	"policy/v1/PodDisruptionBudget":            func() any { return new(policyv1.PodDisruptionBudget) },
	"rbac.authorization.k8s.io/v1/Role":        func() any { return new(rbacv1.Role) },
	"rbac.authorization.k8s.io/v1/RoleBinding": func() any { return new(rbacv1.RoleBinding) },
	"discovery.k8s.io/v1/EndpointSlice":        func() any { return new(discoveryv1.EndpointSlice) },
	"monitoring.coreos.com/v1/PodMonitor":      func() any { return new(monitoringv1.PodMonitor) },
	"monitoring.coreos.com/v1/ServiceMonitor":  func() any { return new(monitoringv1.ServiceMonitor) },
	"monitoring.coreos.com/v1/PrometheusRule":  func() any { return new(monitoringv1.PrometheusRule) },
}

// decode returns the object of one document. A field that the kind does not have, or has twice, is an error.
func decode(document []byte) (any, error) {
	var head struct{ APIVersion, Kind string }
	if err := yaml.Unmarshal(document, &head); err != nil {
		return nil, err
	}
	kind := head.APIVersion + "/" + head.Kind
	make, ok := kinds[kind]
	if !ok {
		return nil, fmt.Errorf("the kind %s is none of kinds", kind)
	}
	object := make()
	if err := yaml.UnmarshalStrict(document, object); err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	return object, nil
}

// decodeAll returns the objects of a file of documents.
func decodeAll(t *testing.T, name string, text []byte) []any {
	t.Helper()
	var objects []any
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		object, err := decode(document)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		objects = append(objects, object)
	}
	return objects
}

// build runs kustomize on a folder, as `kubectl apply -k` does, and decodes what comes of it.
func build(t *testing.T, dir string) []any {
	t.Helper()
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	must(t, err)
	text, err := made.AsYaml()
	must(t, err)
	return decodeAll(t, dir, text)
}

// TestManifestsOfTheLibrary checks that the manifests of docs/kubernetes.md decode strictly.
func TestManifestsOfTheLibrary(t *testing.T) {
	files, err := filepath.Glob("../kubernetes/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %d files", err, len(files))
	}
	for _, file := range files {
		decodeAll(t, file, []byte(read(t, file)))
	}
}

// deployed is what the tests look at in one variant.
type deployed struct {
	kind     string
	replicas int32
	surge    int32 // pods that may exist above replicas
	labels   map[string]string
	selector map[string]string
	pod      corev1.PodSpec
	quotient corev1.Container
	sidecar  bool
	services map[string]*corev1.Service
	budget   *policyv1.PodDisruptionBudget
	text     string // of quotient.toml
	file     *config.File
}

// variants are the folders that a user applies, each with the kind that holds its pods.
var variants = map[string]string{
	"kustomize/base":             "Deployment",
	"kustomize/overlays/exact":   "StatefulSet",
	"kustomize/overlays/sidecar": "Deployment",
}

// built holds the variants that were built.
var built = map[string]deployed{}

// each calls test for each variant, with what its file says.
func each(t *testing.T, test func(t *testing.T, d deployed, f *config.File)) {
	for dir := range variants {
		t.Run(dir, func(t *testing.T) {
			d := look(t, dir)
			test(t, d, d.file)
		})
	}
}

// look builds a variant and takes it apart.
func look(t *testing.T, dir string) deployed {
	t.Helper()
	if d, ok := built[dir]; ok {
		return d
	}
	d := deployed{services: map[string]*corev1.Service{}}
	for _, object := range build(t, dir) {
		switch o := object.(type) {
		case *appsv1.Deployment:
			d.kind, d.replicas, d.pod = "Deployment", *o.Spec.Replicas, o.Spec.Template.Spec
			d.labels, d.selector = o.Spec.Template.Labels, o.Spec.Selector.MatchLabels
			d.surge = o.Spec.Strategy.RollingUpdate.MaxSurge.IntVal
			if down := o.Spec.Strategy.RollingUpdate.MaxUnavailable; down.IntVal != 0 {
				t.Errorf("maxUnavailable is %v", down)
			}
		case *appsv1.StatefulSet:
			d.kind, d.replicas, d.pod = "StatefulSet", *o.Spec.Replicas, o.Spec.Template.Spec
			d.labels, d.selector = o.Spec.Template.Labels, o.Spec.Selector.MatchLabels
			how, service := o.Spec.PodManagementPolicy, o.Spec.ServiceName
			if how != appsv1.ParallelPodManagement || service != "quotient-replicas" {
				t.Errorf("pod management %q, service %q", how, service)
			}
		case *corev1.Service:
			d.services[o.Name] = o
		case *policyv1.PodDisruptionBudget:
			d.budget = o
		case *corev1.ConfigMap:
			d.text = o.Data["quotient.toml"]
			if o.Name != "quotient" {
				t.Errorf("the ConfigMap is named %q: a change of the file would replace all pods", o.Name)
			}
		default:
			t.Errorf("%T is not looked at", o)
		}
	}
	if len(d.pod.InitContainers) > 0 {
		d.quotient, d.sidecar = d.pod.InitContainers[0], true
	} else {
		d.quotient = d.pod.Containers[0]
	}
	if d.quotient.Name != "quotient" || d.text == "" {
		t.Fatalf("container %q, file %q", d.quotient.Name, d.text)
	}
	if d.kind != variants[dir] {
		t.Errorf("the pods are those of a %s, want %s", d.kind, variants[dir])
	}
	var err error
	if d.file, err = config.Parse("quotient.toml", []byte(d.text)); err != nil || d.file.Proxy == nil {
		t.Fatalf("%v, [proxy] %v", err, d.file)
	}
	built[dir] = d
	return d
}

// within reports whether all pairs of part stand in whole, and part has one.
func within(part, whole map[string]string) bool {
	for k, v := range part {
		if whole[k] != v {
			return false
		}
	}
	return len(part) > 0
}

// TestSelectors checks that Services, budget and controller choose the pods, and that DNS lists each of
// them.
func TestSelectors(t *testing.T) {
	each(t, func(t *testing.T, d deployed, _ *config.File) {
		selectors := map[string]map[string]string{
			"controller": d.selector, "budget": d.budget.Spec.Selector.MatchLabels,
		}
		for name, s := range d.services {
			selectors["Service "+name] = s.Spec.Selector
		}
		for name, s := range selectors {
			if !within(s, d.labels) {
				t.Errorf("the %s selects %v, the pods have %v", name, s, d.labels)
			}
		}
		headless, front := d.services["quotient-replicas"], d.services["quotient"]
		if headless == nil || front == nil || len(d.services) != 2 {
			t.Fatalf("Services %v", d.services)
		}
		if headless.Spec.ClusterIP != corev1.ClusterIPNone || !headless.Spec.PublishNotReadyAddresses {
			t.Errorf("the headless Service is %+v", headless.Spec)
		}
		if got := front.Spec.Ports[0].TargetPort.StrVal; got != "http" {
			t.Errorf("the Service sends to the port %q", got)
		}
		if strings.HasPrefix(d.quotient.Image, "quotient") {
			t.Errorf("the image %q has no registry", d.quotient.Image)
		}
	})
}

// closed is the security context of a container. The proxy runs as the user of its image, a service beside it
// as one of its own.
func closed(name string) *corev1.SecurityContext {
	s := &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	if name == "quotient" {
		s.RunAsUser, s.RunAsGroup = new(int64(65532)), new(int64(65532))
	}
	return s
}

// TestRestricted holds the restricted profile of Kubernetes' Pod Security Standards, and a read-only root.
func TestRestricted(t *testing.T) {
	for dir := range variants {
		checkRestricted(t, dir, look(t, dir).pod)
	}
	checkRestricted(t, leasesBase, lookLeases(t).Spec.Template.Spec)
}

func checkRestricted(t *testing.T, dir string, pod corev1.PodSpec) {
	t.Helper()
	p := pod.SecurityContext
	if p == nil || p.RunAsNonRoot == nil || !*p.RunAsNonRoot ||
		p.SeccompProfile == nil || p.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("%s: the pod's security context is %+v", dir, p)
	}
	if auto := pod.AutomountServiceAccountToken; auto == nil || *auto {
		t.Errorf("%s: the pod gets a token for the API server", dir)
	}
	for _, c := range append(pod.InitContainers, pod.Containers...) {
		if want := closed(c.Name); !reflect.DeepEqual(c.SecurityContext, want) {
			t.Errorf("%s: the security context of %s is %+v, want %+v", dir, c.Name, c.SecurityContext, want)
		}
		for _, m := range c.VolumeMounts {
			if !m.ReadOnly || m.SubPath != "" {
				t.Errorf("%s: %s mounts %s, read-only %v, sub-path %q", dir, c.Name, m.Name, m.ReadOnly,
					m.SubPath)
			}
		}
	}
}

// At most these hold memory: a request that waits, and a connection that is idle.
const (
	blockedCost    = 40 << 10
	connectionCost = 20 << 10
)

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
	each(t, func(t *testing.T, d deployed, f *config.File) {
		if a, b := portOf(t, f.Proxy.Listen), port(d.quotient, "http"); a != b {
			t.Errorf("listens on %s, the port http is %s", a, b)
		}
		if a, b := portOf(t, f.Proxy.Admin.Listen), port(d.quotient, "admin"); a != b {
			t.Errorf("the admin listens on %s, the port admin is %s", a, b)
		}
		for probe, path := range map[*corev1.Probe]string{
			d.quotient.StartupProbe: "/health", d.quotient.LivenessProbe: "/health",
			d.quotient.ReadinessProbe: "/ready",
		} {
			get := probe.HTTPGet
			if get == nil || get.Path != path || get.Port.StrVal != "admin" {
				t.Errorf("the probe is %+v, want %s", get, path)
			}
		}
		args := []string{"proxy", "--config", "/etc/quotient/quotient.toml"}
		if !slices.Equal(d.quotient.Args, args) {
			t.Errorf("arguments %q, want %q", d.quotient.Args, args)
		}
		mounted := map[string]string{}
		for _, m := range d.quotient.VolumeMounts {
			mounted[m.MountPath] = m.Name
		}
		token, in := strings.CutPrefix(f.Proxy.Admin.TokenFile, "/etc/quotient-admin/")
		want := map[string]string{"/etc/quotient": "config", "/etc/quotient-admin": "admin"}
		if !maps.Equal(mounted, want) || !in || token != "token" {
			t.Errorf("mounts %v, token in %s", mounted, f.Proxy.Admin.TokenFile)
		}
	})
}

// TestPool checks that the file counts the pods by a Service that exists. While that is silent, as many
// count as there may be.
func TestPool(t *testing.T) {
	each(t, func(t *testing.T, d deployed, f *config.File) {
		p := f.Pool
		name, dns := strings.CutPrefix(p.Source, "dns:")
		name, uncapped := strings.CutSuffix(name, "?uncapped") // Kubernetes lists all
		if d.services[name] == nil || !dns || !uncapped || !p.Await {
			t.Errorf("the pool is %+v, the Services %v", p, d.services)
		}
		if most := int(d.replicas + d.surge); p.Replicas < most {
			t.Errorf("%d replicas while DNS is silent, there may be %d", p.Replicas, most)
		}
		if p.HoldDown < 40*time.Second {
			t.Errorf("a hold-down of %v is no longer than answers of DNS live", p.HoldDown)
		}
		i := slices.IndexFunc(d.quotient.Env, func(e corev1.EnvVar) bool {
			return e.Name == "QUOTIENT_ORDINAL"
		})
		if (i >= 0) != (d.kind == "StatefulSet") {
			t.Errorf("an ordinal %v, in a %s", i >= 0, d.kind)
		}
		const index = "metadata.labels['apps.kubernetes.io/pod-index']"
		if i >= 0 && d.quotient.Env[i].ValueFrom.FieldRef.FieldPath != index {
			t.Errorf("the ordinal is %+v, want %s", d.quotient.Env[i].ValueFrom, index)
		}
	})
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
	each(t, func(t *testing.T, d deployed, f *config.File) {
		grace := time.Duration(*d.pod.TerminationGracePeriodSeconds) * time.Second
		before := sleep(d.quotient)
		if d.sidecar { // the service's hook, and its own end
			before = sleep(d.pod.Containers[0]) + 20*time.Second
		}
		if end := f.Proxy.Timeouts.Shutdown; before < 5*time.Second || grace <= before+end {
			t.Errorf("%v for a pod to end, its hooks take %v and a shutdown %v", grace, before, end)
		}
		for name, l := range f.Limiters {
			if stays := sleep(d.pod.Containers[0]); d.sidecar && (l.MaxWait == 0 || l.MaxWait > stays) {
				t.Errorf("requests of %s wait for %v, the service stays for %v", name,
					l.MaxWait, stays)
			}
		}
	})
}

// TestMemory checks that all that may wait and connect fits into the memory of the container.
func TestMemory(t *testing.T) {
	each(t, func(t *testing.T, d deployed, f *config.File) {
		limit := d.quotient.Resources.Limits.Memory().Value()
		var goLimit resource.Quantity
		for _, e := range d.quotient.Env {
			if e.Name == "GOMEMLIMIT" {
				goLimit = resource.MustParse(strings.TrimSuffix(e.Value, "B"))
			}
		}
		if at := float64(goLimit.Value()) / float64(limit); at < .8 || at > .95 {
			t.Errorf("GOMEMLIMIT is %.2f of the limit of memory", at)
		}
		need := int64(f.Proxy.Max.Connections) * connectionCost
		for _, l := range f.Limiters {
			need += int64(l.Queue)*blockedCost + int64(l.MaxKeys)*400
		}
		if need > goLimit.Value() {
			t.Errorf("%d MiB may be needed, GOMEMLIMIT is %d MiB", need>>20, goLimit.Value()>>20)
		}
		if !d.quotient.Resources.Limits.Cpu().IsZero() {
			t.Errorf("a limit of the CPU stops the process")
		}
	})
}

// TestSidecar checks that the proxy is a sidecar in front of a service that only the pod reaches.
func TestSidecar(t *testing.T) {
	d := look(t, "kustomize/overlays/sidecar")
	f := d.file
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
	f, err := config.Parse("quotient.toml", []byte(read(t, "quotient.toml")))
	must(t, err)
	set := settings(unit(t))
	number := func(name string) int {
		if len(set[name]) != 1 {
			t.Fatalf("%s is %q, want one value", name, set[name])
		}
		n, err := strconv.Atoi(set[name][0])
		must(t, err)
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

// TestProbesReachTheProgram starts the program with the file of the base. Only addresses, the source and the
// name of the token's file are others. A kubelet, which has no token, gets its answers by any address, and
// nothing else.
func TestProbesReachTheProgram(t *testing.T) {
	dir := t.TempDir()
	listen, admin, token := free(t), free(t), strings.Repeat("0123456789abcdef", 2)
	text := strings.NewReplacer(
		"0.0.0.0:4040", listen, "0.0.0.0:4041", admin, "http://api:8080", "http://"+admin,
		"dns:quotient-replicas?uncapped", "file:replicas", "/etc/quotient-admin/token", "token",
	).Replace(read(t, "kustomize/base/quotient.toml"))
	for name, text := range map[string]string{
		"quotient.toml": text,
		"replicas":      "3\n",
		"token":         token + "\n",
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	t.Setenv("QUOTIENT_ORDINAL", "1") // the second pod of a StatefulSet: the program takes it beside a file
	start(t, admin, "proxy", "--config", filepath.Join(dir, "quotient.toml"))
	for _, c := range []struct {
		path, token string
		want        int
	}{
		{"/health", "", http.StatusOK},
		{"/ready", "", http.StatusOK},
		{"/metrics", "", http.StatusUnauthorized},
		{"/state", "", http.StatusUnauthorized},
		{"/metrics", token, http.StatusOK},
	} {
		if got := ask(t, admin, c.path, c.token, admin); got != c.want {
			t.Errorf("%s with the token %q: %d, want %d", c.path, c.token, got, c.want)
		}
		if c.want == http.StatusUnauthorized || c.token != "" {
			c.want = http.StatusForbidden
		}
		if got := ask(t, admin, c.path, c.token, "10.1.2.3:4041"); got != c.want {
			t.Errorf("%s by an address of a translator, with the token %q: %d, want %d", c.path, c.token,
				got, c.want)
		}
	}
}

// ask returns the status of a path for a caller that has a token, or none, and asks by the name host.
func ask(t *testing.T, admin, path, token, host string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+admin+path, nil)
	must(t, err)
	if req.Host = host; token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	must(t, err)
	_ = resp.Body.Close()
	return resp.StatusCode
}
