package main

import (
	"regexp"
	"strings"
)

// turn is a word or a turn that a reader from outside does not understand at once.
type turn struct {
	name    string         // as it is counted
	pattern *regexp.Regexp // where it is found
	fine    *regexp.Regexp // the same words in a turn that is good English; nil for none
	better  string         // what to write instead
	opens   bool           // it is about how a sentence begins, which a cell of a table need not be
}

// find returns where the turn is in a sentence, without the places where it is fine.
func (t *turn) find(sentence string) [][]int {
	found := t.pattern.FindAllStringIndex(sentence, -1)
	if len(found) == 0 || t.fine == nil {
		return found
	}
	var left [][]int
	fine := t.fine.FindAllStringIndex(sentence, -1)
next:
	for _, at := range found {
		for _, f := range fine {
			if f[0] <= at[0] && at[1] <= f[1] {
				continue next
			}
		}
		left = append(left, at)
	}
	return left
}

// say makes a turn. The patterns are regular expressions for whole words in any case; fine may be empty.
func say(name, better, pattern, fine string) turn {
	t := turn{name: name, better: better, pattern: regexp.MustCompile(`(?i)\b(?:` + pattern + `)\b`)}
	if fine != "" {
		t.fine = regexp.MustCompile(`(?i)\b(?:` + fine + `)\b`)
	}
	return t
}

// begin makes a turn of a whole sentence, from its beginning, in the case that is given.
func begin(name, better, pattern string, notBefore ...string) turn {
	t := turn{name: name, better: better, pattern: regexp.MustCompile(`^(?:` + pattern + `)$`)}
	if len(notBefore) > 0 {
		t.fine = regexp.MustCompile(`^\S+ (?:` + strings.Join(notBefore, "|") + `)\b.*$`)
	}
	t.opens = true
	return t
}

// turns is the list. It holds what is private language or hard to read, and nothing that is a matter of
// taste.
var turns = []turn{
	// Functions report and return; they do not tell.
	say("tells whether", `"reports whether"`,
		`tells? (?:whether|if|that)|telling (?:whether|if|that)`,
		`(?:can|could|cannot|to|not) tell (?:whether|if|that)`),
	say("tells which", `"returns", "explains" or "reports"`,
		`tells (?:which|why|how|what|when|where|who|of)|tell of|telling of`, ``),
	say("told", `"reported", "given", "informed", "notified"`, `told`, `told apart|told from`),
	say("says when", `"reports when", "states why", "means that", "declares that"`,
		`says (?:when|why|how|which|where|who|whether|that)`, `says (?:when|how|which|where) to`),
	say("says so", `"reports it", "states that", "names the field"`,
		`says? so`, `says? so (?:much|many)`),
	say("was said", `"was reported", "is stated"`, `(?:is|are|was|were|been|be|as|not|last|once) said`, ``),
	say("hears", `"receives", "learns of", "reads"`, `hears?|heard|hearing`, ``),
	say("heeds", `"applies", "obeys", "follows"`, `heed(?:s|ed|ing)?`, ``),
	say("a word", `what it is: "setting", "report", "pinned pool", "message"`,
		`operators?['’]?s?['’]? words?|(?:client|caller|upstream|server|source|store)['’]s words?|`+
			`(?:first|last|takes? an?) word`,
		`(?:first|last) word of`),
	say("sees to it", `"makes sure"`, `sees to (?:it|that)`, ``),
	say("spoken of", `"named", "mentioned", "listed"`,
		`spoken(?: of)?|speaks? of|speaking of|spoke of`, `spoken for`),
	say("holds that", `"checks that" of a test, "guarantees that" of code`, `holds? that`, ``),
	say("asked", `"called", "consulted", "queried"`,
		`(?:is|are|was|were|be|been|being|not|never) asked|re-?ask(?:s|ed)?|unasked`,
		`(?:is|are|was|were|be|been|being|not|never) asked (?:for|to)`),

	// Callers, clients, replicas and waiters have names.
	say("nobody", `"no caller", "no client", "no one that reads", or the passive`, `nobody(?:['’]s)?`, ``),
	say("somebody", `"a caller", "another client", "every replica"`,
		`somebody(?:['’]s)?|anybody(?:['’]s)?|everybody(?:['’]s)?`, ``),
	say("joiner", `"a new replica"`, `joiners?(?:['’]s)?`, ``),
	say("gives way", `"is displaced", "yields its place", "is dropped"`, `(?:gives?|gave|given|giving) way`, ``),
	say("slept through", `"missed", "expired while it slept"`, `(?:slept|sleeps?|sleeping) through`, ``),
	say("whoever", `"the caller that", "a client that"`, `whoever(?:['’]s)?|whomever`, ``),

	// Private nouns, and names of the code that readers of a page have never seen.
	say("ask", `"call", "request"`,
		`(?:an?|the|each|every|any|one|no|next|this|that|such|which|another|other|first|last|single|new|large|small|`+
			`whose|per|its|of|plain|later?|waiting) ask(?:['’]s)?|`+
			`(?:of|all|no|by|for|its|their|these|those|more|other|many|few|some|\d+|between|whose|with|without|per|`+
			`from|to|after|before|admitted|unreleased|first|large|small|plain|late|new|waiting|two|three) asks|asks? of`,
		`(?:each|every|any|one|which|that|and) asks of|no more than (?:it|they) asks? of|(?:caller|client)s? ask of`),
	say("law", `"controller", or "policy" for the type`, `laws?(?:['’]s)?`,
		`(?:Little|Amdahl|Moore|Goodhart)['’]s laws?|laws? of large numbers|power laws?`),
	say("news", `"report", "reports from other replicas"`, `news`, ``),
	say("ration", `"rule"`, `rations?`, ``),
	say("accused", `"blame", "the rule to blame"`, `accused?s?|accuses`, ``),
	say("overtaken", `"passed by", "recheck"`, `overtaken`, ``),
	say("overslept", `"woke late"`, `oversle(?:ep|pt)s?`, ``),
	say("lapses", `"expires", "ends"`, `lapse[sd]?`, ``),
	say("lows", `"minima"`, `lows`, ``),
	say("unfit", `"hopeless", "reject"`, `unfit|weeds?|weeded`, ``),
	say("lets by", `"admits"`, `lets? by|letting by|lets? (?:him|her|it|them|one|this|that) by`, ``),
	say("comes for it", `"takes its permit", "wakes"`,
		`com(?:e|es|ing) for (?:it|them|him)|came for (?:it|them|him)`, ``),
	say("house", `"package", "program"`, `house`, `Command house|HOUSE=-\w+`),
	say("shut", `"paused", "closed"`, `shut`, `shuts? down|shutting down|shut off`),

	// Words that are old, or say nothing.
	say("thing", `its name: "rule", "field", "resource"`, `things?`, ``),
	say("anew", `"again", "from the start"`, `anew`, ``),
	say("thereof", `"of it", "so", "from which"`,
		`thereof|hereof|whence|hence|thence|lest|nought|naught|ere|albeit|therein|wherein|whereof|aught`, ``),
	say("reckoned", `"computed", "counted"`, `reckon(?:s|ed|ing)?`, ``),
	say("as ever", `"as always", "unchanged"`, `as ever`, ``),
	say("is none", `what it means: "means none", "is not a key"`, `is none`, `there is none|is none of`),

	// The order of a sentence: subject, verb, object.
	begin("What", `the subject: "values below 1 count as 1", not "what is below 1 counts as 1"`,
		`What .*[.:]|Whatever [^,]*[.:]`),
	begin("Of", `the subject: "X is the only one of", not "of all that, only X"`, `Of .*`, `course`, `returns`),
	begin("One that", `the noun: "a plan that", not "one that"`, `One (?:that|who|which) .*`),
	begin("So is", `the subject: "X is too"`, `So (?:is|are|was|were|does|do|did|can|will|would) .*`),
	begin("Else", `"Otherwise"`, `Else .*`),
}
