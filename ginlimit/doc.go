// Package ginlimit puts a quotient.Limiter in front of the handlers of github.com/gin-gonic/gin. All that
// happens to a request is what httplimit.Middleware documents, with the same options: refusals,
// httplimit.Wait, header fields, bodies, feedback.
package ginlimit
