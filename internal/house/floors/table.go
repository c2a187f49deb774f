package floors

import "strings"

// File is a file of the root package, with the floor that it stands on.
type File struct {
	Name, Floor, Why string
	Moving           bool // planned, or on its way out: it may be absent
}

// Names are the floors from the top.
var Names = []string{"face", "operate", "look", "shard", "gate", "rules", "words"}

// MaxDefended is how many references may run up with a comment that defends them.
const MaxDefended = 10

// Root is the table of the root package. A file may use what stands on its floor or below.
// A mark m stands before a file that may be absent: one that is planned, or that will go. Take the
// mark, or the line, away once the file has come, or gone.
var Root = read(`
  face    doc.go       what the package is
  face    limiter.go   New: what programs hold
  face    acquire.go   all verbs that admit a call, each in one place
  face    throttle.go  Do stands on the verbs
  face    registry.go  limiters by name

  operate change.go    what operators change, and how a setting is published
  operate override.go  limits of single keys
  operate follow.go    Follow, its damper, SetPool, and what the log says of a source
  operate carrier.go   what the replicas of a pool say of keys, turn by turn

  look    stats.go     figures of a limiter and its keys; they change nothing
  look    explain.go   why a key is where it is

  shard   shard.go     Limiter, and a part of its keys under one lock: touch and admit
  shard   wait.go      how callers wait for a gate, with one timer each
  shard   demand.go    what a replica wants of a key, and its part of the limit
  shard   census.go    the events of a key that the replicas count together
  shard   permit.go    what an admission holds until it is released
  shard   leak.go      permits that are never released
  shard   lru.go       the store of gates and the overflow gate
  shard   plan.go      named limits, and the keys that change between them
  shard   index.go     finds gates by their keys

  gate    gate.go      the resources of one key and the queue in front of them
  gate    queue.go     first in, first out within a class, and a trickle by age
  gate    replay.go    how a gate follows the settings it has not seen
  gate    refund.go    what a permit gives back or is charged later

  rules   setting.go   a limit and a pool, worked out for this replica
  rules   lend.go      more of a limit than the share
  rules   resource.go  what every rule's state can do
  rules   bucket.go    tokens
  rules   window.go    events in an aligned period
  rules   counted.go   what such a window knows of the fleet's events
  rules   turn.go      the time slot that a replica has of a slow rate
  rules   semaphore.go slots
  rules   pacer.go     the bucket of a rate that is learned
  rules   adaptive.go  the controllers of a key

  words   limit.go     what a program asks for: Limit and Rate
  words   calloption.go what a call takes, and its class
  words   errors.go    why a call is refused
  words   options.go   how a limiter is set up
  words   poolsize.go  Pool, Source, Env
`)

// read parses a table: a line is a mark m or none, a floor, a file and a reason.
func read(text string) []File {
	var files []File
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		f := File{Moving: words[0] == "m"}
		if f.Moving {
			words = words[1:]
		}
		f.Floor, f.Name, f.Why = words[0], words[1], strings.Join(words[2:], " ")
		files = append(files, f)
	}
	return files
}
