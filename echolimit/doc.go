// Package echolimit puts a quotient.Limiter in front of the handlers of github.com/labstack/echo/v5. All that
// happens to a request is what httplimit.Middleware documents, with the same options: refusals,
// httplimit.Wait, header fields, bodies, feedback.
//
// For github.com/labstack/echo/v4 there is github.com/quotient-go/quotient/echolimit-v4, a package of the
// same name with the same functions. Each is a module of its own, so that a program carries the echo that it
// uses and no other. The version stands behind a hyphen because a module path that ends in /v4 would itself
// have to be released as v4.
package echolimit
