// Package caddyquotient is a module of Caddy: the handler http.handlers.quotient, and its directive for the
// Caddyfile. Build Caddy with it:
//
//	xcaddy build --with github.com/quotient-go/quotient/caddyquotient
//
// All lines but one bound are optional:
//
//	quotient [<matcher>] [<zone>] {
//		rate 100/s                    # a token bucket; or 600/m, 5/10s, 1000/d
//		rate 600/m window             # or paced: evenly spaced
//		rate 100/s burst 20 name fast # 20 at once; RateLimit fields and metrics show the name
//		in_flight 50                  # slots, held while a request is served
//		deny                          # refuse everything: for a zone whose plans admit
//		key {client_ip}               # this is the default: any text with placeholders
//		ipv6_prefix 64                # so many bits of an IPv6 address are a client
//		plan gold {                   # a limit for a class of keys: rate, in_flight or deny
//			rate 1000/s
//		}
//		plan_by {http.auth.user.plan} # what names a request's plan
//		wait 5s                       # for a turn; without it a request is refused at once
//		dry_run                       # admit everything, and count what would be refused
//		replicas 3                    # as many Caddys share the limit, each a third
//		pool dns:caddy.prod.svc.      # counts them: dns:NAME, file:PATH or env:
//		await_pool 1m                 # admit nothing before the first count, nor so long after the last
//		max_keys 65536                # that are remembered
//		fields draft-11               # or x-ratelimit, off
//		status 503                    # in place of 429
//	}
//
// It runs behind basic_auth and forward_auth, so that a key may name a user, and before all that answers. The
// global option order changes that.
//
// # Zones
//
// A zone is one limiter, "default" without a name: 1 to 64 of a-z, 0-9, '.', '_' and '-'. One directive of a
// Caddyfile may do without a name, so that no two share a zone unless they name it. Directives of one zone
// share its counts, and so must have the same limits; key, wait, fields, status and plan_by are each one's own.
// A reload keeps the state of a zone by its name. Its limits, plans, dry run and pool change when the old
// configuration has ended, so a configuration that fails to start changes nothing. No change brings tokens.
// max_keys and await_pool cannot change while Caddy runs. A zone that is no longer named is closed.
//
// # Keys
//
// A client address in a key is that of trusted_proxies and client_ip_headers, and an IPv6 one stands for its /64.
// Keys are shown in the admin API, so of the value of a placeholder whose name says that it is a secret, such as
// {http.request.header.X-Api-Key}, and of a cookie, the key has a hash (httplimit.CredentialKey). Requests without
// a value share one key. A client that chooses the value chooses its quota: use what an authentication has checked.
//
// # Refusals
//
// What is over the limit gets the answer of httplimit.Middleware: 429 or 503, Retry-After, RateLimit fields, and a
// problem document. With status, or where the server has error routes (handle_errors), it is an error of Caddy
// with that status and these fields, and {http.quotient.zone}, {http.quotient.reason} and {http.quotient.rule} say
// what refused.
//
// # Operation
//
// The metrics of package metrics are among those of Caddy, and lines of the log in the log http.handlers.quotient.
// Caddy's admin endpoint serves the page and the API of package admin under /quotient/.
package caddyquotient
