# Every target does its own set-up: a MongoDB server is found or fetched by internal/mongotest.

LINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
TESTSUM := gotest.tools/gotestsum@v1.13.0
VULN := golang.org/x/vuln/cmd/govulncheck@v1.8.0
NESTED := cmd/transferctl examples/demo examples/events internal/bench internal/mongotest/container \
	transferhttp/browsertest transferotel
# Nested modules whose tests come with the others.
TESTED := cmd/transferctl examples/events transferhttp/browsertest transferotel
STORIES := order hold marketplace refund statements
CACHE := $(CURDIR)/.cache
SERVER := go run ./internal/mongotest/withmongo

VERSIONS ?= 5.0.32 6.0.27
# A pattern of packages that "versions" leaves out.
WITHOUT ?= /nothing
SEEDS ?= 0-1000000
ONLY ?= 1,2,3,4,5,6,7,8,9,10,11
FOR ?= 5m
SEED ?= 1
BACKLOG ?= 20000
STORED ?= 1000000
FUZZTIME ?= 600x
FUZZED ?= .
DRIVER ?= latest
# The first two show no window, and take less time.
BROWSERS ?= chromium-headless-shell headless_shell chromium chromium-browser google-chrome google-chrome-stable chrome
GOALS ?=
PLAYED := internal/simulate/testdata/played
# The sum of the sources that the verdicts in it are about.
SIMULATED := (cd internal/simulate && cat $$(LC_ALL=C ls ../protocol/*.go) $$(LC_ALL=C ls *.go) $$(LC_ALL=C ls cmd/*.go) \
	$$(LC_ALL=C ls testdata/mutants/*.txt) | sha256sum)
ROUNDS ?= 0
BEFORE ?= HEAD~1

# Packages that compare rates. They come last.
RATES := /internal/overload
# Packages that run beside them and leave them the processor, with a server that does so,
# too. Those that mostly wait begin. Conformance, which only computes, follows when one of
# them has ended.
BESIDE := /(internal/(conformance|mongostore)|systemtest/(processes|servers))$$
# Packages that take longest, or wait. They come first, so that others run beside them.
FIRST := /(internal/(chaos|mongostore|mongotest|simulate|soak)|systemtest/(audit|events|faults|rights|statements|verbs|waiters)|transfertest)$$
# Packages that come after those under the race detector, so that both halves take as long.
# More than two at once of each half would take longer together.
LATER := /(internal/(memory|queries|simulate/cmd)|systemtest/(config|texts))$$
PACKAGES := { go list ./... | grep -E "$(FIRST)"; go list ./... | grep -vE "$(FIRST)"; }
# The race detector, where there is a C compiler for it: make test RACE= does without.
RACE ?= $(shell test "$$(go env CGO_ENABLED)" = 1 && echo -race)
# Packages that it shows nothing new: they have one goroutine, start other processes, or
# do one thing after the other.
ALONE := $(RATES)|/examples|/internal/(accounts|audit|chaos|conformance|deployment|document|fences)
ALONE := $(ALONE)|/internal/(inspection|memory|mongostore|mongotest|outside|protocol|queries|repair|simulate|soak|words)
ALONE := $(ALONE)|/systemtest/(audit|config|docs|faults|processes|rights|servers|statements|texts|verbs)
# Packages that are the same on each version: they break servers, or look at the library
# more than at the server.
EQUAL := $(RATES)|/examples|/internal/(chaos|engine|fences|inspection|lookout|money|mongotest)
EQUAL := $(EQUAL)|/internal/(protocol|recovery|simulate|soak|words)|/transferhttp
EQUAL := $(EQUAL)|/systemtest/(docs|faults|linearizable|poison|rights|servers|texts|waiters)
# Tests of the others that take long, and are the same on each version, too.
LONG := EveryMessage|Failovers|TwoServers|Away|Silence|LostAnswer|UnderLoad|UnderAllVerbs|HoldsUp|Ledger
LONG := $(LONG)|Dead|Repair|GivenUp|Fuzz|Example|HarmfulCollectionsAreRefused/clustered

# How tests are run: flags, packages. AGAIN=1 runs each test that has failed once more, by
# itself, if they are few, and reports both. Vet is one of the linters.
AGAIN ?=
play = $(if $(AGAIN),go run $(TESTSUM) --format standard-quiet --rerun-fails=1 --rerun-fails-max-failures=3 --rerun-fails-abort-on-data-race \
	--packages="$(2)" -- -timeout 30m -vet=off $(1),go test -timeout 30m -vet=off $(1) $(2))

.PHONY: help test browser versions race demo stories bench claims baseline bench-quick simulate search teeth played \
	chaos soak-service soak share insight overload fuzz driver lint vulncheck

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-13s %s\n", $$1, $$2 }' Makefile

test: ## all tests, on a real MongoDB server, under the race detector where goroutines meet
	@$(MAKE) -s browser # as a prerequisite it would let all other targets go first
	$(SERVER) sh -ec ' \
		(for module in $(TESTED); do (cd $$module && $(call play,,./...)); done) & nested=$$!; \
		($(call play,$(RACE) -p 2,$$($(PACKAGES) | grep -vE "$(ALONE)")) || failed=1; \
			$(call play,-p 2,$$(go list ./... | grep -E "$(LATER)" | sort -r)) || failed=1; test -z "$$failed") & raced=$$!; \
		$(call play,-p 2,$$($(PACKAGES) | grep -E "$(ALONE)" | grep -vE "$(RATES)|$(BESIDE)|$(LATER)")) || failed=1; \
		wait $$raced || failed=1; wait $$nested || failed=1; test -z "$$failed"'
	nice $(SERVER) sh -ec '$(call play,-p 3 -parallel 4,$$(go list ./... | grep -E "$(BESIDE)" | sort -r))' & beside=$$!; \
	$(call play,,.$(RATES)/...) || failed=1; \
	wait $$beside || failed=1; test -z "$$failed"

# Where it can't install a browser, the tests that need one fail, and say what to do.
browser: ## installs Chromium for the tests of the window, if there is no browser and apt-get may be used
	@for name in $(BROWSERS); do if command -v $$name >/dev/null; then exit 0; fi; done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq; \
		for package in chromium-headless-shell chromium; do \
			if DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$package fonts-dejavu-core; then exit 0; fi; \
		done; \
	fi

versions: ## a share of the tests on other versions of MongoDB: VERSIONS="7.0 8.0" where Docker has them
	@set -e; for version in $(VERSIONS); do \
		MONGODB_VERSION=$$version $(SERVER) sh -ec ' \
			go test -count=1 -timeout 30m -run VersionAskedFor ./internal/mongotest; \
			$(call play,-count=1 -short -p 3 -parallel 4 -skip "$(LONG)",$$($(PACKAGES) | grep -vE "$(EQUAL)|$(WITHOUT)"))'; \
	done

race: ## the tests in which goroutines meet, under the race detector; needs a C compiler
	$(SERVER) sh -ec 'go test -race -p 4 -timeout 30m $$(go list ./... | grep -vE "$(ALONE)")'

demo: ## the story on the terminal
	$(SERVER) sh -ec 'cd examples/demo && go run .'

stories: ## a payment, a hold, a split, a refund and a night of statements, each a short program; the tests run them, too
	$(SERVER) sh -ec 'for story in $(STORIES); do echo; echo "== $$story"; go run ./examples/$$story; done'

bench: ## all measurements, side by side, into docs/bench; about 20 minutes
	cd internal/bench && go run . -out $(CURDIR)/docs/bench

claims: ## the claims of docs/bench alone, on the screen; 5 minutes: GOALS=floor,alone picks some, ROUNDS=9 takes more, WATCHED=1 keeps a change stream open
	cd internal/bench && go run . -claims -only "$(GOALS)" -rounds $(ROUNDS) $(if $(WATCHED),-watched)

# This program, built against the library of another commit, plays beside the current one.
baseline: ## checks that nothing is slower than at another commit, BEFORE=HEAD~1, with 1 to 1,024 callers; 10 minutes: GOALS=hot-64 takes one
	rm -rf $(CACHE)/before && mkdir -p $(CACHE)/before/library
	git archive $(BEFORE) | tar -x -C $(CACHE)/before/library
	cp internal/bench/go.mod internal/bench/go.sum $(CACHE)/before
	go mod edit -replace github.com/mongotransfer/transfer=$(CACHE)/before/library $(CACHE)/before/go.mod
	cd internal/bench && go build -modfile=$(CACHE)/before/go.mod -mod=mod -o $(CACHE)/before/bench \
		-tags "$$(grep -qs AtSettled $(CACHE)/before/library/*.go || echo before),$$(grep -qs WithEvents $(CACHE)/before/library/*.go || echo eventless)" .
	rm -rf $(CACHE)/before/library
	cd internal/bench && go run . -baseline $(CACHE)/before/bench -only "$(GOALS)" -rounds $(ROUNDS)

bench-quick: ## a little of each measurement: shows that it works, not how fast anything is
	cd internal/bench && $(call play,,./...)

simulate: ## random runs in a world of faults: SEEDS=0-1000000 plays many, SEEDS=17 prints one as a story
	go run ./internal/simulate/cmd -seeds $(SEEDS)

search: ## every interleaving of one transfer, then of two, for as long as FOR says; FOR=0: to the end
	go run ./internal/simulate/cmd -search -for $(FOR)

teeth: ## break each rule of the protocol in turn, and see the simulator find it; the tests play a share while nothing changes
	rm -f $(PLAYED)
	go test -count=1 -run 'TestMutantsAreCaught|TestNoInterleaving|TestRandomRuns' -v -timeout 60m ./internal/simulate
	$(SIMULATED) > $(PLAYED)

played: ## says if the tests play all of that, because something has changed since
	@$(SIMULATED) | cmp -s - $(PLAYED) || \
		echo "the tests play every mutant and interleaving, which takes long: make teeth stores that these sources have passed"

chaos: ## killed, frozen and cut-off processes and servers, for as long as FOR says: SEED=1 draws the faults
	go run ./internal/chaos/cmd -for $(FOR) -seed $(SEED)

soak-service: ## examples/service as three processes that are killed and lack a right, for as long as FOR says
	go run ./internal/soak/cmd -for $(FOR)

soak: ## the same with two processes; one is never killed, and its memory and goroutines are checked: FOR=20m
	go run ./internal/soak/cmd -for $(FOR) -processes 2 -lasting

share: ## one, two and four processes share BACKLOG submitted transfers: how many a second; and how soon a death is noticed
	TRANSFER_TEST_BACKLOG=$(BACKLOG) TRANSFER_TEST_QUIET=1 $(SERVER) go test -count=1 -timeout 60m -parallel 1 \
		-run '^Test(ProcessesShare|DeadProcessIsNoticed)$$' -v ./internal/systemtest/processes

insight: ## what the server examines for Stats, Explain and lists beside STORED=1000000 final transfers
	TRANSFER_TEST_STORED=$(STORED) $(SERVER) go test -count=1 -timeout 60m -run '^TestWhatTheServerExamines$$' -v ./internal/systemtest/insight

overload: ## more than there is room for: ONLY=1,8 plays two of the scenarios; some minutes
	go run ./internal/overload/cmd -only $(ONLY)

# One program for each package. The inputs that it finds stay in .cache, and are tried first.
fuzz: ## each fuzz target: as many inputs, or for as long, as FUZZTIME says; FUZZED=money picks packages
	@$(SERVER) sh -ec 'for package in $$(grep -rl --include=*_test.go "^func Fuzz" . | xargs -n1 dirname | grep -E "$(FUZZED)" | sort -u); do \
		go test -c -fuzz . -o $(CACHE)/fuzz/test $$package; \
		cd $$package; \
		for target in $$($(CACHE)/fuzz/test -test.list ^Fuzz 2>/dev/null); do \
			echo "$$package $$target"; \
			$(CACHE)/fuzz/test -test.run NONE -test.fuzz "^$$target\$$" -test.fuzztime $(FUZZTIME) \
				-test.fuzzminimizetime 10x -test.parallel 1 -test.fuzzcachedir $(CACHE)/fuzz/$$package; \
		done; \
		cd $(CURDIR); \
	done'

driver: ## all sources compiled, and the tests of internal/wire, with the newest driver, or DRIVER=v2.9.0
	@set -e; mod=$$(mktemp -d); trap 'rm -rf "$$mod"' EXIT; cp go.mod go.sum "$$mod"; \
	go get -modfile="$$mod/go.mod" go.mongodb.org/mongo-driver/v2@$(DRIVER); \
	go list -modfile="$$mod/go.mod" -m go.mongodb.org/mongo-driver/v2; \
	go vet -modfile="$$mod/go.mod" ./...; \
	go test -modfile="$$mod/go.mod" -count=1 -timeout 10m ./internal/wire

lint: ## golangci-lint, and vet as one of its linters, in all modules
	@set -e; for module in . $(NESTED); do \
		echo "lint $$module"; \
		(cd $$module && go run $(LINT) run ./...); \
	done

vulncheck: ## known vulnerabilities, where their database can be reached
	@GOBIN=$(CACHE)/bin go install $(VULN)
	@$(CACHE)/bin/govulncheck ./...; code=$$?; \
	if [ $$code -eq 3 ]; then exit 1; fi; \
	if [ $$code -ne 0 ]; then echo "vulncheck: nothing was checked: the database of vulnerabilities can't be reached"; fi
