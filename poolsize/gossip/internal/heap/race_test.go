//go:build race

package heap

func init() { racing = true }
