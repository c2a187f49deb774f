// Package kinds reads the kind of a rate from the fields in which files and the admin API spell it. One field,
// kind, says it now. Before there was one, aligned and counted said it, paced in files, and a burst of 1. They
// still do where kind is left out. Beside it they have to agree, since either may be the mistake.
package kinds

import (
	"fmt"
	"slices"

	"github.com/quotient-go/quotient"
)

// Names are the kinds as the field kind spells them, by their values.
var Names = []string{
	quotient.Bucket.String(), quotient.Paced.String(), quotient.Window.String(), quotient.CountedWindow.String(),
}

// Older are the fields that said the kind before.
var Older = []string{"paced", "aligned", "counted"}

// Set gives a rate the kind that its fields spell: one of Names, or "" where the field is left out, and those of
// Older that are there. The burst of a paced rate is left out, so that all ways to spell one give the same Rate.
// If fields contradict each other, Set returns the one to blame and what is wrong with it.
func Set(r *quotient.Rate, kind string, older map[string]bool) (field, fault string) {
	switch {
	case kind != "":
		r.Kind = quotient.Kind(slices.Index(Names, kind))
		window := r.Kind == quotient.Window || r.Kind == quotient.CountedWindow
		for i, want := range []bool{r.Kind == quotient.Paced, window, r.Kind == quotient.CountedWindow} {
			if is, there := older[Older[i]]; there && is != want {
				return Older[i], fmt.Sprintf("%t beside kind = %q", is, kind)
			}
		}
	case older["counted"] && !older["aligned"]:
		return "counted", "true on a rate that is not aligned"
	case older["paced"] && older["aligned"]:
		return "paced", "true beside aligned: a window has no pace"
	case older["counted"]:
		r.Kind = quotient.CountedWindow
	case older["aligned"]:
		r.Kind = quotient.Window
	case older["paced"] || r.Burst == 1:
		r.Kind = quotient.Paced
	}
	if r.Kind == quotient.Paced && r.Burst == 1 {
		r.Burst = 0
	}
	return "", ""
}
