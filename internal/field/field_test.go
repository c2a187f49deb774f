package field

import "testing"

func TestNames(t *testing.T) {
	for name, want := range map[string]struct{ is, apart, secret bool }{
		"":                          {},
		"X-Tenant":                  {is: true},
		"X Tenant":                  {},
		"é":                         {},
		":authority":                {},
		"x_!#$%&'*+.^`|~9":          {is: true},
		"host":                      {is: true, apart: true},
		"TRANSFER-encoding":         {is: true, apart: true},
		"Trailer":                   {is: true, apart: true},
		"Content-Length":            {is: true, apart: true},
		"authorization":             {is: true, secret: true},
		"Proxy-Authorization":       {is: true, secret: true},
		"Cookie":                    {is: true, secret: true},
		"X-API-Key":                 {is: true, secret: true},
		"x_api_key":                 {is: true, secret: true},
		"Ocp-Apim-Subscription-Key": {is: true, secret: true},
		"Idempotency-Key":           {is: true},
		"Private-Token":             {is: true, secret: true},
		"X-Api+Key":                 {is: true, secret: true},
		"Cf-Access-Jwt-Assertion":   {is: true, secret: true},
		"X-Session-Id":              {is: true, secret: true},
		"X-Token-Count":             {is: true},
		"X-Cookie-Consent":          {is: true},
		"X-Secretary":               {is: true},
	} {
		if is, apart, secret := IsName(name), Apart(name), Secret(name); is != want.is ||
			apart != want.apart || secret != want.secret {
			t.Errorf("%q: a name %v, apart %v, secret %v; want %+v", name, is, apart, secret, want)
		}
	}
}

func TestAlike(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"X-Api-Key", "x_API.key", true}, {"X-Api-Key", "X-Api-Key", true}, {"X-A", "X-A-", false},
		{"X-A", "X0A", false}, {"X-1", "X-Q", false}, {"X-A", "X-B", false}, {"X-@", "X-`", true},
	} {
		if got := Alike(tt.a, tt.b); got != tt.want {
			t.Errorf("%q and %q: %v", tt.a, tt.b, got)
		}
	}
}
