// Package admin lets operators see and change the limiters of one process: by a page in a browser, by a JSON API, and
// by a Go [Client]. A change counts in this process until it ends; "quotient ctl" makes one on all pods of a fleet.
//
// # Serving it
//
// [New] makes the handler of a quotient.Registry, and its ListenAndServe serves the page and the API until the
// context ends:
//
//	page, err := admin.New(&limiters, admin.Token(os.Getenv("ADMIN_TOKEN")))
//	if err != nil {
//		log.Fatal(err)
//	}
//	err = page.ListenAndServe(ctx, addr) // such as "127.0.0.1:9091"
//
// A [Handler] is an http.Handler too, which a server of your own serves at its root, or under a prefix with
// http.StripPrefix. Set at least that server's ReadHeaderTimeout and ReadTimeout, and bound its connections, because
// clients without credentials can occupy all of them otherwise. [Handler.Listen] and [Handler.Serve] do so, also for
// Unix sockets and TLS.
//
// One listener may serve more. What you [Mount] has the access rules of the page, and [MountOpen] is for probes that
// have no token:
//
//	page, err := admin.New(&limiters, admin.Token(token), admin.Logger(logger),
//		admin.Mount("/metrics", metrics), admin.MountOpen("/ready", ready))
//
// # The token
//
// With a [Token] every request needs one of these bearer tokens, and with [MutualTLS] a client certificate will do. A
// [ReadOnlyToken] may look and not change. An empty token is an error of New, so a variable that is not set opens
// nothing.
//
// Without credentials the handler serves only connections over the loopback interface or a Unix socket. A web page in
// a browser on the same machine could reach such a listener in two ways, and the handler closes both. It answers only
// requests whose Host is the loopback interface or named with [AllowHosts], so a rebound DNS name has no effect; with
// credentials the address of the connection is allowed too. A page of another origin can neither read nor write.
//
// A reverse proxy on the same machine looks like the machine itself, so give the handler a token if there is one.
// Without a token it refuses requests with a header of a proxy (X-Forwarded-For and its like, Forwarded, X-Real-IP,
// Via), but a proxy that adds none looks like a browser. [BehindAuthentication] is for a proxy that authenticates
// every request itself.
//
// # The page
//
// The page asks for the token and sends it with each request. The tab keeps it in its session storage, under the path
// of the page, so a reload keeps it, and no other tab has it except a duplicate. It is removed when the tab is
// closed, when a request gets 401, and by "Forget the token". If a browser forbids storage, the token lasts until the
// next load. Scripts of the same origin can read it, so do not serve other people's pages on the host and port of
// this one. With a ReadOnlyToken the page has no buttons for changes.
//
// # The client
//
// A [Client] has a method for each route of the API:
//
//	client, err := admin.NewClient(url, admin.BearerToken(token))
//
// The state of a limiter has an ETag, which depends on its configuration and not on its counters. A change with
// [IfMatch] is refused if another client has changed the limiter since, so that no operator undoes what another has
// just done. A program that calls SetLimit itself is not noticed. [ValidateOnly] asks what a change would get, and
// makes none.
//
//	now, err := client.SetLimit(ctx, "api", limit, admin.IfMatch(seen.ETag))
//	if errors.Is(err, admin.ErrConflict) {
//		fmt.Println("another operator was faster")
//		return
//	}
//
// # The API
//
//	GET  /               the page, with its files under /assets/
//	GET  /openapi.json   the API in OpenAPI 3.1: fields, ranges, examples
//	GET  /state          the state of the limiters; ?history=1 adds the last two minutes
//	GET  /events         the state once a second, as server-sent events
//	GET  /keys?top=20    the hottest keys
//	GET  /explain?key=K  the state of one key, and the answer to its next request; &plan=paid: in that plan
//	GET  /peers          the processes of the fleet, one by one, of WithPeers
//	PUT  /replicas       {"replicas":4,"ordinal":2,"ttl_seconds":600}: the pool, for ten minutes; "weight" too
//	PUT  /limit          {"rates":[{"events":100,"per_seconds":1}],"in_flight":10}; {"unlimited":true}: no bound
//	PUT  /plan           {"plan":"paid","limit":{...}}: the limit of a plan; null removes it
//	PUT  /override       {"key":"K","limit":{...},"ttl_seconds":600}: the limit of one key; null removes it
//	PUT  /reset          {"key":"K"}: the key starts fresh
//	PUT  /dry-run        {"dry_run":true}
//	GET  /leases         the semaphores of WithLeases; ?semaphore=A: its holders and waiters
//	POST /leases/break   {"semaphore":"A","peer":"42","token":"7"}: takes a lock from its holder
//
// The body of a write is JSON, and its Content-Type must be application/json:
//
//	curl -X PUT -H 'Content-Type: application/json' -d '{"replicas":4}' localhost:9091/replicas
//
// ?limiter=NAME selects one of several limiters, and may be absent if there is only one. PUT /replicas and GET /state
// without it apply to all. Every PUT replaces what it names as a whole and answers with the new state; PUT /override
// also says what the key had before ("was"), so that a client can undo it. If-Match and ?validate=1 are IfMatch and
// ValidateOnly: the answer is 412 after a conflict. To find room for an override, even a validation may evict an idle
// key.
//
// Every answer except the page is JSON and is never cached. Durations are in seconds. A refusal is an
// application/problem+json document (RFC 9457), which names the field, the value and the range if one field of the
// request is wrong: see [Problem]. If a key is not UTF-8, answers have "key_base64" beside "key", and requests have
// key_base64 in place of key.
//
// # Options of New
//
//   - Access: [Token], [ReadOnlyToken], [MutualTLS], [BehindAuthentication], [AllowHosts].
//   - What is shown: [File], [Tables], [WithLeases], [WithPeers], [Replica], [EventsEvery].
//   - Changes: [Logger], [KeepOverrides], which last over a restart, and [CheckKeys].
//   - Handlers of the program: [Mount], [MountOpen].
//
// # Options of the client
//
//   - NewClient: [BearerToken], [HTTPClient].
//   - Changes: [IfMatch], [ValidateOnly].
//   - Client.Keys and Client.Explain: [ByRefused], [InPlan].
//
// Handlers and clients are safe for concurrent use.
package admin
