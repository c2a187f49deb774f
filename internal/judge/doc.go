// Package judge proves from outside what a limiter promises (docs/bounds.md). It has tests alone, and shares no code
// with the library: what is right is written down a second time.
//
// The judge (judge_test.go, TestPropertyEverything) plays histories that mix all calls, options, hints, clocks and
// changes on a fleet in fake time. One step is drawn after the other (ops_test.go), from one of ten profiles. After
// each the judge takes up who was admitted and who was refused, and holds that against its models (rules_test.go).
//
// A model (model_test.go) is one key on one replica: it replays what was taken, given back and changed. Each key has
// two. The generous one has at least as much left as the limiter may have: it must have room for whoever is admitted.
// The other one has at most as much left as the limiter must have: whoever is refused or waits must find no room in
// it. What several replicas count together is held over a network of the judge's own (counted_test.go).
//
// The properties that cross features are smaller: each draws histories for one promise. A limiter is compared with a
// twin that has lived otherwise, or what it admits with a meter.
//
//	go test ./internal/judge -run Everything -judge.profile=clocks -rapid.checks=100000
//
// A history that fails is printed as a story, one line for each step and each caller that came back, in fake time.
package judge
