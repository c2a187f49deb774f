// Package echolimit puts a quotient.Limiter in front of the handlers of github.com/labstack/echo/v4. All
// that happens to a request is what httplimit.Middleware documents, with the same options: refusals,
// httplimit.Wait, header fields, bodies, feedback.
//
// For github.com/labstack/echo/v5 there is github.com/quotient-go/quotient/echolimit, a package of the same
// name with the same functions.
package echolimit
