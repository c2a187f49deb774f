package proxy

import (
	"bytes"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/quotient-go/quotient/config"
)

// decode returns the object of one document. A field that the kind does not have, or has twice, is an error.
var decode = sync.OnceValue(func() func([]byte) (runtime.Object, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, policyv1.AddToScheme,
		rbacv1.AddToScheme, discoveryv1.AddToScheme, monitoringv1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	strict := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	return func(document []byte) (runtime.Object, error) {
		object, _, err := strict.Decode(document, nil, nil)
		return object, err
	}
})

// decodeAll returns the objects of a file of documents.
func decodeAll(t *testing.T, name string, text []byte) (objects []runtime.Object) {
	t.Helper()
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		object, err := decode()(document)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		objects = append(objects, object)
	}
	return objects
}

// build runs kustomize on a folder, as `kubectl apply -k` does, and decodes what comes of it.
func build(t *testing.T, dir string) []runtime.Object {
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
		d := look(t, dir)
		t.Run(dir, func(t *testing.T) { test(t, d, d.file) })
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
			if o.Name != "quotient" {
				t.Errorf("the ConfigMap is named %q: a change of the file would replace all pods", o.Name)
			}
			var err error
			d.file, err = config.Parse("quotient.toml", []byte(o.Data["quotient.toml"]))
			must(t, err)
		default:
			t.Errorf("%T is not looked at", o)
		}
	}
	if len(d.pod.InitContainers) > 0 {
		d.quotient, d.sidecar = d.pod.InitContainers[0], true
	} else {
		d.quotient = d.pod.Containers[0]
	}
	if d.quotient.Name != "quotient" || d.file == nil || d.file.Proxy == nil || d.kind != variants[dir] {
		t.Fatalf("container %q of a %s, want one of a %s; file %+v", d.quotient.Name, d.kind, variants[dir], d.file)
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
		selectors := []map[string]string{d.selector, d.budget.Spec.Selector.MatchLabels}
		for _, s := range d.services {
			selectors = append(selectors, s.Spec.Selector)
		}
		for _, s := range selectors {
			if !within(s, d.labels) {
				t.Errorf("%v is selected, the pods have %v", s, d.labels)
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

// TestRestricted holds the restricted profile of Kubernetes' Pod Security Standards, and a read-only root.
func TestRestricted(t *testing.T) {
	each(t, func(t *testing.T, d deployed, _ *config.File) { checkRestricted(t, d.pod) })
	checkRestricted(t, lookLeases(t).Spec.Template.Spec)
}

func checkRestricted(t *testing.T, pod corev1.PodSpec) {
	t.Helper()
	p := pod.SecurityContext
	if p == nil || p.RunAsNonRoot == nil || !*p.RunAsNonRoot ||
		p.SeccompProfile == nil || p.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("the pod's security context is %+v", p)
	}
	if auto := pod.AutomountServiceAccountToken; auto == nil || *auto {
		t.Error("the pod gets a token for the API server")
	}
	for _, c := range append(pod.InitContainers, pod.Containers...) {
		want := &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}
		if c.Name == "quotient" { // as its image; a service beside it has a user of its own
			want.RunAsUser, want.RunAsGroup = new(int64(65532)), new(int64(65532))
		}
		if !reflect.DeepEqual(c.SecurityContext, want) {
			t.Errorf("the security context of %s is %+v, want %+v", c.Name, c.SecurityContext, want)
		}
		for _, m := range c.VolumeMounts {
			if !m.ReadOnly || m.SubPath != "" {
				t.Errorf("%s mounts %s, read-only %v, sub-path %q", c.Name, m.Name, m.ReadOnly, m.SubPath)
			}
		}
	}
}

// connectionCost is the most that a connection takes beside what counts as held-bytes.
const connectionCost = 105 << 10

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

// checkContainer checks the probes of a container, its arguments, and which volumes it mounts where.
func checkContainer(t *testing.T, c corev1.Container, port string, args []string, mounts map[string]string) {
	t.Helper()
	for probe, path := range map[*corev1.Probe]string{
		c.StartupProbe: "/health", c.LivenessProbe: "/health", c.ReadinessProbe: "/ready",
	} {
		if get := probe.HTTPGet; get == nil || get.Path != path || get.Port.StrVal != port {
			t.Errorf("the probe is %+v, want %s", get, path)
		}
	}
	mounted := map[string]string{}
	for _, m := range c.VolumeMounts {
		mounted[m.MountPath] = m.Name
	}
	if !slices.Equal(c.Args, args) || !maps.Equal(mounted, mounts) {
		t.Errorf("arguments %q, mounts %v; want %q, %v", c.Args, mounted, args, mounts)
	}
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
		checkContainer(t, d.quotient, "admin", []string{"proxy", "--config", "/etc/quotient/quotient.toml"},
			map[string]string{"/etc/quotient": "config", "/etc/quotient-admin": "admin"})
		if f.Proxy.Admin.TokenFile != "/etc/quotient-admin/token" {
			t.Errorf("token in %s", f.Proxy.Admin.TokenFile)
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
		index := "" // of a pod
		for _, e := range d.quotient.Env {
			if e.Name == "QUOTIENT_ORDINAL" {
				index = e.ValueFrom.FieldRef.FieldPath
			}
		}
		if pods := "metadata.labels['apps.kubernetes.io/pod-index']"; d.kind == "StatefulSet" && index != pods ||
			d.kind != "StatefulSet" && index != "" {
			t.Errorf("the ordinal is %q, in a %s", index, d.kind)
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
		need := int64(f.Proxy.Max.Connections)*connectionCost + int64(f.Proxy.Max.HeldBytes)
		for _, l := range f.Limiters {
			need += int64(l.MaxKeys) * 400
		}
		if need > limit {
			t.Errorf("%d MiB may be needed, the limit is %d MiB", need>>20, limit>>20)
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
	for name, text := range map[string]string{"quotient.toml": text, "replicas": "3\n", "token": token + "\n"} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	t.Setenv("QUOTIENT_ORDINAL", "1") // the second pod of a StatefulSet: the program takes it beside a file
	start(t, admin, "proxy", "--config", filepath.Join(dir, "quotient.toml"))
	const ok, unauthorized, forbidden = http.StatusOK, http.StatusUnauthorized, http.StatusForbidden
	for _, c := range []struct {
		path, token       string
		direct, elsewhere int // by the address that it listens on, and by one of a translator
	}{
		{"/health", "", ok, ok}, {"/ready", "", ok, ok}, {"/metrics", "", unauthorized, forbidden},
		{"/state", "", unauthorized, forbidden}, {"/metrics", token, ok, forbidden},
	} {
		for host, want := range map[string]int{admin: c.direct, "10.1.2.3:4041": c.elsewhere} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+admin+c.path, nil)
			must(t, err)
			if req.Host = host; c.token != "" {
				req.Header.Set("Authorization", "Bearer "+c.token)
			}
			resp, err := client.Do(req)
			must(t, err)
			_ = resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("%s%s with the token %q: %d, want %d", host, c.path, c.token, resp.StatusCode, want)
			}
		}
	}
}

// object decodes the one object of a file that has a kind and a name.
func object[T interface{ GetName() string }](t *testing.T, file, name string) (found T) {
	t.Helper()
	for _, object := range decodeAll(t, file, []byte(read(t, file))) {
		if o, ok := object.(T); ok && o.GetName() == name {
			return o
		}
	}
	t.Fatalf("%s has no %T %s", file, found, name)
	return found
}

// podMonitor returns the PodMonitor of a name, and its one endpoint.
func podMonitor(t *testing.T, name string) (map[string]string, monitoringv1.PodMetricsEndpoint) {
	t.Helper()
	m := object[*monitoringv1.PodMonitor](t, "../prometheus/podmonitor.yaml", name)
	if len(m.Spec.PodMetricsEndpoints) != 1 || m.Spec.PodMetricsEndpoints[0].Path != "/metrics" {
		t.Fatalf("%+v", m.Spec)
	}
	return m.Spec.Selector.MatchLabels, m.Spec.PodMetricsEndpoints[0]
}

// TestPodMonitors checks that the monitors choose the pods of each variant, and those of the lease servers, and
// scrape the port that they have. The admin port of the proxy takes the token that the pods read.
func TestPodMonitors(t *testing.T) {
	selector, end := podMonitor(t, "quotient")
	token := end.Authorization.Credentials
	each(t, func(t *testing.T, d deployed, f *config.File) {
		a, b := portOf(t, f.Proxy.Admin.Listen), port(d.quotient, *end.Port)
		if a != b || !within(selector, d.labels) {
			t.Errorf("the admin listens on %s, the port %s is %s; the selector is %v", a, *end.Port, b, selector)
		}
		mounted := ""
		for _, v := range d.pod.Volumes {
			for _, at := range d.quotient.VolumeMounts {
				if v.Secret != nil && v.Secret.SecretName == token.Name && at.Name == v.Name {
					mounted = at.MountPath
				}
			}
		}
		if at := mounted + "/" + token.Key; at != f.Proxy.Admin.TokenFile {
			t.Errorf("the pods read %s, Prometheus has %s", f.Proxy.Admin.TokenFile, at)
		}
	})
	pods := lookLeases(t).Spec.Template
	selector, end = podMonitor(t, "quotient-leases")
	if number := port(pods.Spec.Containers[0], *end.Port); number != "8000" || !within(selector, pods.Labels) {
		t.Errorf("the selector is %v, the labels are %v, port %s", selector, pods.Labels, number)
	}
}

// TestServiceMonitor checks that the monitor presents a client certificate over TLS.
func TestServiceMonitor(t *testing.T) {
	end := object[*monitoringv1.ServiceMonitor](t, "../prometheus/servicemonitor.yaml", "api").Spec.Endpoints[0]
	if end.Scheme == nil || *end.Scheme != "https" || end.Path != "/metrics" || end.TLSConfig == nil ||
		end.TLSConfig.Cert.Secret == nil || end.TLSConfig.KeySecret == nil || end.TLSConfig.CA.Secret == nil {
		t.Fatalf("%+v", end)
	}
	must(t, end.TLSConfig.Validate())
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
	object, err := decode()(out)
	must(t, err)
	rules := 0
	for _, g := range object.(*monitoringv1.PrometheusRule).Spec.Groups {
		rules += len(g.Rules)
	}
	if want := strings.Count(read(t, "../prometheus/rules.yaml"), "- alert: "); rules != want || want == 0 {
		t.Errorf("the object has %d rules, the file %d", rules, want)
	}
}
