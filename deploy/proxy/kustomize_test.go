package proxy

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
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
	if err != nil {
		t.Fatal(err)
	}
	text, err := made.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return decodeAll(t, dir, text)
}

// TestDecodeIsStrict checks that the other tests would notice a field that is misspelt, doubled or
// misplaced.
func TestDecodeIsStrict(t *testing.T) {
	const service = "apiVersion: v1\nkind: Service\nspec:\n  clusterIP: None\n"
	if _, err := decode([]byte(service)); err != nil {
		t.Errorf("%v", err)
	}
	for _, more := range []string{
		"  publishNotReadyAddress: true\n", "  clusterIP: None\n", "  ports: 80\n", "strategy: {}\n",
	} {
		if object, err := decode([]byte(service + more)); err == nil {
			t.Errorf("%q was decoded: %+v", more, object)
		}
	}
	if _, err := decode([]byte("apiVersion: v1\nkind: Pud\n")); err == nil {
		t.Error("a kind that does not exist was decoded")
	}
}

// TestManifestsOfTheLibrary checks that the manifests of docs/kubernetes.md decode strictly.
func TestManifestsOfTheLibrary(t *testing.T) {
	files, err := filepath.Glob("../kubernetes/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %d files", err, len(files))
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		decodeAll(t, file, text)
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
}

// variants are the folders that a user applies, each with the kind that holds its pods.
var variants = map[string]string{
	"kustomize/base":             "Deployment",
	"kustomize/overlays/exact":   "StatefulSet",
	"kustomize/overlays/sidecar": "Deployment",
}

// look builds a variant and takes it apart.
func look(t *testing.T, dir string) deployed {
	t.Helper()
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
	for dir, kind := range variants {
		d := look(t, dir)
		if d.kind != kind {
			t.Errorf("%s: the pods are those of a %s, want %s", dir, d.kind, kind)
		}
		selectors := map[string]map[string]string{
			"controller": d.selector, "budget": d.budget.Spec.Selector.MatchLabels,
		}
		for name, s := range d.services {
			selectors["Service "+name] = s.Spec.Selector
		}
		for name, s := range selectors {
			if !within(s, d.labels) {
				t.Errorf("%s: the %s selects %v, the pods have %v", dir, name, s, d.labels)
			}
		}
		headless, front := d.services["quotient-replicas"], d.services["quotient"]
		if headless == nil || front == nil || len(d.services) != 2 {
			t.Fatalf("%s: Services %v", dir, d.services)
		}
		if headless.Spec.ClusterIP != corev1.ClusterIPNone || !headless.Spec.PublishNotReadyAddresses {
			t.Errorf("%s: the headless Service is %+v", dir, headless.Spec)
		}
		if got := front.Spec.Ports[0].TargetPort.StrVal; got != "http" {
			t.Errorf("%s: the Service sends to the port %q", dir, got)
		}
		if strings.HasPrefix(d.quotient.Image, "quotient") {
			t.Errorf("%s: the image %q has no registry", dir, d.quotient.Image)
		}
	}
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
