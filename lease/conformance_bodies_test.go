package lease_test

// Bodies, content types, counts and durations.
var bodyScripts = []script{
	{name: "415 without a content type", lines: `
		peer 1
		[none] PUT /peers/1/A 1 -> 415 Content-Type is "", want application/json.
		[none] POST /new_peer {"expires_in":"5m"} -> 415 Content-Type is "", want application/json.
		[none] PUT /peers/1 {"expires_in":"5m"} -> 415 Content-Type is "", want application/json.
		[none] POST /restore {} -> 415 Content-Type is "", want application/json.`},
	{name: "415 for another content type", lines: `
		peer 1
		[text/plain] PUT /peers/1/A 1 -> 415 Content-Type is "text/plain", want application/json.
		[application/jsonx] PUT /peers/1/A 1 -> 415 Content-Type is "application/jsonx", want application/json.`},
	{name: "JSON content types", lines: `
		peer 1
		[application/json; charset=utf-8] PUT /peers/1/A 1 -> 200 1
		[APPLICATION/JSON] PUT /peers/1/A 1 -> 200 1
		[application/vnd.count+json] PUT /peers/1/A 1 -> 200 1`},
	{name: "400 for what is no JSON", lines: `
		peer 1
		PUT /peers/1/A one -> 400 ~The body is no JSON: .*
		PUT /peers/1/A 01 -> 400 ~The body is no JSON: .*
		PUT /peers/1/A +1 -> 400 ~The body is no JSON: .*
		PUT /peers/1/A 1 2 -> 400 ~The body is no JSON: .*
		PUT /peers/1/A - -> 400 ~The body is no JSON: .*
		POST /new_peer {"expires_in":"5m" -> 400 ~The body is no JSON: .*
		PUT /peers/1 5m -> 400 ~The body is no JSON: .*
		POST /restore {]} -> 400 ~The body is no JSON: .*`},
	{name: "400 for an empty body", lines: `
		peer 1
		[application/json] PUT /peers/1/A -> 400 ~The body is no JSON: .*
		[application/json] POST /new_peer -> 400 ~The body is no JSON: .*`},
	{name: "422 for a count of another shape", lines: `
		peer 1
		PUT /peers/1/A "1" -> 422 ~The body is .*, want a lock count: .*
		PUT /peers/1/A 1.5 -> 422 ~The body is .*, want a lock count: .*
		PUT /peers/1/A null -> 422 ~The body is .*, want a lock count: .*
		PUT /peers/1/A true -> 422 ~The body is .*, want a lock count: .*
		PUT /peers/1/A [1] -> 422 ~The body is .*, want a lock count: .*
		PUT /peers/1/A {"count":1} -> 422 ~The body is .*, want a lock count: .*
		PUT /peers/1/A 9223372036854775808 -> 422 ~The body is .*, want a lock count: .*`},
	{name: "422 for a body that is no object", lines: `
		peer 1
		POST /new_peer "5m" -> 422 The body is "\"5m\"", want a JSON object.
		PUT /peers/1 [] -> 422 The body is "[]", want a JSON object.
		POST /restore 5 -> 422 The body is "5", want a JSON object.
		POST /new_peer null -> 422 expires_in is missing, want a duration.`},
	{name: "422 without expires_in", lines: `
		peer 1
		POST /new_peer {} -> 422 expires_in is missing, want a duration.
		POST /new_peer {"Expires_In":"5m"} -> 422 expires_in is missing, want a duration.
		PUT /peers/1 {"expires":"5m"} -> 422 expires_in is missing, want a duration.
		POST /restore {"peer_id":1,"acquired":{}} -> 422 expires_in is missing, want a duration.`},
	{name: "422 for expires_in of another shape", lines: `
		POST /new_peer {"expires_in":5} -> 422 expires_in is "5", want a duration.
		POST /new_peer {"expires_in":null} -> 422 expires_in is "null", want a duration.
		POST /new_peer {"expires_in":["5m"]} -> 422 expires_in is "[\"5m\"]", want a duration.`},
	{name: "422 for a duration that is none", lines: `
		POST /new_peer {"expires_in":""} -> 422 ~expires_in: .*
		POST /new_peer {"expires_in":"5"} -> 422 ~expires_in: .*
		POST /new_peer {"expires_in":"m"} -> 422 ~expires_in: .*
		POST /new_peer {"expires_in":"-5m"} -> 422 ~expires_in: .*
		POST /new_peer {"expires_in":"5 parsecs"} -> 422 ~expires_in: .*
		POST /new_peer {"expires_in":"5m!"} -> 422 ~expires_in: .*`},
	{name: "422 for a duration that overflows", lines: `
		POST /new_peer {"expires_in":"9223372036854775808ns"} -> 422 ~expires_in: .* too large.*
		POST /new_peer {"expires_in":"300y"} -> 422 ~expires_in: .* too large.*
		POST /new_peer {"expires_in":"200y 200y"} -> 422 ~expires_in: .* too large.*`},
	{name: "durations of the page", lines: `
		POST /new_peer {"expires_in":"5m"} -> 200 ~[0-9]+
		POST /new_peer {"expires_in":"30s"} -> 200 ~[0-9]+
		POST /new_peer {"expires_in":"12h"} -> 200 ~[0-9]+
		POST /new_peer {"expires_in":"500ms"} -> 200 ~[0-9]+
		POST /new_peer {"expires_in":"1h 30m"} -> 200 ~[0-9]+
		POST /new_peer {"expires_in":"2days"} -> 200 ~[0-9]+
		POST /new_peer {"expires_in":"0ms"} -> 200 ~[0-9]+`},
	{name: "every unit", lines: `
		POST /new_peer {"expires_in":"1y 2M 3w 4d 5h 6m 7s 8ms 9us 10ns"} -> 200 ~[0-9]+
		POST /new_peer {"expires_in":"1year 2months 3weeks 4days 5hours 6minutes 7seconds"} -> 200 ~[0-9]+
		POST /new_peer {"expires_in":"15min"} -> 200 ~[0-9]+`},
	{name: "other keys of a body are ignored", lines: `
		POST /new_peer {"expires_in":"5m","name":"x"} -> 200 ~[0-9]+
		peer 1
		PUT /peers/1 {"expires_in":"5m","active":{"A":1}} -> 200 Ok
		POST /restore {"expires_in":"5m","peer_id":2,"acquired":{},"pending":{"A":1}} -> 200 Ok`},
	{name: "blanks around a count", lines: `
		peer 1
		PUT /peers/1/C  2  -> 200 1
		GET /remainder?semaphore=C -> 200 3`},
	{name: "a body of 2 MiB is read", lines: `
		peer 1
		PUT /peers/1/A @2097152 -> 200 1`},
	{name: "413 for a larger one", lines: `
		peer 1
		PUT /peers/1/A @2097153 -> 413 The body is too large, want at most 2097152 bytes.
		POST /new_peer @2097153 -> 413 The body is too large, want at most 2097152 bytes.
		GET /remainder?semaphore=A -> 200 1`},

	{name: "a count of 0", lines: `
		peer 1
		PUT /peers/1/A 0 -> 400 Lock count must be a positive number. Found: 0.
		PUT /peers/1/A -0 -> 400 Lock count must be a positive number. Found: 0.`},
	{name: "a negative count", lines: `
		peer 1
		PUT /peers/1/A -3 -> 400 Lock count must be a positive number. Found: -3.
		PUT /peers/1/A -9223372036854775808 -> 400 ~Lock count must be a positive number. Found: -9223372036854775808.`},
	{name: "a count above the maximum", lines: `
		peer 1
		PUT /peers/1/A 2 -> 409 Lock can never be acquired. Lock asks for count 2 yet full count is only 1.
		header Content-Type: text/plain; charset=utf-8
		PUT /peers/1/C 6 -> 409 Lock can never be acquired. Lock asks for count 6 yet full count is only 5.
		PUT /peers/1/A 9223372036854775807 -> 409 ~Lock can never be acquired. Lock asks for count 9223372036854775807 yet .*`},
	{name: "a count above the maximum by one that holds", lines: `
		peer 1
		PUT /peers/1/A 1 -> 200 1
		PUT /peers/1/A 2 -> 409 Lock can never be acquired. Lock asks for count 2 yet full count is only 1.`},
	{name: "the unknown semaphore comes first", lines: `
		PUT /peers/1/X 0 -> 400 Unknown semaphore
		PUT /peers/1/X 99 -> 400 Unknown semaphore
		PUT /peers/1/X 1 -> 400 Unknown semaphore`},
	{name: "the maximum comes before the peer", lines: `
		PUT /peers/1/A 2 -> 409 Lock can never be acquired. Lock asks for count 2 yet full count is only 1.`},
	{name: "parameters that are no durations", lines: `
		peer 1
		PUT /peers/1/A?block_for=5 1 -> 400 ~block_for: .*
		PUT /peers/1/A?expires_in=soon 1 -> 400 ~expires_in: .*
		PUT /peers/1/A?block_for= 1 -> 400 ~block_for: .*
		PUT /peers/1/A?block_for=%zz 1 -> 400 ~block_for: .*
		GET /remainder?semaphore=A -> 200 1`},
	{name: "parameters in any order, encoded", lines: `
		peer 1
		PUT /peers/1/A?expires_in=1h+30m&block_for=1s 1 -> 200 1
		PUT /peers/1/A?block_for=1s&expires_in=1h%2030m 1 -> 200 1
		PUT /peers/1/A?%62lock_for=1s 1 -> 200 1`},
	{name: "durations as the Rust client writes them", lines: `
		$peer = POST /new_peer {"expires_in":"1year 1month 3days 4h 5m 6s 7ms 8us 9ns"} -> 200 ~[0-9]+
		PUT /peers/$peer/A?expires_in=1day+1m&block_for=1s+500ms 1 -> 200 $peer
		PUT /peers/$peer {"expires_in":"1day 4h"} -> 200 Ok`},
	{name: "a bare question mark", lines: `
		peer 1
		PUT /peers/1/A? 1 -> 200 1`},
	{name: "unknown parameters are ignored", lines: `
		peer 1
		PUT /peers/1/A?priority=9 1 -> 200 1`},
}
