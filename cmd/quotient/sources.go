package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
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
	"github.com/quotient-go/quotient/cmd/quotient/internal/cmdline"
	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/poolsize/etcd"
	"github.com/quotient-go/quotient/poolsize/gossip"
	"github.com/quotient-go/quotient/poolsize/kube"
	"github.com/quotient-go/quotient/poolsize/redis"
)

// defaultFleet is the name of the fleet of gossip where an address has none: gossip counts only those that it joined.
const defaultFleet = "proxy"

// fleetOf is the name of a fleet in a store, which several services may share. A default would have them count each
// other and say nothing. One made of the file would split a fleet when a part of it has a new file.
func fleetOf(q url.Values) (string, error) {
	if name := q.Get("fleet"); name != "" {
		return name, nil
	}
	return "", config.Error{
		Text: "the fleet has no name: all proxies with one name in a store count each other",
		Hint: "add ?fleet=NAME, one for each service; fleet=" + defaultFleet + " is what no name was before",
	}
}

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

const wantRedis = "want a URL such as redis://host:6379/0?fleet=web"

// redisSource counts in Redis: redis://user:password@host:port/0?fleet=web, with rediss for TLS. Several hosts, or
// cluster=true, are a Cluster, and with master=NAME Sentinels. Other parameters are those of go-redis.
func redisSource(text string) (quotient.Source, error) {
	one, more := listed(normal(text))
	u, err := url.Parse(one)
	if err != nil || u.Fragment != "" {
		return nil, errors.New(wantRedis + ": it is none") // err may hold the password
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, unread(wantRedis, text, err)
	}
	fleet, err := fleetOf(q)
	if err != nil {
		return nil, err
	}
	q.Del("fleet")
	client, err := redisClient(u, q, more)
	if err != nil {
		return nil, unread(wantRedis, text, err)
	}
	quiet()
	return closing{&redis.Source{Client: client, Fleet: fleet}}, nil
}

// listed takes all hosts but the first out of a URL, since url.Parse takes no list of them.
func listed(text string) (one string, more []string) {
	scheme, rest, _ := strings.Cut(text, "://")
	end := strings.IndexAny(rest+"/", "/?#")
	at := strings.LastIndexByte(rest[:end], '@') + 1
	first, others, ok := strings.Cut(rest[at:end], ",")
	if !ok {
		return text, nil
	}
	return scheme + "://" + rest[:at] + first + rest[end:], strings.Split(others, ",")
}

// redisClient is the client of a URL with the parameters q. Commands end with their contexts, else a store that hangs
// would hold the source up.
func redisClient(u *url.URL, q url.Values, more []string) (goredis.UniversalClient, error) {
	if more != nil || u.Port() != "" && u.Hostname() != "" {
		for _, host := range append([]string{u.Host}, more...) {
			if !isHost(host) {
				return nil, fmt.Errorf("the host %q is not valid", host)
			}
		}
	}
	for _, name := range []string{"cluster", "sentinel_auth"} {
		if q.Has(name) && q.Get(name) != "true" {
			return nil, fmt.Errorf("%s=%s is not true", name, q.Get(name))
		}
	}
	for _, host := range more {
		q.Add("addr", host)
	}
	switch {
	case q.Has("master"):
		return sentinelClient(u, q)
	case q.Has("cluster") || more != nil:
		return clusterClient(u, q)
	}
	o, err := goredis.ParseURL(with(u, q))
	if err == nil && o.DB < 0 {
		err = fmt.Errorf("the database %d is negative", o.DB)
	}
	if err != nil {
		return nil, err
	}
	o.ContextTimeoutEnabled = true
	return goredis.NewClient(o), nil
}

// with is a URL with other parameters.
func with(u *url.URL, q url.Values) string {
	u.RawQuery = q.Encode()
	return u.String()
}

// clusterClient is that of a Cluster. Each node answers for its own name in TLS, not for the first one's.
func clusterClient(u *url.URL, q url.Values) (goredis.UniversalClient, error) {
	q.Del("cluster")
	o, err := goredis.ParseClusterURL(with(u, q))
	if path := strings.Trim(u.Path, "/"); err == nil && path != "" && path != "0" {
		err = fmt.Errorf("a Cluster has no database %s", path)
	}
	if err != nil {
		return nil, err
	}
	o.ContextTimeoutEnabled = true
	if o.TLSConfig != nil {
		o.TLSConfig.ServerName = ""
	}
	return goredis.NewClusterClient(o), nil
}

// sentinelClient is that of the master which Sentinels name. The user and the password are the master's, and with
// sentinel_auth the Sentinels' too. They are no parameters, since only what stands before an @ is kept out of errors.
func sentinelClient(u *url.URL, q url.Values) (goredis.UniversalClient, error) {
	for _, name := range strings.Fields("cluster username password route_by_latency route_randomly replica_only") {
		if q.Has(name) {
			return nil, fmt.Errorf("%s does not go with master", name)
		}
	}
	auth := q.Has("sentinel_auth")
	q.Set("master_name", q.Get("master"))
	q.Del("master")
	q.Del("sentinel_auth")
	o, err := goredis.ParseFailoverURL(with(u, q))
	if err == nil && (o.DB < 0 || o.MasterName == "") {
		err = fmt.Errorf("the master %q with the database %d is not valid", o.MasterName, o.DB)
	}
	if err != nil {
		return nil, err
	}
	o.Username, o.Password = o.SentinelUsername, o.SentinelPassword
	if !auth {
		o.SentinelUsername, o.SentinelPassword = "", ""
	}
	o.ContextTimeoutEnabled = true
	if o.TLSConfig != nil {
		o.TLSConfig.ServerName = "" // as in a Cluster
	}
	return goredis.NewFailoverClient(o), nil
}

// unread is the error of a URL. A password with a / or ? ends there for its reader, whose error may hold the rest.
func unread(want, text string, err error) error {
	text = strings.TrimPrefix(text[strings.IndexByte(text, ':')+1:], "//")
	if end := strings.IndexAny(text, "/?"); end >= 0 && strings.Contains(text[end:], "@") {
		err = errors.New("a / or ? stands before an @")
	}
	return fmt.Errorf("%s: %w", want, err)
}

// etcdSource counts in etcd: etcd://user:password@host:port,host:port?fleet=web&tls=true.
func etcdSource(text string) (quotient.Source, error) {
	c, fleet, err := etcdConfig(strings.TrimPrefix(normal(text), "etcd://"))
	if err != nil {
		return nil, unread("want a URL such as etcd://a:2379,b:2379?fleet=web", text, err)
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
		user, password, _ := strings.Cut(authority[:i], ":")
		var noUser, noPassword error // which hold a part of the secret
		c.Username, noUser = url.PathUnescape(user)
		c.Password, noPassword = url.PathUnescape(password)
		authority = authority[i+1:]
		if noUser != nil || noPassword != nil {
			return c, "", errors.New("the user or the password has a % that begins no %XX: it is %25")
		}
		if c.Username == "" || c.Password == "" {
			return c, "", errors.New("the user has no password, or the password no user")
		}
	}
	for host := range strings.SplitSeq(strings.TrimSuffix(authority, "/"), ",") {
		if !isHost(host) {
			return c, "", fmt.Errorf("the host %q is not valid", host)
		}
		c.Endpoints = append(c.Endpoints, scheme+host)
	}
	return c, fleet, nil
}

// isHost reports whether a text is a host with a port.
func isHost(text string) bool {
	name, port, err := net.SplitHostPort(text)
	_, bad := strconv.ParseUint(port, 10, 16)
	return err == nil && bad == nil && name != "" && !strings.ContainsAny(name, "/ ")
}

// etcdQuery reads the parameters.
func etcdQuery(query string) (scheme, fleet string, err error) {
	q, err := url.ParseQuery(query)
	if err != nil {
		return "", "", err
	}
	scheme = "http://"
	for _, name := range cmdline.SortedKeys(q) {
		switch value := q.Get(name); {
		case name == "fleet":
		case name == "tls" && value == "true":
			scheme = "https://"
		case name == "tls" && value == "false":
		default:
			return "", "", fmt.Errorf("%s=%s is neither fleet nor tls=true", name, value)
		}
	}
	fleet, err = fleetOf(q)
	return scheme, fleet, err
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
	c, err := gossipConfig(text)
	if err != nil {
		return nil, err
	}
	return gossipOf(c)
}

func gossipOf(c gossip.Config) (quotient.Source, error) {
	src, err := gossip.New(c)
	if err != nil { // a nil *gossip.Source is no nil Source
		return nil, err
	}
	return src, nil
}

// gossipUnkeyed is gossipSource where its key is not: another one stands for it.
func gossipUnkeyed(text string) (quotient.Source, error) {
	c, err := gossipConfig(text)
	if err != nil || c.KeyFile == "" {
		return gossipSource(text)
	}
	dir, err := os.MkdirTemp("", "quotient")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it holds no secret
	c.KeyFile = filepath.Join(dir, "key")
	key := base64.StdEncoding.EncodeToString(make([]byte, 32))
	if err := os.WriteFile(c.KeyFile, []byte(key), 0o600); err != nil {
		return nil, err
	}
	return gossipOf(c)
}

// gossipConfig reads the address and its parameters.
func gossipConfig(text string) (c gossip.Config, err error) {
	bind, query, _ := strings.Cut(strings.TrimPrefix(text, "//"), "?")
	q, err := url.ParseQuery(query)
	if err != nil {
		return c, fmt.Errorf("%s: %w", wantGossip, err)
	}
	c.Bind = strings.TrimSuffix(bind, "/")
	for _, name := range cmdline.SortedKeys(q) {
		if err := gossipParameter(&c, name, q[name]); err != nil {
			return c, err
		}
	}
	c.Fleet = cmp.Or(c.Fleet, defaultFleet)
	return c, nil
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
