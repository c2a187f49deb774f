package caddyquotient_test

import (
	"encoding/json"
	"fmt"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/quotient-go/quotient/caddyquotient"
)

// The JSON of a directive, without the module's name.
func ExampleHandler_UnmarshalCaddyfile() {
	var h caddyquotient.Handler
	err := h.UnmarshalCaddyfile(caddyfile.NewTestDispenser(`quotient api {
		rate 600/m window
		in_flight 50
		key {http.request.header.X-Tenant}
		wait 5s
	}`))
	text, _ := json.MarshalIndent(&h, "", " ")
	fmt.Println(string(text), err)
	// Output:
	// {
	//  "zone": "api",
	//  "rates": [
	//   {
	//    "events": 600,
	//    "per": 60000000000,
	//    "kind": "window"
	//   }
	//  ],
	//  "in_flight": 50,
	//  "key": "{http.request.header.X-Tenant}",
	//  "wait": 5000000000
	// } <nil>
}
