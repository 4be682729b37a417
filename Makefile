GO      ?= go
TIME    ?= 1m
PKG     ?= ./...
RUN     ?= ^TestKernel
ARGS    ?=
CONFIGS ?=
BENCH   ?= .
COUNT   ?= 6
AXE     ?= 4.11.0
PICTURES ?=
PREFIX  ?= /usr/local
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null )
LDFLAGS  = -s -w -X github.com/sluice-lb/sluice/internal/build.Version=$(VERSION)

# apt installs Debian packages unless the program $(1) is there; lists are updated only then.
apt = command -v $(1) >/dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(2) >/dev/null; }

.PHONY: help build test test-unit test-race test-kernel test-diff test-diff-quick test-loss test-loss-quick test-long test-browser test-rules bench bench-compare bench-check lint fuzz cover demo install clean

help: ## what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## bin/sluiced and bin/sluice, static
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

test: test-unit test-race test-rules test-browser test-kernel test-diff-quick test-loss-quick ## everything that must pass: unit, race, Prometheus rules, browser, kernel, quick differential and quick loss tests

test-unit: ## unit tests (PKG=./...)
	$(GO) test $(PKG)

test-race: ## the same under the race detector
	@$(call apt,gcc,gcc libc6-dev)
	CGO_ENABLED=1 $(GO) test -race $(PKG)

test-kernel: build ## tests on a real ip_vs: this kernel's or a VM's (PKG=./... RUN=regexp)
	$(GO) run ./test/vm/kernel-tests -run '$(RUN)' $(PKG)

test-browser: build ## the dashboard in headless Chromium (PICTURES=docs takes the pictures anew)
	@$(call apt,chromium,chromium fonts-dejavu-core)
	@mkdir -p bin/axe && test -f bin/axe/axe.min.js || { cd bin/axe && npm pack --silent axe-core@$(AXE) >/dev/null && tar xzf axe-core-*.tgz --strip-components 1 package/axe.min.js; } || echo "no axe-core, its part is left out"
	$(GO) -C test/browser test -count 1 . $(if $(PICTURES),-pictures '$(abspath $(PICTURES))') $(if $(wildcard bin/axe/axe.min.js),-axe '$(abspath bin/axe/axe.min.js)')

test-diff: ## sluiced against keepalived, all of it (CONFIGS=folder of more configurations, ARGS="-run regexp -v", ARGS=-update)
	$(GO) run ./test/diff $(if $(CONFIGS),-configs '$(CONFIGS)') $(ARGS)

test-diff-quick: ## the dozen scenarios of it that are marked as quick
	$(GO) run ./test/diff -quick -t 10m $(ARGS)

test-loss: ## what operations cost clients, with sluiced and with keepalived (ARGS="-run regexp -v", ARGS=-update)
	$(GO) run ./test/loss $(ARGS)

test-loss-quick: ## the four or five scenarios of it that are marked as quick
	$(GO) run ./test/loss -quick -t 10m $(ARGS)

test-rules: bin/promtool ## configs/prometheus-rules.yml and its unit tests, by promtool
	bin/promtool check rules configs/prometheus-rules.yml && bin/promtool test rules configs/prometheus-rules_test.yml

# promtool alone: Debian's package would run a Prometheus here.
bin/promtool:
	@mkdir -p bin/promtool.d
	@if command -v promtool >/dev/null; then ln -sf $$(command -v promtool) $@; else \
		apt-get update -qq && cd bin/promtool.d && apt-get download -qq prometheus && dpkg -x prometheus_*.deb . && \
		mv usr/bin/promtool ../promtool; fi
	@rm -r bin/promtool.d

test-long: ## ten minutes of reloads and 10,000 verdicts a second, then 100,000 scripts that end at their timeout, ten minutes too
	$(GO) test -count 1 -timeout 30m -v ./test/soak -for 10m -rate 10000
	SLUICE_LONG=1 $(GO) test -count 1 -timeout 30m -v -run TestC05ScriptsThatEndAtTheirTimeout ./internal/checker/misc
	SLUICE_LONG=1 $(GO) test -count 1 -timeout 30m -v -run TestSoak ./internal/engine

bench: ## the Go benchmarks, for benchstat (BENCH=regexp COUNT=6 PKG=./...)
	@$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) -timeout 0 \
		$(if $(filter ./...,$(PKG)),$$(grep -rlE --include='*_test.go' '^func Benchmark' cmd internal pkg test | xargs -rn1 dirname | sort -u | sed 's|^|./|'),$(PKG))

bench-compare: build ## sluiced beside keepalived, about 20 minutes; writes docs/performance.md (ARGS="-quick -only tcp")
	$(GO) run ./test/bench -sluiced bin/sluiced -update $(ARGS)

bench-check: build ## the native part of it alone: what checking costs (ARGS=-quick)
	$(GO) run ./test/bench -sluiced bin/sluiced -parts native $(ARGS)

lint: bin/staticcheck ## gofmt, vet, staticcheck, and golangci-lint where installed
	@test -z "$$(gofmt -l cmd internal pkg test | tee /dev/stderr)"
	$(GO) vet ./... && bin/staticcheck ./...
	@if command -v golangci-lint >/dev/null; then golangci-lint run ./...; else echo "golangci-lint is not installed, left out"; fi

bin/staticcheck: internal/tools/go.mod
	$(GO) -C internal/tools build -o ../../$@ honnef.co/go/tools/cmd/staticcheck

fuzz: ## every fuzz target for TIME (1m) each
	@grep -roE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' cmd internal pkg | sed 's|/[^/]*:func | |' | sort -u | \
	while read -r dir name; do echo "$$name in $$dir"; $(GO) test ./$$dir -run '^$$' -fuzz "^$$name\$$" -fuzztime $(TIME) || exit 1; done

cover: ## coverage by function, and cover.html
	@mkdir -p bin
	$(GO) test -coverprofile=bin/cover.out -coverpkg=./cmd/...,./internal/...,./pkg/... ./... && $(GO) tool cover -func=bin/cover.out
	$(GO) tool cover -html=bin/cover.out -o bin/cover.html

demo: build ## the main job on a real table, step by step, in about a minute
	CGO_ENABLED=0 $(GO) build -o bin/demo ./test/demo
	$(GO) run ./test/vm -where auto -t 300 -- bin/demo

install: build ## binaries and systemd unit (PREFIX=/usr/local DESTDIR=)
	install -D -t $(DESTDIR)$(PREFIX)/sbin bin/sluiced && install -D -t $(DESTDIR)$(PREFIX)/bin bin/sluice
	sed 's|/usr/local|$(PREFIX)|' configs/sluiced.service | install -D -m 644 /dev/stdin $(DESTDIR)/etc/systemd/system/sluiced.service

clean: ## remove what make built; the fetched kernel stays in ~/.cache/sluice-vm
	rm -rf bin
