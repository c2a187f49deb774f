package gossip

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// longestFile is the most bytes of a file of keys or addresses.
const longestFile = 64 << 10

// eachLine calls f with each line that says something, and its number from 1, until f returns an error.
func eachLine(content string, f func(n int, line string) error) error {
	n := 0
	for line := range strings.Lines(content) {
		n++
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if err := f(n, line); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	return nil
}

// peer is an address to join, as it is written.
type peer struct {
	host string // a name or an IP address
	port uint16 // 0: the port of Bind
}

// parsePeer reads "host:port" or "host". An IPv6 address with a port stands in brackets.
func parsePeer(text string) (peer, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = text, "0"
		if inner, ok := strings.CutPrefix(text, "["); ok {
			host = strings.TrimSuffix(inner, "]")
		}
	} else if port == "0" {
		return peer{}, errors.New("port 0")
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return peer{}, fmt.Errorf("port %.40q", port)
	}
	if host == "" || len(host) > 253 {
		return peer{}, fmt.Errorf("a host of %d bytes", len(host))
	}
	if strings.ContainsAny(host, " \t[]/%") || strings.Contains(host, ":") && net.ParseIP(host) == nil {
		return peer{}, fmt.Errorf("host %.40q", host)
	}
	return peer{host, uint16(n)}, nil
}

func parseJoin(content string) (peers []peer, err error) {
	err = eachLine(content, func(_ int, line string) error {
		if len(peers) == mostJoin {
			return fmt.Errorf("there are more than %d addresses", mostJoin)
		}
		p, err := parsePeer(line)
		peers = append(peers, p)
		return err
	})
	if err != nil {
		return nil, err
	}
	return peers, nil
}
