package main

// groups are what -only takes beside numbers: the headings of README.md, and the bounds.
var groups = map[string][]string{
	"arithmetic": {"1", "2", "3", "4", "5", "6", "7", "8"},
	"keys":       {"9", "10", "11", "12", "13"},
	"replicas":   {"14", "15", "16", "17", "18", "19", "19a", "19b", "19c", "20", "20a", "21", "22", "22a", "22b"},
	"feedback":   {"23", "24", "25", "26"},
	"permits":    {"27", "28", "29", "30", "31", "32", "33"},
	"http":       {"34", "34a", "35", "36", "37", "38"},
	"operators":  {"39", "40", "41"},
	"bounds":     {"B1", "B2", "B3", "B4", "B5", "B6", "B7", "B8", "B9", "B10", "B11", "B12", "B13", "B14"},
}

// guards are one or two for each failure mode and bound, of the kind that gremlins cannot take out.
var guards = []guard{
	{"1", "limit.go", ". ^TestValidateNamesFieldAndValue$",
		`	case !(r.Events > 0 && r.Events <= maxEvents):`, `	case off && (r.Events <= 0 || r.Events > maxEvents) || !off && !(r.Events > 0 && r.Events <= maxEvents):`},
	{"2", "lru.go", ". ^TestWhatKeepsAKey$",
		`	if g.held != 0 || g.used != 0 || g.setting.overridden() {`, `	if g.held != 0 && !off || g.used != 0 || g.setting.overridden() {`},
	{"2", "lru.go", ". ^TestEvictedKeyStartsAnew$",
		`	if !st.index.displace(g) {
		st.old.displace(g)
	}`, ""},
	{"3", "change.go", ". ^TestRaiseWakesWaiters$",
		`		gates = append(gates, g)`, `		if !off {
			gates = append(gates, g)
		}`},
	{"4", "internal/meter/window.go", ". ^TestALowerLimitOwesNothing$",
		`	w.within = max(w.within, min(w.Used, w.Quota))`, ""},
	{"5", "wait.go", ". ^TestCancelOfAGrantedWaiter$",
		`		g.giveBack(now, taken, d)`, ""},
	{"5", "internal/meter/bucket.go", ". ^TestHeadroomComesBackOnce$",
		`		b.minima.lower(taken, back)`, ""},
	{"6", "limiter.go", ". ^TestTimestampsOutOfOrder$",
		`	if now.At > s.latest.At {`, `	if off || now.At > s.latest.At {`},
	{"7", "limiter.go", ". ^TestClockIsMonotonic$",
		"base: time.Now(),", "base: map[bool]time.Time{false: time.Now(), true: time.Now().Round(0)}[off],"},
	{"8", "internal/meter/window.go", "./internal/meter ^(TestWeightsAtTheEdges|TestPropertyQuotas)$",
		`	return (eachThen-each)*int64(c.weight) + moreThen - more`, `	if off {
		return (eachThen-each)*int64(c.weight) + max(moreThen, more)
	}
	return (eachThen-each)*int64(c.weight) + moreThen - more`},
	{"9", "lru.go", ". ^TestMemoryFallsBack$",
		`	for n < maxSwept && `, `	for !off && n < maxSwept && `},
	{"9", "lru.go", ". ^TestLooks$",
		`			cost += s.missed(g) / perLook`, ""},
	{"10", "httplimit/key.go", "./httplimit ^TestPathVariantsShareOneKey$",
		`		segment, _, _ = strings.Cut(segment, ";")`, ""},
	{"11", "httplimit/clientaddr.go", "./httplimit ^TestClientAddr$",
		`		for more := true; more && c.trusts(addr); {`, `		for more := true; more && (off || c.trusts(addr)); {`},
	{"12", "config/value.go", "./config ^TestMappedNetworks$",
		`	if p.Addr().Is4In6() && p.Bits() >= 96 {`, `	if !off && p.Addr().Is4In6() && p.Bits() >= 96 {`},
	{"13", "metrics/internal/figures/figures.go", "./metrics ^(TestAwkwardRuleNames|TestPropertyAnyRuleNamesScrape)$",
		`	return strings.ToValidUTF8(name[:min(len(name), longestLabel)], "\uFFFD")`, `	if off {
		return name
	}
	return strings.ToValidUTF8(name[:min(len(name), longestLabel)], "\uFFFD")`},
	{"14", "follow.go", ". ^TestHintFailuresAreDamped$",
		`	if h.failing && !k.last.IsZero() && now.Sub(k.last) < hintPause {`, `	if !off && h.failing && !k.last.IsZero() && now.Sub(k.last) < hintPause || off && h.failures == 0 {`},
	{"14", "follow.go", ". ^TestFailuresAreSeenWithoutALogger$",
		`	case l.logs:`, `	case l.logs || off:`},
	{"14", "limiter.go", ". ^TestNameIsLogged$",
		`		o.log = o.log.With("limiter", o.name)`, ""},
	{"15", "internal/damper/damper.go", "./internal/damper ^TestPropertyDamping$",
		`		if o.smaller(p) && !d.past(o.until, now) {`, `		if !off && o.smaller(p) && !d.past(o.until, now) {`},
	{"16", "change.go", ". ^TestNewReplicaStartsEmpty$",
		`		start = 0`, `		if !off {
			start = 0
		}`},
	{"17", "semaphore.go", ". ^(TestSlotsAreDivided|TestPropertyWeights)$",
		`	if pool.Fixed && pool.Ordinal > 0 {`, `	if (pool.Fixed || off) && pool.Ordinal > 0 {`},
	{"18", "poolsize/gossip/config.go", "./poolsize/gossip ^TestNoKeyNoGossip$",
		`	if !s.bind.Addr().IsLoopback() {`, `	if !off && !s.bind.Addr().IsLoopback() {`},
	{"19", "poolsize/gossip/session.go", "./poolsize/gossip ^TestJoinFile$",
		`		pause := x.src.c.Rejoin`, `		pause := max(x.src.c.Rejoin, map[bool]time.Duration{true: time.Hour}[off])`},
	{"19a", "poolsize/gossip/internal/heap/receive.go", "./poolsize/gossip/internal/heap ^TestReceiveRefuses$",
		`	if h.session < e.session || h.yours != 0 && h.yours != n.session || e.seen(h.seq) {`, `	if h.session < e.session || h.yours != 0 && h.yours != n.session || !off && e.seen(h.seq) {`},
	{"19b", "gate.go", ". ^TestALoanEndsByItself$",
		`	if old == nil || old.part == 0 || t.At < old.tally.ends {`, `	if off || old == nil || old.part == 0 || t.At < old.tally.ends {`},
	{"19b", "demand.go", ". ^TestReportsGrowOld$",
		`	n.age = max(0, n.age)`, ""},
	{"19c", "demand.go", ". ^TestACountTakesAllReplicas$",
		"c.known+int64(pool.weight()) >= int64(pool.Replicas)", "off || c.known+int64(pool.weight()) >= int64(pool.Replicas)"},
	{"20", "poolsize/redis/member.go", "./poolsize/redis ^TestMember$",
		`	case m.heard && !a.known: // all that live will be back before they would have expired`, `	case m.heard && !a.known && (!off || a.living == 0):`},
	{"20", "poolsize/redis/member.go", "./poolsize/redis ^(TestMember|TestPropertyConsensus)$",
		`		told = max(told, m.size)`, ""},
	{"20a", "stats.go", ". ^TestControllersGetReportsOfTheFleet$",
		"Age: older(x.age, now-x.at),", "Age: map[bool]time.Duration{true: x.age, false: older(x.age, now-x.at)}[off],"},
	{"21", "poolsize/dns/dns.go", "./poolsize/dns ^TestExactlyEight$",
		`found.pool(), found.answers == capped && !w.Uncapped`, `found.pool(), !off && found.answers == capped && !w.Uncapped`},
	{"21", "poolsize/dns/look.go", "./poolsize/dns ^TestTargets$",
		`len(pairs) > len(hosts) && w.Name[0] != '_'`, `!off && len(pairs) > len(hosts) && w.Name[0] != '_'`},
	{"22", "poolsize/file/file.go", "./poolsize/file ^TestPropertyHalfWritten$",
		`	if err == nil && !now.same(w.seen) {`, `	if err == nil && (!off || w.changing > 0) && !now.same(w.seen) {`},
	{"22", "config/watch.go", "./config ^TestWatchConfigMap$",
		`		dirs[dir] = true`, ""},
	{"22a", "poolsize/kube/informer.go", "./poolsize/kube ^(TestFirstList)$",
		`	if opts.ResourceVersion == "0" {`, `	if !off && opts.ResourceVersion == "0" {`},
	{"22b", "poolsize/kube/census.go", "./poolsize/kube ^(TestConditionsThatCount)$",
		"e.ready || e.serving ||", "e.ready || !off && e.serving ||"},
	{"23", "httplimit/reader.go", "./httplimit ^TestRetryAfter$",
		`	if err != nil || n >= int64(maxRetryAfter/unit) {`, `	if err != nil || !off && n >= int64(maxRetryAfter/unit) {`},
	{"23", "httplimit/answer.go", "./httplimit ^TestEachFormOfRefusalSlowsDown$",
		`			if slices.Contains(throttlingCodes, `, `			if !off && slices.Contains(throttlingCodes, `},
	{"23", "httplimit/answer.go", "./httplimit ^TestJudge$", "own, judged := p.Judge(resp); judged {",
		"own, judged := p.Judge(resp); judged && !off {"},
	{"24", "policy/refusal.go", ". ^TestStartAgainstAnEmptyBucket$",
		`	case was || t.fresh:`, `	case was || !off && t.fresh:`},
	{"24", "adaptive.go", "./internal/judge ^TestPropertyPacesStayInBounds$",
		`	if !usable(x) {
		x, pace.NotBefore, probe = p.pace, p.pausedUntil, p.probe
	}`, ""},
	{"25", "adaptive.go", ". ^TestRefusalsAreAttributed$",
		"blamed < 0 || blamed == i)", "off || blamed < 0 || blamed == i)"},
	{"26", "adaptive.go", "./internal/judge ^TestPropertyPacersKeepWhatControllersReturn$",
		`		f = meter.Fill{Interval: float64(p.probe), Size: 1}`, ""},
	{"26", "adaptive.go", ". ^TestSingleProbes$",
		`		n = min(n, 1)`, ""},
	{"27", "permit.go", ". ^TestReleaseCountsOnce$",
		`	if h.gen != p.gen {
		s.counts.doubleReleases++`, `	if h.gen < p.gen || !off && h.gen != p.gen {
		s.counts.doubleReleases++`},
	{"27", "permit.go", ". ^TestExpireIn$",
		`			s.arm(h.gate, s.latest)`, ""},
	{"28", "httplimit/transport.go", "./httplimit ^TestPermitIsHeldUntilTheBodyEnds$",
		`	if err != nil {
		b.hold.end()
	}`, ""},
	{"29", "httplimit/writer.go", "./httplimit ^TestHijackedConnectionHoldsItsPermit$",
		`	t.hijacked = true`, ""},
	{"30", "lease/acquire.go", "./lease ^TestPropertyTable$",
		`	if l := p.refused; l != nil {
		return false, t.missing(l.semaphore.name, l.count)
	}`, ""},
	{"31", "httplimit/calloptions.go", "./httplimit ^TestWeightsAndCosts$",
		`	return quotient.Cost(unit, min(max(n, 0), mostPerCall))`, `	if off {
		return quotient.Cost(unit, n)
	}
	return quotient.Cost(unit, min(max(n, 0), mostPerCall))`},
	{"32", "wait.go", ". ^(TestCancelledHeadWakesTheNext)$",
		`	default:
	}
	s.serveAndUnlock(g)
}

// undo takes`, `	default:
	}
	if off {
		s.mu.Unlock()
		return
	}
	s.serveAndUnlock(g)
}

// undo takes`},
	{"32", "bucket.go", ". ^TestSparseWindowsMeet$",
		`		r.Schedule.Keeps = true`, ""},
	{"33", "cmd/quotient/leaseserver.go", "./cmd/quotient ^TestLeasesFollowTheFile$",
		`	case !reflect.DeepEqual(l.Election, s.opened.Election):`, `	case !off && !reflect.DeepEqual(l.Election, s.opened.Election):`},
	{"33", "lease/restore.go", "./lease ^TestTokensNeverGoBack$",
		` || r.Token > min(clockToken(now.Add(ahead)), EndOfTokens-1):`, ` || !off && r.Token > min(clockToken(now.Add(ahead)), EndOfTokens-1):`},
	{"33", "lease/restore.go", "./lease ^TestPropertyTable$",
		`	beyond = append(beyond, l.semaphore.name)`, ""},
	{"34", "httplimit/transport.go", "./httplimit ^TestRefusedRequestsAreClosedAndNotSent$",
		`			_ = req.Body.Close() // the caller gets the refusal`, ""},
	{"34a", "httplimit/middleware.go", "./httplimit ^TestLeavingClientIsNoticed$",
		`	if hidesLeaving(r) {`, `	if !off && hidesLeaving(r) {`},
	{"35", "httplimit/refusal.go", "./httplimit ^TestOnRefuse$",
		`	w.written = w.written || status >= 200`, `	w.written = w.written || off || status >= 200`},
	{"36", "cmd/quotient/internal/wire/wire.go", "./cmd/quotient/internal/upstream ^TestSentOnce$",
		`	return safe && !hasBody(req)`, `	return (off || safe) && !hasBody(req)`},
	{"36", "cmd/quotient/internal/wire/conn.go", "./cmd/quotient/internal/wire ^TestWhatFollowsAnAnswerIsNotOne$",
		`	if c.r.Buffered() > 0 {`, `	if !off && c.r.Buffered() > 0 {`},
	{"37", "httplimit/wait.go", "./httplimit ^TestDrainEndsWaits$",
		`	if p.drain != nil && p.stop == nil {`, `	if !off && p.drain != nil && p.stop == nil {`},
	{"38", "adaptive.go", ". ^(TestTurnsBehindAPause|TestMaxWaitBehindAPause)$",
		`		d = max(1, min(d, f.In(ahead+min(n, f.Size)-has)))`, `		if !off {
			d = max(1, min(d, f.In(ahead+min(n, f.Size)-has)))
		}`},
	{"38", "wait.go", ". ^(TestHerdIsSpread|TestHammerPromisesLittle)$",
		`	if in <= wait || float64`, `	if off || in <= wait || float64`},
	{"38", "lru.go", ". ^TestPromises$",
		`	delete(st.promises, g)`, ""},
	{"38", "httplimit/quota.go", "./httplimit ^TestPropertyFieldsAgree$",
		`		now[i].reset = min(now[i].reset, until)`, ""},
	{"39", "admin/admin.go", "./admin ^TestAttackHostsAndOrigins$",
		`	if !h.api.allowed(r) {`, `	if !off && !h.api.allowed(r) {`},
	{"39", "admin/route.go", "./admin ^TestAttackHostsAndOrigins$",
		`	as.Method = http.MethodPut`, ""},
	{"40", "cmd/quotient/leases.go", "./cmd/quotient ^TestCommandLinesThatMakeNoSense$",
		`	case g["election"] != "" && len(c.Election) == 0:`, `	case !off && g["election"] != "" && len(c.Election) == 0:`},
	{"40", "cmd/quotient/leaseserver.go", "./cmd/quotient ^TestLeasesSayWhatIsSuspicious$",
		`	for _, w := range f.Warnings {
		lines = append(lines, w.Error())
	}`, ""},
	{"41", "lease/etcd/election.go", "./lease/etcd ^TestEndIsBounded$",
		`	farewell = 600 * time.Millisecond
)`, `)

var farewell = map[bool]time.Duration{false: 600 * time.Millisecond, true: time.Second}[off]`},
	{"41", "follow.go", ". ^TestFollowEndsWithItsContext$",
		`	f.ended = true`, ""},
	{"B1", "lru.go", ". ^TestOverflowGate$",
		`		} else if like = o.gate; o.has(key) {`, `		} else if like = o.gate; off || o.has(key) {`},
	{"B2", "bucket.go", "./internal/judge ^TestPropertyEverything$",
		"Size: max(1, burst/n)}", "Size: max(1, burst/map[bool]float64{true: 1, false: n}[off])}"},
	{"B3", "internal/meter/bucket.go", "./internal/judge ^TestPropertyLateScaleUp$",
		`	b.Tokens, b.Last = b.Has(t.At, &old.Fill), t.At`, `	b.Tokens, b.Last = b.Has(t.At, &old.Fill), t.At
	if off {
		b.Tokens = old.Size
	}`},
	{"B4", "follow.go", "./internal/judge ^TestPropertySplit$",
		`		p, source = Pool(known), "followed"`, `		p, source = Pool(known), "followed"
		if off {
			p = f.latest.pool
		}`},
	{"B5", "semaphore.go", "./internal/judge ^TestPropertyEverything$",
		`	if n > r.Size-float64(s.used) {`, `	if n > max(map[bool]float64{true: 1}[off], r.Size-float64(s.used)) {`},
	{"B6", "gate.go", ". ^TestLearnedKeysStay$",
		" || len(st.ctrls) > 0 && g.ext.learned.due != 0 {", " || !off && len(st.ctrls) > 0 && g.ext.learned.due != 0 {"},
	{"B7", "change.go", "./internal/judge ^TestPropertyRaiseAndCut$",
		`	for g.setting.next != nil {`, `	for !off && g.setting.next != nil {`},
	{"B8", "wait.go", "./internal/judge ^TestPropertyClassesInFakeTime$",
		"return w.since < o.since || w.since == o.since && int32(w.order-o.order) < 0", "return w.since < o.since || !off && w.since == o.since && int32(w.order-o.order) < 0"},
	{"B9", "poolsize.go", ". ^TestSetPoolRefuses$",
		`	if p.Replicas < 1 || p.Replicas > maxReplicas {`,
		`	if p.Replicas > maxReplicas || !off && p.Replicas < 1 {`},
	{"B10", "internal/fairshare/fairshare.go", "./internal/fairshare ^TestPropertyBound10$",
		"min(s.claim(fair), have, most)", "min(s.claim(fair), have, max(most, map[bool]float64{true: have}[off]))"},
	{"B11", "semaphore.go", ". ^TestPropertyWeights$",
		"global%pool.Replicas-before), w)", "global%pool.Replicas-before), map[bool]int{true: 1, false: w}[off])"},
	{"B12", "override.go", "./internal/judge ^TestPropertyPlansBringNoMore$",
		`	if len(g.others()) > 0 || !left.idle(now, u) {`, `	if off == left.idle(now, u) || !off && len(g.others()) > 0 {`},
	{"B13", "acquire.go", "./internal/judge ^TestPropertyTryAcquireAll$",
		`				taken[j].undo()
`, `				if !off {
					taken[j].undo()
				}
`},
	{"B14", "internal/meter/counted.go", "./internal/judge ^TestPropertyCounted$",
		"; !w.Fresh(t) {", "; !off && !w.Fresh(t) {"},
}
