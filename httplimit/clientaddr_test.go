package httplimit

import (
	"net/http"
	"net/netip"
	"testing"
)

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

func TestClientAddr(t *testing.T) {
	trusted := prefixes("10.0.0.0/8", "fd00::/8", "fe80::/10", "::ffff:192.168.0.0/112")
	tests := []struct {
		peer      string
		forwarded []string
		want      string
	}{
		// The peer alone.
		{"1.2.3.4:5", nil, "1.2.3.4"},
		{"[::ffff:1.2.3.4]:5", nil, "1.2.3.4"},
		{"::ffff:1.2.3.4", nil, "1.2.3.4"},
		{"0:0:0:0:0:ffff:1.2.3.4", nil, "1.2.3.4"},
		{"1.2.3.4", nil, "1.2.3.4"},
		{"[2001:db8::1]:5", nil, "2001:db8::/64"},
		{"[2001:db8::ffff:1]:6", nil, "2001:db8::/64"},
		{"[fe80::1%eth0]:5", nil, "fe80::/64"},
		{"[fe80::1%eth1]:5", nil, "fe80::/64"},
		{"@", nil, noAddr}, {"", nil, noAddr}, {":80", nil, noAddr}, {"host:80", nil, noAddr},
		// A peer that is not trusted says what it likes.
		{"1.2.3.4:5", []string{"9.9.9.9"}, "1.2.3.4"},
		{"[2001:db8::1]:5", []string{"9.9.9.9"}, "2001:db8::/64"},
		{"@", []string{"9.9.9.9"}, noAddr},
		// A trusted one is followed from the right to the first that is not.
		{"10.0.0.1:5", nil, "10.0.0.1"},
		{"10.0.0.1:5", []string{"9.9.9.9"}, "9.9.9.9"},
		{"10.0.0.1:5", []string{"6.6.6.6, 9.9.9.9"}, "9.9.9.9"},
		{"10.0.0.1:5", []string{"6.6.6.6, 9.9.9.9, 10.0.0.2"}, "9.9.9.9"},
		{"10.0.0.1:5", []string{"6.6.6.6", "9.9.9.9", "10.0.0.2"}, "9.9.9.9"},
		{"10.0.0.1:5", []string{"10.0.0.3, 9.9.9.9", "10.0.0.2,10.0.0.4"}, "9.9.9.9"},
		{"[::ffff:10.0.0.1]:5", []string{"9.9.9.9"}, "9.9.9.9"},
		{"[fd00::1]:5", []string{"9.9.9.9"}, "9.9.9.9"},
		{"[fe80::1%eth0]:5", []string{"9.9.9.9, fe80::2%eth1"}, "9.9.9.9"},
		{"192.168.3.4:5", []string{"9.9.9.9"}, "9.9.9.9"}, // its network was given in the mapped form
		{"192.169.0.1:5", []string{"9.9.9.9"}, "192.169.0.1"},
		// Spellings.
		{"10.0.0.1:5", []string{"::ffff:9.9.9.9"}, "9.9.9.9"},
		{"10.0.0.1:5", []string{"9.9.9.9:1234"}, "9.9.9.9"},
		{"10.0.0.1:5", []string{"2001:db8::2"}, "2001:db8::/64"},
		{"10.0.0.1:5", []string{"[2001:db8::3]"}, "2001:db8::/64"},
		{"10.0.0.1:5", []string{"[2001:db8::4]:80"}, "2001:db8::/64"},
		{"10.0.0.1:5", []string{"2001:db8::5%x"}, "2001:db8::/64"},
		{"10.0.0.1:5", []string{"6.6.6.6,,\t9.9.9.9 , ,"}, "9.9.9.9"},
		// All trusted, or nothing to read: the last that was.
		{"10.0.0.1:5", []string{"10.0.0.2, 10.0.0.3"}, "10.0.0.2"},
		{"10.0.0.1:5", []string{""}, "10.0.0.1"},
		{"10.0.0.1:5", []string{"unknown"}, "10.0.0.1"},
		{"10.0.0.1:5", []string{"6.6.6.6, 09.9.9.9, 10.0.0.2"}, "10.0.0.2"},
		{"10.0.0.1:5", []string{"[9.9.9.9"}, "10.0.0.1"},
	}
	for _, tt := range tests {
		r := &http.Request{RemoteAddr: tt.peer, Header: http.Header{"X-Forwarded-For": tt.forwarded}}
		if got := ClientAddr(trusted...)(r); got != tt.want {
			t.Errorf("peer %q, forwarded %q: key %q, want %q", tt.peer, tt.forwarded, got, tt.want)
		}
	}
}

func TestClientAddrWithoutTrustIgnoresTheHeader(t *testing.T) {
	r := &http.Request{RemoteAddr: "10.0.0.1:5", Header: http.Header{"X-Forwarded-For": {"9.9.9.9"}}}
	for name, key := range map[string]KeyFunc{
		"no networks": ClientAddr(), "a network that is not valid": ClientAddr(netip.Prefix{}),
	} {
		if got := key(r); got != "10.0.0.1" {
			t.Errorf("%s: key %q, want the peer 10.0.0.1", name, got)
		}
	}
}

func TestClientAddrKeepsItsNetworks(t *testing.T) {
	trusted := prefixes("10.0.0.0/8")
	key := ClientAddr(trusted...)
	trusted[0] = netip.MustParsePrefix("0.0.0.0/0")
	r := &http.Request{RemoteAddr: "1.2.3.4:5", Header: http.Header{"X-Forwarded-For": {"9.9.9.9"}}}
	if got := key(r); got != "1.2.3.4" {
		t.Errorf("key %q, want 1.2.3.4: the caller's slice was changed later", got)
	}
}

func TestClientAddrBits(t *testing.T) {
	r := &http.Request{RemoteAddr: "[2001:db8:1:2:3::4]:5"}
	for bits, want := range map[int]string{128: "2001:db8:1:2:3::4/128", 64: "2001:db8:1:2::/64", 48: "2001:db8:1::/48", 1: "::/1"} {
		key, err := ClientAddrBits(bits)
		if err != nil {
			t.Fatalf("%d bits: %v", bits, err)
		}
		if got := key(r); got != want {
			t.Errorf("%d bits: key %q, want %q", bits, got, want)
		}
	}
	for _, bits := range []int{0, -1, 129} {
		if key, err := ClientAddrBits(bits); err == nil || key != nil {
			t.Errorf("%d bits: no error", bits)
		}
	}
}

func TestClientAddrOfIPv4CostsNothing(t *testing.T) {
	key, r := ClientAddr(prefixes("10.0.0.0/8")...), &http.Request{RemoteAddr: "203.0.113.7:5678"}
	if n := testing.AllocsPerRun(100, func() { key(r) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
