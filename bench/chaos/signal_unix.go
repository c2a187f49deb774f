//go:build unix

package main

import "syscall"

// pause stops the process with SIGSTOP: it does not know, and keeps its connections.
func (p *process) pause() error { p.stopped = true; return p.cmd.Process.Signal(syscall.SIGSTOP) }

// resume lets a paused process go on.
func (p *process) resume() error { p.stopped = false; return p.cmd.Process.Signal(syscall.SIGCONT) }
