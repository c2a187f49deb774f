module github.com/quotient-go/quotient/cmd/quotient

go 1.26.0

require (
	github.com/pires/go-proxyproto v0.15.0
	github.com/quotient-go/quotient/config v0.0.0
	go.uber.org/goleak v1.3.0
	golang.org/x/net v0.60.0
	pgregory.net/rapid v1.3.0
)

require (
	github.com/fsnotify/fsnotify v1.10.1 // indirect
	github.com/hashicorp/golang-lru/v2 v2.0.7 // indirect
	github.com/pelletier/go-toml/v2 v2.4.3 // indirect
	github.com/quotient-go/quotient v0.0.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/text v0.42.0 // indirect
	golang.org/x/time v0.16.0 // indirect
)

replace (
	github.com/quotient-go/quotient => ../../
	github.com/quotient-go/quotient/config => ../../config
)
