package lease_test

// Admission, fairness, blocking, levels, repeating and releasing.
var lockScripts = []script{
	{name: "a free lock is held at once", lines: `
		peer 1
		PUT /peers/1/A 1 -> 200 1
		header Content-Type: application/json
		header Fencing-Token: ~[1-9][0-9]*
		GET /peers/1/is_acquired -> 200 true
		GET /remainder?semaphore=A -> 200 0`},
	{name: "a taken lock is pending", lines: `
		peer 1
		peer 2
		PUT /peers/1/A 1 -> 200 1
		PUT /peers/2/A 1 -> 202 2
		header Content-Type: application/json
		header Fencing-Token:
		GET /peers/2/is_acquired -> 200 false`},
	{name: "counts add up", lines: `
		peer 1
		peer 2
		peer 3
		PUT /peers/1/C 2 -> 200 1
		PUT /peers/2/C 3 -> 200 2
		GET /remainder?semaphore=C -> 200 0
		PUT /peers/3/C 1 -> 202 3`},
	{name: "a count that does not fit waits", lines: `
		peer 1
		peer 2
		PUT /peers/1/C 3 -> 200 1
		PUT /peers/2/C 3 -> 202 2
		GET /remainder?semaphore=C -> 200 2`},
	{name: "none overtakes a large request", lines: `
		peer 1
		peer 2
		peer 3
		PUT /peers/1/C 1 -> 200 1
		PUT /peers/2/C 5 -> 202 2
		PUT /peers/3/C 1 -> 202 3
		GET /remainder?semaphore=C -> 200 4
		DELETE /peers/1/C -> 200 Ok
		GET /peers/2/is_acquired -> 200 true
		GET /peers/3/is_acquired -> 200 false
		GET /remainder?semaphore=C -> 200 0`},
	{name: "a small request beside a pending one that leaves room", lines: `
		peer 1
		peer 2
		peer 3
		PUT /peers/1/C 3 -> 200 1
		PUT /peers/2/C 3 -> 202 2
		PUT /peers/3/C 1 -> 202 3`},
	{name: "first come first served", lines: `
		peer 1
		peer 2
		peer 3
		PUT /peers/1/A 1 -> 200 1
		PUT /peers/2/A 1 -> 202 2
		PUT /peers/3/A 1 -> 202 3
		DELETE /peers/1/A -> 200 Ok
		GET /peers/2/is_acquired -> 200 true
		GET /peers/3/is_acquired -> 200 false
		DELETE /peers/2/A -> 200 Ok
		GET /peers/3/is_acquired -> 200 true`},
	{name: "a release serves as many as fit", lines: `
		peer 1
		peer 2
		peer 3
		peer 4
		PUT /peers/1/C 5 -> 200 1
		PUT /peers/2/C 2 -> 202 2
		PUT /peers/3/C 3 -> 202 3
		PUT /peers/4/C 1 -> 202 4
		DELETE /peers/1/C -> 200 Ok
		GET /peers/2/is_acquired -> 200 true
		GET /peers/3/is_acquired -> 200 true
		GET /peers/4/is_acquired -> 200 false
		GET /remainder?semaphore=C -> 200 0`},
	{name: "a release stops at the first that does not fit", lines: `
		peer 1
		peer 2
		peer 3
		peer 4
		PUT /peers/1/C 3 -> 200 1
		PUT /peers/4/C 2 -> 200 4
		PUT /peers/2/C 4 -> 202 2
		PUT /peers/3/C 1 -> 202 3
		DELETE /peers/1/C -> 200 Ok
		GET /peers/2/is_acquired -> 200 false
		GET /peers/3/is_acquired -> 200 false
		GET /remainder?semaphore=C -> 200 3
		DELETE /peers/4/C -> 200 Ok
		GET /peers/2/is_acquired -> 200 true
		GET /peers/3/is_acquired -> 200 true
		GET /remainder?semaphore=C -> 200 0`},
	{name: "a waiter that leaves lets the next one in", lines: `
		peer 1
		peer 2
		peer 3
		PUT /peers/1/C 1 -> 200 1
		PUT /peers/2/C 5 -> 202 2
		PUT /peers/3/C 4 -> 202 3
		DELETE /peers/2/C -> 200 Ok
		GET /peers/3/is_acquired -> 200 true
		GET /peers/2/is_acquired -> 200 true
		GET /remainder?semaphore=C -> 200 0`},
	{name: "a waiting peer that is removed lets the next one in", lines: `
		peer 1
		peer 2
		peer 3
		PUT /peers/1/C 1 -> 200 1
		PUT /peers/2/C 5 -> 202 2
		PUT /peers/3/C 4 -> 202 3
		DELETE /peers/2 -> 200 "Peer released"
		GET /peers/3/is_acquired -> 200 true`},
	{name: "a held lock may be asked for again", lines: `
		peer 1
		PUT /peers/1/C 2 -> 200 1
		PUT /peers/1/C 2 -> 200 1
		PUT /peers/1/C 2 -> 200 1
		GET /remainder?semaphore=C -> 200 3`},
	{name: "a lock keeps its fencing token", lines: `
		POST /restore {"expires_in":"5m","peer_id":1,"acquired":{"A":1},"tokens":{"A":77}} -> 200 Ok
		PUT /peers/1/A 1 -> 200 1
		header Fencing-Token: 77`},
	{name: "a pending lock keeps its place", lines: `
		peer 1
		peer 2
		peer 3
		PUT /peers/1/A 1 -> 200 1
		PUT /peers/2/A 1 -> 202 2
		PUT /peers/3/A 1 -> 202 3
		PUT /peers/2/A 1 -> 202 2
		PUT /peers/2/A 1 -> 202 2
		DELETE /peers/1/A -> 200 Ok
		GET /peers/2/is_acquired -> 200 true
		GET /peers/3/is_acquired -> 200 false`},
	{name: "a larger count is refused", lines: `
		peer 1
		PUT /peers/1/C 2 -> 200 1
		PUT /peers/1/C 3 -> 409 Lock count can only shrink. The lock has count 2, asked for is 3.
		GET /remainder?semaphore=C -> 200 3`},
	{name: "a larger count is refused while it is pending", lines: `
		peer 1
		peer 2
		PUT /peers/1/C 5 -> 200 1
		PUT /peers/2/C 2 -> 202 2
		PUT /peers/2/C 3 -> 409 Lock count can only shrink. The lock has count 2, asked for is 3.`},
	{name: "a smaller count shrinks the lock", lines: `
		peer 1
		PUT /peers/1/C 5 -> 200 1
		PUT /peers/1/C 2 -> 200 1
		GET /remainder?semaphore=C -> 200 3
		DELETE /peers/1/C -> 200 Ok
		GET /remainder?semaphore=C -> 200 5`},
	{name: "a lock that shrinks lets the next one in", lines: `
		peer 1
		peer 2
		PUT /peers/1/C 5 -> 200 1
		PUT /peers/2/C 3 -> 202 2
		PUT /peers/1/C 2 -> 200 1
		GET /peers/2/is_acquired -> 200 true`},
	{name: "a pending lock that shrinks may fit", lines: `
		peer 1
		peer 2
		PUT /peers/1/C 3 -> 200 1
		PUT /peers/2/C 4 -> 202 2
		PUT /peers/2/C 2 -> 200 2
		GET /remainder?semaphore=C -> 200 0`},
	{name: "only one pending lock", lines: `
		peer 1
		peer 2
		PUT /peers/1/A 1 -> 200 1
		PUT /peers/2/A 1 -> 202 2
		PUT /peers/2/B 1 -> 409 Already pending. Only one pendig lock per peer is allowed.
		header Content-Type: text/plain; charset=utf-8`},
	{name: "a peer whose pending lock was granted may ask for one below", lines: `
		peer 1
		peer 2
		PUT /peers/1/High 1 -> 200 1
		PUT /peers/2/High 1 -> 202 2
		DELETE /peers/1/High -> 200 Ok
		PUT /peers/2/Mid 1 -> 200 2`},

	{name: "locks of falling levels", lines: `
		peer 1
		PUT /peers/1/High 1 -> 200 1
		PUT /peers/1/Mid 1 -> 200 1
		PUT /peers/1/Low 1 -> 200 1`},
	{name: "a higher level is a violation", lines: `
		peer 1
		PUT /peers/1/Low 1 -> 200 1
		PUT /peers/1/Mid 1 -> 409 Lock hierachy violation. This may deadlock. The current lock level is 0 the\n        requested lock level was 1.
		header Content-Type: text/plain; charset=utf-8
		GET /remainder?semaphore=Mid -> 200 1`},
	{name: "the same level is a violation", lines: `
		peer 1
		PUT /peers/1/A 1 -> 200 1
		PUT /peers/1/B 1 -> 409 Lock hierachy violation. This may deadlock. The current lock level is 0 the\n        requested lock level was 0.`},
	{name: "the lowest level that is held counts", lines: `
		peer 1
		PUT /peers/1/High 1 -> 200 1
		PUT /peers/1/Low 1 -> 200 1
		PUT /peers/1/Mid 1 -> 409 Lock hierachy violation. This may deadlock. The current lock level is 0 the\n        requested lock level was 1.`},
	{name: "a level is free again after the release", lines: `
		peer 1
		PUT /peers/1/Low 1 -> 200 1
		PUT /peers/1/Mid 1 -> 409 ~Lock hierachy violation.*
		DELETE /peers/1/Low -> 200 Ok
		PUT /peers/1/Mid 1 -> 200 1
		PUT /peers/1/Low 1 -> 200 1`},
	{name: "levels are those of one peer", lines: `
		peer 1
		peer 2
		PUT /peers/1/Low 1 -> 200 1
		PUT /peers/2/High 1 -> 200 2`},
	{name: "a violation comes before waiting", lines: `
		peer 1
		peer 2
		PUT /peers/1/Mid 1 -> 200 1
		PUT /peers/2/Low 1 -> 200 2
		PUT /peers/2/Mid?block_for=1h 1 -> 409 ~Lock hierachy violation.*`},

	{name: "release", lines: `
		peer 1
		PUT /peers/1/A 1 -> 200 1
		DELETE /peers/1/A -> 200 Ok
		header Content-Type: text/plain; charset=utf-8
		GET /remainder?semaphore=A -> 200 1
		GET /peers/1/is_acquired -> 200 true`},
	{name: "release of what is not held", lines: `
		peer 1
		DELETE /peers/1/A -> 200 Ok
		GET /remainder?semaphore=A -> 200 1`},
	{name: "release twice", lines: `
		peer 1
		peer 2
		PUT /peers/1/B 1 -> 200 1
		PUT /peers/2/B 1 -> 200 2
		DELETE /peers/1/B -> 200 Ok
		DELETE /peers/1/B -> 200 Ok
		GET /remainder?semaphore=B -> 200 1`},
	{name: "release of what is not held keeps what is pending", lines: `
		peer 1
		peer 2
		PUT /peers/1/A 1 -> 200 1
		PUT /peers/2/A 1 -> 202 2
		DELETE /peers/2/B -> 200 Ok
		GET /peers/2/is_acquired -> 200 false
		DELETE /peers/1/A -> 200 Ok
		PUT /peers/2/A 1 -> 200 2`},
	{name: "release of what is held keeps what is pending", lines: `
		peer 1
		peer 2
		PUT /peers/1/Low 1 -> 200 1
		PUT /peers/2/Mid 1 -> 200 2
		PUT /peers/2/Low 1 -> 202 2
		DELETE /peers/2/Mid -> 200 Ok
		GET /peers/2/is_acquired -> 200 false
		GET /remainder?semaphore=Mid -> 200 1`},
	{name: "release of a pending lock", lines: `
		peer 1
		peer 2
		PUT /peers/1/A 1 -> 200 1
		PUT /peers/2/A 1 -> 202 2
		DELETE /peers/2/A -> 200 Ok
		GET /peers/2/is_acquired -> 200 true
		DELETE /peers/1/A -> 200 Ok
		GET /remainder?semaphore=A -> 200 1`},
	{name: "release by another peer", lines: `
		peer 1
		peer 2
		PUT /peers/1/A 1 -> 200 1
		DELETE /peers/2/A -> 200 Ok
		GET /remainder?semaphore=A -> 200 0`},
	{name: "release of an unknown semaphore", lines: `
		peer 1
		DELETE /peers/1/X -> 400 Unknown semaphore`},
	{name: "release by an unknown peer", lines: `DELETE /peers/9/A -> 400 Unknown peer`},
	{name: "a lock may be asked for again after its release, with a newer token", lines: `
		POST /restore {"expires_in":"5m","peer_id":1,"acquired":{"A":1},"tokens":{"A":4000000000000000000}} -> 200 Ok
		DELETE /peers/1/A -> 200 Ok
		PUT /peers/1/A 1 -> 200 1`},
	{name: "tokens grow", once: true, lines: `
		POST /restore {"expires_in":"5m","peer_id":1,"acquired":{"A":1},"tokens":{"A":4000000000000000000}} -> 200 Ok
		PUT /peers/1/A 1 -> 200 1
		header Fencing-Token: 4000000000000000000
		DELETE /peers/1/A -> 200 Ok
		PUT /peers/1/A 1 -> 200 1
		header Fencing-Token: 4000000000000000001
		peer 2
		PUT /peers/2/B 1 -> 200 2
		header Fencing-Token: 4000000000000000002`},

	{name: "a blocked request is answered as soon as the lock is held", lines: `
		peer 1
		peer 2
		PUT /peers/1/A 1 -> 200 1
		go PUT /peers/2/A?block_for=1h 1 -> 200 2
		until GET /peers/2/is_acquired -> 200 false
		DELETE /peers/1/A -> 200 Ok
		join
		GET /peers/2/is_acquired -> 200 true`},
	{name: "a blocked request is answered when its peer's predecessor is removed", lines: `
		peer 1
		peer 2
		PUT /peers/1/A 1 -> 200 1
		go PUT /peers/2/A?block_for=1h 1 -> 200 2
		until GET /peers/2/is_acquired -> 200 false
		DELETE /peers/1 -> 200 "Peer released"`},
	{name: "a blocked request is answered 202 when its time is over", lines: `
		peer 1
		peer 2
		PUT /peers/1/A 1 -> 200 1
		PUT /peers/2/A?block_for=10ms 1 -> 202 2
		GET /peers/2/is_acquired -> 200 false`},
	{name: "block_for 0 does not wait", lines: `
		peer 1
		peer 2
		PUT /peers/1/A 1 -> 200 1
		PUT /peers/2/A?block_for=0ms 1 -> 202 2`},
	{name: "a free lock does not wait", lines: `
		peer 1
		PUT /peers/1/A?block_for=1h 1 -> 200 1`},
	{name: "a blocked request keeps its place when its time is over", lines: `
		peer 1
		peer 2
		peer 3
		PUT /peers/1/A 1 -> 200 1
		PUT /peers/2/A?block_for=1ms 1 -> 202 2
		PUT /peers/3/A?block_for=1ms 1 -> 202 3
		DELETE /peers/1/A -> 200 Ok
		PUT /peers/2/A?block_for=1h 1 -> 200 2`},
	{name: "a blocked request whose peer is removed", lines: `
		peer 1
		peer 2
		PUT /peers/1/A 1 -> 200 1
		go PUT /peers/2/A?block_for=1h 1 -> 400 Unknown peer
		until GET /peers/2/is_acquired -> 200 false
		DELETE /peers/2 -> 200 "Peer released"`},
	{name: "a blocked request whose lock is given back", lines: `
		peer 1
		peer 2
		PUT /peers/1/A 1 -> 200 1
		go PUT /peers/2/A?block_for=1h 1 -> 409 No such lock is held.
		until GET /peers/2/is_acquired -> 200 false
		DELETE /peers/2/A -> 200 Ok`},
	{name: "two blocked requests of one lock", lines: `
		peer 1
		peer 2
		PUT /peers/1/A 1 -> 200 1
		go PUT /peers/2/A?block_for=1h 1 -> 200 2
		until GET /peers/2/is_acquired -> 200 false
		go PUT /peers/2/A?block_for=1h 1 -> 200 2
		DELETE /peers/1/A -> 200 Ok`},
}
