package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/quotient-go/quotient/config"
	"github.com/quotient-go/quotient/internal/files"
	"github.com/quotient-go/quotient/lease"
	"github.com/quotient-go/quotient/lease/etcd"
)

// farewell bounds how long a leader takes to step down at the end. Without it others wait for the election's
// TTL.
const farewell = 500 * time.Millisecond

// elect returns what takes part in an election until its context ends. Without one it does nothing. Clients
// reach s at url, unless e says another.
func elect(e *config.Election, url string, s *lease.Server, log *slog.Logger) (runs, error) {
	if e == nil {
		return func(context.Context) error { return nil }, nil
	}
	if e.URL != "" {
		url = e.URL
	}
	c, err := electionConfig(e)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		client := reach(ctx, c, func(err error) {
			log.Warn("lease election: etcd does not let this server in, it tries again", "error", err)
		})
		if client == nil {
			return nil
		}
		err := stand(ctx, &etcd.Election{Client: client, Server: s, URL: url, Name: e.Name, TTL: e.TTL, Log: log})
		if err != nil {
			return fmt.Errorf("leases.election: %w", err)
		}
		return nil
	}, nil
}

// reach returns a client of etcd; nil when ctx ends before. With a password there is none until etcd answers.
// It says each time that it has failed, and tries again.
func reach(ctx context.Context, c clientv3.Config, failed func(error)) *clientv3.Client {
	for {
		own, cancel := context.WithCancel(context.WithoutCancel(ctx)) // the client is used after ctx, to leave
		stop := context.AfterFunc(ctx, cancel)
		c.Context = own
		client, err := clientv3.New(c)
		if stop(); err == nil {
			return client
		}
		if cancel(); ctx.Err() != nil {
			return nil
		}
		failed(err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(c.DialTimeout):
		}
	}
}

// stand stands for an election until ctx ends, and closes its client. It returns an error that came before.
func stand(ctx context.Context, e *etcd.Election) error {
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	select {
	case err := <-ended:
		_ = e.Client.Close()
		if ctx.Err() == nil {
			return err
		}
		return nil
	case <-ctx.Done():
	}
	late := time.AfterFunc(farewell, func() { _ = e.Client.Close() })
	<-ended
	if late.Stop() {
		_ = e.Client.Close()
	}
	return nil
}

// electionConfig is how etcd is reached.
func electionConfig(e *config.Election) (clientv3.Config, error) {
	c := clientv3.Config{
		DialTimeout: 2 * time.Second, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
		Username: e.User, Logger: zap.NewNop(), // the election reports what fails
	}
	for _, endpoint := range e.Endpoints {
		if !strings.Contains(endpoint, "://") {
			endpoint = "http://" + endpoint
		}
		c.Endpoints = append(c.Endpoints, strings.TrimSuffix(endpoint, "/"))
	}
	if e.PasswordFile == "" {
		return c, nil
	}
	text, _, err := files.Read(context.Background(), e.PasswordFile, maxTokens)
	if err != nil {
		return c, fmt.Errorf("password-file: %w", err)
	}
	c.Password = strings.TrimSpace(string(text))
	return c, nil
}
