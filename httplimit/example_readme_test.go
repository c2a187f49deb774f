package httplimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/httplimit"
)

// A server admits ten requests a second for each API key, a client sends at most five a second to each host.
func Example() {
	api := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })

	perKey := quotient.Must(quotient.New(quotient.Rates(quotient.PerSecond(10))))
	handler := httplimit.Middleware(perKey, httplimit.Header("X-API-Key"))(api)

	perHost := quotient.Must(quotient.New(quotient.Rates(quotient.PerSecond(5))))
	client := &http.Client{Transport: &httplimit.Transport{Limiter: perHost}}

	server := httptest.NewServer(handler)
	defer server.Close()
	resp, err := client.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status)
	// Output: 200 OK
}
