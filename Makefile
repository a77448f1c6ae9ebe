# What one does with this repository. Everything goes into one folder, target/, so that nothing is built twice.

.DEFAULT_GOAL := help
SHELL := /bin/bash
CARGO := cargo
TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
PYTHON = $(or $(shell dev/tools/python.sh),python3)
# What `make quick` compares with.
MAIN = $(shell git merge-base HEAD origin/main 2>/dev/null || git merge-base HEAD main)
export CARGO_TERM_COLOR ?= auto
ifdef CI
# What is compiled once need not be kept for the next time.
export CARGO_INCREMENTAL := 0
endif

# On x86-64, Rust links with its own lld. Elsewhere, a fast linker is used if there is one.
MACHINE := $(shell uname -m)
ifneq ($(MACHINE),x86_64)
LINKER := $(if $(shell command -v mold),mold,$(if $(shell command -v ld.lld),lld))
ifneq ($(LINKER),)
export RUSTFLAGS += -C link-arg=-fuse-ld=$(LINKER)
endif
endif

.PHONY: help begin demo quick test stress fuzz guided miri loom soak check supply-chain fmt tree lint doc spelling \
        build unit bench bench-tiny papers docs generate headline install-capi wheel dist judges python java times \
        clean need

help: ## Say what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: need ## Stack a small sky survey under two policies, and compare them
	@dev/tools/demo.sh

quick: fmt tree lint ## While you work: formatting, tests of the tree, lints, tests of rooms that differ from main
	$(if $(SINCE)$(MAIN),,$(error there is no branch main to compare with: make quick SINCE=REV))
	@$(PYTHON) dev/tools/run_tests.py --since $(or $(SINCE),$(MAIN))

test: check unit python java bench-tiny ## Check, all tests, benchmarks in miniature; CI runs this, and then judges
	@$(PYTHON) dev/tools/unstable.py report
	@echo 'make test: all of it passed'

stress: need ## Run tests many times beside busy processes: make stress TEST=name RUNS=50 LOAD=8
	$(if $(TEST),,$(error name the tests: make stress TEST=name; TEST=:: takes all that are in modules))
	$(PYTHON) dev/tools/run_tests.py --stress '$(TEST)' --runs $(or $(RUNS),50) --load $(or $(LOAD),8)

fuzz: need ## Parsers with any bytes: make fuzz PARSER=globs SECONDS=60; without PARSER, all
	dev/judges/fuzz.sh $(or $(SECONDS),10) $(PARSER)

guided: need ## The same under libFuzzer, which compiles everything again for that
	dev/judges/fuzz_guided.sh $(or $(SECONDS),60) $(PARSER)

miri: need ## Tests of rooms without sockets, and of the C library's handles, under Miri of the nightly toolchain
	dev/judges/miri.sh

loom: need ## Models of the board of agents and programs, in every order of their threads
	dev/judges/loom.sh

soak: build ## Simulated faults, seed after seed; power cuts; the model; experiments: make soak MINUTES=60 CUTS=1000
	@dev/tools/need_in_ci.sh soak
	EYAS_MODEL_SCENARIOS=1000 $(CARGO) test --locked --workspace --test model -- --nocapture
	EYAS_SOAK_MINUTES=$(or $(MINUTES),10) $(CARGO) test --locked --workspace --test faults -- --nocapture
	EYAS_SOAK_MINUTES=$(or $(MINUTES),10) $(CARGO) test --locked --workspace --lib faults::cases -- --nocapture
	EYAS_POWER_CUTS=$(or $(CUTS),1000) $(CARGO) test --locked --workspace --test nodes -- --nocapture power::
	$(PYTHON) dev/tools/run_tests.py --run-ignored only --filterset 'test(/^experiments::/)'
	dev/judges/positions.sh 10000
	dev/judges/fuzz.sh 60
	dev/judges/fuzz_guided.sh 120
	dev/tools/wheel.sh sdist

check: begin fmt spelling tree lint doc ## Formatting, spelling, tests of the tree, lints, documentation

supply-chain: need ## Licences, sources and duplicates of dependencies, and unused ones; builds its tools first
	@ADVISORIES=$(ADVISORIES) dev/tools/supply_chain.sh $(CARGO)

bench: need ## All benchmarks in full
	$(CARGO) bench --locked --workspace --bench '*'

papers: need ## Measure what stands beside a figure of a paper: make papers FIGURE=39 PAPER=data-diffusion
	$(if $(FIGURE),,$(error name the figure: make papers FIGURE=39; docs/reference/figures.md lists them))
	@dev/tools/paper_figure.sh $(or $(PAPER),data-diffusion) $(FIGURE)

docs: need ## The documentation as a book, in target/book; builds mdbook first
	@dev/tools/docs.sh $(CARGO)

generate: need ## Write the pages of the book that are made from the code
	EYAS_GENERATE=1 $(CARGO) test --locked -p eyas-tree --test reference
	$(CARGO) build --locked --workspace --all-targets
	EYAS_GENERATE=1 EYAS_BIN=$(TARGET)/debug/eyas $(CARGO) test --locked --workspace --test end_to_end -- current

# ARCHIVE=FILE installs a library that was built before.
install-capi: need ## Build the C library and install it: make install-capi PREFIX=/usr/local
	$(if $(ARCHIVE),,$(CARGO) build --locked --release -p eyas-capi)
	doors/capi/install.sh $(or $(ARCHIVE),$(TARGET)/release/libeyas_capi.a) $(or $(PREFIX),/usr/local) $(DESTDIR)

wheel: need ## The Python package as a wheel for Linux with glibc 2.17 or later, in target/python/wheels
	@dev/tools/wheel.sh sdist
	@dev/tools/wheel.sh release

dist: need ## What users install, in target/dist: a tarball, a .deb, an .rpm and a wheel, from one build
	@dev/tools/dist.sh release

judges: need ## Suites of others: the mount, batch systems, Python. SINCE=REV: only what a change touches
	@$(PYTHON) dev/judges/run.py $(if $(SINCE),--since $(SINCE))

headline: need ## Run one data-heavy job under five systems, and draw the picture of README; needs root
	$(CARGO) build --locked --release -p eyas-cli
	dev/tools/peers.sh
	chrt -r 1 dev/experiments/headline.py

times: need ## What building and testing costs, in fresh clones: make times ROWS="test demo" RUNS=3 BUSY=0; hours
	@$(PYTHON) dev/tools/times.py --runs $(or $(RUNS),3) --busy $(or $(BUSY),0) $(ROWS)

clean: ## Remove what was built and what the demo left
	$(CARGO) clean
	rm -rf demo-out

# ---- parts. All of them name the whole workspace with all targets, or take what that has built: with less of it cargo
# would choose other features of some dependencies, and build those again.

begin:
	@$(PYTHON) dev/tools/unstable.py begin

fmt: need
	$(CARGO) fmt --all --check
	for crate in dev/loom dev/fuzz/guided; do \
		$(CARGO) fmt --manifest-path $$crate/Cargo.toml --check || exit 1; \
	done

# The tests that only read the tree: few dependencies are compiled for them.
tree: need
	$(CARGO) test --locked --quiet -p eyas-tree

lint: need
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

doc: need
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --locked --workspace --no-deps

spelling:
	@dev/tools/spelling.sh

# Everything once: eyas, and beside it the libraries for C and Python and the one that `eyas io run` loads; all tests.
build: need
	$(if $(LINKER)$(filter x86_64,$(MACHINE)),,@echo 'neither mold nor lld is here: linking takes longer')
	$(CARGO) build --locked --workspace --all-targets

unit: need
	@dev/tools/need_in_ci.sh
	$(PYTHON) dev/tools/run_tests.py $(TESTS)
	$(if $(TESTS),,$(CARGO) test --quiet --locked --workspace --doc)

python: build
	dev/tools/python_tests.sh

java: build
	dev/tools/need_in_ci.sh
	dev/tools/java.sh test

# Small enough for every day, so that benchmarks do not rot.
bench-tiny: build
	$(CARGO) test --locked --workspace --bench caching --bench claims --bench decisions --bench grants --bench model \
		--bench scale -- --tiny
	$(CARGO) test --locked --workspace --bench loopback

need:
	@dev/tools/need.sh $(CARGO)
