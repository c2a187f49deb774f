package real

import (
	"fmt"
	"testing"
	"time"
)

// nginxConf is the whole configuration of nginx. One process does everything; a file is served, because an
// answer by return would not pass limit_req.
const nginxConf = `
daemon off;
master_process off;
pid nginx.pid;
events { worker_connections 512; }
http {
  client_body_temp_path tmp1; proxy_temp_path tmp2; fastcgi_temp_path tmp3; uwsgi_temp_path tmp4; scgi_temp_path tmp5;
  log_format what '$msec $status $http_fleet_replica';
  access_log /dev/stderr what;
  error_log stderr crit;
  keepalive_requests 1000000;
  limit_req_zone $binary_remote_addr zone=all:1m rate=%dr/s;
  server {
    listen 127.0.0.1:%d;
    location / { root .; limit_req zone=all burst=%d nodelay; limit_req_status 429; }
  }
}
`

// nginxServer is limit_req with a burst of a tenth of a second, as the simulated GCRA has.
func nginxServer(t *testing.T, d duel) server {
	exe := find(t, "nginx")
	return launch(t, time.Second, func(dir string, port int) []string {
		write(t, dir+"nginx.conf", fmt.Sprintf(nginxConf, d.limit, port, d.limit/10))
		write(t, dir+"ok", "ok\n")
		return []string{exe, "-p", dir, "-c", dir + "nginx.conf", "-e", "stderr"}
	})
}
