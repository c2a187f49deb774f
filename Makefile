# The commands of this repository. make help lists them.

SHELL       := bash
.SHELLFLAGS := -eu -o pipefail -c

FUZZTIME     ?= 30s
RAPID_CHECKS ?= 1000000
SOAK_TIMEOUT ?= 0
SOAK_DONE    ?=
SEED         ?= 0
PROPERTIES   ?= ^TestProperty
PROVEN       ?= . ./internal/judge ./internal/meter
COVER        ?= . ./internal/meter ./admin ./config ./httplimit ./lease ./metrics ./policy ./poolsize/dns ./poolsize/file
COVER_MIN    ?= 90
RACE         ?= work
ONLY         ?=
VERSION      ?=
MODULE       ?=
PART         ?= 1/1
ROUNDS       ?= 6
CHAOS        ?= 10m
BENCHFLAGS   ?=
PICTURES     ?=
SYSTEMS      ?= linux/386 linux/arm linux/arm64 linux/mips darwin/arm64 freebsd/amd64 windows/amd64

# ST1005 is off: an error that names a field spells it as Go does, with a capital.
# Linters are pinned in tools/go.mod. GOWORK=off: -modfile does not work in a workspace.
TOOL     = GOWORK=off go tool -modfile="$(CURDIR)/tools/go.mod"
MODULES  = $$(go list -m -f '{{.Dir}}')
PUBLISHED = . $(filter-out admin/browser bench bench/% %/bench deploy/% examples/% tools,$(shell git ls-files '*/go.mod' | xargs dirname))
# Only these packages have files that depend on the system. With them are checked all that the command imports.
SYSTEMIC  = $(sort $(dir $(shell git grep -lE '"syscall"|^//go:build' -- '*.go' ':!*_test.go' ':!bench' ':!examples' \
  ':!internal/etcdtest')))
# The workspace does not have caddyquotient.
FUZZING  = $$(grep -rlE --include='*_test.go' --exclude-dir=testdata --exclude-dir=caddyquotient '^func Fuzz' . | xargs -r dirname | sort -u)

.PHONY: help test race test-ints lint fuzz soak guards mutate bench proxy decide leases cover fleet apart image chaos browser published release release-check ci

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' Makefile

test: ## run all tests of all modules
	go test work

race: ## run all tests in random order under the race detector
	@go test -race -shuffle=on -vet=off $(RACE)

test-ints: ## run the tests of arithmetic, but for properties, where an int has 32 bits
	@exec=; GOARCH=386 go test -vet=off -run='^$$' ./internal/held >/dev/null 2>&1 || { exec=-exec=true; \
	  echo "this system runs no programs of 32 bits: their tests are built, and not run"; }; \
	GOARCH=386 go test $$exec -vet=off -run='^Test[^P]' . ./policy ./internal/judge ./internal/meter ./internal/fairshare ./internal/damper ./internal/held \
	  ./admin ./config ./httplimit ./lease ./poolsize/gossip/internal/heap

lint: ## check format, go vet, the linters of tools/go.mod, types for other systems, and that the modules are tidy
	@files=$$(gofmt -l .); [ -z "$$files" ] || { echo "not formatted: $$files"; exit 1; }
	go vet work
	$(TOOL) revive -config tools/revive.toml -formatter plain -set_exit_status ./...
	@staticcheck=$$($(TOOL) -n staticcheck) && $$staticcheck -checks=inherit,-ST1005 work
	@nilness=$$($(TOOL) -n nilness) && $$nilness work && \
	for system in $(SYSTEMS); do echo "types for $$system"; \
	  packages='$(addprefix ./,$(SYSTEMIC))'; \
	  [ "$$system" != linux/386 ] || packages='$(addprefix ./,$(addsuffix /...,$(filter-out caddyquotient,$(PUBLISHED))))'; \
	  GOOS=$${system%/*} GOARCH=$${system#*/} $$nilness -test=false $$packages; done
	@for dir in $(MODULES); do (cd "$$dir" && GOWORK=off go mod tidy -diff); done

fuzz: ## fuzz each target for FUZZTIME (30s)
	@packages="$(FUZZING)"; [ -n "$$packages" ] || { echo "no fuzz target found"; exit 1; }; \
	out=$$(mktemp -d); trap 'rm -rf "$$out"' EXIT; \
	for package in $$packages; do \
	  go test -vet=off -c -fuzz=. -ldflags='-s -w' -o "$$out/fuzz.test" "$$package"; \
	  for target in $$(cd "$$package" && "$$out/fuzz.test" -test.list=^Fuzz); do \
	    echo "$$package $$target"; \
	    (cd "$$package" && "$$out/fuzz.test" -test.run='^$$' -test.fuzz="^$$target\$$" -test.fuzztime=$(FUZZTIME) \
	      -test.fuzzcachedir="$$(go env GOCACHE)/fuzz/$$package" </dev/null); \
	  done; \
	done

soak: ## run the properties with RAPID_CHECKS (1000000) checks each (SEED=1 PART=3/20 SOAK_DONE=soak.txt)
	@found=$$(go test -list='$(PROPERTIES)' $(PROVEN)); [[ $$found == Test* ]] || { echo "no property matches $(PROPERTIES)"; exit 1; }
	@part='$(PART)'; k=$${part%/*} n=$${part#*/}; checks=$$(( $(RAPID_CHECKS) / n )); seed=$$(( $(SEED) * n + k )); \
	line="$(PROPERTIES) part $$part of $(RAPID_CHECKS), seed $(SEED), commit $$(git rev-parse --short HEAD)"; \
	if [ -n '$(SOAK_DONE)' ] && grep -qsF "$$line" '$(SOAK_DONE)'; then echo "done before: $$line"; exit 0; fi; \
	[ '$(SEED)' = 0 ] || seeded="-rapid.seed=$$seed"; \
	go test -run='$(PROPERTIES)' -timeout=$(SOAK_TIMEOUT) $(PROVEN) -rapid.checks=$$checks $${seeded:-}; \
	[ -z '$(SOAK_DONE)' ] || echo "$$line: ok, $$checks checks each" >> '$(SOAK_DONE)'

guards: ## take out each guard of failure modes and bounds, and require that its test fails (ONLY=keys,34a,B2)
	go run ./internal/guards -only='$(ONLY)'

mutate: ## change the pure packages in one place at a time, and print what their tests do not notice (gremlins)
	$(TOOL) gremlins unleash ./policy
	$(TOOL) gremlins unleash ./internal/meter
	$(TOOL) gremlins unleash ./internal/fairshare
	$(TOOL) gremlins unleash ./internal/damper
	cd poolsize/gossip && $(TOOL) gremlins unleash ./internal/heap

bench: ## measure the cost beside other limiters, ROUNDS (6) times in turn, about five minutes; benchstat compares
	@out=$$(mktemp -d); trap 'rm -rf "$$out"' EXIT; cd bench && go test -c -o "$$out/cost.test" ./cost && cd ..; \
	for round in $$(seq $(ROUNDS)); do \
	  "$$out/cost.test" -test.run='^$$' -test.bench='Allow|Following|Middleware|Transport|InFlight' -test.benchtime=50ms -test.cpu=1,2; \
	  "$$out/cost.test" -test.run='^$$' -test.bench='Memory' -test.benchtime=1000000x; \
	  "$$out/cost.test" -test.run='^$$' -test.bench='Attack|Waiters|Stall' -test.benchtime=1x; \
	done >"$$out/rounds"; \
	$(TOOL) benchstat -filter '-.name:Following' -col /who "$$out/rounds"; $(TOOL) benchstat -filter .name:Following -col /source "$$out/rounds"

proxy: ## measure quotient proxy beside a bare ReverseProxy, nginx and HAProxy, about 15 minutes (BENCHFLAGS=)
	go run ./bench/proxy $(BENCHFLAGS)

decide: ## measure quotient decide beside gRPC that does nothing, and beside Redis, about eight minutes; needs redis-server (BENCHFLAGS=)
	go run ./bench/decide $(BENCHFLAGS)

leases: ## measure quotient leases: histories, load, crashes, failovers, about a quarter of an hour; needs etcd (BENCHFLAGS=)
	go run ./bench/leases $(BENCHFLAGS)

cover: ## require COVER_MIN (90) percent coverage of each package in COVER
	@go test -vet=off -cover $(COVER) | awk -v min=$(COVER_MIN) -v packages=$(words $(COVER)) ' \
	  { print } \
	  match($$0, /coverage: [0-9.]+%/) { \
	    n++; if (substr($$0, RSTART + 10, RLENGTH - 11) + 0 < min) { print "below " min "%"; bad = 1 } } \
	  END { if (n != packages) { print "coverage of " n " packages, not of " packages; bad = 1 } exit bad }'

fleet: ## run the example fleet
	go run ./examples/fleet

apart: ## test the modules that take minutes to compile, or need other versions, and so are not in the workspace
	@for dir in caddyquotient deploy/helm examples/vendors; do \
	  (cd "$$dir" && export GOWORK=off && go mod tidy -diff && go vet . && go test .); done

image: ## test that the Dockerfile's command builds a program that needs no library
	go test -count=1 -timeout=20m -run='^TestImageBuilds$$' ./deploy/proxy -args -image

chaos: ## run a fleet under faults for CHAOS (10m): processes, sources; and one that gossips
	go run ./bench/chaos -duration $(CHAOS)
	go run ./bench/chaos -duration $(CHAOS) -gossip

browser: ## test the operator's page in chromium, what takes long too (PICTURES=docs/pictures takes its pictures again)
	QUOTIENT_REQUIRE=chromium,npm go test -count=1 ./admin/browser -args -all $(if $(PICTURES),-screenshots="$(CURDIR)/$(PICTURES)")

release: ## tag VERSION of every published module, and fill dist (VERSION=v0.1.0 MODULE=github.com/owner/name ONLY=tags)
	@tools/release.sh '$(VERSION)' '$(MODULE)' '$(ONLY)'

published: # print the folders of the published modules, for tools/release.sh
	@echo $(PUBLISHED)

release-check: ## install and run each published module from a release in a clone, under another module path
	tools/installs.sh

ci: ## run everything that must pass before a merge
	.ci/run
