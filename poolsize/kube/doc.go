// Package kube counts the replicas of a Kubernetes Service from its EndpointSlices. A Source lists them once
// and then watches them, by the same list and watch of client-go that informers use. So a change counts as
// soon as the API server sends it, where DNS adds a refresh and the time that resolvers keep an answer.
//
// # What counts
//
// An endpoint has three conditions, and counts by them:
//
//	ready  serving  terminating
//	yes    any      any          counts
//	any    yes      any          counts: a pod that ends and still serves uses its share until it does not
//	no     no       no           counts: a pod that starts, or fails its probe, may send requests already
//	no     no       yes          does not count: what it still does falls within the hold-down
//
// A condition that is not set has the value that Kubernetes gives it: ready, serving, not terminating. To
// count too few lets too much through, and to count too many only makes shares smaller. So a pod that is
// not ready counts, though the Service sends it nothing. Source.ServingOnly leaves those out. A pod without
// an address is in no slice: see Source.Pod for how this replica counts itself until it has one.
//
// An endpoint counts once, also if it stands in several slices: for both families of addresses, for several
// sets of ports, or while it moves from one to another. Endpoints of the same pod have the same UID in their
// targetRef. Endpoints without a targetRef, in slices that were written by hand, count once by address. The
// family with more addresses counts, since a replica may have an address of each.
//
// # Ordinals
//
// Pod names are unique in a namespace. If all endpoints are pods of one StatefulSet, named web-0, web-1 and
// so on, then no two of them have the same number. So the pod web-2 has the ordinal 3, and it is fixed. It
// has none while the pool is smaller than that. If a single endpoint has no such name, the names prove
// nothing. A pod then has the place of its UID among those that count, which is not fixed. A limiter takes
// such an ordinal for fixed when it has not changed for one quotient.HoldDown. A StatefulSet whose
// spec.ordinals.start is above 0 has ordinals beyond the size of its pool: use quotient.FixedOrdinal.
//
// # Failures
//
// An answer that refuses, never comes or is not an EndpointSlice is reported as an error, and no count comes
// from it. The source then lists again, or goes on from where the watch has ended. So no change is lost by a
// connection that breaks, in the middle of an event or anywhere. An empty list is an error, as it is in
// poolsize/dns. The pool is reported again every Refresh while the watch stands, also when nothing has
// changed, so that quotient.HintMaxAge measures how long the API server has been away.
//
// # Permissions
//
// The pod's ServiceAccount needs list and watch of endpointslices in the API group discovery.k8s.io, in its
// own namespace. deploy/kubernetes/endpointslices.yaml has the Role. Without it each attempt is an error that
// says so.
//
// # Costs
//
// Each replica keeps one watch open, and each change brings it the whole slice that changed: with 100
// pods 17 KB in protobuf, 30 KB in JSON. A rollout that replaces all of them changes the slice up to 400
// times. docs/pool-size.md has the figures. InCluster speaks protobuf, and so does a clientset whose
// configuration names no content type.
//
// # Lists, not streams
//
// Newer clients of the API may replace the list by a watch that begins with all objects (WatchList). This
// package does not. A Service has a few slices, so a stream saves nothing. A server or a proxy that does not
// know such a watch leaves its client without a count for minutes. And a list may ask for the newest state,
// as this package does. An informer's usual first list may come from a cache that is behind, and a replica
// that starts would count too few.
package kube
