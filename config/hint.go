package config

import (
	"slices"
	"strings"
)

// didYouMean is a hint at the name of those known that is nearest to name; "" if none is near: a third of its letters
// may be wrong. Case and underscores do not count.
func didYouMean(name string, known []string) (hint string) {
	const longest = 80
	if len(name) > longest {
		return ""
	}
	least := len(name)/3 + 2
	for _, k := range slices.Sorted(slices.Values(known)) {
		d := distance(plain(name), plain(k))
		if d < least && d <= max(1, len(k)/3) {
			hint, least = "did you mean "+k+"?", d
		}
	}
	return hint
}

// plain is a name without what people mix up.
func plain(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }

// distance is how many letters must be put in, left out, replaced or swapped with the next to make b of a.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			wrong := 1
			if a[i-1] == b[j-1] {
				wrong = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+wrong)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}
