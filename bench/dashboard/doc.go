// Package dashboard tests deploy/grafana/quotient.json and the examples of docs/metrics.md: each query is parsed with the parser of Prometheus, held
// to the names and labels of a live scrape, and asked of the samples of several scrapes. It has no code beside its tests, and lies here because
// Prometheus is too heavy a dependency for the root module.
package dashboard
