# The commands of this repository. make help lists them.

SHELL       := bash
.SHELLFLAGS := -eu -o pipefail -c

FUZZTIME     ?= 30s
RAPID_CHECKS ?= 1000000
SOAK_TIMEOUT ?= 0
SOAK_DONE    ?=
SEED         ?= 0
PROPERTIES   ?= ^TestProperty
COVER        ?= . ./admin ./config ./httplimit ./lease ./metrics ./policy ./poolsize/dns ./poolsize/file
COVER_MIN    ?= 90
ONLY         ?=
VERSION      ?=
PART         ?= 1/1
MUTANTS      ?= 200
MUTATE_DONE  ?=
FILES        ?= bucket.go,gate.go,lru.go,queue.go,refund.go,replay.go,semaphore.go,window.go
CHAOS        ?= 10m
BENCHFLAGS   ?=
HOUSE        ?=
PAGES        := *.md docs/*.md $(filter-out docs/decisions/%,$(wildcard */README.md */*/README.md))
PLAIN        ?= CHANGELOG.md CONTRIBUTING.md README.md SECURITY.md .ci/run ./...
CROSS        ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64

# ST1005 is off: an error that names a field spells it as Go does, with a capital.
# Linters are pinned in tools/go.mod. GOWORK=off: -modfile does not work in a workspace.
TOOL     = GOWORK=off go tool -modfile="$(CURDIR)/tools/go.mod"
MODULES  = $$(go list -m -f '{{.Dir}}')
FUZZING  = $$(grep -rnoE --include='*_test.go' --exclude-dir=testdata '^func Fuzz[A-Za-z0-9_]*' . || true)

.PHONY: help test race lint house plain fuzz soak guards mutate bench proxy leases cover fleet picture chaos browser cross docs stale release release-check ci

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' Makefile

test: ## run all tests of all modules
	go test work

race: ## run all tests in random order under the race detector
	go test -race -shuffle=on work

lint: ## check format, go vet, the linters of tools/go.mod, and that the modules are tidy
	@files=$$(gofmt -l .); [ -z "$$files" ] || { echo "not formatted: $$files"; exit 1; }
	go vet work
	$(TOOL) revive -config tools/revive.toml -formatter plain -set_exit_status ./...
	@for dir in $(MODULES); do \
	  echo "staticcheck, nilness, tidy: .$${dir#"$(CURDIR)"}"; cd "$$dir"; \
	  $(TOOL) staticcheck -checks=inherit,-ST1005 ./...; \
	  $(TOOL) nilness ./...; \
	  GOWORK=off go mod tidy -diff; \
	done

house: ## print the figures of the root package and of the tests beside their bounds (HOUSE=-check or HOUSE=-list)
	go run ./internal/house $(HOUSE)

plain: ## check that the comments here and in PLAIN are in plain English
	go run ./internal/plain -columns 110 *.go
	go run ./internal/plain $(PLAIN)

fuzz: ## fuzz each target for FUZZTIME (30s)
	@targets="$(FUZZING)"; [ -n "$$targets" ] || { echo "no fuzz target found"; exit 1; }; \
	while IFS=: read -r file _ func; do \
	  name=$${func#func }; echo "$${file%/*} $$name"; \
	  go test -run='^$$' -fuzz="^$$name\$$" -fuzztime=$(FUZZTIME) "$${file%/*}" </dev/null; \
	done <<< "$$targets"

soak: ## run the properties with RAPID_CHECKS (1000000) checks each (SEED=1 PART=3/20 SOAK_DONE=soak.txt)
	@found=$$(go test -list='$(PROPERTIES)' .); [[ $$found == Test* ]] || { echo "no property matches $(PROPERTIES)"; exit 1; }
	@part='$(PART)'; k=$${part%/*} n=$${part#*/}; checks=$$(( $(RAPID_CHECKS) / n )); seed=$$(( $(SEED) * n + k )); \
	line="$(PROPERTIES) part $$part of $(RAPID_CHECKS), seed $(SEED), commit $$(git rev-parse --short HEAD)"; \
	if [ -n '$(SOAK_DONE)' ] && grep -qsF "$$line" '$(SOAK_DONE)'; then echo "done before: $$line"; exit 0; fi; \
	[ '$(SEED)' = 0 ] || seeded="-rapid.seed=$$seed"; \
	go test -run='$(PROPERTIES)' -timeout=$(SOAK_TIMEOUT) . -rapid.checks=$$checks $${seeded:-}; \
	[ -z '$(SOAK_DONE)' ] || echo "$$line: ok, $$checks checks each" >> '$(SOAK_DONE)'

guards: ## take out each guard of the failure modes and require that its test fails (ONLY=3,34a PART=1/4)
	go run ./internal/guards -only='$(ONLY)' -part='$(PART)'

mutate: ## change MUTANTS (200) random places of the FILES of the root, one at a time, and count what tests notice (SEED=1 MUTATE_DONE=)
	go run ./internal/mutate -files '$(FILES)' -n $(MUTANTS) -seed $(SEED) -done '$(MUTATE_DONE)'

bench: ## measure the cost beside other limiters, about ten minutes (BENCHFLAGS=)
	go run ./bench/cost $(BENCHFLAGS)

proxy: ## measure quotient proxy beside a bare ReverseProxy, nginx and HAProxy, about 15 minutes (BENCHFLAGS=)
	go run ./bench/proxy $(BENCHFLAGS)

leases: ## measure quotient leases: histories, load, crashes, failovers, about a quarter of an hour; needs etcd (BENCHFLAGS=)
	go run ./bench/leases $(BENCHFLAGS)

cover: ## require COVER_MIN (90) percent coverage of each package in COVER
	@go test -cover $(COVER) | awk -v min=$(COVER_MIN) -v packages=$(words $(COVER)) ' \
	  { print } \
	  match($$0, /coverage: [0-9.]+%/) { \
	    n++; if (substr($$0, RSTART + 10, RLENGTH - 11) + 0 < min) { print "below " min "%"; bad = 1 } } \
	  END { if (n != packages) { print "coverage of " n " packages, not of " packages; bad = 1 } exit bad }'

fleet: ## run the example fleet
	go run ./examples/fleet

picture: ## record the example fleet and draw docs/pictures/fleet.svg again, about a minute, on an idle machine
	go run ./bench/picture

chaos: ## run a fleet under faults for CHAOS (10m): processes, sources, a Redis Cluster, wall clocks; and one that gossips
	go run ./bench/chaos -duration $(CHAOS)
	go run ./bench/chaos -duration $(CHAOS) -gossip

browser: ## test the operator's page in chromium, and take its pictures again
	QUOTIENT_REQUIRE=chromium,npm go test -count=1 ./admin/browser -args -screenshots="$(CURDIR)/docs/pictures"

cross: ## build the command for each platform of CROSS, without C
	@for platform in $(CROSS); do \
	  echo "build ./cmd/quotient: $$platform"; \
	  CGO_ENABLED=0 GOOS=$${platform%/*} GOARCH=$${platform#*/} go build -trimpath -o /dev/null ./cmd/quotient; \
	done

docs: ## write docs/failure-modes.md
	go run ./internal/guards -docs docs/failure-modes.md

stale: ## check that docs/failure-modes.md is what make docs writes
	go run ./internal/guards -stale docs/failure-modes.md

release: ## tag VERSION of every published module, on a commit off main; it pushes nothing (VERSION=v0.1.0)
	@go run ./internal/release '$(VERSION)'

release-check: ## make a release in a clone, and install and run each of its modules from its tags, about a minute
	go test -count=1 -run='^TestReleaseInstalls$$' ./internal/release -args -install

ci: ## run everything that must pass before a merge
	.ci/run
