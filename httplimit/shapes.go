package httplimit

import "net/http"

// wrap gives a tracker the optional methods of its inner writer and no others,
// so that a type assertion by the handler succeeds or fails as it would have.
func wrap(t *tracker) http.ResponseWriter { return shapes[abilities(t.inner)](t) }

// shapes holds one kind of writer for each set of abilities. The method set of a
// Go type is fixed, so that each set needs a type of its own.
var shapes = [...]func(*tracker) http.ResponseWriter{
	0: func(t *tracker) http.ResponseWriter { return t },
	canFlush: func(t *tracker) http.ResponseWriter {
		return struct {
			*tracker
			flusher
		}{t, flusher{t}}
	},
	canTakeOver: func(t *tracker) http.ResponseWriter {
		return struct {
			*tracker
			hijacker
		}{t, hijacker{t}}
	},
	canFlush | canTakeOver: func(t *tracker) http.ResponseWriter {
		return struct {
			*tracker
			flusher
			hijacker
		}{t, flusher{t}, hijacker{t}}
	},
	canPush: func(t *tracker) http.ResponseWriter {
		return struct {
			*tracker
			pusher
		}{t, pusher{t}}
	},
	canFlush | canPush: func(t *tracker) http.ResponseWriter {
		return struct {
			*tracker
			flusher
			pusher
		}{t, flusher{t}, pusher{t}}
	},
	canTakeOver | canPush: func(t *tracker) http.ResponseWriter {
		return struct {
			*tracker
			hijacker
			pusher
		}{t, hijacker{t}, pusher{t}}
	},
	canFlush | canTakeOver | canPush: func(t *tracker) http.ResponseWriter {
		return struct {
			*tracker
			flusher
			hijacker
			pusher
		}{t, flusher{t}, hijacker{t}, pusher{t}}
	},
	canReadFrom: func(t *tracker) http.ResponseWriter {
		return struct {
			*tracker
			readerFrom
		}{t, readerFrom{t}}
	},
	canFlush | canReadFrom: func(t *tracker) http.ResponseWriter {
		return struct {
			*tracker
			flusher
			readerFrom
		}{t, flusher{t}, readerFrom{t}}
	},
	canTakeOver | canReadFrom: func(t *tracker) http.ResponseWriter {
		return struct {
			*tracker
			hijacker
			readerFrom
		}{t, hijacker{t}, readerFrom{t}}
	},
	canFlush | canTakeOver | canReadFrom: func(t *tracker) http.ResponseWriter {
		return struct {
			*tracker
			flusher
			hijacker
			readerFrom
		}{t, flusher{t}, hijacker{t}, readerFrom{t}}
	},
	canPush | canReadFrom: func(t *tracker) http.ResponseWriter {
		return struct {
			*tracker
			pusher
			readerFrom
		}{t, pusher{t}, readerFrom{t}}
	},
	canFlush | canPush | canReadFrom: func(t *tracker) http.ResponseWriter {
		return struct {
			*tracker
			flusher
			pusher
			readerFrom
		}{t, flusher{t}, pusher{t}, readerFrom{t}}
	},
	canTakeOver | canPush | canReadFrom: func(t *tracker) http.ResponseWriter {
		return struct {
			*tracker
			hijacker
			pusher
			readerFrom
		}{t, hijacker{t}, pusher{t}, readerFrom{t}}
	},
	canFlush | canTakeOver | canPush | canReadFrom: func(t *tracker) http.ResponseWriter {
		return struct {
			*tracker
			flusher
			hijacker
			pusher
			readerFrom
		}{t, flusher{t}, hijacker{t}, pusher{t}, readerFrom{t}}
	},
}
