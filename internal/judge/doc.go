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
// docs/bounds.md says what a user needs. The models also go by this fine print:
//
//   - A debt: a call for more than a replica's part of the burst, but not more than the burst, waits for a full bucket,
//     empties it and owes the rest. Each replica may carry one.
//   - A raised burst brings no tokens. A new or renamed rule starts with the least that the rules of its unit still
//     admit. One that is removed is forgotten, so that a bound holds for each rule while it is in force.
//   - A refund is at most the least room that the bucket had since the take, less earlier refunds.
//   - With turns, two events of the fleet are at least .9 of the interval apart, less the difference of clocks, so one
//     replica may have a tenth of an event more. A replica of weight w has w turns in a row, and a bucket for less than
//     w events.
//   - Slots: the remainder of a division goes to the lowest ordinals that are Fixed, or were reported unchanged for one
//     hold-down without a gap as long. A replica without one has what the highest ordinals have, as many as its weight.
//   - Times to come again: a client that obeys nothing counts as at most a hundred that do. Slots give no time. Who
//     waits, and Explain, go by the turn alone. What was promised goes with an idle key, and at a reset. Where a bucket
//     holds less than two calls, clients that come later than told miss turns and need more requests, as whole
//     seconds of Retry-After do where the interval is a fraction. Each replica promises by its own share.
//   - Plans: events taken beyond a burst that Override or SetPlan makes smaller are forgotten, and may be had once more
//     in another plan. Under BeyondShare the overflow gate learns like any key, and may be faster than a new one.
//   - Windows: a share that grows since the pool shrank counts from the next window. One that is cut below what it had
//     admitted admits no more, and later ones owe nothing. A limit that is raised brings a replica at most its share in
//     whole events until then. A changed period or zone may bring Events once more in its first window. While some
//     replicas of a weight above 1 lack ordinals a window may admit more, by less than their weights.
//   - A deficit below a nanosecond of the rate counts as none.
//
// The properties that cross features are smaller: each draws histories for one promise. A limiter is compared with a
// twin that has lived otherwise, or what it admits with a meter.
//
//	go test ./internal/judge -run Everything -judge.profile=clocks -rapid.checks=100000
//
// A history that fails is printed as a story, one line for each step and each caller that came back, in fake time.
package judge
