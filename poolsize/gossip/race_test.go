//go:build race

package gossip

func init() { racing = true }
