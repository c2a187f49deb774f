// Package dashboard tests deploy/grafana/quotient.json and deploy/prometheus/rules.yaml. It parses each query
// with the parser of Prometheus, holds its names and labels to a live scrape, and evaluates it on real
// samples. It has no code beside its tests, and lies here because Prometheus is too heavy a dependency for
// the root module.
package dashboard
