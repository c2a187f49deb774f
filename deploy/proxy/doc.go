// Package proxy holds what runs `quotient proxy` elsewhere: a Dockerfile, a unit of systemd and a base for
// kustomize. Its tests check that these build, decode strictly, agree with the file beside them and are as
// closed as documented. They also hold docs/proxy.md and docs/file.md: their files parse, and the tables have
// every field. They start the proxies that ask `quotient decide`, with the files of the folder beside. The same
// tests hold what runs `quotient leases`, in deploy/leases, and docs/leases.md.
package proxy
