# What one does with this repository. Everything goes into one folder, target/, so that nothing is built twice.

.DEFAULT_GOAL := help
SHELL := /bin/bash
CARGO := cargo
TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
export CARGO_TERM_COLOR ?= auto

.PHONY: help demo test soak check supply-chain fmt layers lint doc spelling unit bench bench-tiny docs \
        generate headline install-capi wheel judges python clean need

help: ## Say what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: need ## Stack a small sky survey under two policies, and compare them
	@dev/demo.sh

test: check unit python bench-tiny ## Check, all tests, benchmarks in miniature; CI runs this, and then judges
	@echo 'make test: all of it passed'

soak: need ## Simulated faults, seed after seed, and the model on many scenarios: make soak MINUTES=60
	EYAS_MODEL_SCENARIOS=1000 $(CARGO) test --locked --workspace --test model -- --nocapture
	EYAS_SOAK_MINUTES=$(or $(MINUTES),10) $(CARGO) test --locked --workspace --test faults -- --nocapture

check: fmt layers lint doc spelling ## Formatting, layers, lints, documentation, spelling

supply-chain: need ## Licences, sources and duplicates of dependencies, and unused ones; builds its tools first
	@dev/supply_chain.sh $(CARGO)

bench: need ## All benchmarks in full
	$(CARGO) bench --locked --workspace --bench '*'

docs: need ## The documentation as a book, in target/book; builds mdbook first
	@dev/docs.sh $(CARGO)

generate: need ## Write the pages of the book that are made from the code
	$(CARGO) build --locked --workspace
	EYAS_GENERATE=1 EYAS_BIN=$(TARGET)/debug/eyas \
		$(CARGO) test --locked --workspace --test reference --test end_to_end -- current

# ARCHIVE=FILE installs a library that was built before.
install-capi: need ## Build the C library and install it: make install-capi PREFIX=/usr/local
	$(if $(ARCHIVE),,$(CARGO) build --locked --release -p eyas-capi)
	capi/install.sh $(or $(ARCHIVE),$(TARGET)/release/libeyas_capi.a) $(or $(PREFIX),/usr/local) $(DESTDIR)

wheel: need ## The Python package as a wheel for Linux with glibc 2.17 or later, in target/python/wheels
	@dev/wheel.sh release

judges: need ## Pools on a real Slurm; test suites of others on the mount (pjdfstest, fsx, fio, git …); needs root, FUSE
	$(CARGO) build --locked --workspace
	EYAS_BIN=$(TARGET)/debug/eyas CARGO=$(CARGO) dev/judges.sh
	dev/python_tests.sh --judges

headline: need ## Run one data-heavy job under five systems, and draw the picture of README; needs root
	$(CARGO) build --locked --release -p eyas-cli
	dev/peers.sh
	chrt -r 1 dev/headline.py

clean: ## Remove what was built and what the demo left
	$(CARGO) clean
	rm -rf demo-out

# ---- parts. All of them name the whole workspace: with less of it cargo would choose other features of some
# dependencies, and build those again.

fmt: need
	$(CARGO) fmt --all --check

lint: need
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

layers: need
	$(CARGO) test --locked --workspace --test layers --test tidy

doc: need
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --locked --workspace --no-deps

spelling:
	@dev/spelling.sh

# The end-to-end tests need eyas, and beside it the library that `eyas io run` loads; they need not build them again.
unit: need
	@dev/need_in_ci.sh
	$(CARGO) build --locked --workspace
	EYAS_BIN=$(TARGET)/debug/eyas $(CARGO) test --locked --workspace

python: need
	dev/python_tests.sh

# Small enough for every day, so that benchmarks do not rot.
bench-tiny: need
	$(CARGO) test --locked --workspace --bench caching -- --tiny
	$(CARGO) test --locked --workspace --bench claims -- --tiny
	$(CARGO) test --locked --workspace --bench decisions -- --tiny
	$(CARGO) test --locked --workspace --bench grants -- --tiny
	$(CARGO) test --locked --workspace --bench model -- --tiny
	$(CARGO) test --locked --workspace --bench scale -- --tiny
	$(CARGO) test --locked --workspace --bench loopback

need:
	@dev/need.sh $(CARGO)
