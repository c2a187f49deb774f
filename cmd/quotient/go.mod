module github.com/quotient-go/quotient/cmd/quotient

go 1.26.0

require (
	github.com/quotient-go/quotient/config v0.0.0
	go.uber.org/goleak v1.3.0
	pgregory.net/rapid v1.3.0
)

require (
	github.com/hashicorp/golang-lru/v2 v2.0.7 // indirect
	github.com/quotient-go/quotient v0.0.0 // indirect
	golang.org/x/time v0.16.0 // indirect
)

replace (
	github.com/quotient-go/quotient => ../../
	github.com/quotient-go/quotient/config => ../../config
)
