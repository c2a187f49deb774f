package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/poolsize/etcd"
	"github.com/quotient-go/quotient/poolsize/gossip"
	"github.com/quotient-go/quotient/poolsize/kube"
	"github.com/quotient-go/quotient/poolsize/redis"
)

// defaultFleet is the name of the fleet where a URL has none.
const defaultFleet = "proxy"

// sources are the sources of package config that this program brings besides. Each gets all that follows the
// scheme and its colon.
func sources() config.Sources {
	return config.Sources{
		"redis":  func(arg string) (quotient.Source, error) { return redisSource("redis:" + arg) },
		"rediss": func(arg string) (quotient.Source, error) { return redisSource("rediss:" + arg) },
		"etcd":   func(arg string) (quotient.Source, error) { return etcdSource("etcd:" + arg) },
		"kube":   kubeSource,
		"gossip": gossipSource,
	}
}

// quiet ends the log of go-redis, which writes to stderr in a form of its own: the limiters log what fails.
var quiet = sync.OnceFunc(logging.Disable)

// closing is a source that owns its client: that is closed when Watch ends.
type closing struct{ *redis.Source }

// Watch is that of the source.
func (c closing) Watch(ctx context.Context, report func(quotient.Pool, error)) error {
	return errors.Join(c.Source.Watch(ctx, report), c.Client.Close())
}

// redisSource counts in Redis: redis://user:password@host:port/0?fleet=proxy, with rediss for TLS. Other
// parameters are those of go-redis.
func redisSource(text string) (quotient.Source, error) {
	u, err := url.Parse(normal(text))
	if err != nil || u.Fragment != "" {
		return nil, errors.New("not a URL such as redis://host:6379/0?fleet=proxy") // err may hold the password
	}
	q := u.Query()
	fleet := cmp.Or(q.Get("fleet"), defaultFleet)
	q.Del("fleet")
	u.RawQuery = q.Encode()
	opts, err := goredis.ParseURL(u.String())
	if err != nil {
		return nil, unread("want a URL such as redis://host:6379/0?fleet=proxy", text, err)
	}
	opts.ContextTimeoutEnabled = true // else a store that hangs holds the source up
	quiet()
	return closing{&redis.Source{Client: goredis.NewClient(opts), Fleet: fleet}}, nil
}

// unread is the error of a URL. A password with a / or ? ends there for its reader, whose error may hold the rest.
func unread(want, text string, err error) error {
	text = strings.TrimPrefix(text[strings.IndexByte(text, ':')+1:], "//")
	if end := strings.IndexAny(text, "/?"); end >= 0 && strings.Contains(text[end:], "@") {
		err = errors.New("a / or ? stands before an @")
	}
	return fmt.Errorf("%s: %w", want, err)
}

// etcdSource counts in etcd: etcd://user:password@host:port,host:port?fleet=proxy&tls=true.
func etcdSource(text string) (quotient.Source, error) {
	c, fleet, err := etcdConfig(strings.TrimPrefix(normal(text), "etcd://"))
	if err != nil {
		return nil, unread("want a URL such as etcd://a:2379,b:2379?fleet=proxy", text, err)
	}
	return etcdFleet{c, fleet}, nil
}

// etcdFleet is a source whose client is made when it is watched: with a password that takes an answer of etcd.
type etcdFleet struct {
	config clientv3.Config
	fleet  string
}

// Validate asks a client for which there is no network.
func (e etcdFleet) Validate() error {
	c := e.config
	c.Username = "" // else it waits for etcd
	c.DialOptions = []grpc.DialOption{grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
		return nil, net.ErrClosed
	})}
	client, err := clientv3.New(c)
	if err != nil {
		return err
	}
	return errors.Join((&etcd.Source{Client: client, Fleet: e.fleet}).Validate(), client.Close())
}

// Watch is that of an etcd.Source, once etcd lets it in.
func (e etcdFleet) Watch(ctx context.Context, report func(quotient.Pool, error)) error {
	client := reach(ctx, e.config, func(err error) {
		report(quotient.Pool{}, fmt.Errorf("etcd: log in at %s: %w", strings.Join(e.config.Endpoints, ","), err))
	})
	if client == nil {
		return ctx.Err()
	}
	return errors.Join((&etcd.Source{Client: client, Fleet: e.fleet}).Watch(ctx, report), client.Close())
}

// etcdConfig reads what stands behind etcd://. It is no URL for url.Parse, which takes no list of hosts.
func etcdConfig(text string) (c clientv3.Config, fleet string, err error) {
	authority, query, _ := strings.Cut(text, "?")
	scheme, fleet, err := etcdQuery(query)
	if err != nil {
		return c, "", err
	}
	c = clientv3.Config{
		DialTimeout: 2 * time.Second, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
		Logger: zap.NewNop(), // the source reports what fails
	}
	if i := strings.LastIndexByte(authority, '@'); i >= 0 { // a password may have one
		c.Username, c.Password, _ = strings.Cut(authority[:i], ":")
		authority = authority[i+1:]
		if c.Username == "" || c.Password == "" {
			return c, "", errors.New("the user has no password, or the password no user")
		}
	}
	for host := range strings.SplitSeq(strings.TrimSuffix(authority, "/"), ",") {
		name, port, err := net.SplitHostPort(host)
		if _, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || name == "" ||
			strings.ContainsAny(name, "/ ") {
			return c, "", fmt.Errorf("the host %q is not valid", host)
		}
		c.Endpoints = append(c.Endpoints, scheme+host)
	}
	return c, fleet, nil
}

// etcdQuery reads the parameters.
func etcdQuery(query string) (scheme, fleet string, err error) {
	q, err := url.ParseQuery(query)
	if err != nil {
		return "", "", err
	}
	scheme = "http://"
	for _, name := range sortedKeys(q) {
		switch value := q.Get(name); {
		case name == "fleet":
		case name == "tls" && value == "true":
			scheme = "https://"
		case name == "tls" && value == "false":
		default:
			return "", "", fmt.Errorf("%s=%s is neither fleet nor tls=true", name, value)
		}
	}
	return scheme, cmp.Or(q.Get("fleet"), defaultFleet), nil
}

// normal lets "redis:host:6379" stand for "redis://host:6379".
func normal(text string) string {
	scheme, rest, _ := strings.Cut(text, ":")
	if strings.HasPrefix(rest, "//") {
		return text
	}
	return scheme + "://" + rest
}

// kubeSource counts the endpoints of a Service in the namespace of this pod.
func kubeSource(service string) (quotient.Source, error) {
	if _, err := kubeNamed(service); err != nil {
		return nil, err
	}
	if os.Getenv("KUBERNETES_SERVICE_HOST") == "" {
		return nil, errors.New("this process is not in a pod of Kubernetes")
	}
	return kube.InCluster(service)
}

const wantGossip = "want an address such as " +
	"gossip:10.0.0.7:7946?join=10.0.0.8,10.0.0.9&key-file=/etc/quotient/gossip.key"

// gossipSource has the proxies of a fleet count themselves: gossip:host:port?join=host:port,host. The address
// is the one to listen on; without one it is port 7946 of all interfaces.
func gossipSource(text string) (quotient.Source, error) {
	bind, query, _ := strings.Cut(strings.TrimPrefix(text, "//"), "?")
	q, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", wantGossip, err)
	}
	c := gossip.Config{Bind: strings.TrimSuffix(bind, "/")}
	for _, name := range sortedKeys(q) {
		if err := gossipParameter(&c, name, q[name]); err != nil {
			return nil, err
		}
	}
	c.Fleet = cmp.Or(c.Fleet, defaultFleet)
	src, err := gossip.New(c)
	if err != nil { // a nil *gossip.Source is no nil Source
		return nil, err
	}
	return src, nil
}

func gossipParameter(c *gossip.Config, name string, values []string) (err error) {
	value := values[0]
	texts := map[string]*string{"join-file": &c.JoinFile, "join-dns": &c.JoinDNS, "key-file": &c.KeyFile,
		"fleet": &c.Fleet, "name": &c.Name, "advertise": &c.Advertise}
	switch into := texts[name]; {
	case name == "join":
		c.Join = strings.Split(strings.Join(values, ","), ",")
		return nil
	case name == "interval":
		c.Interval, err = time.ParseDuration(value)
	case into == nil:
		err = errors.New("it is not one of join, join-file, join-dns, key-file, fleet, name, advertise and interval")
	default:
		*into = value
	}
	if err == nil && len(values) > 1 {
		err = errors.New("it is given twice")
	}
	if err != nil {
		return fmt.Errorf("%s: %s=%s: %w", wantGossip, name, value, err)
	}
	return nil
}

// kubeNamed stands for a Service outside of a pod, to be validated.
func kubeNamed(service string) (quotient.Source, error) {
	src := &kube.Source{Service: service, Slices: struct{ kube.Slices }{}}
	if err := src.Validate(); err != nil {
		return nil, fmt.Errorf("want the name of a Service, such as kube:proxy: %w", err)
	}
	return src, nil
}
