package redistest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"time"
)

// patience is how long a server may take to start or to stop; generous for a machine that is busy.
const patience = 20 * time.Second

// keeper runs a command in the shell's own process, so that signals reach it. Beside it a subshell kills it
// when the pipe at its input ends without a word: its parent is gone. A hang-up reaches the whole group, but
// redis-server ignores it, so the subshell must too.
const keeper = `exec 3<&0; (trap "" HUP INT TERM; read word <&3 || kill -9 $$) & exec 3<&- </dev/null; exec "$@"`

// process is one run of redis-server.
type process struct {
	cmd   *exec.Cmd
	alive io.WriteCloser // its end without a word ends the process
	ended chan struct{}  // closed when the process has ended
}

// startProcess runs a command and returns when a server answers at the address.
func startProcess(args []string, addr string) (*process, error) {
	p := &process{cmd: exec.Command("sh", append([]string{"-c", keeper, "sh"}, args...)...), ended: make(chan struct{})}
	in, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.cmd.Stdin, p.alive = in, out
	err = p.cmd.Start()
	if err = errors.Join(err, in.Close()); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	go func() {
		defer close(p.ended)
		p.cmd.Wait() //nolint:errcheck // a signal ends it
	}()
	if err := p.answers(addr); err != nil {
		return nil, errors.Join(err, p.kill())
	}
	return p, nil
}

// answers waits until the server answers.
func (p *process) answers(addr string) error {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if pong(addr) {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("%s ended: %v", p.cmd.Args, p.cmd.ProcessState)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return fmt.Errorf("%s does not answer after %v", p.cmd.Args, patience)
}

// pong reports whether a Redis server serves at the address, even if it wants a password first.
func pong(addr string) bool {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	defer c.Close()                            //nolint:errcheck // nothing is lost
	c.SetDeadline(time.Now().Add(time.Second)) //nolint:errcheck // then it takes longer
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	answer := make([]byte, 64)
	n, _ := c.Read(answer) //nolint:errcheck // then it is no PONG
	return bytes.HasPrefix(answer[:n], []byte("+PONG")) || bytes.HasPrefix(answer[:n], []byte("-NOAUTH"))
}

// stop ends the process in an orderly way, and the hard way if that takes too long.
func (p *process) stop() error {
	resume(p.cmd.Process)           //nolint:errcheck // it may not be paused
	p.cmd.Process.Signal(interrupt) //nolint:errcheck // it may have ended
	select {
	case <-p.ended:
		return p.release()
	case <-time.After(patience):
		return errors.Join(errors.New("redistest: the server does not stop"), p.kill())
	}
}

// kill ends the process at once.
func (p *process) kill() error {
	p.cmd.Process.Kill() //nolint:errcheck // it may have ended
	<-p.ended
	return p.release()
}

// release tells the keeper's subshell that nothing is left to kill. By now the subshell may be gone.
func (p *process) release() error {
	p.alive.Write([]byte("over\n")) //nolint:errcheck // see above
	return p.alive.Close()
}
