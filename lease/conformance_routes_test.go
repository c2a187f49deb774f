package lease_test

// Routes, methods, paths and the texts that stand alone.
var routeScripts = []script{
	{name: "the greeting is text", lines: `
		GET / -> 200 ~.+
		header Content-Type: text/plain; charset=utf-8`},
	{name: "health", lines: `
		GET /health -> 200 Ok
		header Content-Type: text/plain; charset=utf-8`},
	{name: "ready", lines: `GET /ready -> 200 Ok`},
	{name: "version", lines: `GET /version -> 200 1.2.3`},
	{name: "HEAD is answered as GET without a body", lines: `
		HEAD /health -> 200 ~(Ok)?
		HEAD /remainder?semaphore=A -> 200 ~1?`},
	{name: "an unknown place is 404 in HTML", lines: `
		GET /nothing -> 404 ~<!DOCTYPE html>.*404.*</html>\n
		header Content-Type: text/html; charset=utf-8`},
	{name: "404 for any method", lines: `
		PUT /nothing 1 -> 404 ~<!DOCTYPE html>.*
		DELETE /nothing -> 404 ~<!DOCTYPE html>.*`},
	{name: "404 below a place that has nothing below", lines: `GET /health/ -> 404 ~<!DOCTYPE html>.*`},
	{name: "404 for peers without a slash", lines: `GET /peers -> 404 ~<!DOCTYPE html>.*`},
	{name: "404 for a semaphore without a name", lines: `PUT /peers/1/ 1 -> 404 ~<!DOCTYPE html>.*`},
	{name: "404 for a peer without an id", lines: `PUT /peers//A 1 -> 404 ~<!DOCTYPE html>.*`},
	{name: "404 below a semaphore", lines: `
		PUT /peers/1/A/B 1 -> 404 ~<!DOCTYPE html>.*
		GET /peers/1/is_acquired/ -> 404 ~<!DOCTYPE html>.*`},
	{name: "404 for doubled slashes", lines: `GET //health -> 404 ~<!DOCTYPE html>.*`},
	{name: "404 where an encoded slash would make another place",
		lines: `GET /peers%2F -> 404 ~<!DOCTYPE html>.*`},
	{name: "404 for other case", lines: `GET /Health -> 404 ~<!DOCTYPE html>.*`},
	{name: "404 for metrics where there are none", lines: `GET /metrics -> 404 ~<!DOCTYPE html>.*`},
	{name: "405 for a place that is only read", lines: `
		POST /health -> 405 Method not allowed. Want GET, HEAD.
		header Allow: GET, HEAD`},
	{name: "405 for the greeting", lines: `
		DELETE / -> 405 Method not allowed. Want GET, HEAD.`},
	{name: "405 for version, ready and metrics", lines: `
		PUT /version -> 405 ~.*
		PUT /ready -> 405 ~.*
		PUT /metrics -> 405 ~.*
		header Allow: GET, HEAD`},
	{name: "405 for new_peer", lines: `
		GET /new_peer -> 405 Method not allowed. Want POST.
		header Allow: POST`},
	{name: "405 for restore", lines: `
		PUT /restore {} -> 405 ~.*
		header Allow: POST`},
	{name: "405 for remove_expired", lines: `
		GET /remove_expired -> 405 ~.*
		header Allow: POST`},
	{name: "405 for remainder", lines: `
		POST /remainder?semaphore=A -> 405 ~.*
		header Allow: GET, HEAD`},
	{name: "405 for the list of peers", lines: `
		POST /peers/ -> 405 ~.*
		header Allow: GET, HEAD`},
	{name: "405 for a peer", lines: `
		GET /peers/1 -> 405 ~.*
		header Allow: DELETE, PUT`},
	{name: "405 for a semaphore", lines: `
		GET /peers/1/A -> 405 ~.*
		header Allow: DELETE, PUT`},
	{name: "405 for is_acquired", lines: `
		POST /peers/1/is_acquired -> 405 ~.*
		header Allow: DELETE, GET, HEAD, PUT`},
	{name: "OPTIONS is 405", lines: `
		OPTIONS /peers/1/A -> 405 ~.*`},

	{name: "new_peer answers a bare integer", lines: `
		POST /new_peer {"expires_in":"300000ms"} -> 200 ~[1-9][0-9]{0,19}
		header Content-Type: application/json`},
	{name: "ids differ", lines: `
		$one = POST /new_peer {"expires_in":"5m"} -> 200 ~[0-9]+
		$two = POST /new_peer {"expires_in":"5m"} -> 200 ~[0-9]+
		PUT /peers/$one/A 1 -> 200 $one
		PUT /peers/$two/A 1 -> 202 $two`},
	{name: "an id may be above 2^63", lines: `
		peer 18446744073709551615
		PUT /peers/18446744073709551615/A 1 -> 200 18446744073709551615
		GET /peers/ -> 200 [{"id":18446744073709551615}]
		DELETE /peers/18446744073709551615 -> 200 "Peer released"`},
	{name: "an id may be 0", lines: `
		peer 0
		PUT /peers/0/A 1 -> 200 0`},
	{name: "no peers", lines: `
		GET /peers/ -> 200 []
		header Content-Type: application/json`},
	{name: "the list of peers", lines: `
		peer 7
		peer 5
		GET /peers/ -> 200 [{"id":5},{"id":7}]`},
	{name: "peer is served as peers", lines: `
		peer 1
		PUT /peer/1/A?block_for=1s 1 -> 200 1
		GET /peer/1/is_acquired -> 200 true
		PUT /peer/1 {"expires_in":"5m"} -> 200 Ok
		DELETE /peer/1/A -> 200 Ok
		GET /peer/ -> 200 [{"id":1}]
		DELETE /peer/1 -> 200 "Peer released"`},
	{name: "an id that is no integer", lines: `
		PUT /peers/me/A 1 -> 400 Peer id is "me", want an unsigned integer of 64 bits.
		DELETE /peers/me -> 400 Peer id is "me", want an unsigned integer of 64 bits.
		GET /peers/me/is_acquired -> 400 Peer id is "me", want an unsigned integer of 64 bits.
		DELETE /peers/me/A -> 400 Peer id is "me", want an unsigned integer of 64 bits.
		PUT /peers/me {"expires_in":"5m"} -> 400 Peer id is "me", want an unsigned integer of 64 bits.`},
	{name: "an id that is negative, signed or too large", lines: `
		DELETE /peers/-1 -> 400 Peer id is "-1", want an unsigned integer of 64 bits.
		DELETE /peers/+1 -> 400 Peer id is "+1", want an unsigned integer of 64 bits.
		DELETE /peers/18446744073709551616 -> 400 ~Peer id is "18446744073709551616", want .*`},

	{name: "a semaphore with a slash and an ampersand", lines: `
		peer 1
		PUT /peers/1/%2F%26 1 -> 200 1
		GET /remainder?semaphore=%2F%26 -> 200 0
		GET /remainder?semaphore=/%26 -> 200 0
		DELETE /peers/1/%2f%26 -> 200 Ok
		GET /remainder?semaphore=%2F%26 -> 200 1`},
	{name: "a semaphore with a blank", lines: `
		peer 1
		PUT /peers/1/a%20b 1 -> 200 1
		GET /remainder?semaphore=a+b -> 200 0
		GET /remainder?semaphore=a%20b -> 200 0`},
	{name: "a plus is a plus in a path, and a blank in a query", lines: `
		peer 1
		PUT /peers/1/+ 1 -> 200 1
		GET /remainder?semaphore=%2B -> 200 0
		GET /remainder?semaphore=+ -> 400 Unknown semaphore`},
	{name: "a semaphore beyond ASCII", lines: `
		peer 1
		PUT /peers/1/%C3%BC 1 -> 200 1
		GET /remainder?semaphore=%C3%BC -> 200 0`},
	{name: "names are decoded once", lines: `
		peer 1
		PUT /peers/1/%2541 1 -> 200 1
		GET /remainder?semaphore=%2541 -> 200 0
		GET /remainder?semaphore=A -> 200 1`},
	{name: "a name that needs no encoding may be encoded", lines: `
		peer 1
		PUT /peers/1/%41 1 -> 200 1
		GET /remainder?semaphore=A -> 200 0`},
	{name: "places may be encoded too", lines: `
		peer 1
		GET /%68ealth -> 200 Ok
		PUT /%70eers/%31/A 1 -> 200 1`},
	{name: "dots are a name", lines: `
		peer 1
		PUT /peers/1/.. 1 -> 200 1
		GET /remainder?semaphore=.. -> 200 0`},
	{name: "a semaphore called is_acquired", lines: `
		peer 1
		peer 2
		PUT /peers/1/is_acquired 1 -> 200 1
		PUT /peers/2/is_acquired 1 -> 202 2
		GET /peers/1/is_acquired -> 200 true
		GET /peers/2/is_acquired -> 200 false
		DELETE /peers/1/is_acquired -> 200 Ok
		GET /peers/2/is_acquired -> 200 true`},

	{name: "remainder", lines: `
		GET /remainder?semaphore=C -> 200 5
		header Content-Type: application/json`},
	{name: "remainder of an unknown semaphore", lines: `
		GET /remainder?semaphore=X -> 400 Unknown semaphore
		header Content-Type: text/plain; charset=utf-8`},
	{name: "remainder of a name without characters",
		lines: `GET /remainder?semaphore= -> 400 Unknown semaphore`},
	{name: "remainder without a name", lines: `
		GET /remainder -> 400 The parameter semaphore is missing.
		GET /remainder? -> 400 The parameter semaphore is missing.
		GET /remainder?Semaphore=A -> 400 The parameter semaphore is missing.`},
	{name: "other parameters change nothing", lines: `
		GET /remainder?x=1&semaphore=A&y -> 200 1`},
	{name: "remainder counts what is held, not what is pending", lines: `
		peer 1
		peer 2
		PUT /peers/1/C 2 -> 200 1
		PUT /peers/2/C 4 -> 202 2
		GET /remainder?semaphore=C -> 200 3`},
	{name: "remove_expired without peers", lines: `
		POST /remove_expired -> 200 0
		header Content-Type: application/json`},
	{name: "remove_expired needs no body and minds none", lines: `
		peer 1
		POST /remove_expired {} -> 200 0
		GET /peers/ -> 200 [{"id":1}]`},
}
