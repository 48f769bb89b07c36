# Every target makes what it needs; a fresh machine has Python 3.11+, git and make.
# `make run` plays one real turn, `make quick` is for while you work, `make test` is the gate.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Exported: pyright and import-linter look for the interpreter of the environment.
export VIRTUAL_ENV := $(CURDIR)/$(VENV)
export PATH := $(CURDIR)/$(BIN):$(PATH)
CORES ?= $(shell $(PYTHON) -c 'import os; print(min(8, os.cpu_count() or 1))')
# More than there are cores: most tests wait for a process now and then. With two more, `make test`
# takes 219 s on two cores, with one more 241 s. Tests with whole daemons have one more.
JOBS ?= $(shell expr $(CORES) + 2)
WHOLE_JOBS ?= $(shell expr $(CORES) + 1)
# onnxruntime uploads usage data unless told not to; nothing of capd or its tests does that.
export ORT_DISABLE_TELEMETRY := 1

# The tests that no tier of its own has.
SHORT := not real and not reliability and not clients and not servers and not shared

.PHONY: run test quick quick-tests lint types types-mypy types-pyright types-pyright-tests contracts unit whole test-whole test-deep test-real test-reliability test-clients test-servers test-shared bench-relay bench-scale bench-tokens docs charts pictures wheel clean

run: $(VENV)/.installed
	@$(BIN)/python -m capd_client.first_turn

# What takes seconds comes first. mypy and pyright take one core each for a minute or longer, so they
# run beside the tests, one after the other. pyright reads capd alone here. It takes another minute
# for the tests and benchmarks, which mypy has checked already: `make test-whole` does that.
# Of each property few examples are tried: `make test-deep` tries the rest.
test: $(VENV)/.developing
	@$(MAKE) --no-print-directory -j2 lint contracts
	@CAPD_HYPOTHESIS=$${CAPD_HYPOTHESIS:-quick} $(MAKE) --no-print-directory -j2 unit types-mypy types-pyright

# What you run while you work: no daemon is started. pyright is left to `make test`. It keeps nothing
# from one run to the next, and takes as long as all the rest. mypy keeps what it found: its first
# run takes half a minute of one core, and each later one as long as what was changed takes. These
# tests wait for nothing, so each core has one worker.
quick: $(VENV)/.developing
	@$(MAKE) --no-print-directory -j2 quick-tests types-mypy lint contracts

quick-tests: $(VENV)/.developing
	CAPD_HYPOTHESIS=quick pytest tests/core tests/runtime tests/protos -m "not shared" -q -n $(CORES) --dist worksteal

lint: $(VENV)/.developing
	ruff check .
	ruff format --check .

types: types-mypy types-pyright types-pyright-tests

types-mypy: $(VENV)/.developing
	mypy

types-pyright: $(VENV)/.developing
	pyright daemon protos clients

types-pyright-tests: $(VENV)/.developing
	pyright tests bench

contracts: $(VENV)/.developing
	lint-imports

# Hundreds of tests start a process: none shall compile what it imports once more, nor shall each
# worker rewrite every test's assertions in each run, whatever the environment says of bytecode.
unit: $(VENV)/.developing
	@$(BIN)/python -m compileall -q daemon clients protos tests
	env -u PYTHONDONTWRITEBYTECODE pytest -m "not whole and $(SHORT)" -q -n $(JOBS) --dist worksteal

# Of each file with whole daemons, `make test` runs the first test. These are the others.
test-whole: $(VENV)/.developing
	@$(MAKE) --no-print-directory -j2 whole types-pyright-tests

whole: $(VENV)/.developing
	@$(BIN)/python -m compileall -q daemon clients protos tests
	env -u PYTHONDONTWRITEBYTECODE CAPD_HYPOTHESIS=$${CAPD_HYPOTHESIS:-quick} pytest -m "whole and $(SHORT)" -q -n $(WHOLE_JOBS) --dist worksteal

# The properties, each with at least 25 times as many examples as `make test` tries.
test-deep: $(VENV)/.developing
	CAPD_HYPOTHESIS=deep pytest -m "hypothesis and $(SHORT)" -q -n $(CORES) --dist worksteal

# Most of its time is spent waiting for servers, so files run beside each other.
test-real: $(VENV)/.developing
	pytest -m "real and not shared" -q -n $(CORES) --dist loadfile

test-reliability: $(VENV)/.developing
	pytest -m reliability -q

test-clients: $(VENV)/.developing
	pytest -m clients -q

test-servers: $(VENV)/.developing
	pytest -m servers -q

# The big public tap and the routing sets: ../shared beside the checkout, or CAPD_SHARED=FOLDER.
test-shared: $(VENV)/.developing
	pytest -m "shared and not reliability and not clients and not servers" -q

bench-relay: $(VENV)/.installed
	$(BIN)/python -m bench.relay

bench-scale: $(VENV)/.installed
	$(BIN)/python -m bench.scale

bench-tokens: $(VENV)/.installed
	$(BIN)/python -m bench.tokens

docs: $(VENV)/.documenting
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict --quiet

# Figures of bench/results beside the peers, drawn: docs/pictures/chart-*.svg.
charts: $(VENV)/.documenting
	$(BIN)/python docs/charts.py

# What commands show, drawn from a real daemon: docs/pictures.
pictures: $(VENV)/.developing
	$(BIN)/python docs/pictures.py

wheel: $(VENV)/.developing
	python -m build --installer uv --outdir dist .

clean:
	rm -rf $(VENV) .run dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# uv installs in seconds; where it cannot reach what pip is set up to reach, pip does it.
$(VENV)/.uv:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "capd needs Python 3.11 or newer; name one with: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@touch $@

$(VENV)/.installed: $(VENV)/.uv pyproject.toml
	@$(BIN)/uv pip install --quiet -e . || $(BIN)/python -m pip install --quiet -e .
	@touch $@

$(VENV)/.developing: $(VENV)/.installed pyproject.toml
	@$(BIN)/uv pip install --quiet --compile-bytecode -e '.[dev]' || $(BIN)/python -m pip install --quiet -e '.[dev]'
	@touch $@

$(VENV)/.documenting: $(VENV)/.installed pyproject.toml
	@$(BIN)/uv pip install --quiet -e '.[docs]' || $(BIN)/python -m pip install --quiet -e '.[docs]'
	@touch $@
