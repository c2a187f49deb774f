package main

import "context"

func (b *bench) overhead(ctx context.Context) (section, error) { return section{}, nil }
