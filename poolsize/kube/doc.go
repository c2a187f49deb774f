// Package kube counts the replicas of a Kubernetes Service from its EndpointSlices. A Source lists the slices once
// and then watches them, with the list and watch that client-go's informers use. A change counts as soon as the API
// server sends it. DNS would add the time between look-ups and the time for which resolvers cache an answer.
//
// # Which endpoints count
//
// An endpoint has three conditions:
//
//	ready  serving  terminating
//	yes    any      any          counts
//	any    yes      any          counts: a pod that ends and still serves uses its share until it does not
//	no     no       no           counts: a pod that starts, or fails its probe, may send requests already
//	no     no       yes          does not count: its last requests fall within the hold-down
//
// A condition that is not set has the default of Kubernetes: ready, serving, not terminating. A count that is too low
// lets the fleet exceed the limit. A count that is too high only makes shares smaller. So a pod that is not ready
// counts, although the Service sends it no requests. Source.ServingOnly leaves such pods out. A pod without an
// address is in no slice: see Source.Pod for how this replica counts itself until it has one.
//
// An endpoint may be in several slices: for both families of addresses, for several sets of ports, or while
// it moves between slices. It counts once. Endpoints of one pod have the same UID in their targetRef.
// Endpoints without a targetRef, in slices that were written by hand, count once for each address. Among
// them only the family with more addresses counts, since a replica may have an address of each family.
//
// # Ordinals
//
// Pod names are unique in a namespace. If all endpoints are pods of one StatefulSet, named web-0, web-1 and
// so on, their numbers are distinct. So the pod web-2 has the ordinal 3, which is fixed. It has no ordinal
// while the pool is smaller than 3.
//
// If a single endpoint has no such name, names give no ordinals. A pod's ordinal is then the position of
// its UID among those that count, which is not fixed. A limiter uses such an ordinal once it has not
// changed for one quotient.HoldDown. If spec.ordinals.start of a StatefulSet is above 0, the ordinals
// exceed the size of the pool: use quotient.FixedOrdinal.
//
// # Failures
//
// A refusal, a missing answer and an answer that is not an EndpointSlice are errors, and give no count. The source
// then lists again, or continues from where the watch ended. So a broken connection loses no change. An empty list is
// an error, as it is in poolsize/dns. The source repeats the pool every Refresh while the watch is open, also when
// nothing has changed. So quotient.HintMaxAge measures how long the API server has been away. A dead connection is
// noticed within 45 s, or after Source.Silence; until then the last pool is reported as good.
//
// # Permissions
//
// The pod's ServiceAccount needs list and watch of endpointslices in the API group discovery.k8s.io, in its
// own namespace. The Role is in deploy/kubernetes/endpointslices.yaml. Without it each attempt is an error
// that names the missing permission.
//
// # Costs
//
// Each replica keeps one watch open. Each change brings it the whole slice that changed: with 100 pods 17 KB in
// protobuf, 30 KB in JSON. A rollout that replaces all of them changes the slice up to 400 times, which sends up to
// 690 MB to all replicas together, and with 1,000 pods 69 GB. So count large fleets by DNS or Redis. InCluster uses
// protobuf, and so does a clientset whose configuration names no content type.
//
// # Lists, not streams
//
// Newer clients of the API may replace the list by a watch that begins with all objects (WatchList). This
// package does not, because a Service has few slices and a stream saves nothing. A server or a proxy
// without support for such a watch would leave the source without a count for minutes. Also, a list may
// request the newest state, as this package does. An informer's usual first list may come from an outdated
// cache, and a new replica would count too few.
package kube
