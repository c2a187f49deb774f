package proxy

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestProbesReachTheProgram starts the program with the file of the base. Only addresses, the source and the
// name of the token's file are others. A kubelet, which has no token, gets its answers by any address, and
// nothing else.
func TestProbesReachTheProgram(t *testing.T) {
	dir := t.TempDir()
	listen, admin, token := free(t), free(t), strings.Repeat("0123456789abcdef", 2)
	text := strings.NewReplacer(
		"0.0.0.0:4040", listen, "0.0.0.0:4041", admin, "http://api:8080", "http://"+admin,
		"dns:quotient-replicas?uncapped", "file:replicas", "/etc/quotient-admin/token", "token",
	).Replace(read(t, "kustomize/base/quotient.toml"))
	for name, text := range map[string]string{
		"quotient.toml": text,
		"replicas":      "3\n",
		"token":         token + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("QUOTIENT_ORDINAL", "1") // the second pod of a StatefulSet: the program takes it beside a file
	start(t, admin, "proxy", "--config", filepath.Join(dir, "quotient.toml"))
	for _, c := range []struct {
		path, token string
		want        int
	}{
		{"/health", "", http.StatusOK},
		{"/ready", "", http.StatusOK},
		{"/metrics", "", http.StatusUnauthorized},
		{"/state", "", http.StatusUnauthorized},
		{"/metrics", token, http.StatusOK},
	} {
		if got := ask(t, admin, c.path, c.token, admin); got != c.want {
			t.Errorf("%s with the token %q: %d, want %d", c.path, c.token, got, c.want)
		}
		if c.want == http.StatusUnauthorized || c.token != "" {
			c.want = http.StatusForbidden
		}
		if got := ask(t, admin, c.path, c.token, "10.1.2.3:4041"); got != c.want {
			t.Errorf("%s by an address of a translator, with the token %q: %d, want %d", c.path, c.token,
				got, c.want)
		}
	}
}

// ask returns the status of a path for a caller that has a token, or none, and asks by the name host.
func ask(t *testing.T, admin, path, token, host string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+admin+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if req.Host = host; token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}
