package helm

import (
	"bytes"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/internal/needed"
	"github.com/quotient-go/quotient/internal/tested"
)

var must = tested.Must

// decode returns the object of one document. A field that the kind does not have, or has twice, is an error.
var decode = sync.OnceValue(func() runtime.Decoder {
	if err := monitoringv1.AddToScheme(scheme.Scheme); err != nil {
		panic(err)
	}
	return serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
})

// load reads a chart, and gives it the chart quotient where that is its dependency, as `helm dependency build` does.
func load(t *testing.T, dir string) *chart.Chart {
	t.Helper()
	c, err := loader.LoadDir(dir)
	must(t, err)
	for range c.Metadata.Dependencies {
		c.AddDependency(load(t, "quotient"))
	}
	return c
}

// values are those of YAML texts, of which later ones go before earlier ones.
func values(t *testing.T, texts ...string) chartutil.Values {
	t.Helper()
	all := map[string]any{}
	for _, text := range texts {
		v, err := chartutil.ReadValues([]byte(text))
		must(t, err)
		all = chartutil.MergeTables(v, all)
	}
	return all
}

// template does what `helm template NAME DIR` does, and decodes the objects. A value that a template reads, and that
// does not exist, is an error.
func template(t *testing.T, name, dir string, v chartutil.Values) ([]runtime.Object, error) {
	t.Helper()
	c := load(t, dir)
	release := chartutil.ReleaseOptions{Name: name, Namespace: "prod", Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(c, v, release, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Engine{Strict: true}.Render(c, all)
	var objects []runtime.Object
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, "NOTES.txt") {
			tested.Not(t, strings.Contains(files[name], "\n\n\n"), "the notes have gaps:\n%s", files[name])
			continue
		}
		for document := range bytes.SplitSeq([]byte("\n"+files[name]), []byte("\n---\n")) {
			if len(bytes.TrimSpace(document)) == 0 {
				continue
			}
			object, _, err := decode().Decode(document, nil, nil)
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, document)
			}
			objects = append(objects, object)
		}
	}
	return objects, err
}

// image is the value that has no default.
const image = "image: {repository: registry.example/quotient}"

// parent is where a parent chart has the values of the chart quotient.
const parent = "quotient: {image: {repository: registry.example/quotient}}"

// rows are releases: an example of values, values that go before it, and the objects that come of them beside the
// ConfigMap of the file.
var rows = []struct{ example, set, kinds string }{
	{"proxy", "", "ServiceAccount Service Service PodDisruptionBudget Deployment"},
	{"proxy", "ordinals: true", "ServiceAccount Service Service PodDisruptionBudget StatefulSet"},
	{"proxy", "pool: {source: kube}",
		"ServiceAccount Role RoleBinding Service Service PodDisruptionBudget Deployment"},
	{"proxy", "pool: {source: kube}\nordinals: true\nserviceAccount: {name: own}",
		"Role RoleBinding Service Service PodDisruptionBudget StatefulSet"},
	{"proxy", "pool: {source: none}\npodDisruptionBudget: false\nadmin: {peers: false, overrides: true}",
		"ServiceAccount Service Service Deployment"},
	{"proxy", "autoscaling: {enabled: true}\npodMonitor: {enabled: true, labels: {release: prometheus}}",
		"ServiceAccount PodMonitor PodDisruptionBudget HorizontalPodAutoscaler Service Service Deployment"},
	{"proxy", "config: ''\nconfigFrom: {configMap: mine}",
		"ServiceAccount Service Service PodDisruptionBudget Deployment"},
	{"proxy", "config: ''\nconfigFrom: {secret: mine}",
		"ServiceAccount Service Service PodDisruptionBudget Deployment"},
	{"proxy", strings.Join([]string{
		"shutdown: 3600", "preStop: 30", "runAsUser: 1000", "fullnameOverride: " + strings.Repeat("long-", 20),
		"env: [{name: A, value: b}]", "volumes: [{name: tls, secret: {secretName: tls}}]", "podAnnotations: {a: b}",
		"volumeMounts: [{name: tls, mountPath: /etc/tls, readOnly: true}]", "podLabels: {c: d}",
		"nodeSelector: {e: f}", "tolerations: [{operator: Exists}]", "affinity: {nodeAffinity: {}}",
		"priorityClassName: high", "imagePullSecrets: [{name: registry}]", "serviceAccount: {annotations: {g: h}}",
		"service: {type: LoadBalancer, annotations: {i: j}}",
	}, "\n"), "ServiceAccount Service Service PodDisruptionBudget Deployment"},
	{"proxy", strings.Join([]string{ // texts that YAML would read as something else
		"goMemLimit: '429916160'", "admin: {tokenSecret: '1234'}", "priorityClassName: 'on'",
		`files: {a: "  indented\nless"}`,
	}, "\n"), "ServiceAccount Service Service PodDisruptionBudget Deployment"},
	{"decide", "", "ServiceAccount Service Service PodDisruptionBudget Deployment"},
	{"decide", "networkPolicy: {enabled: true, admin: [{namespaceSelector: {}}]}",
		"ServiceAccount NetworkPolicy PodDisruptionBudget Service Service Deployment"},
	{"leases", "", "ServiceAccount NetworkPolicy Service Deployment"},
	{"leases", "podMonitor: {enabled: true}", "ServiceAccount NetworkPolicy PodMonitor Service Deployment"},
	{"leases", "replicas: 1\nconfig: '[leases.semaphores]\n\n  backup = 1'",
		"ServiceAccount NetworkPolicy Service Deployment"},
	{"beside-nginx", "", "ConfigMap Service Deployment"},
	{"beside-nginx", "quotient: {pool: {source: kube}, podMonitor: {enabled: true}, admin: {overrides: true}}",
		"ConfigMap Role RoleBinding PodMonitor Service Deployment"},
	{"beside-nginx", "quotient: {pool: {source: gossip, gossipSecret: key}}", "ConfigMap Service Deployment"},
}

// TestReleases renders each row, and checks that what comes of it belongs together.
func TestReleases(t *testing.T) {
	for _, row := range rows {
		t.Run(row.example+" "+row.set, func(t *testing.T) {
			dir, v := "quotient", ""
			if strings.HasPrefix(row.example, "beside-") {
				dir, v = "examples/"+row.example, parent
			} else {
				text, err := os.ReadFile("examples/" + row.example + ".yaml")
				must(t, err)
				v = image + "\n" + string(text)
			}
			objects, err := template(t, "web", dir, values(t, v, row.set))
			must(t, err)
			d := look(t, objects)
			want := strings.Fields(row.kinds)
			if !strings.Contains(row.set, "configFrom") {
				want = append(want, "ConfigMap")
			}
			slices.Sort(want)
			tested.Want(t, "kinds", strings.Join(d.kinds, " "), strings.Join(want, " "))
			d.check(t)
		})
	}
}

// release is what the tests look at.
type release struct {
	kinds     []string // sorted
	kind      string   // of the workload
	replicas  int32    // and those that may be above them
	meta      map[string]string
	pod       corev1.PodSpec
	quotient  corev1.Container
	sidecar   bool
	selectors []map[string]string
	services  map[string]*corev1.Service
	accounts  map[string]bool
	bound     []rbacv1.Subject
	ports     []intstr.IntOrString // that objects name in the pods
	file      *config.File         // nil: it is the user's
}

// look takes a release apart.
func look(t *testing.T, objects []runtime.Object) *release {
	t.Helper()
	d := &release{services: map[string]*corev1.Service{}, accounts: map[string]bool{}}
	var most int32
	for _, object := range objects {
		d.kinds = append(d.kinds, object.GetObjectKind().GroupVersionKind().Kind)
		switch o := object.(type) {
		case *appsv1.Deployment:
			d.workload("Deployment", o.Spec.Replicas, o.Spec.Selector.MatchLabels, o.Spec.Template)
			if u := o.Spec.Strategy.RollingUpdate; u != nil && u.MaxSurge.Type == intstr.Int {
				d.replicas += u.MaxSurge.IntVal
			}
		case *appsv1.StatefulSet:
			d.workload("StatefulSet", o.Spec.Replicas, o.Spec.Selector.MatchLabels, o.Spec.Template)
			defer func() {
				tested.Not(t, d.services[o.Spec.ServiceName] == nil, "there is no Service %s", o.Spec.ServiceName)
			}()
		case *autoscalingv2.HorizontalPodAutoscaler:
			most = o.Spec.MaxReplicas
			tested.Not(t, o.Spec.ScaleTargetRef.Name != "web-quotient", "it scales %s", o.Spec.ScaleTargetRef.Name)
		case *corev1.Service:
			d.services[o.Name], d.selectors = o, append(d.selectors, o.Spec.Selector)
			for _, p := range o.Spec.Ports {
				d.ports = append(d.ports, p.TargetPort)
			}
		case *corev1.ServiceAccount:
			d.accounts[o.Name] = true
		case *rbacv1.RoleBinding:
			d.bound = o.Subjects
		case *corev1.ConfigMap:
			d.parse(t, o.Data)
		default:
			d.choose(t, o)
		}
	}
	d.replicas += most
	slices.Sort(d.kinds)
	return d
}

// workload takes the pods. An autoscaler has their number, where replicas is nil.
func (d *release) workload(kind string, replicas *int32, selector map[string]string, pod corev1.PodTemplateSpec) {
	d.kind, d.meta, d.pod = kind, pod.Labels, pod.Spec
	if d.selectors = append(d.selectors, selector); replicas != nil {
		d.replicas += *replicas
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if c.Name == "quotient" {
			d.quotient = c
		}
	}
	d.sidecar = len(pod.Spec.InitContainers) > 0
}

// choose takes what chooses pods and ports, and is not looked at otherwise.
func (d *release) choose(t *testing.T, object runtime.Object) {
	t.Helper()
	switch o := object.(type) {
	case *policyv1.PodDisruptionBudget:
		d.selectors = append(d.selectors, o.Spec.Selector.MatchLabels)
	case *monitoringv1.PodMonitor:
		d.selectors = append(d.selectors, o.Spec.Selector.MatchLabels)
		d.ports = append(d.ports, intstr.FromString(*o.Spec.PodMetricsEndpoints[0].Port))
	case *networkingv1.NetworkPolicy:
		d.selectors = append(d.selectors, o.Spec.PodSelector.MatchLabels)
		for _, rule := range o.Spec.Ingress {
			for _, p := range rule.Ports {
				d.ports = append(d.ports, *p.Port)
			}
		}
	case *rbacv1.Role:
	default:
		t.Errorf("%T is not looked at", o)
	}
}

// parse reads quotient.toml, which lies beside the files that it names.
func (d *release) parse(t *testing.T, data map[string]string) {
	t.Helper()
	text, ok := data["quotient.toml"]
	if !ok {
		return
	}
	dir := t.TempDir()
	for name, text := range data {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	var err error
	if d.file, err = config.Parse(filepath.Join(dir, "quotient.toml"), []byte(text)); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
}

// check checks what holds of every release.
func (d *release) check(t *testing.T) {
	t.Helper()
	for _, s := range d.selectors {
		for k, v := range s {
			tested.Not(t, d.meta[k] != v || v == "", "%v is selected, the pods have %v", s, d.meta)
		}
	}
	d.checkPorts(t)
	d.checkAccount(t)
	d.checkVolumes(t)
	d.checkSecurity(t)
	if d.file != nil {
		d.checkFile(t)
	}
	limit := d.quotient.Resources.Limits.Memory().AsApproximateFloat64()
	part := resource.MustParse(strings.TrimSuffix(d.quotient.Env[0].Value, "B"))
	at := part.AsApproximateFloat64() / limit
	tested.Not(t, at < .8 || at > .95, "GOMEMLIMIT is %.2f of the limit of memory", at)
}

// port returns a container's port by its name, 0 for none.
func (d *release) port(name string) int32 {
	for _, p := range d.quotient.Ports {
		if p.Name == name {
			return p.ContainerPort
		}
	}
	return 0
}

func (d *release) checkPorts(t *testing.T) {
	t.Helper()
	named := d.ports
	for _, p := range []*corev1.Probe{d.quotient.StartupProbe, d.quotient.LivenessProbe, d.quotient.ReadinessProbe} {
		if p.GRPC == nil {
			named = append(named, p.HTTPGet.Port)
		} else {
			tested.Want(t, "the port that is probed", p.GRPC.Port, d.port("grpc"))
		}
	}
	for _, p := range named {
		tested.Not(t, d.port(p.StrVal) == 0, "there is no port %v", p.String())
	}
	for name, s := range d.services {
		if headless := strings.HasSuffix(name, "-replicas"); headless != (s.Spec.ClusterIP == corev1.ClusterIPNone) ||
			headless != s.Spec.PublishNotReadyAddresses {
			t.Errorf("the Service %s is %+v", name, s.Spec)
		}
		tested.Not(t, len(name) > 63, "the name %s is too long", name)
	}
}

// checkAccount checks that the pods have an account that exists, and a token where they ask the API server.
func (d *release) checkAccount(t *testing.T) {
	t.Helper()
	account := d.pod.ServiceAccountName
	if want := account != "own" && !d.sidecar; want != d.accounts[account] {
		t.Errorf("the account is %q, those made are %v", account, d.accounts)
	}
	if d.sidecar {
		account = "default"
	} else if *d.pod.AutomountServiceAccountToken != (len(d.bound) > 0) {
		t.Errorf("a token is mounted: %v, bound are %v", *d.pod.AutomountServiceAccountToken, d.bound)
	}
	for _, s := range d.bound {
		tested.Want(t, "the bound account", s.Name+"."+s.Namespace, account+".prod")
	}
}

// checkVolumes checks that what is mounted exists, once, and can be written only where that is meant.
func (d *release) checkVolumes(t *testing.T) {
	t.Helper()
	exists := map[string]int{}
	for _, v := range d.pod.Volumes {
		exists[v.Name]++
	}
	for _, m := range d.quotient.VolumeMounts {
		writable := m.Name == "quotient-run" || m.Name == "quotient-overrides"
		if exists[m.Name] != 1 || m.SubPath != "" || m.ReadOnly == writable {
			t.Errorf("%+v, of %d volumes", m, exists[m.Name])
		}
		exists[m.Name] = 1
	}
}

// checkSecurity holds the restricted profile of Kubernetes' Pod Security Standards, and a read-only root.
func (d *release) checkSecurity(t *testing.T) {
	t.Helper()
	s := d.quotient.SecurityContext
	if !*s.RunAsNonRoot || *s.RunAsUser == 0 || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem ||
		!slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || s.Capabilities.Add != nil ||
		s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("the security context is %+v", s)
	}
	for _, c := range d.pod.Containers { // beside a sidecar: of one user, who alone may connect to the socket
		other := c.SecurityContext
		if *other.RunAsUser != *s.RunAsUser || *d.pod.SecurityContext.FSGroup != *s.RunAsUser {
			t.Errorf("%s is of user %d, quotient of %d", c.Name, *other.RunAsUser, *s.RunAsUser)
		}
	}
	always := corev1.ContainerRestartPolicyAlways
	if p := d.quotient.RestartPolicy; d.sidecar != (p != nil && *p == always) {
		t.Errorf("the restart policy is %v", p)
	}
}

// checkFile checks that the file agrees with the pods.
func (d *release) checkFile(t *testing.T) {
	t.Helper()
	f, grace := d.file, time.Duration(*d.pod.TerminationGracePeriodSeconds)*time.Second
	want, listens := "proxy", map[string]string{}
	switch {
	case f.Leases != nil:
		want, listens["leases"] = "leases", f.Leases.Listen
	case f.Decide != nil:
		want, listens["http"], listens["grpc"] = "decide", f.Decide.HTTP, f.Decide.GRPC
	default:
		listens["http"] = f.Proxy.Listen
	}
	tested.Want(t, "the command", d.quotient.Args[0], want)
	end := 5 * time.Second // of leases
	if f.Proxy != nil {
		end = f.Proxy.Timeouts.Shutdown + 6*time.Second // and what parts that end after it have
		listens["admin"] = f.Proxy.Admin.Listen
		d.checkPool(t)
	}
	for name, address := range listens {
		host, port, _ := net.SplitHostPort(address)
		if d.sidecar && name != "admin" {
			tested.Not(t, host != "unix" && address != "off", "the sidecar's %s listens at %s", name, address)
			continue
		}
		tested.Want(t, "the port "+name, fmt.Sprint(d.port(name)), port)
		tested.Not(t, host != "0.0.0.0" && name != "leases", "%s listens at %s", name, address)
	}
	if l := d.quotient.Lifecycle; l != nil {
		end += time.Duration(l.PreStop.Sleep.Seconds) * time.Second
	}
	tested.Not(t, grace < end, "%v for a pod to end, it takes %v", grace, end)
}

// checkPool checks that pool and list of peers name a Service that exists, and what they need else.
func (d *release) checkPool(t *testing.T) {
	t.Helper()
	p, peers := d.file.Pool, d.file.Proxy.Admin.Peers
	tested.Not(t, p.Replicas < int(d.replicas), "%d replicas while the source is silent, there may be %d", p.Replicas,
		d.replicas)
	var service string
	for name := range d.services {
		if strings.HasSuffix(name, "-replicas") {
			service = name
		}
	}
	scheme, source, _ := strings.Cut(p.Source, ":")
	switch scheme {
	case "dns":
		tested.Want(t, "the source", source, service+"?uncapped")
	case "kube":
		tested.Want(t, "the source", source, service)
		tested.Not(t, len(d.bound) == 0, "no Role is bound")
	case "gossip":
		tested.Want(t, "the source", source, ":7946?join-dns="+service+":7946&key-file=/etc/quotient-gossip/gossip.key")
		tested.Not(t, d.port("gossip") != 7946 || d.port("gossip-udp") != 7946, "the ports are %v", d.quotient.Ports)
	default:
		tested.Want(t, "the source", p.Source, "")
	}
	if peers != "" {
		kind := map[bool]string{true: "kube:", false: "dns:"}[len(d.bound) > 0] // kube needs the Role
		tested.Want(t, "the peers", peers, kind+service+":4041")
	}
	tested.Want(t, "the file of the token", d.file.Proxy.Admin.TokenFile, "/etc/quotient-admin/token")
	ordinal := slices.ContainsFunc(d.quotient.Env, func(e corev1.EnvVar) bool { return e.Name == "QUOTIENT_ORDINAL" })
	tested.Want(t, "that ordinals are set", ordinal, d.kind == "StatefulSet")
}

// TestNames checks that every name that Helm lets a release have gives names that Kubernetes lets objects have.
func TestNames(t *testing.T) {
	for _, c := range []struct{ release, name string }{
		{"web", "web-quotient"},
		{"quotient", "quotient"},
		{"1e3", "q1e3-quotient"},
		{"on", "on-quotient"},
		{"a.b", "a-b-quotient"},
		{strings.Repeat("x", 51) + "-y", strings.Repeat("x", 51)},
		{strings.Repeat("x", 53), strings.Repeat("x", 52)}, // and a hash of 10 in a label
	} {
		objects, err := template(t, c.release, "quotient", values(t, image+"\nmode: proxy\nordinals: true\nconfig: x"))
		must(t, err)
		for _, object := range objects {
			name := object.(metav1.Object).GetName()
			tested.Want(t, c.release, strings.TrimSuffix(name, "-replicas"), c.name)
		}
	}
}

// TestNginxReadsItsExample checks that nginx takes its file in the example beside it.
func TestNginxReadsItsExample(t *testing.T) {
	t.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin")
	exe, err := exec.LookPath("nginx")
	if err != nil {
		needed.Without(t, "nginx", "nginx is not installed: nothing is known about its file")
	}
	objects, err := template(t, "web", "examples/beside-nginx", values(t, parent))
	must(t, err)
	for _, object := range objects {
		if o, ok := object.(*corev1.ConfigMap); ok && o.Name == "web" {
			dir := t.TempDir()
			file := filepath.Join(dir, "nginx.conf")
			text := strings.ReplaceAll(o.Data["nginx.conf"], "/tmp/", dir+"/")
			must(t, os.WriteFile(file, []byte(text), 0o600))
			out, err := exec.CommandContext(t.Context(), exe, "-t", "-e", "stderr", "-c", file).CombinedOutput()
			tested.Not(t, err != nil, "%v: %s", err, out)
			return
		}
	}
	t.Error("there is no file of nginx")
}

// TestWrongValues checks that values that make no sense are refused, with their names.
func TestWrongValues(t *testing.T) {
	for _, c := range []struct{ set, err string }{
		{"", "mode"},
		{"mode: nosuch", "mode"},
		{"mode: proxy", "image.repository is required"},
		{"mode: proxy\nreplicas: 0\n" + image, "replicas"},
		{"mode: proxy\nreplicas: 1000000\n" + image, "replicas"}, // and one more while one is replaced
		{"mode: proxy\nnameOverride: A\n" + image, "nameOverride"},
		{"mode: proxy\nfullnameOverride: a.b\n" + image, "fullnameOverride"},
		{"mode: proxy\nconfig: x\nautoscaling: {enabled: true, maxReplicas: 2}\n" + image, "minReplicas is above"},
		{"mode: leases\nconfig: x\n" + image, "replicas: without [leases.election]"},
		{"mode: proxy\nreplica: 2\n" + image, "replica"},
		{"mode: proxy\nadmin: {token: x}\n" + image, "token"},
		{"mode: proxy\nadmin: {tokenSecret: ''}\n" + image, "tokenSecret"},
		{"mode: proxy\nrunAsUser: 0\n" + image, "runAsUser"},
		{"mode: proxy\ngoMemLimit: 4G\n" + image, "goMemLimit"},
		{"mode: proxy\npool: {source: redis}\n" + image, "source"},
		{"mode: proxy\npreStop: 0\n" + image, "preStop"},
		{"mode: proxy\n" + image, "config is required"},
		{"mode: proxy\nconfig: x\nconfigFrom: {secret: mine}\n" + image, "set one of config"},
		{"mode: proxy\nconfigFrom: {secret: mine, configMap: mine}\n" + image, "set one of config"},
		{"mode: proxy\nconfig: x\npool: {source: gossip}\n" + image, "pool.gossipSecret is required"},
		{"mode: leases\nconfig: x\nordinals: true\n" + image, "ordinals"},
		{"mode: leases\nconfig: x\nautoscaling: {enabled: true}\n" + image, "autoscaling"},
		{"mode: leases\nconfig: x\nsidecar: {selector: {a: b}}\n" + image, "selector"},
		{"mode: proxy\nsidecar: {selector: {a: b}}\nnetworkPolicy: {enabled: true}\n" + image, "networkPolicy"},
	} {
		_, err := template(t, "web", "quotient", values(t, c.set))
		if err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, want an error of %s", c.set, err, c.err)
		}
	}
}
