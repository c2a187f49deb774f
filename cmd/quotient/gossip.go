package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/poolsize/gossip"
)

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
