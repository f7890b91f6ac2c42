# One door to every habit. `make` lists the targets.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
ARGS ?=
TEST_ARGS ?=
DBPATH ?= data/db

KERNEL_SOURCES := kernels/Cargo.toml $(wildcard kernels/Cargo.lock) $(shell find kernels/src -name '*.rs' 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help prerequisites init run test test-nightly lint format types bench profile image lock audit clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

prerequisites:
	@PYTHON="$(PYTHON)" sh docker/steps/check-prerequisites

$(BIN)/python:
	@$(MAKE) --no-print-directory prerequisites
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/run-ready: pyproject.toml $(KERNEL_SOURCES) | $(BIN)/python
	@$(MAKE) --no-print-directory prerequisites
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/test-ready: $(VENV)/run-ready
	$(BIN)/python -m pip install --quiet --group test
	@touch $@

$(VENV)/lint-ready: $(VENV)/test-ready
	$(BIN)/python -m pip install --quiet --group lint
	@mkdir -p .typing && ln -sfn .. .typing/bucketd
	@touch $@

init: $(VENV)/lint-ready ## everything a developer needs, in .venv

run: $(VENV)/run-ready ## set up and start the server on port 27017 (ARGS='--port 0 …' for more options)
	@mkdir -p $(DBPATH)
	$(BIN)/bucketd --dbpath $(DBPATH) $(ARGS)

test: $(VENV)/test-ready ## set up and run the tests (TEST_ARGS='-k name' for a part)
	cd kernels && cargo test --quiet --no-default-features
	$(BIN)/python -m pytest $(TEST_ARGS)

test-nightly: $(VENV)/test-ready ## the long forms: more kills, longer fuzzing (prints figures; BUCKETD_TEST_KILLS=120)
	$(BIN)/python -m pytest -m nightly -s $(TEST_ARGS)

lint: $(VENV)/lint-ready ## ruff, mypy, import rules, clippy, rustfmt
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PYTHONPATH=.typing $(BIN)/lint-imports
	cd kernels && cargo fmt --check && cargo clippy --quiet --all-targets --no-default-features -- -D warnings

format: $(VENV)/lint-ready ## rewrite the sources in the house's form
	$(BIN)/ruff check --fix-only --quiet . || true
	$(BIN)/ruff format .
	cd kernels && cargo fmt

bench: $(VENV)/test-ready ## benchmarks: a table of medians (ARGS='--size smoke')
	$(BIN)/python -m pip install --quiet --group bench
	$(BIN)/python -m benchmarks $(ARGS)

profile: $(VENV)/test-ready ## where the server's time goes during ingest and queries (ARGS='--size smoke --query lastpoint')
	$(BIN)/python -m pip install --quiet --group bench
	$(BIN)/python -m benchmarks --profile $(ARGS)

image: ## the container image, where a container engine is at hand
	docker build --file docker/Dockerfile --tag bucketd .

lock: $(VENV)/run-ready ## renew requirements.lock: the newest versions that pyproject.toml allows, with hashes
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --upgrade --no-header --no-annotate --quiet --output-file requirements.lock

audit: $(VENV)/run-ready ## ask the advisory databases about what is locked (needs a network)
	$(BIN)/python -m pip install --quiet pip-audit
	$(BIN)/pip-audit --requirement requirements.lock --disable-pip --no-deps
	@if command -v cargo-deny >/dev/null; then cd kernels && cargo deny check advisories; else echo "cargo-deny is not installed: crates were not checked"; fi

clean: ## remove what was built
	rm -rf $(VENV) .typing build dist *.egg-info kernels/target kernels/*.so .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
