# Everything that is done to this project by a command. `make` alone lists it.

SHELL := /bin/bash
export PATH := $(HOME)/.cargo/bin:$(PATH)

.PHONY: help setup build test lint fmt audit taste doc clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what building and testing need, if it is missing (Debian, as root)
	@.ci/setup

build: setup ## build the program into target/release
	@echo "== build"
	cargo build --release --locked

test: setup lint ## install what is missing, then run all checks and tests
	@echo "== test"
	cargo nextest run --locked

lint: ## rustfmt, clippy and shellcheck
	@echo "== rustfmt"
	cargo fmt --check
	@echo "== clippy"
	cargo clippy --locked --all-targets -- -D warnings
	@echo "== shellcheck"
	@.ci/shellcheck

fmt: ## format the code
	cargo fmt

audit: ## licences, bans, sources, and known vulnerabilities, by cargo-deny
	@.ci/audit

taste: setup ## a first taste: a playbook on three hosts on loopback
	@tests/taste.sh

doc: ## build the documentation of the code
	@echo "== doc"
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --document-private-items

clean: ## remove what was built
	cargo clean
