package real

import (
	"fmt"
	"testing"
	"time"
)

// haproxyConf is the whole configuration of HAProxy. It answers for itself. %rt is how many requests came
// before the one of the line.
const haproxyConf = `
global
  nbthread 1
  log stdout format raw local0
defaults
  mode http
  log global
  option dontlognull
  timeout client 1m
frontend all
  bind 127.0.0.1:%d
  log-format "%%[date(0,ms)] %%ST %%[capture.req.hdr(0)] %%rt"
  http-request capture req.hdr(fleet-replica) len 8
  stick-table type ip size 1k expire 10s store http_req_rate(1s)
  http-request track-sc0 src
  http-request deny deny_status 429 if { sc_http_req_rate(0) gt %d }
  http-request return status 200
`

// haproxyServer refuses a client that asks more often than the limit, by a stick-table, which also counts
// what it refuses.
func haproxyServer(t *testing.T, d duel) server {
	exe := find(t, "haproxy")
	return launch(t, time.Millisecond, func(dir string, port int) []string {
		write(t, dir+"conf", fmt.Sprintf(haproxyConf, port, d.limit))
		return []string{exe, "-db", "-f", dir + "conf"}
	})
}
