# Every target does its own set-up: a MongoDB server is found or fetched by internal/mongotest.

LINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
VULN := golang.org/x/vuln/cmd/govulncheck@v1.8.0
NESTED := examples/demo internal/bench internal/mongotest/container
STORIES := order hold marketplace refund
TOOLS := $(CURDIR)/.cache/bin

VERSIONS ?= 5.0.32 6.0.27
# Of the root's tests: each verb and each statement that it sends, and not those that take
# long because they break servers, which is the same on each version.
SHARE := Setup|Check|Undefined|Unfit|Transfer|IDConflict|Refus|Racing|Hold|Void|Post|Expir|Recover|Stuck|Effect|Revers|Statement|History|Audit
SHARE := $(SHARE)|Purge|Retention|Wait|Worker|Schedule|List|Metadata|Cancel|Account|Floor|Decimal|CutShort|Linearizable$$
LONG := EveryMessage|Failovers|TwoServers|Away|Silence|LostAnswer|UnderLoad|UnderAllVerbs|HoldsUp|Ledger|Dead|Repair|GivenUp|Fuzz|Example|HarmfulCollectionsAreRefused/clustered

SEEDS ?= 0-1000000
ONLY ?= 1,2,3,4,5,6,7,8,9
FOR ?= 5m
SEED ?= 1
FUZZTIME ?= 300x
DRIVER ?= latest
FUZZ := $(addprefix internal/money:,FuzzParse FuzzJSON FuzzFromBSON FuzzArithmetic) \
	$(addprefix internal/document:,FuzzMarkerKey FuzzIDCodec) \
	$(addprefix internal/mongostore:,FuzzTransferDocument FuzzAccountDocument) \
	$(addprefix .:,FuzzRequest FuzzMetadata FuzzStoredAccount FuzzStoredTransfer)

.PHONY: test versions race demo stories bench claims bench-quick simulate search teeth chaos soak-service overload fuzz driver lint vulncheck

# What compares rates comes last, and has the machine to itself.
test: ## all tests, on a real MongoDB server
	go run ./internal/mongotest/withmongo sh -ec ' \
		go test -p 3 -timeout 40m $$(go list ./... | grep -v /internal/overload); \
		go test -timeout 10m ./internal/overload/...'

versions: ## a share of the tests on other versions of MongoDB: VERSIONS="7.0 8.0" where Docker has them
	@set -e; for version in $(VERSIONS); do \
		MONGODB_VERSION=$$version go run ./internal/mongotest/withmongo sh -ec ' \
			go test -count=1 -short -p 2 -timeout 10m ./internal/mongostore ./internal/conformance; \
			go test -count=1 -timeout 5m -run "VersionAskedFor" ./internal/mongotest; \
			go test -count=1 -short -timeout 10m -run "$$0" -skip "$$1" .' '$(SHARE)' '$(LONG)'; \
	done

# Without the mutants, which are other binaries, the search and the random runs, which share nothing, and the crash table, which does one thing after
# the other; without chaos: the driver closes connections that are in use when a server goes; and without overload, which compares rates.
race: ## the same under the race detector, which needs a C compiler
	go run ./internal/mongotest/withmongo go test -race -short -p 3 -timeout 30m -skip "TestMutantsAreCaught|TestNoInterleavingBreaksTheInvariants|TestRandomRunsKeepTheInvariants|TestEveryMessageMayFail" $$(go list ./... | grep -v -e /internal/chaos -e /internal/overload)

demo: ## the story on the terminal
	go run ./internal/mongotest/withmongo sh -ec 'cd examples/demo && go run .'

stories: ## a payment, a hold, a split and a refund, each a short program; the tests run them, too
	go run ./internal/mongotest/withmongo sh -ec 'for story in $(STORIES); do echo; echo "== $$story"; go run ./examples/$$story; done'

bench: ## all measurements, side by side, into docs/bench; about 20 minutes
	cd internal/bench && go run . -out $(CURDIR)/docs/bench

claims: ## the claims of docs/bench alone, on the screen; about 3 minutes
	cd internal/bench && go run . -claims

bench-quick: ## a little of each measurement: that it works, not how fast anything is
	cd internal/bench && go test -timeout 10m ./...

simulate: ## random runs in a world of faults: SEEDS=0-1000000 plays many, SEEDS=17 tells one
	go run ./internal/simulate/cmd -seeds $(SEEDS)

search: ## every interleaving of one transfer, then of two, as far as it comes in as long as FOR says; FOR=0: to its end
	go run ./internal/simulate/cmd -search -for $(FOR)

teeth: ## break each rule of the protocol in turn, and see the simulator find it
	go test -count=1 -run TestMutantsAreCaught -v -timeout 30m ./internal/simulate

chaos: ## killed, frozen and cut-off processes and servers, for as long as FOR says: SEED=1 draws the faults
	go run ./internal/chaos/cmd -for $(FOR) -seed $(SEED)

soak-service: ## examples/service as three processes that are killed, restarted and lack a right, for as long as FOR says
	go run ./internal/soak/cmd -for $(FOR)

overload: ## more than there is room for, narrow lines, silent servers: ONLY=1,8 plays two of the scenarios; some minutes
	go run ./internal/overload/cmd -only $(ONLY)

fuzz: ## each fuzz target: so many inputs, or for as long, as FUZZTIME says
	@go run ./internal/mongotest/withmongo sh -ec 'for target in $(FUZZ); do \
		echo "$${target##*:}"; \
		go test -run NONE -fuzz "^$${target##*:}\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x -parallel 1 "./$${target%%:*}"; \
	done'

driver: ## all sources compiled, and the tests of internal/wire, with the newest driver, or DRIVER=v2.9.0
	@set -e; mod=$$(mktemp -d); trap 'rm -rf "$$mod"' EXIT; cp go.mod go.sum "$$mod"; \
	go get -modfile="$$mod/go.mod" go.mongodb.org/mongo-driver/v2@$(DRIVER); \
	go list -modfile="$$mod/go.mod" -m go.mongodb.org/mongo-driver/v2; \
	go vet -modfile="$$mod/go.mod" ./...; \
	go test -modfile="$$mod/go.mod" -count=1 -timeout 10m ./internal/wire

lint: ## vet and golangci-lint, in all modules
	@GOBIN=$(TOOLS) go install $(LINT)
	@set -e; for module in . $(NESTED); do \
		echo "lint $$module"; \
		(cd $$module && go vet ./... && $(TOOLS)/golangci-lint run ./...); \
	done

vulncheck: ## known vulnerabilities, where their database can be reached
	@GOBIN=$(TOOLS) go install $(VULN)
	@$(TOOLS)/govulncheck ./...; code=$$?; \
	if [ $$code -eq 3 ]; then exit 1; fi; \
	if [ $$code -ne 0 ]; then echo "vulncheck: nothing was checked: the database of vulnerabilities can't be reached"; fi
