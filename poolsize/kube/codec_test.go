package kube

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"

	discovery "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
)

// codec writes objects and events as an API server does.
type codec struct {
	contentType, streamType string
	object                  func(runtime.Object) []byte
	event                   func(watch.EventType, runtime.Object) []byte
}

func codecFor(r *http.Request) codec {
	if strings.Contains(r.Header.Get("Accept"), runtime.ContentTypeProtobuf) {
		return codec{runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf + ";stream=watch", protobufOf,
			protobufEvent}
	}
	return codec{runtime.ContentTypeJSON, runtime.ContentTypeJSON, jsonOf, jsonEvent}
}

func jsonOf(o runtime.Object) []byte {
	b, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return b
}

func jsonEvent(kind watch.EventType, o runtime.Object) []byte {
	return fmt.Appendf(nil, "{\"type\":%q,\"object\":%s}\n", kind, jsonOf(o))
}

// testScheme knows what the server sends.
var testScheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := discovery.AddToScheme(s); err != nil {
		panic(err)
	}
	meta.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	return s
}()

func protobufOf(o runtime.Object) []byte {
	var b bytes.Buffer
	if err := protobuf.NewSerializer(testScheme, testScheme).Encode(o, &b); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func protobufEvent(kind watch.EventType, o runtime.Object) []byte {
	e := &meta.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: protobufOf(o)}}
	var b bytes.Buffer
	w := protobuf.LengthDelimitedFramer.NewFrameWriter(&b)
	if err := protobuf.NewRawSerializer(testScheme, testScheme).Encode(e, w); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// refused is what dialing a machine without a server gives.
func refused() error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
}
