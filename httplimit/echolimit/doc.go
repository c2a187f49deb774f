// Package echolimit puts a quotient.Limiter in front of the handlers of github.com/labstack/echo/v4. All that
// happens to a request is what httplimit.Middleware documents: waiting, refusals, header fields, bodies, feedback.
package echolimit
