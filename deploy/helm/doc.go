// Package helm holds a chart for Helm, which runs `quotient proxy`, `quotient decide` or `quotient leases` in pods of
// their own or as a sidecar. Its tests render it with Helm's own engine, decode every object strictly and check that
// the objects agree with each other and with the file that quotient reads. It is a module outside of go.work, because
// Helm would change the versions of other modules there.
package helm
