package needed

import "testing"

// result is a test that notes how it ends, and goes on.
type result struct {
	testing.TB
	ended string
}

func (r *result) Helper()      {}
func (r *result) Fatal(...any) { r.ended += "failed" }
func (r *result) Skip(...any)  { r.ended += "skipped" }

// A test ends in one way: the real Fatal does not return.
func TestWithout(t *testing.T) {
	for list, want := range map[string]string{"": "skipped", "etcd": "skipped", "npm-check": "skipped",
		"npm": "failedskipped", "npm,etcd": "failedskipped", "etcd,npm": "failedskipped"} {
		t.Setenv(Variable, list)
		r := &result{TB: t}
		if Without(r, "npm", "npm is not installed"); r.ended != want {
			t.Errorf("%q: %s, want %s", list, r.ended, want)
		}
	}
}
