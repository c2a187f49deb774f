// Package ctl is quotient ctl: it asks all pods of a fleet, and changes them.
package ctl

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/alecthomas/kong"

	"github.com/quotient-go/quotient/admin"
	"github.com/quotient-go/quotient/admin/pods"
	"github.com/quotient-go/quotient/cmd/quotient/internal/cmdline"
	"github.com/quotient-go/quotient/cmd/quotient/internal/secrets"
	"github.com/quotient-go/quotient/internal/shown"
	"github.com/quotient-go/quotient/poolsize/kube"
)

// Command is quotient ctl: what an operator asks and changes on all pods of a fleet.
type Command struct {
	Pods      string        `env:"QUOTIENT_PODS" placeholder:"LIST" help:"${help_ctl_pods}"`
	Limiter   string        `placeholder:"NAME" help:"${help_ctl_limiter}"`
	TokenFile string        `env:"QUOTIENT_TOKEN_FILE" placeholder:"FILE" help:"${help_ctl_token_file}"`
	CA        string        `name:"ca" placeholder:"FILE" help:"${help_ctl_ca}"`
	Cert      string        `and:"certificate" placeholder:"FILE" help:"${help_ctl_cert}"`
	Key       string        `and:"certificate" placeholder:"FILE" help:"${help_ctl_key}"`
	Timeout   time.Duration `default:"5s" placeholder:"D" help:"${help_ctl_timeout}"`
	JSON      bool          `name:"json" help:"${help_ctl_json}"`

	Top      topCmd      `cmd:"" help:"Show who is refused, or who uses most, over all pods."`
	Explain  explainCmd  `cmd:"" help:"Show what each pod knows of a key."`
	Stats    statsCmd    `cmd:"" help:"Show each pod, and what differs between them."`
	Override overrideCmd `cmd:"" help:"Give a key a limit of its own."`
	Deny     denyCmd     `cmd:"" help:"Refuse a key."`
	Plan     planCmd     `cmd:"" help:"Give a plan a limit, or remove it."`
	Replicas replicasCmd `cmd:"" help:"Set how many replicas each pod believes in."`
	Watch    watchCmd    `cmd:"" help:"Print rates and changes, a line a second."`

	http http.Client // its connections are closed when the command ends
}

// Helps are the lines of quotient ctl --help.
var Helps = kong.Vars{
	"help_ctl_pods": "Where the admin listeners of the pods are: dns:NAME:PORT, dns:https://NAME:PORT, file:PATH " +
		"(a URL on each line), kube:SERVICE:PORT, or URL,URL.",
	"help_ctl_limiter":    "The limiter. Without it the only one; top, stats and replicas take all.",
	"help_ctl_token_file": "File with a token of the admin listeners. It is sent to pods of the list alone.",
	"help_ctl_ca":         "File of the authorities that certificates of pods are of (those of the system).",
	"help_ctl_cert":       "File of a client certificate.",
	"help_ctl_key":        "File of its private key.",
	"help_ctl_timeout":    "How long a pod may take to answer (5s). All of them may take 12 times as long.",
	"help_ctl_json":       "Print one JSON object in place of a table.",
	"help_ctl_by":         "refused (the default) or used.",
	"help_ctl_n":          "How many keys (20).",
	"help_ctl_limit": "Parts with commas between them: \"10/s\", \"100/min, burst 20\", \"1000/h, window\", " +
		"\"5 in flight\"; or unlimited, deny, or none for none of its own.",
	"help_ctl_for":      "End it after this time, such as 10m. Without it, it ends with the process of each pod.",
	"help_ctl_keep":     "Stay until --for ends, and send it to pods that come or start again meanwhile.",
	"help_ctl_partial":  "Change the pods that can be changed, also if some do not answer or refuse.",
	"help_ctl_look":     "How often --keep looks the list up (3s).",
	"help_ctl_interval": "Time between two lines (1s).",
	"help_ctl_times":    "End after so many lines. 0, the default: when it is interrupted.",
}

// Help shows an example.
func (Command) Help() string {
	return `It asks all pods side by side, 16 at once. A pod that does not answer is named on stderr.

Examples:

    export QUOTIENT_PODS=dns:api.prod.svc.cluster.local:4041
    quotient ctl top
    quotient ctl explain /customers/7
    quotient ctl override /customers/7 10/s --for 10m
    quotient ctl stats --pods http://10.0.0.7:4041,http://10.0.0.8:4041`
}

// Close closes what is left of the connections.
func (c *Command) Close() { c.http.CloseIdleConnections() }

// fleet is the pods that a command line names, and how to talk to them.
type fleet struct {
	*Command
	cmdline.Streams
	list  *pods.List
	token string
}

// open reads what the flags name. It asks nobody.
func (c *Command) open(s cmdline.Streams) (*fleet, error) {
	if c.Pods == "" {
		return nil, cmdline.Usagef("--pods is missing: want for example --pods dns:NAME:PORT, or the variable " +
			"QUOTIENT_PODS")
	}
	if c.Timeout <= 0 {
		return nil, cmdline.Usagef("--timeout is %v, want more than 0", c.Timeout)
	}
	list, err := Pods(c.Pods)
	if err != nil {
		return nil, cmdline.Usagef("--pods: %s", strings.TrimPrefix(err.Error(), "pods: "))
	}
	f := &fleet{Command: c, Streams: s, list: list}
	if c.TokenFile != "" {
		tokens, err := secrets.Tokens(c.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("--token-file: %w", err)
		}
		f.token = tokens[0]
	}
	files := secrets.Files{Cert: c.Cert, Key: c.Key, CA: c.CA, CAField: "ca", Prefix: "--"}
	text, err := files.Read(context.Background())
	if err != nil {
		return nil, err
	}
	certs, authorities, err := files.Parse(text)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{Certificates: certs, RootCAs: authorities}
	c.http.Transport = list.Transport(config) // each request has its deadline
	return f, nil
}

// begin opens the fleet and asks each pod for its state.
func (c *Command) begin(ctx context.Context, s cmdline.Streams) (*fleet, []seen, error) {
	f, err := c.open(s)
	if err != nil {
		return nil, nil, err
	}
	states, err := f.survey(ctx)
	return f, states, err
}

// Pods reads where pods are listed, as pods.Parse does, with the Services of Kubernetes.
func Pods(text string) (*pods.List, error) {
	return pods.Parse(text, map[string]pods.Lookup{"kube": kubeAddresses})
}

// kubeAddresses are the pods of a Service in the namespace of this pod.
func kubeAddresses(ctx context.Context, service string) ([]netip.Addr, error) {
	if os.Getenv("KUBERNETES_SERVICE_HOST") == "" {
		return nil, errors.New("this process is not in a pod of Kubernetes")
	}
	src, err := kube.InCluster(service)
	if err != nil {
		return nil, err
	}
	return src.Addresses(ctx)
}

// seen is what a pod said of itself.
type seen = pods.Answer[admin.State]

// survey looks the list up and asks each pod for its state. If none answers it is an error, with what each has said.
func (f *fleet) survey(ctx context.Context) ([]seen, error) {
	looking, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	all, err := f.list.Pods(looking)
	if err != nil {
		return nil, err
	}
	answers := askAll(ctx, f, all, stateOf)
	if len(failed(answers)) == len(answers) {
		return answers, errors.New("no pod answers:\n" + strings.TrimSpace(complaint(answers, "no answer from")))
	}
	return answers, nil
}

func stateOf(ctx context.Context, _ pods.Pod, c *admin.Client) (pods.Process, admin.State, error) {
	s, err := c.State(ctx)
	return pods.Process{Replica: s.Process.Replica, Started: s.Process.Started}, s, err
}

// askAll asks pods with a client for each.
func askAll[T any](
	ctx context.Context, f *fleet, all []pods.Pod,
	ask func(context.Context, pods.Pod, *admin.Client) (pods.Process, T, error),
) []pods.Answer[T] {
	ctx, cancel := context.WithTimeoutCause(ctx, 12*f.Timeout, fmt.Errorf("all together took %v", 12*f.Timeout))
	defer cancel()
	return pods.Ask(ctx, all, f.Timeout, func(ctx context.Context, p pods.Pod) (who pods.Process, v T, err error) {
		opts := []admin.ClientOption{admin.BearerToken(f.token)}
		if !strings.HasPrefix(p.URL, "unix:") {
			opts = append(opts, admin.HTTPClient(&f.http))
		}
		c, err := admin.NewClient(p.URL, opts...)
		if err != nil {
			return who, v, err
		}
		if strings.HasPrefix(p.URL, "unix:") { // others share their connections
			defer c.Close()
		}
		return ask(ctx, p, c)
	})
}

// each asks the pods that have answered something else. Those that have not keep their error.
func each[T, U any](
	ctx context.Context, f *fleet, answers []pods.Answer[T],
	then func(context.Context, *admin.Client, pods.Answer[T]) (U, error),
) []pods.Answer[U] {
	var all []pods.Pod
	was := make(map[pods.Pod]pods.Answer[T])
	for _, a := range answers {
		all = append(all, a.Pod)
		was[a.Pod] = a
	}
	return askAll(ctx, f, all, func(ctx context.Context, p pods.Pod, c *admin.Client) (pods.Process, U, error) {
		a := was[p]
		if a.Err != nil {
			return a.Process, *new(U), a.Err
		}
		v, err := then(ctx, c, a)
		return a.Process, v, err
	})
}

func failed[T any](answers []pods.Answer[T]) (bad []pods.Answer[T]) {
	for _, a := range answers {
		if a.Err != nil {
			bad = append(bad, a)
		}
	}
	return bad
}

const mostLines = 20 // of pods, in a message

// complain names on stderr the pods that have failed.
func complain[T any](f *fleet, answers []pods.Answer[T], what string) {
	fmt.Fprint(f.Err, complaint(answers, what))
}

// complaint is lines about the pods that have failed; "" if none has.
func complaint[T any](answers []pods.Answer[T], what string) string {
	bad := failed(answers)
	if len(bad) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d of %s:\n", what, len(bad), cmdline.Count(len(answers), "pod"))
	for _, a := range bad[:min(mostLines, len(bad))] {
		fmt.Fprintf(&b, "  %s: %s\n", a.Name, plain(a.Err))
	}
	if more := len(bad) - mostLines; more > 0 {
		fmt.Fprintf(&b, "  and %d more\n", more)
	}
	return b.String()
}

// plain is an error without what its pod's address says already, in one line that is fit to be printed. It has no port
// of ours, which is another one each time: the same failure has the same text.
func plain(err error) string {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		err = u.Err
	}
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		op.Source = nil
	}
	if errors.Is(err, context.Canceled) {
		return "interrupted"
	}
	return shown.Line(err.Error())
}

// one is the limiter that is meant: that of --limiter, or the only one that there is.
func (f *fleet) one(answers []seen) (string, error) {
	names := f.limiters(answers)
	switch {
	case f.Limiter != "" && !slices.Contains(names, f.Limiter):
		return "", fmt.Errorf("no pod has a limiter %s, want %s", strconv.Quote(f.Limiter), either(names))
	case f.Limiter == "" && len(names) == 0:
		return "", errors.New("no pod has a limiter")
	case f.Limiter == "" && len(names) > 1:
		return "", cmdline.Usagef("--limiter is missing, want %s", either(names))
	}
	return cmp.Or(f.Limiter, names[0]), nil
}

// either is some names as a choice, cut where they are too many to read.
func either(names []string) string {
	text := strings.Join(names[:min(mostLines, len(names))], " or ")
	if len(names) > mostLines {
		text += " or another"
	}
	return shown.Line(cmp.Or(text, "one that is there"))
}

// limiters are the names of those that any pod has, in order.
func (f *fleet) limiters(answers []seen) []string {
	all := make(map[string]bool)
	for _, a := range answers {
		for name := range a.Value.Limiters {
			all[name] = true
		}
	}
	return cmdline.SortedKeys(all)
}

// chosen is those of --limiter, or all.
func (f *fleet) chosen(answers []seen) ([]string, error) {
	if f.Limiter == "" {
		return f.limiters(answers), nil
	}
	name, err := f.one(answers)
	return []string{name}, err
}

// podJSON is what --json says of a pod. The answer is what the API of package admin says, if it did.
type podJSON struct {
	Pod     string `json:"pod"`
	Address string `json:"address"`
	Error   string `json:"error,omitempty"`
	Answer  any    `json:"answer,omitempty"`
}

func newPods[T any](answers []pods.Answer[T], with func(T) any) []podJSON {
	all := make([]podJSON, len(answers))
	for i, a := range answers {
		all[i] = podJSON{Pod: a.Name, Address: a.Address}
		if a.Err != nil {
			all[i].Error = plain(a.Err)
		} else if with != nil {
			all[i].Answer = with(a.Value)
		}
	}
	return all
}

// printJSON writes one object. What a terminal would obey is escaped: encoding/json leaves some of it.
func (f *fleet) printJSON(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, r := range string(text) {
		if strconv.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		for _, u := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&b, `\u%04x`, u)
		}
	}
	_, err = fmt.Fprintln(f.Out, b.String())
	return err
}
