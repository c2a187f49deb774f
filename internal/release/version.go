package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// version is the major, minor and patch number of a release.
type version [3]int

// A major version of 2 would need another module path and other imports.
var versionForm = regexp.MustCompile(`^v([01])\.(0|[1-9]\d{0,5})\.(0|[1-9]\d{0,5})$`)

// parseVersion reads a version such as v0.1.0. A pre-release is an error.
func parseVersion(s string) (version, error) {
	var v version
	parts := versionForm.FindStringSubmatch(s)
	if parts == nil {
		return v, fmt.Errorf("VERSION is %q, want vMAJOR.MINOR.PATCH with a MAJOR of 0 or 1", s)
	}
	for i := range v {
		n, err := strconv.Atoi(parts[i+1])
		if err != nil {
			return v, fmt.Errorf("VERSION is %q: %w", s, err)
		}
		v[i] = n
	}
	return v, nil
}

func (v version) String() string { return fmt.Sprintf("v%d.%d.%d", v[0], v[1], v[2]) }

// newest is the highest version among the tags of the root module, and false if there is none.
func newest(tags []string) (version, bool) {
	var highest version
	found := false
	for _, tag := range tags {
		v, err := parseVersion(tag)
		if err == nil && (!found || slices.Compare(v[:], highest[:]) > 0) {
			highest, found = v, true
		}
	}
	return highest, found
}

// checkNew refuses v if a module has it already, or if it is below the newest version. Tags are all tags of
// the repository.
func checkNew(v version, tags []string) error {
	for _, tag := range tags {
		if tag == v.String() || strings.HasSuffix(tag, "/"+v.String()) {
			return fmt.Errorf("VERSION is %v, and the tag %s exists", v, tag)
		}
	}
	if last, found := newest(tags); found && slices.Compare(v[:], last[:]) < 0 {
		return fmt.Errorf("VERSION is %v, and the last release is %v", v, last)
	}
	return nil
}

// dated returns the changelog with a date behind the heading of the version.
func dated(changelog string, v version, date string) (string, error) {
	heading := fmt.Sprintf("\n## [%s]\n", strings.TrimPrefix(v.String(), "v"))
	if strings.Count(changelog, heading) != 1 {
		return "", fmt.Errorf("CHANGELOG.md needs one line %q without a date", strings.TrimSpace(heading))
	}
	return strings.Replace(changelog, heading, strings.TrimSuffix(heading, "\n")+" - "+date+"\n", 1), nil
}
