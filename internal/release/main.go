// Command release tags a version of every published module of this repository.
//
//	go run ./internal/release v0.1.0
//
// It makes one commit off main in a clone and fetches its tags, one for each module. In that commit each
// published module requires the other ones at the same version and replaces nothing. Main, the checked
// out files and the remote repository stay as they are.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: release VERSION, such as v0.1.0")
		os.Exit(2)
	}
	tags, err := tag(ctx, ".", os.Args[1], time.Now().UTC().Format(time.DateOnly))
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
	fmt.Printf("%d modules are tagged, and nothing is pushed. Look at the commit:\n\n", len(tags))
	fmt.Printf("    git show %s\n\n", tags[0])
	fmt.Printf("Then publish it:\n\n    git push --atomic origin %s\n", strings.Join(tags, " "))
}
