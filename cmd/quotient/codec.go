package main

import (
	"unicode/utf8"

	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// anyBytes reads messages as gRPC does, and also those with texts that are no UTF-8. Envoy sends what its client has
// sent in paths, hosts and values of descriptors. A message that cannot be read is an error, which lets a request
// through unless Envoy is told otherwise, so that any client could choose to have no limit.
type anyBytes struct{ encoding.CodecV2 }

func newCodec() encoding.CodecV2 { return anyBytes{encoding.GetCodecV2(grpcproto.Name)} }

// Unmarshal reads a message. A byte that is no UTF-8 is read as "?".
func (c anyBytes) Unmarshal(data mem.BufferSlice, to any) error {
	err := c.CodecV2.Unmarshal(data, to)
	m, ok := to.(proto.Message)
	if err == nil || !ok {
		return err
	}
	text := data.Materialize()
	mend(text, m.ProtoReflect().Descriptor(), mostNested)
	return proto.Unmarshal(text, m)
}

// mostNested is how deep messages are in each other where texts are mended.
const mostNested = 32

// mend has "?" for each byte of the texts of a message that is no UTF-8. Lengths stay, so that the message does.
func mend(message []byte, is protoreflect.MessageDescriptor, depth int) {
	for len(message) > 0 && depth > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return
		}
		message = message[n:]
		if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
			return
		}
		field := is.Fields().ByNumber(number)
		if kind == protowire.BytesType && field != nil {
			value, _ := protowire.ConsumeBytes(message)
			switch field.Kind() {
			case protoreflect.StringKind:
				mendText(value)
			case protoreflect.MessageKind:
				mend(value, field.Message(), depth-1)
			}
		}
		message = message[n:]
	}
}

func mendText(text []byte) {
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		if r == utf8.RuneError && n == 1 {
			text[0] = '?'
		}
		text = text[n:]
	}
}
