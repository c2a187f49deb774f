package file_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/poolsize/file"
)

// A limiter would follow the source; here its first report is printed.
func ExampleSource_Watch() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "pool.json")
	if err := os.WriteFile(path, []byte(`{"replicas": 5, "ordinal": 2}`), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	src := file.Source{Path: path}
	err = src.Watch(ctx, func(p quotient.Pool, err error) {
		fmt.Println(p.Replicas, p.Ordinal, err)
		cancel()
	})
	fmt.Println(err)
	// Output:
	// 5 2 <nil>
	// context canceled
}

// A limiter follows a file that a ConfigMap keeps.
func ExampleSource() {
	limiter, err := quotient.New(quotient.Rates(quotient.PerSecond(100)), quotient.Replicas(10))
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	source := &file.Source{Path: "/etc/quotient/pool"}
	if err := source.Validate(); err != nil {
		log.Fatal(err)
	}
	go limiter.Follow(ctx, source) // logs what is wrong with the file
}
