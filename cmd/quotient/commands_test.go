package main

import (
	"bytes"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/quotient-go/quotient"
	"github.com/quotient-go/quotient/cmd/quotient/internal/cmdline"
	"github.com/quotient-go/quotient/config"
)

var update = flag.Bool("update", false, "write the golden files of testdata anew")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		must(t, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	must(t, err)
	equal(t, name, got, string(want))
}

func TestHelp(t *testing.T) {
	t.Setenv("COLUMNS", "80")
	for _, command := range []string{
		"", "proxy", "decide", "leases", "ctl", "ctl top", "ctl explain", "ctl stats", "ctl override", "ctl deny", "ctl plan",
		"ctl replicas", "ctl watch", "check", "version", "completion",
	} {
		t.Run(command, func(t *testing.T) {
			out := ran(t, exitOK, "", append(strings.Fields(command), "--help")...)
			golden(t, "help"+strings.TrimSuffix("-"+strings.ReplaceAll(command, " ", "-"), "-")+".txt", out)
			if command != "" {
				contains(t, out, "\nExample", "quotient "+command)
			}
		})
	}
}

// TestFirstSteps: a command line without arguments says what to try, and all of that can be tried.
func TestFirstSteps(t *testing.T) {
	said := ran(t, exitOK, "")
	steps := regexp.MustCompile(`(?m)^  quotient (.+?)  `).FindAllStringSubmatch(said, -1)
	if len(steps) < 6 {
		t.Errorf("%d steps in\n%s", len(steps), said)
	}
	for _, step := range steps {
		parser, err := newParser(&cli{}, cmdline.Streams{Out: io.Discard, Err: io.Discard}, nil)
		must(t, err)
		if _, err := parser.Parse(strings.Fields(step[1])); err != nil {
			t.Errorf("%s: %v", step[1], err)
		}
	}
	equal(t, "help leases", ran(t, exitOK, "", "help", "leases"), ran(t, exitOK, "", "leases", "--help"))
}

func TestCommandLinesThatMakeNoSense(t *testing.T) {
	const broken, rate = "testdata/broken.toml", "testdata/broken.toml:3:1: limiters.api.rate"
	for _, c := range []struct {
		args string // behind a variable, if there is one
		code int
		want string
	}{
		{"help nosuch", exitUsage, "nosuch"},
		{"nosuch", exitUsage, "nosuch"},
		{"proxy", exitUsage, "an upstream is missing"},
		{"proxy --rpm many u:1", exitUsage, "--rpm"},
		{"proxy --ordinal 2 u:1", exitUsage, "--ordinal: "},
		{"proxy --pool redis:h:1?fleet=a:b u:1", exitUsage, `Source.Fleet: "a:b" has one of {}:`},
		{"proxy --pool etcd:h:1?fleet=a/b u:1", exitUsage, `Source.Fleet: "a/b" has a slash`},
		{"proxy --pool dns:10.0.0.1 u:1", exitUsage, `Source.Name: "10.0.0.1" is an address`},
		{"proxy --rpm 0 --inflight 0 u:1", exitUsage, "--rpm and --inflight are both 0"},
		{"proxy --rpm -1 u:1", exitUsage, "--rpm: "},
		{"proxy --inflight -1 u:1", exitUsage, "--inflight: "},
		{"proxy --max-keys 0 u:1", exitUsage, "--max-keys: "},
		{"proxy --max-wait 0 u:1", exitUsage, "--max-wait is 0s"},
		{"proxy --max-wait 1s --refuse u:1", exitUsage, "--refuse and --max-wait can't be used together"},
		{"proxy --policy ramp u:1", exitUsage, `"fixed","tracking"`},
		{"proxy --log xml u:1", exitUsage, `"text","json"`},
		{"proxy --listen nonsense u:1", exitUsage, "--listen: "},
		{"proxy --admin nonsense u:1", exitUsage, "--admin: "},
		{"proxy --admin 0.0.0.0:1 u:1", exitUsage, "--admin: "}, // all the world, without a token
		{"proxy --replicas 0 u:1", exitUsage, "--replicas is 0"},
		{"proxy --replicas 2000000 u:1", exitUsage, "--replicas: "},
		{"proxy --ordinal 0 u:1", exitUsage, "QUOTIENT_ORDINAL is for a pod's index"},
		{"proxy --replicas 2 --ordinal 3 u:1", exitUsage, "--ordinal: "},
		{"proxy --pool dns: u:1", exitUsage, "--pool: "},
		{"proxy http://u/path", exitUsage, "UPSTREAM: "},
		{"proxy ftp://u", exitUsage, "UPSTREAM: "},
		{"proxy unix:s", exitUsage, `"unix:s" has no absolute path of a socket`},
		{"proxy 8080", exitUsage, "8080 is a port without a host: want localhost:8080"},
		{"proxy :8080", exitUsage, ":8080 is a port without a host: want localhost:8080"},
		{"proxy u:1 u:1", exitUsage, "UPSTREAM: "},
		{"proxy --demo u:1", exitUsage, "--demo has an upstream of its own"},
		{"proxy --demo-for 1m u:1", exitUsage, "--demo-for requires --demo"},
		{"proxy --demo --demo-for 0s", exitUsage, "--demo-for is 0s"},
		{"proxy --config f u:1", exitUsage, "u:1 does not go with --config"},
		{"proxy --config f --rpm 5", exitUsage, "--rpm does not go with --config"},
		{"proxy --config f --demo", exitUsage, "--demo does not go with --config"},
		{"proxy --nosuch u:1", exitUsage, "--nosuch"},
		{"QUOTIENT_ORDINAL=-1 proxy u:1", exitUsage, `QUOTIENT_ORDINAL is "-1"`},
		{"QUOTIENT_ORDINAL= proxy u:1", exitUsage, `QUOTIENT_ORDINAL is ""`},
		{"QUOTIENT_ORDINAL=3 proxy --replicas 3 u:1", exitUsage, `QUOTIENT_ORDINAL is "3", want less than`},
		{"QUOTIENT_REPLICAS=many proxy u:1", exitUsage, "QUOTIENT_REPLICAS"},
		{"QUOTIENT_REPLICAS=0 proxy u:1", exitUsage, "QUOTIENT_REPLICAS is 0"},
		{"QUOTIENT_LISTEN=:1 proxy --config f", exitUsage, "QUOTIENT_LISTEN does not go with --config"},
		{"proxy --pool foo:bar u:1", exitUsage, `--pool: "foo" is not one of`},
		{"proxy --config " + broken, exitFailed, rate},
		{"proxy --config testdata/noproxy.toml", exitFailed, "[proxy] is missing"},
		{"proxy --config testdata/decide.toml", exitFailed, "decide.toml:10:3: proxy.upstreams: none is given (the " +
			"file is one for quotient decide)"},
		{"decide --config testdata/print-config.toml", exitFailed, "the section [decide] is missing (it may be empty)"},
		{"decide --config f --rpm 5", exitUsage, "--rpm does not go with --config"},
		{"decide --profile ngnix", exitUsage, `"forward-auth","nginx","envoy","haproxy"`},
		{"decide --ratelimit f --ratelimit-kind paced", exitUsage, `"window","counted-window","bucket"`},
		{"decide --grpc nonsense", exitUsage, "--grpc: "},
		{"decide --http unix:", exitUsage, "--http: "},
		{"decide --http 127.0.0.1:8081", exitUsage, `--http: "127.0.0.1:8081" is decide.grpc too`},
		{"decide --http off --grpc off", exitUsage, "--grpc: "},
		{"decide --admin 0.0.0.0:1", exitUsage, "--admin: "},
		{"decide --rpm 0", exitUsage, "--rpm is 0 without --ratelimit"},
		{"decide --rpm 0 --ratelimit f", exitUsage, "--rpm 0 leaves no rule for --http: add --http off"},
		{"decide --rpm -1", exitUsage, "--rpm: "},
		{"decide --key cleint", exitUsage, "--key: "},
		{"decide --ratelimit testdata/nosuch.yaml", exitFailed, "nosuch.yaml"},
		{"decide --ratelimit testdata/broken.yaml", exitFailed, "testdata/broken.yaml:4:"},
		{"decide --ratelimit f --ratelimit f", exitUsage, `--ratelimit: "f" is in the list twice`},
		{"decide --grpc off --ratelimit f", exitUsage, "--ratelimit: they are set beside"},
		{"check testdata/broken.yaml", exitFailed, "testdata/broken.yaml:4:"},
		{"check testdata/nosuch.yaml", exitFailed, "nosuch.yaml"},
		{"completion tcsh", exitUsage, "bash"},
		{"check", exitUsage, "<file>"},
		{"check testdata/nosuch.toml", exitFailed, "nosuch.toml"},
		{"check " + broken, exitFailed, rate},
		{"check testdata/throttle.toml", exitFailed, "throttle.toml:2:5: semaphores.A: 0 is not between 1"},
		{"leases -c testdata/throttle.toml", exitFailed, "throttle.toml:2:5: semaphores.A: 0 is not between 1"},
		{"leases -c " + broken, exitFailed, rate},
		{"leases -c testdata/noproxy.toml", exitFailed, "noproxy.toml: the section [leases] is missing"},
		{"leases -c testdata", exitFailed, "it is no regular file"},
		{"COMP_LINE=check check testdata/none", exitFailed, "no such file"}, // only the scripts of completion ask
		{"complete", exitUsage, "unexpected argument complete"},
		{"check \x1b[2J", exitFailed, `quotient: config: \x1b[2J: no such file`},
		{"THROTTLE_LOG=loud leases", exitUsage, `THROTTLE_LOG is "loud", want ERROR`},
		{"leases --port 65536", exitUsage, "--port is 65536, want 0 to 65535"},
		{"leases --address a/b", exitUsage, `--address: "a/b" is no host`},
		{"leases --grace 5", exitUsage, `--grace: duration "5"`},
		{"leases --grace 400days", exitUsage, "--grace: 9600h0m0s is not between"},
		{"leases -s A", exitUsage, `--semaphore is "A", want a name and a whole number`},
		{"leases -s A=x", exitUsage, `--semaphore is "A=x"`},
		{"leases -s A=0", exitUsage, "--semaphore A=0: 0 is not between 1"},
		{"leases -s A=1 -s A=2", exitUsage, `"A" is given twice`},
		{"leases --advertise http://a", exitUsage, "--advertise requires --election"},
		{"leases --election a:1 --address 0.0.0.0", exitUsage, "--advertise: it is missing"},
		// An empty variable gives an empty flag.
		{"leases --election= --port 0 --admin 0.0.0.0:0", exitUsage, "--election is empty"},
		{"leases --election=, --port 0 --admin 0.0.0.0:0", exitUsage, `--election: "" is no host:port`},
		{"leases --election a:1 --advertise= --admin 0.0.0.0:0", exitUsage, "--advertise is empty"},
		{"leases --election a", exitUsage, `--election: "a" is no host:port`},
		{"leases --election a:1 --advertise a", exitUsage, `--advertise: "a" is no URL`},
		{"leases --admin-token-file f", exitUsage, "--admin-token-file requires --admin"},
		{"leases --port 0 --admin 0.0.0.0:0", exitFailed, "loopback"},
		{"ctl", exitUsage, `expected one of "top"`},
		{"ctl top", exitUsage, "see quotient ctl top --help"},
		{"ctl stats", exitUsage, "--pods is missing: want for example --pods dns:NAME:PORT"},
		{"ctl stats --pods nonsense", exitUsage, `--pods: "nonsense" is not http://host:port`},
		{"ctl stats --pods dns:h", exitUsage, `--pods: "dns:h": want dns:NAME:PORT or dns:https://NAME:PORT`},
		{"ctl stats --pods kube:h", exitUsage, `--pods: "kube:h": want kube:NAME:PORT`},
		{"ctl stats --pods kube:h:1", exitFailed, "pods: kube:h:1: this process is not in a pod of Kubernetes"},
		{"ctl stats --pods file:nosuch", exitFailed, "pods: file:nosuch: nosuch: no such file"},
		{"ctl stats --pods h:1 --timeout 0s", exitUsage, "--timeout is 0s"},
		{"ctl stats --pods unix:///s --token-file nosuch", exitFailed, "--token-file: nosuch: no such file"},
		{"ctl stats --pods unix:///s --ca nosuch", exitFailed, "--ca: nosuch: no such file"},
		{"ctl stats --pods unix:///s --ca " + broken, exitFailed, "--ca: " + broken + " has no certificate (want PEM)"},
		{"ctl stats --pods unix:///s --cert " + broken, exitUsage, "--key"},
		{"ctl stats --pods unix:///s --cert nosuch --key nosuch", exitFailed, "--cert: nosuch: no such file"},
		{"ctl stats --pods unix:///s --cert " + broken + " --key nosuch", exitFailed, "--key: nosuch: no such file"},
		{"ctl stats --pods unix:///s --cert " + broken + " --key " + broken, exitFailed, "failed to find any PEM"},
		{"ctl top --pods unix:///s -n 0", exitUsage, "--number is 0, want 1 to 1000"},
		{"ctl top --pods unix:///s --by name", exitUsage, `"refused","used"`},
		{"ctl watch --pods unix:///s --interval 1ms", exitUsage, "--interval is 1ms"},
		{"ctl deny K --pods unix:///s --keep --for 1s --look 0s", exitUsage, "--look is 0s"},
		{"ctl plan --pods unix:///s paid 1/s,", exitUsage, `the limit "1/s,": "" is no part of one`},
		{"QUOTIENT_PODS=unix:///nosuch ctl stats", exitFailed, "/nosuch: dial unix /nosuch"},
	} {
		t.Run(c.args, func(t *testing.T) {
			args := strings.Fields(c.args)
			if name, value, ok := strings.Cut(c.args, "="); ok && name == strings.ToUpper(name) {
				value, _, _ = strings.Cut(value, " ")
				t.Setenv(name, value)
				args = args[1:]
			}
			equal(t, "stdout", ran(t, c.code, c.want, args...), "")
		})
	}
}

func TestCheckPraises(t *testing.T) {
	out := ran(t, exitOK, "", "check", "testdata/print-config.toml")
	contains(t, out, "print-config.toml: ok: 1 limiter, 1 rule\n")
	out = ran(t, exitOK, "throttle.toml:16:10: logging.stderr", "check", "../../config/testdata/throttle.toml")
	contains(t, out, "throttle.toml: ok: 4 semaphores\n")
	contains(t, ran(t, exitOK, "", "check", "testdata/ratelimit.yaml"), "ratelimit.yaml: ok: 3 limiters, 0 rules\n")
	out = ran(t, exitOK, "decide.toml:8:13: limiters.api.in-flight: a question", "check", "testdata/decide.toml")
	contains(t, out, "decide.toml: ok: 4 limiters, 1 rule\n")
	text, err := os.ReadFile("testdata/decide.toml")
	must(t, err)
	path := filepath.Join(t.TempDir(), "ruled.toml") // without the limiters that nobody could ask
	text = bytes.Replace(text, []byte(`["ratelimit.yaml"]`), []byte("[]"), 1)
	must(t, os.WriteFile(path, text, 0o600))
	out = ran(t, exitOK, "ruled.toml:8:13: limiters.api.in-flight: a question", "check", path)
	contains(t, out, "ruled.toml: ok: 1 limiter, 1 rule\n")
}

func TestVersion(t *testing.T) {
	for _, arg := range []string{"version", "--version"} {
		if fields := strings.Fields(ran(t, exitOK, "", arg)); len(fields) < 4 || fields[0] != "quotient" ||
			!strings.Contains(fields[len(fields)-1], "/") {
			t.Errorf("%s: got %q", arg, fields)
		}
	}
}

// TestCompletionInBash runs the script in a real bash, and what it registers as bash does when tab is pressed.
func TestCompletionInBash(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash here")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "completion")
	must(t, os.WriteFile(file, []byte(ran(t, exitOK, "", "completion", "bash")), 0o600))
	if err := os.Symlink(program(t).Path, filepath.Join(dir, "quotient")); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
	const script = `
source "$2"
export COMP_LINE=$1 COMP_POINT=${#1}
eval "set -- $(complete -p quotient)"  # complete -o default -C 'quotient complete' quotient
$5 quotient "${COMP_LINE##* }" | LC_ALL=C sort`
	for _, c := range []struct{ line, want string }{
		{"quotient ", "check completion ctl decide leases proxy version"},
		{"quotient c", "check completion ctl"},
		{"quotient ctl ", "deny explain override plan replicas stats top watch"},
		{"quotient ctl --pods h top --b", "--by"},
		{"quotient ctl top --by ", "refused used"},
		{"quotient ctl override /x 1/s --", "--ca --cert --for --help --json --keep --key --limiter --look --partial --pods " +
			"--timeout --token-file"},
		{"quotient proxy --r", "--refuse --replicas --rpm"},
		{"quotient proxy --rpm 5 --pol", "--policy"},
		{"quotient proxy --policy ", "fixed tracking"},
		{"quotient proxy --policy=t", "tracking"}, // bash replaces what stands behind the =
		{"quotient proxy --config ", ""},          // names of files
		{"quotient proxy --refuse localhost:80 --ver", ""},
		{"quotient decide --ra", "--ratelimit --ratelimit-kind"},
		{"quotient decide --profile ", "envoy forward-auth haproxy nginx"},
		{"quotient leases --adm", "--admin --admin-token-file"},
		{"quotient completion ", "bash fish zsh"},
	} {
		t.Run(c.line, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), bash, "--norc", "-c", script, "bash", c.line, file)
			cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), asProgram+"=yes")
			out, err := cmd.Output()
			must(t, err)
			equal(t, "candidates", strings.Join(strings.Fields(string(out)), " "), c.want)
		})
	}
}

// TestCompletionScripts runs the scripts' syntax through the shells that are here.
func TestCompletionScripts(t *testing.T) {
	for shell, script := range scripts {
		t.Run(shell, func(t *testing.T) {
			path, err := exec.LookPath(shell)
			if err != nil {
				t.Skipf("no %s here", shell)
			}
			cmd := exec.CommandContext(t.Context(), path, "-n")
			cmd.Stdin = strings.NewReader(script)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// parsed returns the flags of quotient proxy, or of quotient decide if args begin so, as a command line and an
// environment, "NAME=value", make them.
func parsed(t *testing.T, env, args string) (*fileFlags, error) {
	t.Helper()
	for variable := range strings.FieldsSeq(env) {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
	var c cli
	parser, err := newParser(&c, cmdline.Streams{Out: io.Discard, Err: io.Discard}, func(int) {})
	must(t, err)
	if strings.HasPrefix(args, "decide") {
		k, err := parser.Parse(strings.Fields(args))
		must(t, err)
		return &c.Decide.fileFlags, c.Decide.complete(givenTo(k), os.LookupEnv)
	}
	k, err := parser.Parse(append([]string{"proxy"}, strings.Fields(args)...))
	if err != nil {
		return nil, err
	}
	return &c.Proxy.fileFlags, c.Proxy.complete(givenTo(k), os.LookupEnv)
}

// fromFile is quotient proxy with a file.
func fromFile(t *testing.T, path string) *proxyCmd {
	t.Helper()
	c := new(proxyCmd)
	c.Config = path
	must(t, c.complete(nil, func(string) (string, bool) { return "", false }))
	return c
}

// TestFlagsMakeAFile: the text that flags are turned into, which they are read through.
func TestFlagsMakeAFile(t *testing.T) {
	for _, c := range []struct {
		env, args string
		has       []string // "key = value"; a key alone must be absent
	}{
		{"", "u:1", []string{
			"rates = [{name = 'minute', events = 100, per = '1m', kind = 'window'}]", "in-flight = 100",
			"mode = 'wait'", "max-wait", "max-keys = 65536", "policy = 'fixed'", "ceiling",
			"listen = '127.0.0.1:4040'", "listen = '127.0.0.1:4041'", "upstreams = ['http://u:1']",
			"pattern = '/'", "limiter = 'path'", "key = 'path'", "replicas", "source", "ordinal",
		}},
		{"", "u:1 https://v h2c://w:2", []string{"upstreams = ['http://u:1', 'https://v', 'h2c://w:2']"}},
		{"", "--rpm 7 u:1", []string{"rates = [{name = 'minute', events = 7, per = '1m', kind = 'window'}]"}},
		{"", "--rpm 0 u:1", []string{"rates"}},
		{"", "--inflight 7 u:1", []string{"in-flight = 7"}},
		{"", "--inflight 0 u:1", []string{"in-flight"}},
		{"", "--refuse u:1", []string{"mode = 'refuse'"}},
		{"", "--max-wait 90s u:1", []string{"max-wait = '1m30s'", "mode = 'wait'"}},
		{"", "--max-keys 9 u:1", []string{"max-keys = 9"}},
		{"", "--policy tracking u:1", []string{"policy = 'tracking'"}},
		{"", "--admin off u:1", []string{"listen = 'off'"}},
		{"", "--listen :80 u:1", []string{"listen = ':80'"}},
		{"", "--replicas 3 u:1", []string{"replicas = 3"}},
		{"", "--replicas 3 --ordinal 2 u:1", []string{"ordinal = 2"}},
		{"QUOTIENT_LISTEN=:81", "u:1", []string{"listen = ':81'"}},
		{"QUOTIENT_REPLICAS=5", "u:1", []string{"replicas = 5"}},
		{"QUOTIENT_REPLICAS=5", "--replicas 4 u:1", []string{"replicas = 4"}}, // flags go first
		{"QUOTIENT_ORDINAL=0", "--replicas 3 u:1", []string{"ordinal = 1"}},   // a pod's index
		{"", "--pool dns:p. u:1", []string{
			"source = 'dns:p.'", "await = true", "replicas", "max-age = '8760h'", // no way back
		}},
		{"", "--pool redis://h:1/0?fleet=a --replicas 6 u:1", []string{
			"source = 'redis://h:1/0?fleet=a'", "await = true", "replicas = 6", "max-age = '1m'",
		}},
		{"", "decide", []string{
			"rates = [{name = 'minute', events = 100, per = '1m', kind = 'window'}]", "mode = 'refuse'", "key = 'client'",
			"grpc = '127.0.0.1:8081'", "http = '127.0.0.1:8080'", "listen = '127.0.0.1:4041'", "profile = 'forward-auth'",
			"ratelimit-files", "ratelimit-kind", "upstreams", "source",
		}},
		{"", "decide --grpc unix:g --http off --profile nginx --admin off", []string{
			"grpc = 'unix:g'", "http = 'off'", "profile = 'nginx'", "listen = 'off'",
		}},
		{"", "decide --key header:X-Key --rpm 7 --pool dns:p.", []string{
			"rates = [{name = 'minute', events = 7, per = '1m', kind = 'window'}]", "key = 'header:X-Key'", "source = 'dns:p.'",
		}},
		{"", "decide --rpm 0 --http off --ratelimit a,b --ratelimit c --ratelimit-kind bucket", []string{
			"ratelimit-files = ['a,b', 'c']", "ratelimit-kind = 'bucket'", "rates", "limiter", "pattern",
		}},
	} {
		t.Run(c.env+" "+c.args, func(t *testing.T) {
			cmd, err := parsed(t, c.env, c.args)
			must(t, err)
			text, err := cmd.text()
			must(t, err)
			if f, err := cmd.parse(); err != nil || f.Path != "" {
				t.Errorf("%v, %+v", err, f)
			}
			for _, line := range c.has {
				absent := !strings.Contains(line, " = ")
				if absent {
					line += " = "
				}
				if strings.Contains(string(text), "\n"+line) == absent {
					t.Errorf("absent %v: %s\n%s", absent, line, text)
				}
			}
		})
	}
	cmd, err := parsed(t, "", `--pool file:/a'b"c\d u:1`) // what TOML would escape
	must(t, err)
	f, err := cmd.parse()
	must(t, err)
	equal(t, "the source", f.Pool.Source, `file:/a'b"c\d`)
}

// TestBesideAFile checks that a fleet can share one file: what is a replica's own stands beside it.
func TestBesideAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "quotient.toml")
	c, err := parsed(t, "", "u:1 --replicas 2")
	must(t, err)
	text, err := c.text()
	must(t, err)
	must(t, os.WriteFile(path, text, 0o600))
	for _, c := range []struct {
		env, args         string
		replicas, ordinal int
	}{
		{"", "", 2, 0},
		{"", "--ordinal 2", 2, 2},
		{"QUOTIENT_ORDINAL=1", "", 2, 2},
		{"", "--replicas 5 --ordinal 4 --log json", 5, 4},
		{"QUOTIENT_REPLICAS=7", "", 7, 0},
	} {
		t.Run(c.env+c.args, func(t *testing.T) {
			cmd, err := parsed(t, c.env, c.args+" --config "+path)
			must(t, err)
			f, err := cmd.file()
			must(t, err)
			conf, err := config.New(f, new(quotient.Registry), config.Adjust(cmd.adjust))
			must(t, err)
			if p := conf.File().Pool; p.Replicas != c.replicas || p.Ordinal != c.ordinal {
				t.Errorf("got %+v, want %d replicas and ordinal %d", p, c.replicas, c.ordinal)
			}
		})
	}
}

// TestPrintConfig checks that what is printed is the file that the flags are read through. All fields that
// flagOf names are in such a file: else an error would name the field.
func TestPrintConfig(t *testing.T) {
	out := ran(t, exitOK, "", "proxy", "--print-config", "--rpm", "60", "--refuse", "--replicas", "3", "--pool",
		"env:", "localhost:8080")
	golden(t, "print-config.toml", out)
	_, err := config.Parse("printed", []byte(out))
	must(t, err)
	for _, args := range []string{"--max-wait 1s u:1", "decide --ratelimit f"} {
		c, err := parsed(t, "", args+" --pool env: --replicas 2 --ordinal 1")
		must(t, err)
		text, err := c.text()
		must(t, err)
		for field := range c.of.flagOf {
			name := field[strings.LastIndex(field, ".")+1:]
			if !strings.Contains(string(text), "\n"+name+" = ") {
				t.Errorf("%s is not in the file:\n%s", field, text)
			}
		}
	}
}
