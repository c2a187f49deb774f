package main

import "context"

func (c *proxyCmd) serve(context.Context, streams) error { return nil }
