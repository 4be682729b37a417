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
KERNEL  ?=
PREFIX  ?= /usr/local
ARCH    ?= $(shell $(GO) env GOARCH)
VERSION ?= $(patsubst v%,%,$(shell git describe --tags --always --dirty 2>/dev/null))
LDFLAGS  = -s -w -X github.com/sluice-lb/sluice/internal/build.Version=$(VERSION)

# apt installs Debian packages unless the program $(1) is there; lists are updated only then.
apt = command -v $(1) >/dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(2) >/dev/null; }

.PHONY: help build test test-unit test-race test-kernel test-diff test-diff-quick test-loss test-loss-quick test-ecmp test-ecmp-quick test-sync test-long test-browser test-rules test-readers bench bench-compare bench-check lint fuzz cover demo install uninstall man deb rpm test-package clean

help: ## what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## bin/sluiced and bin/sluice, static
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

test: test-unit test-race test-readers test-rules test-browser test-kernel test-package test-diff-quick test-loss-quick test-ecmp-quick ## everything that must pass: unit, race, readers, Prometheus rules, browser, both kernels, packages, quick differential, loss and ECMP tests

# A test that fails is run once more, alone, and called flaky if it passes then: it goes on
# being a bug to mend, and a machine that had other things to do stops nobody. More than three
# are no accident.
gotest = rm -f bin/flaky-$@; bin/gotestsum --format standard-quiet --hide-summary skipped --rerun-fails=1 --rerun-fails-max-failures=3 \
	--rerun-fails-report bin/flaky-$@ --packages '$(PKG)' -- $(1) && { test ! -s bin/flaky-$@ || { echo "flaky, to be mended:"; cat bin/flaky-$@; }; }

test-unit: build bin/gotestsum ## unit tests (PKG=./...)
	@$(call apt,groff,groff-base)
	$(call gotest)

test-race: build bin/gotestsum ## the same under the race detector
	@$(call apt,gcc,gcc libc6-dev)
	export CGO_ENABLED=1; $(call gotest,-race)

test-readers: ## what scrapes, status and dashboards cost a verdict, on a machine with nothing else to do
	$(GO) test -count 1 -run TestReadersDelayNoVerdict -v ./test/soak -alone

test: KERNEL = all

test-kernel: build ## tests on a real ip_vs: this kernel's or a VM's (PKG=./... RUN=regexp KERNEL=bookworm, trixie or all)
	$(GO) run ./test/vm/kernel-tests -run '$(RUN)' $(if $(KERNEL),-kernel '$(KERNEL)') $(PKG)

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

test-ecmp: ## what clients lose of three directors behind a router with ECMP (ARGS="-run regexp -v", ARGS=-update)
	$(GO) run ./test/ecmp $(ARGS)

test-ecmp-quick: ## the part of it that is marked as quick
	$(GO) run ./test/ecmp -quick -parallel 2 -t 8m $(ARGS)

test-sync: build ## what connections of two directors with the sync daemon lose, on both kernels (ARGS=-update)
	$(GO) run ./test/vm/kernel-tests -run '^TestKernelSync' -kernel '$(or $(KERNEL),all)' -args '$(ARGS)' ./test/e2e

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
	@test -z "$$(gofmt -l cmd internal packaging pkg test | tee /dev/stderr)"
	$(GO) vet ./... && bin/staticcheck ./...
	@if command -v golangci-lint >/dev/null; then golangci-lint run ./...; else echo "golangci-lint is not installed, left out"; fi

bin/staticcheck: internal/tools/go.mod
	$(GO) -C internal/tools build -o ../../$@ honnef.co/go/tools/cmd/staticcheck

bin/gotestsum: internal/tools/go.mod
	$(GO) -C internal/tools build -o ../../$@ gotest.tools/gotestsum

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

# What is installed below PREFIX, and where; the packages hold the same. BIN is where the
# programs are, bin those of this machine, which print the completions.
BIN      = bin
SHARE    = $(PREFIX)/share
UNIT     = $(PREFIX)/lib/systemd/system/sluiced.service
EXAMPLES = $(filter-out configs/sluiced.service,$(sort $(shell find configs -type f)))
INSTALLED = $(PREFIX)/sbin/sluiced $(PREFIX)/bin/sluice $(UNIT) \
	$(SHARE)/man/man8/sluiced.8.gz $(SHARE)/man/man1/sluice.1.gz $(SHARE)/man/man5/sluice.conf.5.gz \
	$(SHARE)/bash-completion/completions/sluice $(SHARE)/zsh/site-functions/_sluice $(SHARE)/fish/vendor_completions.d/sluice.fish \
	$(SHARE)/doc/sluice/third-party-licenses $(EXAMPLES:configs/%=$(SHARE)/doc/sluice/examples/%)

install: build ## programs, unit, man pages, completions, examples (PREFIX=/usr/local DESTDIR=)
	@$(MAKE) -s files

files:
	install -D -m 755 $(BIN)/sluiced $(DESTDIR)$(PREFIX)/sbin/sluiced
	install -D -m 755 $(BIN)/sluice $(DESTDIR)$(PREFIX)/bin/sluice
	sed 's|/usr/local|$(PREFIX)|' configs/sluiced.service | install -D -m 644 /dev/stdin $(DESTDIR)$(UNIT)
	for page in sluiced.8 sluice.1 sluice.conf.5; do \
		gzip -9nc packaging/man/$$page | install -D -m 644 /dev/stdin $(DESTDIR)$(SHARE)/man/man$${page##*.}/$$page.gz || exit; done
	bin/sluice completion bash | install -D -m 644 /dev/stdin $(DESTDIR)$(SHARE)/bash-completion/completions/sluice
	bin/sluice completion zsh | install -D -m 644 /dev/stdin $(DESTDIR)$(SHARE)/zsh/site-functions/_sluice
	bin/sluice completion fish | install -D -m 644 /dev/stdin $(DESTDIR)$(SHARE)/fish/vendor_completions.d/sluice.fish
	packaging/licenses.sh | install -D -m 644 /dev/stdin $(DESTDIR)$(SHARE)/doc/sluice/third-party-licenses
	for f in $(EXAMPLES:configs/%=%); do install -D -m 644 configs/$$f $(DESTDIR)$(SHARE)/doc/sluice/examples/$$f || exit; done

uninstall: ## what install made; configuration and /var/lib/sluice stay (PREFIX= DESTDIR=)
	rm -f $(addprefix $(DESTDIR),$(INSTALLED))
	-rmdir $(DESTDIR)$(SHARE)/doc/sluice/examples $(DESTDIR)$(SHARE)/doc/sluice 2>/dev/null

man: ## packaging/man, made anew from options, verbs and keywords
	$(GO) test -count 1 -run '^TestManPage' ./cmd/... ./packaging/man -update

# A package is the same whenever and wherever it is built of the same commit.
export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
PACKAGE_VERSION = $(shell packaging/version.sh '$(VERSION)')
STAGE    = bin/package/$(ARCH)
NFPM     = STAGE=$(STAGE) ARCH=$(ARCH) PACKAGE_VERSION='$(PACKAGE_VERSION)' bin/nfpm package -f packaging/nfpm.yaml

deb: bin/nfpm stage ## bin/sluice_*.deb (ARCH=amd64 VERSION=)
	$(NFPM) -p deb -t bin/

rpm: bin/nfpm stage ## bin/sluice-*.rpm (ARCH=amd64 VERSION=)
	$(NFPM) -p rpm -t bin/

stage: build
	rm -rf $(STAGE)
	CGO_ENABLED=0 GOARCH=$(ARCH) $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(STAGE)/bin/ ./cmd/...
	@$(MAKE) -s files PREFIX=/usr DESTDIR=$(STAGE)/root BIN=$(STAGE)/bin
	install -m 644 packaging/copyright $(STAGE)/root/usr/share/doc/sluice/copyright
	printf 'sluice (%s) stable; urgency=medium\n\n  * %s: https://github.com/sluice-lb/sluice\n\n -- %s  %s\n' '$(PACKAGE_VERSION)' \
		'What changed is in the history' 'The sluice authors <sluice@users.noreply.github.com>' \
		"$$(LC_ALL=C date -u -R -d @$(SOURCE_DATE_EPOCH))" | gzip -9n | install -m 644 /dev/stdin $(STAGE)/root/usr/share/doc/sluice/changelog.gz
	mv $(STAGE)/root/usr/share/zsh/site-functions/_sluice $(STAGE)/ && rm -r $(STAGE)/root/usr/share/zsh
	find $(STAGE) -exec touch -hd @$(SOURCE_DATE_EPOCH) {} +

bin/nfpm: internal/tools/go.mod
	$(GO) -C internal/tools build -o ../../$@ github.com/goreleaser/nfpm/v2/cmd/nfpm

test-package: ## the package installed, upgraded under traffic and removed, on a systemd of its own in the VM
	SLUICE_PACKAGES=1 $(GO) test -count 1 -v ./packaging
	@$(MAKE) -s deb VERSION=1.0.0 && $(MAKE) -s deb VERSION=1.0.1
	CGO_ENABLED=0 $(GO) test -c -o bin/install.test ./test/install
	$(GO) run ./test/vm -system -t 500 -e SLUICE_PACKAGES=1 -- bin/install.test -test.v -test.timeout 450s

clean: ## remove what make built; the fetched kernel stays in ~/.cache/sluice-vm
	rm -rf bin
