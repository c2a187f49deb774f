package caddyquotient

import (
	"net/http"
	"net/netip"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/quotient-go/quotient/httplimit"
	"github.com/quotient-go/quotient/internal/field"
)

const clientIP = "http.vars." + caddyhttp.ClientIPVarKey

// key returns the key of a request.
func (h *Handler) key(r *http.Request) string {
	if h.Key == "" || h.Key == "{"+clientIP+"}" {
		addr, _ := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string)
		return h.network(addr)
	}
	repl := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	if h.only != "" {
		value, _ := repl.Get(h.only)
		value, _ = h.part(h.only, value)
		return caddy.ToString(value)
	}
	key, _ := repl.ReplaceFunc(h.Key, h.parts) // checkKey has seen that no error can be
	return key
}

// checkKey finds the placeholders of the key, since what their names say holds for every request.
func (h *Handler) checkKey() error {
	h.only, h.secret = "", make(map[string]bool)
	_, err := caddy.NewEmptyReplacer().ReplaceFunc(h.Key, func(name string, value any) (any, error) {
		h.secret[name] = strings.HasPrefix(name, "http.request.cookie.") || field.Secret(name)
		if h.Key == "{"+name+"}" {
			h.only = name
		}
		return value, nil
	})
	return err
}

// part is the value of a placeholder as it stands in a key.
func (h *Handler) part(name string, value any) (any, error) {
	switch {
	case name == clientIP || name == "http.request.remote.host":
		return h.network(caddy.ToString(value)), nil
	case h.secret[name]:
		return httplimit.CredentialKey(caddy.ToString(value)), nil
	}
	return value, nil
}

// network is the address of a client, or for IPv6 the network that it can choose addresses from.
func (h *Handler) network(text string) string {
	addr, err := netip.ParseAddr(text)
	switch addr = addr.Unmap().WithZone(""); {
	case err != nil:
		return text
	case addr.Is4():
		return addr.String()
	}
	network, _ := addr.Prefix(h.IPv6Prefix) // check has seen that it is in range
	return network.String()
}

// plan returns the plan of a request, if there is one of that name.
func (h *Handler) plan(r *http.Request) string {
	name := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer).ReplaceAll(h.PlanBy, "")
	if _, known := h.want.plans[name]; !known {
		return ""
	}
	return name
}
