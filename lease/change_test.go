package lease

import (
	"testing"
	"time"
)

func TestRestore(t *testing.T) {
	scripts(t, []row{
		{"an unknown peer", "A=3 B=1/1", `
			9 restores 10s A=2 B=1 ->
			A held     -> 9:2
			B held     -> 9:1
			9 token A  -> 100
			9 token B  -> 101
			next       -> 10s
			wait 10s
			A held     ->
			A totals   -> granted 0 released 0 expired 1 broken 0 restored 1 beyond 0`},
		{"with nothing", "A=1", `
			9 restores 10s  ->
			9 asks A 1      -> held`},
		{"beyond the maximum", "A=3", `
			1 asks A 2         -> held
			2 asks A 2         -> waits
			9 restores 10s A=3 -> A
			A left             -> -2
			A held             -> 1:2 9:3
			1 releases A       ->
			A held             -> 9:3
			wait 10s
			A held             -> 2:2
			A totals           -> granted 2 released 1 expired 1 broken 0 restored 1 beyond 1`},
		{"beyond the maximum of one lock", "A=1", `
			9 restores 10s A=7 -> A
			A left             -> -6
			9 asks A 7         -> held`},
		{"ignores levels", "A=1 B=1", `
			9 restores 10s A=1 B=1 ->
			B held                 -> 9:1`},
		{"an existing peer must be identical", "A=3 B=1/1", `
			1 asks B 1               -> held
			1 asks A 2               -> held
			next                     -> 1m0s
			1 restores 2m A=2 B=1    ->
			next                     -> 2m0s
			wait 1m
			A held                   -> 1:2
			1 restores 2m A=2        -> Restore is not allowed to change existing peers.
			1 restores 2m A=1 B=1    -> Restore is not allowed to change existing peers.
			1 restores 2m            -> Restore is not allowed to change existing peers.
			1 restores 2m A=2 B=1@101 -> Restore is not allowed to change existing peers.
			1 restores 2m A=2 A=2    -> Restore is not allowed to change existing peers.
			1 restores 2m A=2@101 B=1@100 ->`},
		{"a pending lock is none", "A=1 B=1/1", `
			1 asks A 1         -> held
			2 asks B 1         -> held
			2 asks A 1         -> waits
			2 restores 1m B=1  ->
			2 restores 1m A=1 B=1 -> Restore is not allowed to change existing peers.`},
		{"nonsense changes nothing", "A=1", `
			9 restores 1m B=1     -> Unknown semaphore
			9 restores 1m A=0     -> Lock count must be a positive number. Found: 0.
			9 restores 1m A=-3    -> Lock count must be a positive number. Found: -3.
			9 restores 1m A=1099511627777 -> Lock count must be at most 1099511627776. Found: 1099511627777.
			9 restores 1m A=1 A=1 -> Restore is not allowed to change existing peers.
			peers                 -> [1 2 3 4 5]`},
	})
}

func TestFencing(t *testing.T) {
	scripts(t, []row{
		{"rises with each grant", "A=9 B=1", `
			1 asks A 1   -> held
			2 asks B 1   -> held
			3 asks B 1   -> waits
			1 releases A ->
			1 asks A 1   -> held
			2 releases B ->
			2 asks A 1   -> held
			1 token A    -> 102
			3 token B    -> 103
			2 token A    -> 104`},
		{"rises above what is restored", "A=9", `
			9 restores 1m A=1@5000 ->
			1 asks A 1      -> held
			1 token A       -> 5001
			9 token A       -> 5000
			8 restores 1m A=1@7 -> # older ones are what they were
			8 token A       -> 7
			2 asks A 1      -> held
			2 token A       -> 5002`},
		{"a new one is not one that is restored beside it", "A=1 B=1", `
			9 restores 1m A=1 B=1@100 ->
			9 token A       -> 101
			9 token B       -> 100`},
		{"that was never given", "A=1", `
			9 restores 1m A=1@9223372036854775807 -> Token 9223372036854775807 was never given.
			peers           -> [1 2 3 4 5]
			tokens 200-300
			9 restores 1m A=1@200 -> Token 200 was never given.
			9 restores 1m A=1@199 ->`},
		{"used up: what is asked for waits", "A=9", `
			tokens 200-202
			1 asks A 1      -> held
			2 asks A 1      -> held
			3 asks A 1      -> waits
			4 asks A 1      -> waits
			9 restores 1m A=1 -> No fencing tokens are left.
			9 restores 1m A=1@150 ->
			tokens 100-400  # older ones change nothing
			tokens 300-300  # and neither do none
			A queue         -> 3:1 4:1
			tokens 300-301
			A queue         -> 4:1
			3 token A       -> 300
			tokens 400-500
			4 token A       -> 400
			changed         -> [3 4]`},
		{"too few for a restore", "A=1 B=1", `
			tokens 200-201
			9 restores 1m A=1 B=1 -> No fencing tokens are left.
			peers           -> [1 2 3 4 5]
			9 restores 1m A=1 B=1@150 ->`},
	})
	for _, k := range []Tokens{{}, {5, 5}, {9, 5}, {1 << 63, EndOfTokens}, {1<<63 + 5, 1<<63 + 9}} {
		table, err := NewTable(Config{}, k, time.Now())
		if err != nil || table.TokensLeft() != 0 {
			t.Errorf("%v: %d tokens, error %v, want none", k, table.TokensLeft(), err)
		}
	}
	if k := (Tokens{0, 9}).within(); k.left() != 8 {
		t.Errorf("of 0 to 8 there are %d, want 8: 0 is none", k.left())
	}
}

func TestChangedConfiguration(t *testing.T) {
	scripts(t, []row{
		{"a lower maximum drains", "A=4", `
			1 asks A 2   -> held
			2 asks A 2   -> held
			3 asks A 1   -> waits
			config A=2   ->
			A held       -> 1:2 2:2
			A left       -> -2
			1 releases A ->
			A queue      -> 3:1
			2 releases A ->
			A held       -> 3:1`},
		{"a higher one serves at once", "A=1", `
			1 asks A 1   -> held
			2 asks A 1   -> waits
			3 asks A 1   -> waits
			config A=2   ->
			A held       -> 1:1 2:1
			changed      -> [2]`},
		{"what can never be granted is dropped, and the next goes", "A=3", `
			1 asks A 1   -> held
			2 asks A 3   -> waits
			3 asks A 1   -> waits
			config A=2   ->
			A held       -> 1:1 3:1
			A queue      ->
			changed      -> [2 3]
			2 acquired   -> Lock can never be acquired. Lock asks for count 3 yet full count is only 2.
			config A=3   ->
			2 acquired   -> No such lock is held.
			2 asks A 1   -> held
			2 acquired   -> true`},
		{"a dropped lock may be released", "A=3", `
			1 asks A 3   -> held
			2 asks A 3   -> waits
			config A=2   ->
			2 releases A ->
			2 acquired   -> true`},
		{"a semaphore that is gone is its holder's until released", "A=2 B=1", `
			1 asks A 2   -> held
			2 asks A 1   -> waits
			config B=1   ->
			changed      -> [2]
			2 acquired   -> Unknown semaphore
			2 state A 1  -> Unknown semaphore
			A left       -> Unknown semaphore
			3 asks A 1   -> Unknown semaphore
			3 releases A -> Unknown semaphore
			9 restores 1m A=1 -> Unknown semaphore
			1 asks A 2   -> held
			1 asks A 1   -> held
			1 restores 1m A=1 ->
			1 asks B 1   -> Lock hierachy violation. This may deadlock. The current lock level is 0 the requested lock level was 0.
			A held       -> 1:1
			1 releases A ->
			A totals     -> gone`},
		{"and may come back", "A=2", `
			1 asks A 1   -> held
			config B=1   ->
			config A=1   ->
			A left       -> 0
			2 asks A 1   -> waits`},
		{"levels count from now on", "A=1 B=1/1", `
			1 asks A 1   -> held
			config A=1/2 B=1/1 ->
			1 asks B 1   -> held`},
		{"nonsense changes nothing", "A=3", `
			config A=0   -> lease: Config.Semaphores["A"].Max is 0, want 1 to 1099511627776
			A left       -> 3`},
		{"how long idle peers are kept", "A=1 keep=5m", `
			wait 2m
			config A=1 keep=30s ->
			peers        -> []`},
	})
}

func TestGrace(t *testing.T) {
	scripts(t, []row{
		{"only restores at first", "A=2 grace=10s", `
			1 asks A 1        -> waits
			2 asks A 1        -> waits
			next              -> 10s
			9 restores 1m A=1 ->
			wait 9s
			A held            -> 9:1
			wait 1s
			A held            -> 9:1 1:1
			changed           -> [1]`},
		{"none of it after a configuration", "A=1", `
			config A=1 grace=10s ->
			1 asks A 1        -> held`},
		{"a peer that leaves meanwhile gets nothing", "A=1 grace=10s", `
			1 asks A 1        -> waits
			1 releases A      ->
			2 beats 5s        ->
			2 asks A 1        -> waits
			3 asks A 1        -> waits
			config A=2        ->
			A held            ->
			wait 10s
			A held            -> 3:1`},
	})
}

func TestBreak(t *testing.T) {
	script(t, "A=1 B=1/1", `
		1 asks A 1        -> held
		2 asks A 1        -> waits
		2 broken A 0      -> No such lock is held.
		1 broken A 99     -> No such lock is held.
		1 broken B 100    -> No such lock is held.
		1 broken A 100    ->
		A held            -> 2:1
		1 broken A 101    -> No such lock is held.
		1 beats 1m        -> A
		1 beats 1m        -> A # until it asks again: an answer may be lost
		1 restores 1m A=1 -> Restore is not allowed to change existing peers.
		1 asks A 1        -> waits
		1 beats 1m        ->
		A totals          -> granted 2 released 0 expired 0 broken 1 restored 0 beyond 0`)
}
