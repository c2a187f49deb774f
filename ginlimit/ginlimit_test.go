package ginlimit_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"
	"go.uber.org/goleak"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/ginlimit"
	"github.com/quotient-go/quotient/httplimit"
	"github.com/quotient-go/quotient/internal/adaptertest"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	gin.DefaultWriter, gin.DefaultErrorWriter = io.Discard, io.Discard
	goleak.VerifyTestMain(m)
}

func TestAdapter(t *testing.T) {
	adaptertest.Run(t, adaptertest.Adapter{
		Router: router,
		MadeUp: "(unmatched)",
		Mistakes: []func(*quotient.Limiter){
			func(*quotient.Limiter) { ginlimit.Middleware(nil, ginlimit.Route()) },
			func(l *quotient.Limiter) { ginlimit.Middleware(l, nil) },
			func(*quotient.Limiter) { ginlimit.Request(nil) },
		},
	})
}

func router(_ testing.TB, r adaptertest.Route) http.Handler {
	e := gin.New()
	e.Use(func(c *gin.Context) { c.Next(); r.Seen(c.Writer.Status(), nil) })
	if r.Recover {
		e.Use(gin.Recovery())
	}
	handlers := []gin.HandlerFunc{func(c *gin.Context) { r.Handle(c.Writer, c.Request) }}
	if r.ByToken {
		byToken := ginlimit.Request(httplimit.Header("X-Tenant"))
		handlers = append([]gin.HandlerFunc{ginlimit.Middleware(r.Limiter, byToken, r.Options...)}, handlers...)
	} else {
		e.Use(ginlimit.Middleware(r.Limiter, ginlimit.Route(), r.Options...))
	}
	e.Handle(r.Method, r.Path, handlers...)
	return e
}

// The policy reads the status that is written, which in gin is the last one that was set.
func TestFeedback(t *testing.T) {
	for name, tt := range map[string]struct {
		handle    gin.HandlerFunc
		throttled uint64
	}{
		"nothing":        {func(*gin.Context) {}, 0},
		"json":           {func(c *gin.Context) { c.JSON(429, "slow") }, 1},
		"status alone":   {func(c *gin.Context) { c.Status(429) }, 1},
		"abort":          {func(c *gin.Context) { c.AbortWithStatus(429) }, 1},
		"string":         {func(c *gin.Context) { c.Status(429); _, _ = c.Writer.WriteString("slow") }, 1},
		"changed before": {func(c *gin.Context) { c.Status(429); c.Status(200) }, 0},
		"changed after":  {func(c *gin.Context) { c.String(200, "fine"); c.Status(429) }, 0},
		"flushed":        {func(c *gin.Context) { c.Writer.Flush(); c.Status(429) }, 0},
	} {
		l, e := adaptertest.Learners(t)["learning"], gin.New()
		e.GET("/", ginlimit.Middleware(l, ginlimit.Route()), tt.handle)
		adaptertest.Ask(e, "GET", "/")
		if got := l.Stats().Throttled; got != tt.throttled {
			t.Errorf("%s: throttled %d, want %d", name, got, tt.throttled)
		}
		adaptertest.Idle(t, l)
	}
}

// odd is a writer of another middleware. Values of its type cannot be compared.
type odd struct {
	gin.ResponseWriter
	notes []string
}

// A middleware in front may have put a writer of its own into the context, of whatever type.
func TestWriterOfAnotherMiddleware(t *testing.T) {
	for kind, l := range adaptertest.Learners(t) {
		e := gin.New()
		e.Use(func(c *gin.Context) { c.Writer = odd{c.Writer, nil} },
			ginlimit.Middleware(l, ginlimit.Route()))
		e.GET("/", func(c *gin.Context) { c.String(http.StatusAccepted, "fine") })
		if w := adaptertest.Ask(e, "GET", "/"); w.Code != http.StatusAccepted || w.Body.String() != "fine" {
			t.Errorf("%s: status %d, body %q; want 202, fine", kind, w.Code, w.Body)
		}
		adaptertest.Idle(t, l)
	}
}
