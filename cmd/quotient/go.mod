module github.com/quotient-go/quotient/cmd/quotient

go 1.26.0

require (
	github.com/quotient-go/quotient v0.0.0
	github.com/quotient-go/quotient/config v0.0.0
)

require (
	github.com/pires/go-proxyproto v0.15.0 // indirect
	go.uber.org/goleak v1.3.0 // indirect
	golang.org/x/net v0.60.0 // indirect
)

replace (
	github.com/quotient-go/quotient => ../../
	github.com/quotient-go/quotient/config => ../../config
)
