# Every target is one command; `make help` lists them.
# PYTHON picks the interpreter (3.11 or newer), ARGS goes to the program, FULL=1 asks for the long version.
.DEFAULT_GOAL := help
SHELL := /bin/bash
# The first of these that is new enough and can make environments.
PYTHON ?= $(shell for each in python3 python3.13 python3.12 python3.11; do \
	$$each -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$each && break; done)
UV ?= uv
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# A dozen processes start at once: without bytecode each of them compiles the same modules first.
COMPILE := $(BIN)/python -m compileall -q -j 0 .venv/lib app tasks providers sandbox embedded migrations celeryconfig.py
# Tests mostly wait for processes that they start, so three at a time fit two cores; a file stays together.
PARALLEL := -n 3 --dist loadfile
FULL_FLAG := $(if $(FULL),--full,)

.PHONY: help run test lint format test-kafka bench soak chaos backlog bulkhead errors lock clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

run: .venv/run.stamp  ## Start the whole system on this machine (ARGS="--broker light --data DIR")
	@exec $(BIN)/arauto up $(ARGS)

test: .venv/dev.stamp lint  ## Lint, types, import contracts, then every test
	$(BIN)/python -m pytest $(PARALLEL) $(ARGS)

lint: .venv/dev.stamp  ## Style, format, types, import contracts, module length
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q -p no:cacheprovider tests/meta/test_modules.py

format: .venv/dev.stamp  ## Let ruff lay the code out and fix what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test-kafka: .venv/dev.stamp  ## Only the suites on Apache Kafka (or on KAFKA_BOOTSTRAP_SERVERS)
	$(BIN)/python -m pytest -m kafka $(PARALLEL) $(ARGS)

bench: .venv/dev.stamp  ## Speed against its yardsticks in one run (FULL=1, ARGS="--only relay")
	$(BIN)/python -m bench $(FULL_FLAG) $(ARGS)

soak: .venv/dev.stamp  ## Paced load over HTTP: the highest rate at which everything keeps up (FULL=1)
	$(BIN)/python -m bench.soak $(FULL_FLAG) $(ARGS)

chaos: .venv/dev.stamp  ## Kills, wipes and restarts while deliveries flow, then the ledger (ARGS="--broker light")
	$(BIN)/python -m bench.chaos $(FULL_FLAG) $(ARGS)

backlog: .venv/dev.stamp  ## A LOW backlog behind a provider limit, with one-time codes beside it (FULL=1)
	$(BIN)/python -m bench.backlog $(FULL_FLAG) $(ARGS)

bulkhead: .venv/dev.stamp  ## LOW e-mail beside a hanging SMS provider, and beside an SMS backlog
	$(BIN)/python -m bench.bulkhead $(ARGS)

errors: .venv/dev.stamp  ## Write the table of docs/errors.md anew from the catalogue of error codes
	$(BIN)/arauto errors --into docs/errors.md

LOCK := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-emit-find-links --no-annotate --no-header
lock:  ## Pin the packages anew with their hashes (needs uv; ARGS="--upgrade")
	$(LOCK) $(ARGS) --extra embedded --extra dev pyproject.toml -o requirements/dev.txt
	$(LOCK) $(ARGS) --extra embedded -c requirements/dev.txt pyproject.toml -o requirements/run.txt
	$(LOCK) $(ARGS) -c requirements/dev.txt pyproject.toml -o requirements/service.txt
	$(LOCK) $(ARGS) requirements/build.in -o requirements/build.txt

clean:  ## Remove the environment and the caches; the data in .arauto/ stays
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build *.egg-info

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer with its venv module is needed (on Debian: apt install" \
		"python3-venv); name one that is not on the PATH with: make $(MAKECMDGOALS) PYTHON=/path/to/python3"; exit 1; }
	"$(PYTHON)" -m venv .venv

.venv/run.stamp: requirements/build.txt requirements/run.txt pyproject.toml | .venv/bin/python
	@echo "Installing the pinned packages into .venv: about a minute, once"
	@$(PIP) install --require-hashes -r requirements/build.txt -r requirements/run.txt
	@$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@$(COMPILE)
	@touch $@

.venv/dev.stamp: requirements/build.txt requirements/dev.txt pyproject.toml | .venv/bin/python
	@echo "Installing the pinned packages and the test tools into .venv: a minute or two, once"
	@$(PIP) install --require-hashes -r requirements/build.txt -r requirements/dev.txt
	@$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@$(COMPILE)
	@touch $@ .venv/run.stamp
