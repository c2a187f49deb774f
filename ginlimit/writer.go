package ginlimit

import (
	"bufio"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"
)

// writer lets httplimit's writer, which stands in front of gin's, know what is written. In gin a status is
// only written with the first byte, and the last one that was set counts: until then httplimit must not see
// it.
type writer struct {
	gin.ResponseWriter
	watcher http.ResponseWriter
}

// decided tells the watcher the status that is about to be written.
func (w *writer) decided() {
	if !w.Written() {
		w.watcher.WriteHeader(w.Status())
	}
}

func (w *writer) WriteHeaderNow() {
	w.decided()
	w.ResponseWriter.WriteHeaderNow()
}

func (w *writer) Write(p []byte) (int, error) {
	w.decided()
	return w.ResponseWriter.Write(p)
}

func (w *writer) WriteString(s string) (int, error) {
	w.decided()
	return w.ResponseWriter.WriteString(s)
}

func (w *writer) Flush() {
	w.decided()
	w.ResponseWriter.Flush()
}

// Hijack goes through the writer of httplimit, which lets the connection hold the permit.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.watcher).Hijack()
}

// Unwrap is for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.watcher }
