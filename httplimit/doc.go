// Package httplimit puts a quotient.Limiter in front of an HTTP server or client.
//
// Middleware limits what a handler serves, Transport what a client sends. Both
// take a KeyFunc, which names what a request is limited by:
//
//	Path()           the URL's path, one spelling for all variants
//	Pattern(mux)     the route that a ServeMux chooses
//	MethodPattern    the same, for each method
//	Host()           the host
//	ClientAddr(…)    the client's address, through trusted proxies (ClientAddrConfig: X-Real-IP, prefixes, Unix)
//	Header(name)     the value of a header, such as a tenant
//	Credential(name) a secret in a header, such as a token, of which keys show a hash
//	Constant(key)    one quota for everything
//
// or any function of yours. A key function is a decision about who shares a quota
// with whom; each one documents what a client can vary in it.
//
// A policy that learns reads an answer's fields: Retry-After, RateLimit, and those that GitHub, OpenAI and
// others send in its place. ProfileFor lists the hosts that are known, and a Profile describes one more. Its
// Judge may look into bodies.
//
// With SendFields, Middleware sends its own clients their limits in RateLimit fields. WeightBy and CostBy
// set what a request counts as, and PlanBy its plan. Also adds further limiters that must admit it. OnRefuse
// writes, logs or counts refusals, and Drain ends the waits when a server shuts down. Around is Middleware
// for frameworks whose handlers are no http.Handler. The modules ginlimit, echolimit (v5), echolimit-v4 and
// grpclimit are for gin, echo and gRPC.
//
// Nothing here starts a goroutine, and nothing retries.
package httplimit
