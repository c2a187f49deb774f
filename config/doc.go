// Package config reads what is limited from a file, in TOML, and puts it in force: for `quotient proxy`, and
// for programs that embed the library.
package config
