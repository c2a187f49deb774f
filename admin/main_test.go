package admin

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/quotient-go/quotient"
)

func TestMain(m *testing.M) {
	if os.Getenv(racerEnv) != "" {
		race(os.Stdin, os.Stdout)
		return
	}
	goleak.VerifyTestMain(m)
}

// racerEnv makes the test binary one of the processes of TestTwoProcessesAtOneSocket.
const racerEnv = "QUOTIENT_ADMIN_RACER"

// race listens at each path that it reads, says in a line what became of that, and closes at the next one.
func race(in io.Reader, out io.Writer) {
	h, err := New(new(quotient.Registry))
	if err != nil {
		panic(err)
	}
	var l net.Listener
	for lines := bufio.NewScanner(in); lines.Scan(); {
		if l != nil {
			_ = l.Close()
		}
		if lines.Text() == "" {
			_, _ = fmt.Fprintln(out, "closed")
			continue
		}
		if l, err = h.Listen(context.Background(), "unix", lines.Text()); err != nil {
			_, _ = fmt.Fprintln(out, strings.ReplaceAll(err.Error(), "\n", " "))
			continue
		}
		_, _ = fmt.Fprintln(out, "listens")
	}
}
