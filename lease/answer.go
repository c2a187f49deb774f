package lease

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
)

// Values of headers that answers share. Nothing writes to them.
var (
	textType    = []string{"text/plain; charset=utf-8"}
	jsonType    = []string{"application/json"}
	htmlType    = []string{"text/html; charset=utf-8"}
	problemType = []string{"application/problem+json"}
)

const notFoundPage = `<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>404 Not Found</title></head>
<body><h1>404 Not Found</h1><p>There is nothing at this address.</p></body>
</html>
`

func answer(w http.ResponseWriter, status int, contentType []string, body string) {
	w.Header()["Content-Type"] = contentType
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body) // the client may be gone
}

func answerText(w http.ResponseWriter, status int, text string) { answer(w, status, textType, text) }

func answerJSON(w http.ResponseWriter, status int, value string) { answer(w, status, jsonType, value) }

// problem is an answer for a client that must go elsewhere or come again (RFC 9457).
func problem(w http.ResponseWriter, status int, detail string) {
	body, _ := json.Marshal(struct {
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{http.StatusText(status), status, detail}) // it cannot fail
	answer(w, status, problemType, string(body)+"\n")
}

// refuse answers a request that failed.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	var standBy *StandByError
	if errors.As(err, &standBy) && standBy.Leader != "" {
		w.Header().Set("Location", strings.TrimSuffix(standBy.Leader, "/")+r.URL.RequestURI())
		problem(w, http.StatusTemporaryRedirect, err.Error())
		return
	}
	status, say := statusOf(err), answerText
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
		say = problem
	}
	say(w, status, err.Error())
}

// statusOf returns the status of an error. It is 400 for what the server does not know or understand, 409 for
// what it does not allow, and 503 for what it cannot do now.
func statusOf(err error) int {
	var request *requestError
	switch {
	case errors.As(err, &request):
		return request.status
	case errors.Is(err, ErrUnknownPeer), errors.Is(err, ErrUnknownSemaphore),
		errors.As(err, new(*CountError)), errors.As(err, new(*TokenError)):
		return http.StatusBadRequest
	case errors.Is(err, ErrClosed), errors.Is(err, ErrTooManyPeers), errors.Is(err, ErrNoTokens),
		errors.As(err, new(*StandByError)):
		return http.StatusServiceUnavailable
	}
	return http.StatusConflict
}
