package main

import (
	"strings"
	"testing"
)

// turnRows has for each turn of the list sentences in which it is found, and some in which it must not be.
var turnRows = map[string]struct{ found, fine []string }{
	"tells whether": {
		[]string{
			"idle tells whether the key is idle.",
			"It takes one and tells if it did.",
			"open tells that the gate is open.",
		},
		[]string{
			"idle reports whether the key is idle.",
			"A caller cannot tell whether it was sent.",
			"It is hard to tell if it was.",
		},
	},
	"tells which": {
		[]string{
			"Reason tells why an ask was refused.",
			"A law that tells of room left.",
			"Explain tells where a key stands.",
		},
		[]string{"Middleware tells each client its limits.", "Explain returns why an ask waits."},
	},
	"told": {
		[]string{"The cost as it was told last.", "Told nothing, it starts over."},
		[]string{"IPv6 clients are told apart by the prefix.", "A mark that can be told from a name."},
	},
	"says when": {
		[]string{
			"The rule says when the queue is full.",
			"judge says which promise is broken.",
			"BehindAuthentication says that a proxy is in front.",
		},
		[]string{"The answer says when to come back."},
	},
	"says so": {
		[]string{"An error says so.", "It returns an error that says so.", "All others say so."},
		[]string{"It returns an error that names the field.", "They say so much of it."},
	},
	"was said": {
		[]string{"0 when it was not said.", "What was said about the pool.", "Nothing larger has been said."},
		[]string{"The last report counts.", "What the upstream said about it."},
	},
	"hears": {
		[]string{"A law hears answers.", "What was heard of it.", "It must not hear of it."},
		[]string{"A shard of keys.", "The law learns from answers."},
	},
	"heeds": {
		[]string{"It heeds a gate.", "A change is heeded."},
		[]string{"It needs a gate."},
	},
	"a word": {
		[]string{
			"An operator's word counts at once.",
			"Operators' words end.",
			"The source's word is damped.",
			"It takes a word for a while.",
			"The last word counts.",
		},
		[]string{
			"It is two words of memory.",
			"The word size of the machine.",
			"It ends without a word.",
			"The first word of a line.",
		},
	},
	"sees to it": {
		[]string{"ExpireIn sees to it that the permit is given back.", "A lock sees to that."},
		[]string{"It sees the pool."},
	},
	"nobody": {
		[]string{"Nobody waits.", "It is nobody's error."},
		[]string{"No caller waits.", "It has no body."},
	},
	"somebody": {
		[]string{"Somebody else waits.", "Anybody may.", "Everybody goes down."},
		[]string{"Every body is read. Some body is left."},
	},
	"spoken of": {
		[]string{"Keys that are spoken of.", "A refusal speaks of no quota.", "A replica that has spoken."},
		[]string{"A report names three keys."},
	},
	"holds that": {
		[]string{"TestIdle holds that an idle key is dropped.", "Tests hold that."},
		[]string{"TestIdle checks that an idle key is dropped.", "A permit holds one slot."},
	},
	"asked": {
		[]string{"The policy is asked again.", "It was not asked.", "reask calls it."},
		[]string{"A lock that was asked for.", "The policy is called again."},
	},
	"joiner": {
		[]string{"A joiner starts empty.", "The joiners' first window."},
		[]string{"A new replica starts empty, and joins."},
	},
	"gives way": {
		[]string{"A busy key does not give way.", "The oldest gave way."},
		[]string{"It gives the caller a way out."},
	},
	"slept through": {
		[]string{"A turn that was slept through."},
		[]string{"A caller sleeps until its turn."},
	},
	"ask": {
		[]string{
			"An ask that waits.", "The next ask's turn.", "All asks are admitted.", "Between two asks.",
			"It takes 3 asks of tokens.",
		},
		[]string{"A client that asks again.", "It reads the token and asks for one.", "A task of it.",
			"Callers ask."},
	},
	"law": {
		[]string{"A law learns.", "The law's rate.", "Control laws."},
		[]string{"A controller learns.", "Little's law gives the slots.", "A flaw."},
	},
	"news": {
		[]string{"Without news of the others the shares stand."},
		[]string{"Reports from other replicas are newer."},
	},
	"reckoned": {
		[]string{"It is reckoned from the end of the pause."},
		[]string{"It is computed from the end of the pause."},
	},
	"as ever": {
		[]string{"The limiter decides as ever."},
		[]string{"There are as many slots as there are ever replicas."},
	},
	"is none": {
		[]string{"A Probe below 0 is none."},
		[]string{"It returns false where there is none.", "It is none of the four."},
	},
	"What": {
		[]string{
			"What is below 1 counts as 1.",
			"What runs by itself is one timer for each key.",
			"Whatever a client sends is checked: all of it.",
		},
		[]string{"Whatever fails, the key stays.", "What can go wrong", "What does it cost?",
			"Values below 1 count as 1.", "It returns what is left."},
	},
	"Of": {
		[]string{"Of several paced rates only the slowest takes turns.",
			"Of one that is refused no more is read."},
		[]string{"Of course it is bounded.", "Only the slowest of several rates takes turns."},
	},
	"One that": {
		[]string{"One that was asked for under a policy that learns is idle ten minutes later."},
		[]string{"One replica is enough.", "A key that learns is idle ten minutes later."},
	},
	"So is": {
		[]string{"So is a limiter that no rule uses.", "So does a waiter."},
		[]string{"So the limit is lower.", "So has it been."},
	},
	"Else": {
		[]string{"Else it returns dst."},
		[]string{"Otherwise it returns dst.", "Elsewhere it is 0."},
	},
	"whoever": {
		[]string{"Whoever asks waits.", "It belongs to whoever's turn it is."},
		[]string{"However it is done."},
	},
	"ration": {
		[]string{"The ration of a key.", "All rations hold."},
		[]string{"The ratio of a key, an iteration of it."},
	},
	"accused": {
		[]string{"The accused rule."},
		[]string{"The rule to blame."},
	},
	"overtaken": {
		[]string{"It was overtaken."},
		[]string{"It is taken over."},
	},
	"overslept": {
		[]string{"A caller that overslept."},
		[]string{"A caller that woke late."},
	},
	"lapses": {
		[]string{"The turn lapses.", "A lapsed turn."},
		[]string{"It collapses and elapses."},
	},
	"lows": {
		[]string{"The lows of a bucket."},
		[]string{"It flows and allows."},
	},
	"unfit": {
		[]string{"An unfit waiter.", "It weeds the queue."},
		[]string{"It benefits."},
	},
	"lets by": {
		[]string{"It lets by who is next.", "It lets one by."},
		[]string{"It lets one event pass by the clock."},
	},
	"comes for it": {
		[]string{"A waiter that comes for it.", "It has come for it."},
		[]string{"It comes for each key."},
	},
	"house": {
		[]string{"The house of the limiter."},
		[]string{"A warehouse."},
	},
	"shut": {
		[]string{"The gate is shut."},
		[]string{"The server begins to shut down, and is shutting down."},
	},
	"thing": {
		[]string{"The first thing that is wrong.", "Two things."},
		[]string{"Nothing, something and anything."},
	},
	"anew": {
		[]string{"It starts anew."},
		[]string{"It takes a new one."},
	},
	"thereof": {
		[]string{"Hence the bound.", "The rest thereof."},
		[]string{"There of all places."},
	},
}

func TestTurns(t *testing.T) {
	for i := range turns {
		turn := &turns[i]
		row, ok := turnRows[turn.name]
		if !ok || len(row.found) == 0 || len(row.fine) == 0 {
			t.Errorf("%s: no row has a sentence that breaks it, and one that does not", turn.name)
		}
		if turn.better == "" {
			t.Errorf("%s: nothing better is named", turn.name)
		}
		for _, s := range row.found {
			if len(turn.find(s)) == 0 {
				t.Errorf("%s: not found in %q", turn.name, s)
			}
		}
		for _, s := range row.fine {
			if at := turn.find(s); len(at) > 0 {
				t.Errorf("%s: found in %q at %v", turn.name, s, at)
			}
		}
	}
	if len(turnRows) != len(turns) {
		t.Errorf("%d rows for %d turns", len(turnRows), len(turns))
	}
}

func TestBareWho(t *testing.T) {
	for _, found := range []string{
		"Who asks waits.",
		"A turn is short: who wakes late has lost it.",
		"A limit is shared; who wants more waits.",
		"One goes to who has waited longest.",
		"On a paced rate of at most one event a second, who wakes late has lost that turn.",
		"It serves who is first.",
		"It is slower, so that who is far above its share grows no faster.",
		"The reason, and who waits behind it.",
		"The gate for who only looks.",
		"Of who has lost a turn.",
		"It waits, and so does who asks in between.",
		"next is who is served next.",
		"Where they share a backend, who pays goes first.",
		"Its place (who comes late has none) is given away.",
	} {
		if got := bareWho(found); len(got) != 1 {
			t.Errorf("%d found in %q, want 1", len(got), found)
		}
	}
	for _, fine := range []string{
		"A caller who waits is served.",
		"Those who wait are served in order.",
		"One key is for a customer who pays, and one for those who do not.",
		"Strangers, who have no token, are refused.",
		"A caller who asks and who waits.",
		"It finds out who asks, and whether they may.",
		"A key function is a decision about who shares a quota.",
		"It is logged with why, and who it was.",
		"Who asks?",
		`It asks "who is it" first.`,
		"The cost is the same regardless of who asks.",
		"The order of instants matters, not who is who.",
		"Whose turn it is.",
	} {
		b := block{lines: []line{{1, fine}}}
		for _, h := range b.check() {
			if h.rule == ruleWho {
				t.Errorf("found in %q: %s", fine, h.text)
			}
		}
	}
}

// TestHitNamesTheBetterWord checks that a hit has the place, the text and what to write instead.
func TestHitNamesTheBetterWord(t *testing.T) {
	b := block{lines: []line{{7, "A gate that is"}, {8, "open tells whether it is."}}}
	hits := b.check()
	if len(hits) != 1 {
		t.Fatalf("got %+v", hits)
	}
	if h := hits[0]; h.line != 8 || h.rule != "tells whether" ||
		!strings.Contains(h.text, "reports whether") {
		t.Errorf("got %+v", h)
	}
}
