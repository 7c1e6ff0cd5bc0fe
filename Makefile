# Every target does its own set-up: a MongoDB server is found or fetched by internal/mongotest.

LINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
VULN := golang.org/x/vuln/cmd/govulncheck@v1.8.0
NESTED := examples/demo internal/mongotest/container
TOOLS := $(CURDIR)/.cache/bin

SEEDS ?= 0-1000000
FOR ?= 5m

.PHONY: test race demo simulate search teeth lint vulncheck

test: ## all tests, on a real MongoDB server
	go run ./internal/mongotest/withmongo go test ./...

race: ## the same under the race detector, which needs a C compiler
	go run ./internal/mongotest/withmongo go test -race -short ./...

demo: ## the story on the terminal
	cd examples/demo && go run .

simulate: ## random runs in a world of faults: SEEDS=0-1000000 plays many, SEEDS=17 tells one
	go run ./internal/simulate/cmd -seeds $(SEEDS)

search: ## every interleaving of one transfer, then of two for as long as FOR says
	go run ./internal/simulate/cmd -search -for $(FOR)

teeth: ## break each rule of the protocol in turn, and see the simulator find it
	go test -count=1 -run TestMutantsAreCaught -v -timeout 30m ./internal/simulate

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
