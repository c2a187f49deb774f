// Package proxy holds what runs `quotient proxy` elsewhere: a Dockerfile, a unit of systemd and a base for
// kustomize. Its tests check that these build, decode strictly, agree with the file beside them and are as
// closed as documented. They also hold docs/proxy.md: its files parse, and its table has every field. The
// same tests hold what runs `quotient leases`, in deploy/leases, and docs/leases.md.
package proxy
