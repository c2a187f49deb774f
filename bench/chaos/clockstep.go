//go:build clockstep

package main

import "github.com/quotient-go/quotient"

// A program with this tag is built by overlay.go only: nowhere else does the root package have a WallStep.
func init() { stepWall = quotient.WallStep.Store }
