# saggar: `make demo` shows it working, `make test` checks it, `make build` builds it. `make help` lists the rest.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PLUGINS := lenet mlp tabular char-lm transformer input-opt onnx
GUESTS := careless echo formulas handlers hostile interface-revision-1 interface-revision-2 interface-revision-3 judge matmul mistakes painter preprocessor steady stepper teller
# PROFILE=debug uses the build of `make test`, so that tests can run the targets that otherwise need a release build.
PROFILE ?= release
BUILT = target/$(PROFILE)/saggar
IN_PROFILE = $(if $(filter debug,$(PROFILE)),--workspace --all-targets,--release -p saggar)
BENCH_IN_PROFILE = $(if $(filter debug,$(PROFILE)),--profile dev --workspace,-p $(1))
KEEP ?= 0
SECONDS_EACH ?= 600
GRAPHS ?= 100000
NODES ?= 100000
SOAK_SECONDS ?= 3600
SWAPS ?= 1000
ATTACK_SECONDS ?= 60
CLUSTER_JOBS ?= 100
DATABASE_KILLS ?= 20
DATABASE_PAUSE_SECONDS ?= 30
SEEDS ?= 10000
ATTACKS ?= $(filter-out main,$(basename $(notdir $(wildcard tests/tests/attacks/*.rs))))
ONLY ?=
DEVICE ?=
THREADS ?=
SAVE ?=
export KEEP

.PHONY: help setup build plugins guests dist demo test test-swiftshader docs lint bench bench-peers bench-scale cluster database-faults carry attack soak clean conformance-webnn conformance-onnx conformance-onnx-rules fuzz fuzz-graphs

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 32

setup: ## find or install the build requirements
	@.ci/setup build

build: setup ## build target/release/saggar, with the reference plugins inside
	cargo build --locked $(IN_PROFILE)

plugins: ## write the components of the reference plugins into plugins/target/saggar, with the existing saggar binary
	@for plugin in $(PLUGINS); do $(BUILT) build plugins/$$plugin || exit 1; done

dist: build ## write packages into target/dist: a tarball, a .deb for Debian and Ubuntu, and the Python client
	@.ci/setup dist
	@host/dist/package $(BUILT)

demo: build ## serve, train on real digits, swap the model in, predict; then stop (KEEP=1 leaves the server running)
	@SAGGAR_BIN=$(CURDIR)/$(BUILT) examples/digits/demo.sh

test: ## run every test, with formatting and lints
	@.ci/setup test
	@$(MAKE) --no-print-directory lint
	@# Binary and tests share one set of build units: another selection of packages would build the dependencies again.
	cargo build --locked --workspace --all-targets
	@$(MAKE) --no-print-directory guests
	ONNX_CASES="$${ONNX_CASES:-$$(.ci/onnx-cases)}" cargo test --locked --workspace --manifest-path plugins/Cargo.toml
	@# Many tests wait for leases and timeouts, so more of them than processors run at the same time.
	@if cargo nextest --version >/dev/null 2>&1; then \
	    cargo nextest run --locked --workspace --no-fail-fast --test-threads $$(( ($$(nproc) * 3 + 1) / 2 )) && \
	    .ci/skips "$${CARGO_TARGET_DIR:-target}/nextest/default/junit.xml"; \
	 else cargo test --locked --workspace --no-fail-fast; fi
	@.ci/test-swiftshader

test-swiftshader: ## run the device conformance suite and the WebNN cases on SwiftShader, a second Vulkan driver
	@.ci/setup test
	@cargo build --quiet --locked --workspace --all-targets
	@.ci/test-swiftshader

guests: # build the components that tests run, with the debug binary
	@for plugin in $(PLUGINS); do target/debug/saggar build plugins/$$plugin || exit 1; done
	@for guest in $(GUESTS); do target/debug/saggar build tests/guests/$$guest || exit 1; done

docs: ## check the links of the documentation, and write it as HTML into target/docs
	DOCS_DIR=$(CURDIR)/target/docs cargo test --quiet --locked --workspace --lib -- docs::tests
	@echo target/docs/README.html

DENY = cargo deny --locked --config .ci/deny.toml
ADVISORIES = $(wildcard $(or $(CARGO_HOME),$(HOME)/.cargo)/advisory-dbs/*)

lint:
	@.ci/setup lint
	cargo fmt --all --check
	cargo fmt --all --check --manifest-path plugins/Cargo.toml
	cargo fmt --all --check --manifest-path tests/guests/Cargo.toml
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo clippy --locked --workspace --all-targets --manifest-path plugins/Cargo.toml -- -D warnings
	$(DENY) check -D unmatched-skip -D unnecessary-skip -D license-not-encountered -D license-exception-not-encountered \
	 licenses bans sources
	@# The exceptions are those of the main workspace.
	$(DENY) --manifest-path plugins/Cargo.toml check -A unmatched-skip -A unnecessary-skip -A license-not-encountered \
	 -A license-exception-not-encountered licenses bans sources
	@# Only if their database is there: `cargo deny fetch` fetches it.
	$(if $(ADVISORIES),$(DENY) --offline check advisories)

conformance-webnn: ## run the WebNN cases in the folder WEBNN_CASES=DIR on interpreter, CPU and GPU
	@.ci/setup test
	@cargo build --quiet --locked --workspace --all-targets
	@target/debug/conformance-webnn "$${WEBNN_CASES:?name the folder of cases: WEBNN_CASES=DIR}"

conformance-onnx: ## run the ONNX project's own cases on CPU and GPU (ONNX_CASES=DIR:DIR, by default those of the Python packages)
	@.ci/setup test
	@cargo build --quiet --locked --workspace --all-targets
	@target/debug/saggar build plugins/onnx
	@target/debug/conformance-onnx "$${ONNX_CASES:-$$(.ci/onnx-cases)}"

conformance-onnx-rules: ## run these cases with the plugin's import rules on the interpreter, and check the operator signatures
	@.ci/onnx-signatures
	@ONNX_CASES="$${ONNX_CASES:-$$(.ci/onnx-cases)}" \
	 cargo test --quiet --locked --manifest-path plugins/Cargo.toml -p onnx --test suite cases -- --nocapture

# tests/tests/faults/mutations.rs is a short form of it, on generated seeds and mutations of them.
fuzz: ## fuzz the parsers of untrusted input, SECONDS_EACH seconds per target (needs cargo-fuzz and a nightly compiler)
	cd tests/fuzz && cargo run --quiet --locked --bin seeds -- corpus && cp -r corpus/verify corpus/compile
	cd tests/fuzz && for target in verify compile tangles safetensors bundle predictions infer_message onnx \
	    dataset_csv dataset_json_lines dataset_parquet dataset_arrow dataset_npy dataset_npz dataset_webdataset dataset_description images; do \
	    cargo +nightly fuzz run --fuzz-dir . $$target -- -max_total_time=$(SECONDS_EACH) -timeout=20 -rss_limit_mb=4096; \
	done

fuzz-graphs: ## compile GRAPHS=100000 random graphs for a GPU and compare them with the interpreter, and graphs of NODES=100000 nodes
	@.ci/setup test
	GRAPHS=$(GRAPHS) NODES=$(NODES) cargo test --locked --workspace --test programs -- \
	 random_graphs_compile_for_a_gpu large_graphs_take --nocapture

bench: build plugins ## measure training and serving against other servers (ONLY="overhead swaps" selects sections; MNIST=DIR trains on MNIST)
	@.ci/setup bench
	@for guest in matmul hostile steady; do $(BUILT) build tests/guests/$$guest || exit 1; done
	SAGGAR_BIN=$(CURDIR)/$(BUILT) cargo bench --locked $(call BENCH_IN_PROFILE,saggar-tests) --bench bench -- $(ONLY)

bench-peers: ## compare the CPU with gemm, ONNX Runtime and PyTorch, or DEVICE=vulkan:0 with PyTorch on CUDA (ONLY="matmul train" selects workloads; THREADS=2; SAVE=FILE)
	@.ci/setup bench
	cargo bench --locked $(call BENCH_IN_PROFILE,saggar-devices) --bench peers -- \
	 $(if $(DEVICE),--device $(DEVICE)) $(if $(THREADS),--threads $(THREADS)) $(if $(SAVE),--save $(abspath $(SAVE))) $(ONLY)

bench-scale: build ## a thousand hosts over one PostgreSQL, with queues of 1,000, 10,000 and 100,000 jobs (ONLY=10000 is one of them)
	@.ci/setup test
	SAGGAR_BIN=$(CURDIR)/$(BUILT) cargo bench --locked $(call BENCH_IN_PROFILE,saggar-tests) --bench scale -- $(ONLY)

# `make test` has short forms of all of these.
cluster: build plugins ## CLUSTER_JOBS=100 trainings on servers in network namespaces that are killed and cut off, long outages, and SEEDS=10000 simulated clusters (as root)
	@.ci/setup test
	@for guest in $(GUESTS); do $(BUILT) build tests/guests/$$guest || exit 1; done
	SAGGAR_CLUSTER_JOBS=$(CLUSTER_JOBS) SAGGAR_CLUSTER_CUT_SECONDS=60 REQUIRE_ALL=1 SAGGAR_BIN=$(CURDIR)/$(BUILT) \
	 cargo test --locked --workspace --test several_servers cluster:: -- --nocapture --test-threads 1
	SAGGAR_OUTAGE_SECONDS=300 REQUIRE_ALL=1 SAGGAR_BIN=$(CURDIR)/$(BUILT) \
	 cargo test --locked --workspace --test several_servers during_an_outage_of_the_bucket -- --nocapture
	SAGGAR_EVENT_SECONDS=600 cargo test --locked --workspace --lib a_reader_of_events_misses_none -- --nocapture
	SAGGAR_SIMULATION_SEEDS=$(SEEDS) cargo test --locked --workspace --lib servers_with_faults_run_each_job_to_success_once_on_sqlite -- --nocapture

database-faults: build ## two servers whose database is killed DATABASE_KILLS=20 times, stopped for DATABASE_PAUSE_SECONDS=30, and full (as root)
	@.ci/setup test
	@for guest in $(GUESTS); do $(BUILT) build tests/guests/$$guest || exit 1; done
	SAGGAR_DATABASE_KILLS=$(DATABASE_KILLS) SAGGAR_DATABASE_PAUSE_SECONDS=$(DATABASE_PAUSE_SECONDS) REQUIRE_ALL=1 \
	 SAGGAR_BIN=$(CURDIR)/$(BUILT) cargo test --locked --workspace --test several_servers database_faults:: -- --nocapture --test-threads 1

carry: ## pack the build's checks and benchmarks for a machine that has only a GPU driver: target/carry.tar.xz
	@.ci/setup build
	@host/devices/benches/carry/pack

attack: build plugins ## run the attack tests against the release binary, each sustained attack for ATTACK_SECONDS=60 (ATTACKS="memory time" names them)
	@.ci/setup test
	@for guest in $(GUESTS); do $(BUILT) build tests/guests/$$guest || exit 1; done
	@# A filter that matches no test would pass.
	$(foreach attack,$(ATTACKS),$(if $(wildcard tests/tests/attacks/$(attack).rs),,$(error ATTACKS: there is no tests/tests/attacks/$(attack).rs)))
	ATTACK_SECONDS=$(ATTACK_SECONDS) REQUIRE_CGROUP=1 SAGGAR_BIN=$(CURDIR)/$(BUILT) \
	 cargo test --locked --workspace --test attacks -- $(addsuffix ::,$(ATTACKS)) --nocapture --test-threads 1

soak: build plugins ## an hour of clients of every kind, swaps and trainings at once, and SWAPS=1000 reloads (SOAK_SECONDS=3600)
	SOAK_SECONDS=$(SOAK_SECONDS) SWAPS=$(SWAPS) SAGGAR_BIN=$(CURDIR)/$(BUILT) \
	 cargo test --locked --workspace --test serving -- soak:: swap:: --nocapture --test-threads 1

clean: ## remove all build outputs
	cargo clean
	rm -rf plugins/target tests/guests/target
