// Command house prints figures of the root package: its size, the references that run against its floors,
// and what it exports. It also counts wide lines and long files among the tests of all modules. Run it in the
// root of the module.
//
//	house            print the figures beside their bounds
//	house -check     exit 1 when a figure is above its bound
//	house -list      name the places of wide lines, tests of a kind and references that run up
//	house -update    write floors/upward.txt anew; it may only become shorter, unless -grow is given
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/quotient-go/quotient/internal/house/floors"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "house:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	fs := flag.NewFlagSet("house", flag.ContinueOnError)
	dir := fs.String("dir", ".", "`directory` of the module's root")
	check := fs.Bool("check", false, "fail when a figure is above its bound")
	list := fs.Bool("list", false, "name the places")
	update := fs.Bool("update", false, "write the list of references that run up again")
	grow := fs.Bool("grow", false, "let -update write a longer list")
	if err := fs.Parse(args); err != nil {
		return err
	}
	p, err := floors.Load(*dir)
	if err != nil {
		return err
	}
	found := p.Check(floors.Names, floors.Root)
	if *update {
		return rewrite(filepath.Join(*dir, "internal", "house", "floors", "upward.txt"), found, *grow, out)
	}
	m, err := measure(*dir, p, found)
	if err != nil {
		return err
	}
	if *list {
		for _, place := range m.places {
			fmt.Fprintln(out, place)
		}
	}
	above := m.print(out)
	if *check && above > 0 {
		return fmt.Errorf("%d figures are above their bounds", above)
	}
	return nil
}

// rewrite writes the list of references that run up.
func rewrite(file string, found floors.Findings, grow bool, out io.Writer) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, now := floors.Parse(string(text)), found.List()
	if len(now) > len(before) && !grow {
		return fmt.Errorf("%s would grow from %d to %d: move what runs up, or defend it where it stands "+
			"(-grow writes it all the same)", filepath.Base(file), len(before), len(now))
	}
	fmt.Fprintf(out, "references that run up: %d before, %d now\n", len(before), len(now))
	return os.WriteFile(file, []byte(floors.Header+strings.Join(append(now, ""), "\n")), 0o644)
}
