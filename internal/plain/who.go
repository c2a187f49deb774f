package main

import (
	"regexp"
	"strings"
)

// bareWho returns where "who" is the subject of a clause without a noun that it belongs to: "Who asks waits",
// "it serves who is first". A relative clause ("a caller who", "those who", "Bob, who"), a question and an
// indirect question ("finds out who asks") are good English.
func bareWho(sentence string) []int {
	var found []int
	for _, at := range who.FindAllStringIndex(sentence, -1) {
		if isBare(sentence[:at[0]], sentence[at[1]:]) {
			found = append(found, at[0])
		}
	}
	return found
}

// isBare reports whether a "who" between these parts of a sentence has no noun.
func isBare(before, after string) bool {
	switch {
	case opening.MatchString(before):
		return !question.MatchString(after)
	case coordinated.MatchString(before):
		return !paired.MatchString(before)
	case governed.MatchString(before):
		return !asked.MatchString(before)
	}
	return introduced.MatchString(before)
}

var (
	who      = regexp.MustCompile(`\b[Ww]ho\b`)
	question = regexp.MustCompile(`\?["”)]*$`)

	// opening: nothing is before it in its clause.
	opening = regexp.MustCompile(`(?:^|[:;(–—]) *$`)

	// coordinated: it goes on with another clause. paired: that has a "who" too, or asks another question.
	coordinated = regexp.MustCompile(`(?i)(?:^|[ (])(?:and|or|but|nor) $`)
	paired      = regexp.MustCompile(`(?i)\bwhom?\b|\b(?:what|why|which|where|when|how),? (?:and|or) $`)

	// governed: a conjunction, a preposition or a verb that takes a noun, and no question, is before it.
	governed = regexp.MustCompile(`(?i)(?:^|[ (])` + oneOf(`
		that which because since while when if unless until than as so
		of for to by from with against behind before after beside like only even then
		let lets give gives serve serves stop stops wake wakes admit admits refuse refuses hold holds keep keeps
		hurt hurts help helps make makes send sends cost costs overtake overtakes go goes do does
		is are was were`) + ` $`)

	// asked: what seems to govern it belongs to a turn that takes a question, or to "who is who".
	asked = regexp.MustCompile(`(?i)\b(?:` + oneOf(`regardless irrespective independent independently
		question knowledge record note`) + ` of|as to|that is|that was|who is|who was) $`)

	// introduced: the comma ends an adverbial at the start of the sentence, and not a noun.
	introduced = regexp.MustCompile(`^` + oneOf(`After As At Before Beside During For If In On Since So Then
		Under Until When Where While With Within Without`) + `\b[^,]*, $`)
)

// oneOf returns the regular expression for one of the words.
func oneOf(words string) string { return `(?:` + strings.Join(strings.Fields(words), "|") + `)` }
