module github.com/quotient-go/quotient/poolsize/redis

go 1.26.0

require (
	github.com/alicebob/miniredis/v2 v2.40.0
	github.com/quotient-go/quotient v0.0.0
	github.com/redis/go-redis/v9 v9.23.0
	go.uber.org/goleak v1.3.0
	pgregory.net/rapid v1.3.0
)

replace github.com/quotient-go/quotient => ../..
