package lease_test

// Restoring what a server has forgotten.
var restoreScripts = []script{
	{name: "restore", lines: `
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{"C":3}} -> 200 Ok
		header Content-Type: text/plain; charset=utf-8
		GET /remainder?semaphore=C -> 200 2
		GET /peers/42/is_acquired -> 200 true`},
	{name: "restore of a peer without locks", lines: `
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{}} -> 200 Ok
		GET /peers/ -> 200 [{"id":42}]`},
	{name: "restore of several locks", lines: `
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{"A":1,"C":2,"High":1}} -> 200 Ok
		GET /remainder?semaphore=A -> 200 0
		GET /remainder?semaphore=C -> 200 3
		GET /remainder?semaphore=High -> 200 0`},
	{name: "restore ignores levels", lines: `
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{"A":1,"Low":1}} -> 200 Ok
		PUT /peers/42/B 1 -> 409 ~Lock hierachy violation.*`},
	{name: "a restored lock may be released", lines: `
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{"C":3}} -> 200 Ok
		DELETE /peers/42/C -> 200 Ok
		GET /remainder?semaphore=C -> 200 5`},
	{name: "a restored lock may be asked for again", lines: `
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{"C":3}} -> 200 Ok
		PUT /peers/42/C 3 -> 200 42
		GET /remainder?semaphore=C -> 200 2`},
	{name: "restore beyond the maximum", lines: `
		peer 1
		PUT /peers/1/A 1 -> 200 1
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{"A":1}} -> 200 Ok
		GET /remainder?semaphore=A -> 200 -1
		GET /peers/1/is_acquired -> 200 true
		GET /peers/42/is_acquired -> 200 true`},
	{name: "restore of a count above the maximum", lines: `
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{"A":7}} -> 200 Ok
		GET /remainder?semaphore=A -> 200 -6
		PUT /peers/42/A 7 -> 200 42`},
	{name: "nothing is granted until demand falls below the maximum", lines: `
		peer 1
		peer 2
		PUT /peers/1/A 1 -> 200 1
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{"A":1}} -> 200 Ok
		PUT /peers/2/A 1 -> 202 2
		DELETE /peers/1/A -> 200 Ok
		GET /remainder?semaphore=A -> 200 0
		GET /peers/2/is_acquired -> 200 false
		DELETE /peers/42 -> 200 "Peer released"
		GET /peers/2/is_acquired -> 200 true`},
	{name: "restore overtakes what is pending", lines: `
		peer 1
		peer 2
		PUT /peers/1/A 1 -> 200 1
		PUT /peers/2/A 1 -> 202 2
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{"A":1}} -> 200 Ok
		GET /peers/42/is_acquired -> 200 true
		GET /peers/2/is_acquired -> 200 false`},
	{name: "restore may be repeated", lines: `
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{"A":1,"C":2}} -> 200 Ok
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{"C":2,"A":1}} -> 200 Ok
		GET /remainder?semaphore=C -> 200 3`},
	{name: "restore of a peer that lives without locks", lines: `
		$peer = POST /new_peer {"expires_in":"5m"} -> 200 ~[0-9]+
		POST /restore {"expires_in":"5m","peer_id":$peer,"acquired":{}} -> 200 Ok`},
	{name: "restore may not add a lock", lines: `
		peer 1
		POST /restore {"expires_in":"5m","peer_id":1,"acquired":{"A":1}} -> 409 Restore is not allowed to change existing peers.
		header Content-Type: text/plain; charset=utf-8
		GET /remainder?semaphore=A -> 200 1`},
	{name: "restore may not drop a lock", lines: `
		peer 1
		PUT /peers/1/A 1 -> 200 1
		POST /restore {"expires_in":"5m","peer_id":1,"acquired":{}} -> 409 Restore is not allowed to change existing peers.`},
	{name: "restore may not change a count", lines: `
		peer 1
		PUT /peers/1/C 2 -> 200 1
		POST /restore {"expires_in":"5m","peer_id":1,"acquired":{"C":1}} -> 409 Restore is not allowed to change existing peers.
		POST /restore {"expires_in":"5m","peer_id":1,"acquired":{"C":3}} -> 409 Restore is not allowed to change existing peers.
		GET /remainder?semaphore=C -> 200 3`},
	{name: "restore of an unknown semaphore", lines: `
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{"X":1}} -> 400 Unknown semaphore
		GET /peers/ -> 200 []`},
	{name: "restore changes nothing where one semaphore is unknown", lines: `
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{"A":1,"X":1}} -> 400 Unknown semaphore
		GET /remainder?semaphore=A -> 200 1`},
	{name: "restore of a count that is not positive", lines: `
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{"A":0}} -> 400 Lock count must be a positive number. Found: 0.
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{"A":-1}} -> 400 Lock count must be a positive number. Found: -1.
		GET /peers/ -> 200 []`},
	{name: "restore of a semaphore with a slash", lines: `
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{"/&":1}} -> 200 Ok
		GET /remainder?semaphore=%2F%26 -> 200 0`},
	{name: "restore without a field", lines: `
		POST /restore {} -> 422 expires_in is missing, want a duration.
		POST /restore {"expires_in":"5m","acquired":{}} -> 422 peer_id is missing, want an unsigned integer of 64 bits.
		POST /restore {"expires_in":"5m","peer_id":1} -> 422 acquired is missing, want an object of counts by semaphore.`},
	{name: "restore with a field of another shape", lines: `
		POST /restore {"expires_in":"5m","peer_id":-1,"acquired":{}} -> 422 ~peer_id is "-1", want .*
		POST /restore {"expires_in":"5m","peer_id":"1","acquired":{}} -> 422 ~peer_id is .*, want .*
		POST /restore {"expires_in":"5m","peer_id":null,"acquired":{}} -> 422 ~peer_id is "null", want .*
		POST /restore {"expires_in":"5m","peer_id":1,"acquired":[]} -> 422 ~acquired is .*, want .*
		POST /restore {"expires_in":"5m","peer_id":1,"acquired":null} -> 422 ~acquired is .*, want .*
		POST /restore {"expires_in":"5m","peer_id":1,"acquired":{"A":"1"}} -> 422 ~acquired is .*, want .*
		POST /restore {"expires_in":"5m","peer_id":1,"acquired":{"A":1.5}} -> 422 ~acquired is .*, want .*
		POST /restore {"expires_in":"5m","peer_id":1,"acquired":{"A":null}} -> 422 ~acquired.* is null, want a count.
		POST /restore {"expires_in":"soon","peer_id":1,"acquired":{}} -> 422 ~expires_in: .*`},
	{name: "restore with tokens", lines: `
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{"A":1,"C":1},"tokens":{"A":17}} -> 200 Ok
		PUT /peers/42/A 1 -> 200 42
		header Fencing-Token: 17`},
	{name: "restore with a token of a lock that is not restored", lines: `
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{},"tokens":{"A":17}} -> 422 ~tokens.*A.* belongs to no lock in acquired.`},
	{name: "restore with tokens of another shape", lines: `
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{},"tokens":[]} -> 422 ~tokens is .*
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{"A":1},"tokens":{"A":-1}} -> 422 ~tokens is .*`},
	{name: "restore with a token that was never given", lines: `
		POST /restore {"expires_in":"5m","peer_id":42,"acquired":{"A":1},"tokens":{"A":18446744073709551615}} -> 400 Token 18446744073709551615 was never given.
		GET /peers/ -> 200 []`},
	{name: "a peer that expired is restored", lines: `
		peer 1
		PUT /peers/1/A?expires_in=10s 1 -> 200 1
		sleep 10s
		PUT /peers/1 {"expires_in":"10s"} -> 400 Unknown peer
		POST /restore {"expires_in":"10s","peer_id":1,"acquired":{"A":1}} -> 200 Ok
		GET /remainder?semaphore=A -> 200 0`},
	{name: "restore moves the expiry", lines: `
		peer 1
		PUT /peers/1/A?expires_in=10s 1 -> 200 1
		sleep 9s
		POST /restore {"expires_in":"10s","peer_id":1,"acquired":{"A":1}} -> 200 Ok
		sleep 9999ms
		GET /remainder?semaphore=A -> 200 0
		sleep 1ms
		GET /remainder?semaphore=A -> 200 1`},
	{name: "a restored peer expires", lines: `
		POST /restore {"expires_in":"10s","peer_id":42,"acquired":{"A":1}} -> 200 Ok
		sleep 10s
		GET /remainder?semaphore=A -> 200 1`},
}
