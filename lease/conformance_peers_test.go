package lease_test

// Peers: heartbeats, expiry and removal.
var peerScripts = []script{
	{name: "heartbeat", lines: `
		peer 1
		PUT /peers/1 {"expires_in":"5m"} -> 200 Ok
		header Content-Type: text/plain; charset=utf-8`},
	{name: "heartbeat of an unknown peer", lines: `
		PUT /peers/9 {"expires_in":"5m"} -> 400 Unknown peer
		header Content-Type: text/plain; charset=utf-8`},
	{name: "acquire by an unknown peer", lines: `
		PUT /peers/9/A 1 -> 400 Unknown peer
		PUT /peers/9/A?block_for=1h&expires_in=5m 1 -> 400 Unknown peer`},
	{name: "is_acquired of an unknown peer", lines: `GET /peers/9/is_acquired -> 400 Unknown peer`},
	{name: "is_acquired of a peer that wants nothing", lines: `
		peer 1
		GET /peers/1/is_acquired -> 200 true
		header Content-Type: application/json`},
	{name: "is_acquired is false with one lock held and another pending", lines: `
		peer 1
		peer 2
		PUT /peers/1/Low 1 -> 200 1
		PUT /peers/2/Mid 1 -> 200 2
		PUT /peers/2/Low 1 -> 202 2
		GET /peers/2/is_acquired -> 200 false
		DELETE /peers/1 -> 200 "Peer released"
		GET /peers/2/is_acquired -> 200 true`},
	{name: "removing a peer", lines: `
		peer 1
		DELETE /peers/1 -> 200 "Peer released"
		header Content-Type: application/json
		GET /peers/1/is_acquired -> 400 Unknown peer`},
	{name: "removing an unknown peer", lines: `
		DELETE /peers/9 -> 200 "Peer not found"
		header Content-Type: application/json`},
	{name: "removing a peer twice", lines: `
		peer 1
		DELETE /peers/1 -> 200 "Peer released"
		DELETE /peers/1 -> 200 "Peer not found"`},
	{name: "removing a peer releases its locks", lines: `
		peer 1
		PUT /peers/1/High 1 -> 200 1
		PUT /peers/1/C 4 -> 200 1
		DELETE /peers/1 -> 200 "Peer released"
		GET /remainder?semaphore=High -> 200 1
		GET /remainder?semaphore=C -> 200 5`},
	{name: "removing a peer drops its pending lock", lines: `
		peer 1
		peer 2
		PUT /peers/1/A 1 -> 200 1
		PUT /peers/2/A 1 -> 202 2
		DELETE /peers/2 -> 200 "Peer released"
		DELETE /peers/1 -> 200 "Peer released"
		GET /remainder?semaphore=A -> 200 1`},
	{name: "too many peers", once: true, lines: `
		peer 1
		peer 2
		peer 3
		peer 4
		peer 5
		peer 6
		peer 7
		peer 8
		peer 9
		peer 10
		peer 11
		peer 12
		peer 13
		peer 14
		peer 15
		peer 16
		peer 17
		peer 18
		peer 19
		peer 20
		POST /new_peer {"expires_in":"5m"} -> 503 {"title":"Service Unavailable","status":503,"detail":"Too many peers."}\n
		header Content-Type: application/problem+json
		header Retry-After: 1
		POST /restore {"expires_in":"5m","peer_id":21,"acquired":{}} -> 503 ~.*Too many peers..*
		DELETE /peers/20 -> 200 "Peer released"
		POST /new_peer {"expires_in":"5m"} -> 200 ~[0-9]+`},

	{name: "a lock of a peer that expires at once", once: true, lines: `
		peer 1
		PUT /peers/1/A?expires_in=0ms 1 -> 200 1
		until GET /remainder?semaphore=A -> 200 1
		until GET /peers/1/is_acquired -> 400 Unknown peer`},
	{name: "an expired lock is free, and its peer unknown", once: true, lines: `
		POST /new_peer {"expires_in":"5m"} -> 200 ~[0-9]+
		peer 1
		PUT /peers/1/A?expires_in=20ms 1 -> 200 1
		until GET /remainder?semaphore=A -> 200 1
		PUT /peers/1 {"expires_in":"5m"} -> 400 Unknown peer
		DELETE /peers/1/A -> 400 Unknown peer
		DELETE /peers/1 -> 200 "Peer not found"`},
	{name: "a waiter gets an expired lock", once: true, lines: `
		peer 1
		peer 2
		PUT /peers/1/A?expires_in=20ms 1 -> 200 1
		PUT /peers/2/A?block_for=1h 1 -> 200 2`},
	{name: "a waiter gets a lock that a heartbeat lets expire", once: true, lines: `
		peer 1
		peer 2
		PUT /peers/1/A 1 -> 200 1
		go PUT /peers/2/A?block_for=1h 1 -> 200 2
		until GET /peers/2/is_acquired -> 200 false
		PUT /peers/1 {"expires_in":"0ms"} -> 200 Ok`},
	{name: "a blocked request whose peer expires", once: true, lines: `
		peer 1
		peer 2
		PUT /peers/1/A 1 -> 200 1
		PUT /peers/2/A?block_for=1h&expires_in=20ms 1 -> 400 Unknown peer`},
	{name: "a peer without locks outlives its expiry", once: true, lines: `
		POST /restore {"expires_in":"0ms","peer_id":1,"acquired":{}} -> 200 Ok
		GET /peers/1/is_acquired -> 200 true
		PUT /peers/1 {"expires_in":"5m"} -> 200 Ok
		PUT /peers/1/A 1 -> 200 1`},
	{name: "a peer that has expired may not acquire before its heartbeat", lines: `
		POST /restore {"expires_in":"10s","peer_id":1,"acquired":{}} -> 200 Ok
		sleep 10s 1ns
		PUT /peers/1/A 1 -> 400 Unknown peer
		PUT /peers/1/A?expires_in=5m 1 -> 200 1`},
	{name: "remove_expired removes peers that are kept", once: true, lines: `
		POST /restore {"expires_in":"0ms","peer_id":1,"acquired":{}} -> 200 Ok
		peer 2
		until POST /remove_expired -> 200 1
		POST /remove_expired -> 200 0
		GET /peers/1/is_acquired -> 400 Unknown peer
		GET /peers/ -> 200 [{"id":2}]`},

	{name: "a lock ends at the exact instant", lines: `
		peer 1
		peer 2
		PUT /peers/1/A?expires_in=30s 1 -> 200 1
		PUT /peers/2/A 1 -> 202 2
		sleep 29s 999ms 999us 999ns
		GET /peers/2/is_acquired -> 200 false
		sleep 1ns
		GET /peers/2/is_acquired -> 200 true
		GET /peers/1/is_acquired -> 400 Unknown peer`},
	{name: "a blocked request is answered at the exact instant", lines: `
		peer 1
		peer 2
		PUT /peers/1/A?expires_in=30s 1 -> 200 1
		go PUT /peers/2/A?block_for=1h 1 -> 200 2
		sleep 30s
		join
		GET /peers/2/is_acquired -> 200 true`},
	{name: "all locks of a peer have its expiry", lines: `
		peer 1
		PUT /peers/1/High?expires_in=1h 1 -> 200 1
		PUT /peers/1/Mid?expires_in=10s 1 -> 200 1
		sleep 9999ms
		GET /remainder?semaphore=High -> 200 0
		sleep 1ms
		GET /remainder?semaphore=High -> 200 1
		GET /remainder?semaphore=Mid -> 200 1`},
	{name: "a heartbeat keeps locks alive", lines: `
		peer 1
		PUT /peers/1/A?expires_in=10s 1 -> 200 1
		sleep 9s
		PUT /peers/1 {"expires_in":"10s"} -> 200 Ok
		sleep 9s
		GET /remainder?semaphore=A -> 200 0
		sleep 1s
		GET /remainder?semaphore=A -> 200 1`},
	{name: "a heartbeat may shorten", lines: `
		peer 1
		PUT /peers/1/A 1 -> 200 1
		PUT /peers/1 {"expires_in":"1s"} -> 200 Ok
		sleep 1s
		GET /remainder?semaphore=A -> 200 1`},
	{name: "a repeated request keeps locks alive", lines: `
		peer 1
		PUT /peers/1/A?expires_in=10s 1 -> 200 1
		sleep 9s
		PUT /peers/1/A?expires_in=10s 1 -> 200 1
		sleep 9s
		GET /remainder?semaphore=A -> 200 0`},
	{name: "a repeated request without expires_in does not", lines: `
		peer 1
		PUT /peers/1/A?expires_in=10s 1 -> 200 1
		sleep 9s
		PUT /peers/1/A 1 -> 200 1
		sleep 1s
		GET /remainder?semaphore=A -> 200 1`},
	{name: "a blocked request does not keep its peer alive", lines: `
		peer 1
		peer 2
		PUT /peers/1/A?expires_in=1h 1 -> 200 1
		go PUT /peers/2/A?block_for=1h&expires_in=10s 1 -> 400 Unknown peer
		sleep 10s
		join
		GET /peers/2/is_acquired -> 400 Unknown peer`},
	{name: "a heartbeat keeps a blocked request alive", lines: `
		peer 1
		peer 2
		PUT /peers/1/A?expires_in=1h 1 -> 200 1
		go PUT /peers/2/A?block_for=15s&expires_in=10s 1 -> 202 2
		sleep 9s
		PUT /peers/2 {"expires_in":"10s"} -> 200 Ok
		sleep 6s
		join
		GET /peers/2/is_acquired -> 200 false`},
	{name: "block_for ends at the exact instant", lines: `
		peer 1
		peer 2
		PUT /peers/1/A 1 -> 200 1
		go PUT /peers/2/A?block_for=1m 1 -> 202 2
		sleep 1m
		join`},
	{name: "a peer without locks is kept for 5 minutes more", lines: `
		POST /restore {"expires_in":"10s","peer_id":1,"acquired":{}} -> 200 Ok
		sleep 5m 9s 999ms
		GET /peers/1/is_acquired -> 200 true
		sleep 1ms
		GET /peers/1/is_acquired -> 400 Unknown peer
		GET /peers/ -> 200 []`},
	{name: "a lock given back leaves the expiry as it was", lines: `
		peer 1
		PUT /peers/1/A?expires_in=10s 1 -> 200 1
		DELETE /peers/1/A -> 200 Ok
		sleep 11s
		PUT /peers/1/A 1 -> 400 Unknown peer
		PUT /peers/1/A?expires_in=10s 1 -> 200 1`},
	{name: "an expiry serves waiters in order, as many as fit", lines: `
		peer 1
		peer 2
		peer 3
		peer 4
		PUT /peers/1/C?expires_in=10s 5 -> 200 1
		PUT /peers/2/C 3 -> 202 2
		PUT /peers/3/C 3 -> 202 3
		PUT /peers/4/C 2 -> 202 4
		sleep 10s
		GET /peers/2/is_acquired -> 200 true
		GET /peers/3/is_acquired -> 200 false
		GET /peers/4/is_acquired -> 200 false`},
}
