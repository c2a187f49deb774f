// Package pods lists the processes of a fleet that have an admin handler, and asks all of them side by side.
//
// It knows no API: [Ask] calls a function for each pod, which may use an admin.Client. A caller that sends a token
// sends it to pods of the list alone, since it asks no others and an admin.Client follows no redirects.
package pods

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quotient-go/quotient/internal/files"
	"github.com/quotient-go/quotient/internal/shown"
)

// Most is how many pods a List has at most.
const Most = 1000

const (
	mostFile   = 256 << 10 // bytes
	mostQuoted = 100       // bytes of a value in an error
)

// Pod is one process that has an admin handler.
type Pod struct {
	URL     string // of the handler, for admin.NewClient: http, https, or unix:///path
	Address string // what the pod is called before it has said its name: the host and port of the URL, or the path of a socket
}

// A Lookup returns the addresses of the pods behind a name.
type Lookup func(ctx context.Context, name string) ([]netip.Addr, error)

// List is where the pods of a fleet are listed. Parse makes it. It is safe for concurrent use.
type List struct {
	text       string
	serverName string // of certificates; "" for the host of each URL
	find       func(ctx context.Context) ([]*url.URL, error)
}

// Parse reads where the pods are listed. It opens nothing and asks nobody. The list is one of:
//
//	dns:NAME:PORT           all addresses of the name, of both families
//	dns:https://NAME:PORT   the same with TLS, where each certificate must be for the name
//	file:PATH               a file with a URL on each line; "#" begins a comment
//	URL,URL,...             http://host:port, https://host:port or unix:///path
//
// URLs may have a path, and have no user, query or fragment. The lookups are more schemes like dns, by name, such as
// kube with a function that knows the API of Kubernetes; one that is called dns replaces that of package net.
func Parse(text string, lookups map[string]Lookup) (*List, error) {
	scheme, arg, _ := strings.Cut(text, ":")
	lookup := lookups[scheme]
	if scheme == "dns" && lookup == nil {
		lookup = addresses
	}
	l, err := &List{text: text}, error(nil)
	switch {
	case lookup != nil:
		err = l.named(scheme, arg, lookup)
	case scheme == "file" && arg != "":
		l.find = func(ctx context.Context) ([]*url.URL, error) { return readFile(ctx, arg) }
	default:
		var all []*url.URL
		for one := range strings.SplitSeq(text, ",") {
			u, wrong := parseURL(strings.TrimSpace(one))
			all, err = append(all, u), cmp.Or(err, wrong)
		}
		l.find = func(context.Context) ([]*url.URL, error) { return all, nil }
	}
	if err != nil {
		return nil, fmt.Errorf("pods: %w", err)
	}
	return l, nil
}

// named makes l a list of the addresses of a name.
func (l *List) named(scheme, arg string, lookup Lookup) error {
	if !strings.Contains(arg, "://") {
		arg = "http://" + arg
	}
	u, err := parseURL(arg)
	if err != nil || u.Scheme == "unix" || u.Port() == "" {
		return fmt.Errorf("%s: want %s:NAME:PORT or %[2]s:https://NAME:PORT", quoted(l.text), scheme)
	}
	l.serverName = u.Hostname()
	l.find = func(ctx context.Context) ([]*url.URL, error) {
		found, err := lookup(ctx, l.serverName)
		if err != nil {
			return nil, err
		}
		var all []*url.URL
		for _, a := range found {
			one := *u
			one.Host = net.JoinHostPort(a.Unmap().String(), u.Port())
			all = append(all, &one)
		}
		return all, nil
	}
	return nil
}

// addresses asks Go's own resolver, since a strict one fails where one of the two families does: what is meant for all
// pods would reach a part of them.
func addresses(ctx context.Context, name string) ([]netip.Addr, error) {
	r := net.Resolver{PreferGo: true, StrictErrors: true}
	return r.LookupNetIP(ctx, "ip", name)
}

func readFile(ctx context.Context, path string) ([]*url.URL, error) {
	text, _, err := files.Read(ctx, path, mostFile)
	if err != nil {
		return nil, err
	}
	var all []*url.URL
	for i, line := range bytes.Split(text, []byte("\n")) {
		line, _, _ = bytes.Cut(line, []byte("#"))
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		u, err := parseURL(string(line))
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, i+1, err)
		}
		all = append(all, u)
	}
	return all, nil
}

// parseURL reads a URL that admin.NewClient takes, and makes all its spellings one.
func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.User != nil || !reachable(u) {
		return nil, fmt.Errorf("%s is not http://host:port, https://host:port or unix:///path", quoted(text))
	}
	if u.Scheme != "unix" {
		u = u.JoinPath("/")
		u.Host = strings.TrimSuffix(strings.ToLower(u.Host), map[string]string{"http": ":80", "https": ":443"}[u.Scheme])
	}
	return u, nil
}

func reachable(u *url.URL) bool {
	switch u.Scheme {
	case "unix":
		return u.Host == "" && u.Path != ""
	case "http", "https":
		port, err := strconv.ParseUint(cmp.Or(u.Port(), "1"), 10, 16)
		return err == nil && port > 0 && u.Hostname() != ""
	}
	return false
}

// quoted is a value as an error repeats it.
func quoted(text string) string { return strconv.Quote(clip(text, mostQuoted)) }

func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// String is the text that Parse has read.
func (l *List) String() string { return l.text }

// Pods looks the list up anew. Duplicates are one pod. None is an error, and so are more than Most. An address of
// each family may lead to the same process: see Ask. The order is that of the list, and of dns that of the addresses.
func (l *List) Pods(ctx context.Context) ([]Pod, error) {
	found, err := l.find(ctx)
	if err != nil {
		return nil, fmt.Errorf("pods: %s: %w", l.shown(), err)
	}
	var all []Pod
	seen := make(map[string]bool)
	for _, u := range found {
		p := Pod{URL: u.String(), Address: shown.Line(u.Host + strings.TrimSuffix(u.Path, "/"))}
		if seen[p.URL] {
			continue
		}
		seen[p.URL] = true
		all = append(all, p)
	}
	if l.serverName != "" {
		slices.SortFunc(all, func(a, b Pod) int { return strings.Compare(a.Address, b.Address) })
	}
	switch {
	case len(all) == 0:
		return nil, fmt.Errorf("pods: %s: %w", l.shown(), errNone)
	case len(all) > Most:
		return nil, fmt.Errorf("pods: %s: there are %d, and at most %d can be asked", l.shown(), len(all), Most)
	}
	return all, nil
}

var errNone = errors.New("it has no pods")

func (l *List) shown() string { return shown.Line(clip(l.text, mostQuoted)) }

// Transport returns what connects to the pods of the list, for an http.Client. It verifies each certificate against
// the ServerName of the config, or else the name of a dns list, or else the host of the URL. It asks no proxy of the environment, which would
// see the token. The config may be nil, and is cloned. Sockets are not for it: admin.NewClient connects to them itself.
func (l *List) Transport(config *tls.Config) *http.Transport {
	if config = config.Clone(); config == nil {
		config = &tls.Config{}
	}
	config.ServerName = cmp.Or(config.ServerName, l.serverName)
	return &http.Transport{
		TLSClientConfig: config, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 64 << 10,
	}
}
