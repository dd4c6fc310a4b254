# The commands of this project. `make` alone lists them.

SHELL := /bin/bash
export PATH := $(HOME)/.cargo/bin:$(PATH)

# The lab that tests run in; a lab of `make lab-up` is another one and is not changed.
TEST_LAB := target/debug/lab --name etcdrun-test
HYPERVISORS ?= 3
HOSTS ?= 10
ROUNDS ?= 3
# How often a rollout is measured, 20 for the published limits; and how many clusters a campaign has.
RUNS ?= 3
# A campaign: the first seed, and after how many minutes no other cluster begins.
SEED ?= 1
MINUTES ?= 60
# Which rows of the matrix; without it, those that have no result yet.
ROWS ?=
# Clusters of guests, on this: bridge, macvtap. Without it, of hosts.
MACHINES ?=
# How many clusters are played at once, each in a lab of its own.
LANES ?= 1

.PHONY: help setup setup-tests build release reproducible sbom test test-lab test-long slowest lint fmt audit taste demo demo-down demo-postgres demo-postgres-down bench doc clean campaign matrix mutants lab lab-up lab-down lab-status

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what building needs, if it is missing (Debian, as root)
	@.ci/setup

setup-tests: setup ## the same, and what testing needs
	@.ci/setup tests

build: setup ## build the program into target/release
	@echo "== build"
	cargo build --release --locked

release: setup ## build the program so that the same sources give the same bytes, into target/dist
	@echo "== release"
	@.ci/release

reproducible: setup ## build a release in two directories, and compare (takes long)
	@.ci/reproducible

sbom: setup ## write the bill of materials of the program (CycloneDX) to target/etcdrun.cdx.json
	@mkdir -p target
	@.ci/sbom target/etcdrun.cdx.json

test: setup-tests lint lab ## install what is missing, then run all checks and tests
	@.ci/audit quick
	@echo "== test"
	@.ci/test

test-lab: setup-tests lab ## run the tests in the lab whose names match FILTER
	$(TEST_LAB) run --hypervisors 0 --hosts 0 -- cargo nextest run --locked -E 'test(/^lab::/) and test(/$(FILTER)/)'

test-long: setup-tests lab ## run all tests: what takes minutes, lifetimes of clusters in emulated guests, kills at every step
	ETCDRUN_TEST_PART=all ETCDRUN_TEST_KILLS=all .ci/test
	$(TEST_LAB) run --hypervisors 0 --hosts 0 -- cargo nextest run --locked --workspace --run-ignored only --no-capture

campaign: setup-tests lab ## play random operations with faults on random clusters: SEED=, RUNS=, MINUTES=, LANES=, MACHINES=
	cargo build --locked --workspace
	@.ci/lanes $(LANES) fault target/campaign --seed $(SEED) --lives $(RUNS) --minutes $(MINUTES) $(if $(MACHINES),--machines $(MACHINES))

matrix: setup-tests lab ## play the whole life of a cluster, without faults, for every pair of settings: LANES=; ROWS=3,7: only these
	cargo build --locked --workspace
	@.ci/lanes $(LANES) row target/matrix --matrix $(if $(ROWS),--rows $(ROWS))

mutants: setup-tests lab ## switch each gate rule, policy and repair off, and see which test notices
	cargo build --locked --workspace
	.ci/mutants

slowest: ## which tests of the last run took longest
	@.ci/slowest

lint: ## rustfmt, clippy, shellcheck and words
	@echo "== rustfmt"
	cargo fmt --check
	@echo "== clippy"
	cargo clippy --locked --workspace --all-targets -- -D warnings
	@echo "== shellcheck"
	@.ci/shellcheck
	@echo "== words"
	@.ci/words

fmt: ## format the code
	cargo fmt

audit: ## licenses, bans, sources, and known vulnerabilities, by cargo-deny, which is installed if it is missing
	@.ci/audit

taste: setup ## run a first playbook on three hosts on loopback
	@tests/taste.sh

demo: setup lab ## create an etcd cluster on three virtual hypervisors
	cargo build --locked
	@tests/demo.sh

demo-down: lab ## remove what `make demo` has created
	@tests/demo.sh down

demo-postgres: setup lab ## deploy etcd, PostgreSQL, load balancers and monitoring on nine hosts of the lab
	cargo build --locked
	@tests/demo-postgres.sh

demo-postgres-down: lab ## remove what `make demo-postgres` has created
	@tests/demo-postgres.sh down

bench: setup lab ## measure etcdrun against other tools and its own limits (FILTER=commands ROUNDS=3 RUNS=3)
	cargo build --release --locked -p etcdrun -p etcdrun-bench
	@target/release/bench --filter '$(FILTER)' --rounds $(ROUNDS) --runs $(RUNS)

lab: ## build the program of the lab
	cargo build --locked -p etcdrun-lab

lab-up: setup lab ## start the lab: virtual hypervisors and hosts (HYPERVISORS=3 HOSTS=10)
	@target/debug/lab up --hypervisors $(HYPERVISORS) --hosts $(HOSTS)

lab-down: lab ## stop the lab
	@target/debug/lab down

lab-status: lab ## show the lab
	@target/debug/lab status

doc: ## build the code documentation
	@echo "== doc"
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --document-private-items

clean: ## remove build output
	cargo clean
