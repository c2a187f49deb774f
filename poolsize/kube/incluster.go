package kube

import (
	"context"
	"fmt"
	"strings"

	discovery "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"

	"github.com/quotient-go/quotient/internal/files"
)

// namespaceFile is where the kubelet writes the namespace of a pod.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// InCluster returns a Source of a Service in the namespace of this pod, with the pod's ServiceAccount. It
// returns an error outside of a cluster, and for a name that no Service has. The other fields of the Source may
// be set before its first Watch.
//
// It uses protobuf and includes only the types of EndpointSlices. So a program without a clientset of its
// own does not link the types of all of Kubernetes.
func InCluster(service string) (*Source, error) {
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("kube: InCluster: %w", err)
	}
	namespace, _, err := files.Read(context.Background(), namespaceFile, 4<<10)
	if err != nil {
		return nil, fmt.Errorf("kube: InCluster: %w", err)
	}
	return forConfig(config, strings.TrimSpace(string(namespace)), service)
}

// forConfig is InCluster for any API server.
func forConfig(config *rest.Config, namespace, service string) (*Source, error) {
	if bad := validation.IsDNS1123Label(namespace); len(bad) > 0 {
		return nil, fmt.Errorf("kube: InCluster: the namespace %q: %s", namespace, bad[0])
	}
	known := runtime.NewScheme()
	if err := discovery.AddToScheme(known); err != nil {
		return nil, fmt.Errorf("kube: InCluster: %w", err)
	}
	meta.AddToGroupVersion(known, schema.GroupVersion{Version: "v1"}) // a Status, which errors are
	c := *config
	c.APIPath, c.GroupVersion = "/apis", &discovery.SchemeGroupVersion
	c.NegotiatedSerializer = serializer.NewCodecFactory(known).WithoutConversion()
	c.ContentType = runtime.ContentTypeProtobuf
	c.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	client, err := rest.RESTClientFor(&c)
	if err != nil {
		return nil, fmt.Errorf("kube: InCluster: %w", err)
	}
	slices := gentype.NewClientWithList("endpointslices", client, runtime.NewParameterCodec(known), namespace,
		func() *discovery.EndpointSlice { return &discovery.EndpointSlice{} },
		func() *discovery.EndpointSliceList { return &discovery.EndpointSliceList{} })
	s := &Source{Slices: slices, Service: service}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return s, nil
}
