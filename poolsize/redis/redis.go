// Package redis tells a limiter how many replicas there are by counting them in Redis.
package redis
