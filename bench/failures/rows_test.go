package failures

import "testing"

// failures are the rows of results.md, and of docs/what-can-go-wrong.md.
var failures = []struct {
	id, what string
	measure  func(*testing.T) outcome
}{
	{"F1", "nothing", nothingFails},
	{"F2", "5 replicas run and each counts 4, for a minute", countTooLow},
	{"F3", "4 replicas run and each counts 5, for a minute", countTooHigh},
	{"F4", "a fifth replica starts, and the others learn of it 5 s later", newReplicaUnknown},
	{"F5", "a fifth replica is announced 5 s before it starts", newReplicaAnnounced},
	{"F6", "one of 4 is killed; the hold-down is 30 s", killed},
	{"F7", "the fleet splits into 2 and 2, each half counts itself: the 10 s after the hold-down", split},
	{"F8", "the source fails for ten minutes: DNS, Redis or file", sourceDown},
	{"F9", "the same with HintMaxAge, and 5 as configured pool for 4 replicas", sourceDownAndAged},
	{"F10", "the source never reports: AwaitPool with a HintMaxAge of a minute", sourceNeverSpeaks},
	{"F11", "a replica is stopped for 20 s (SIGSTOP, a frozen machine), then continues", stopped},
	{"F12", "the same for 60 s: it has left the count, and the others see its return 1 s late",
		stoppedForLong},
	{"F13", "the load balancer sends all requests for a key to one of 4 replicas", oneKeyOneReplica},
	{"F14", "4 replicas receive 40, 30, 20 and 10 % of the limit", unevenLoad},
	{"F15", "60 restarts in a minute, each with a full bucket (Replicas)", restartStarts},
	{"F16", "the same with an empty one (StartEmpty)", restartJoins},
	{"F17", "20,000 new keys a second, MaxKeys 1000: a key that was there before, 10/s", attackOld},
	{"F18", "the same: a key that arrives during the attack", attackFresh},
	{"F19", "2 slots for 4 replicas", fewUnnumbered},
	{"F20", "the same with ordinals: two replicas have a slot each, two refuse", fewNumbered},
	{"F21", "the same with AtLeastOne", fewAtLeastOne},
	{"F22", "1/s for 4 replicas under constant demand for a minute", slowRate},
	{"F23", "every 50th permit is never released; 40 slots, held 100 ms", leaks},
	{"F24", "the same with a MaxHold of 1 s", leaksReclaimed},
	{"F25", "work of 20 s under a MaxHold of 10 s; 40 slots", holdTooShort},
	{"F26", "a replica is admitted, and sends 1 s later, all at once", latePermits},
	{"F27", "a dry run at twice the limit, for 10 s", dryRun},
}
