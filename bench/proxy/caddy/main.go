// Command caddy is Caddy with its reverse proxy and the rate limit module of mholt, and nothing else. It is a
// module of its own, so that no other module of this checkout depends on Caddy.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	_ "github.com/mholt/caddy-ratelimit"
)

func main() { caddycmd.Main() }
