# Needs Python 3.11 or newer, make and git; everything else goes into .venv.
#   make run     serve the example app on http://127.0.0.1:8000
#   make test    run all tests           make test ARGS="-k budget"
#   make check   the rules, then the tests
#   make pythons what may differ between versions of Python, on each newer one that is found
#   make oldest  the store's tests, on the oldest versions that pyproject.toml admits
#   make layers  the rooms of the code, from its imports

PYTHON ?= python3
VENV   ?= .venv
PEERS  ?= .venv-peers
OLDEST ?= .venv-oldest
HOST   ?= 127.0.0.1
PORT   ?= 8000
ROUNDS ?= 20
JOBS   ?= auto
ARGS   ?=

BIN   := $(VENV)/bin
READY := $(VENV)/.installed
TYPED  = $(wildcard lazycron example_app migrations tests benchmarks tools .ci/*.py)

.DEFAULT_GOAL := help
.PHONY: help run test pythons oldest lint layers format check bench bench-peers races wheel clean

help:
	@sed -n 's/^#   //p' Makefile

# Set up once, and again when the dependencies change.
$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "lazycron needs Python 3.11 or newer; say make PYTHON=python3.11 if you have it elsewhere")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

run: $(READY)
	$(BIN)/uvicorn example_app.app:app --host $(HOST) --port $(PORT)

test: $(READY)
	$(BIN)/pytest --numprocesses $(JOBS) --dist worksteal $(ARGS)

pythons:
	.ci/pythons

# What `tools/oldest.py` reads as the lower bounds, and pytest as it is now.
oldest:
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check $$($(PYTHON) tools/oldest.py) hypothesis pytest
	$(OLDEST)/bin/python -m pytest -p no:cacheprovider $(or $(ARGS),tests/store)

# No cache for lint-imports: its cache does not see that a module has come into being.
lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy $(TYPED)
	$(BIN)/lint-imports --no-logo --no-cache

layers: $(READY)
	$(BIN)/python tools/layers.py

format: $(READY)
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

check: lint test

# What a request costs, then how fast jobs go; the peers that are compared with have a venv of
# their own, and what is not installed is said and left out.
bench: $(READY)
	$(BIN)/python benchmarks/overhead.py $(ARGS)
	if [ -x $(PEERS)/bin/python ]; then $(PEERS)/bin/python -m benchmarks.jobs; else $(BIN)/python -m benchmarks.jobs; fi

bench-peers:
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --requirement benchmarks/requirements.txt --editable '.[postgresql]'

races: $(READY)
	LAZYCRON_RACE_ROUNDS=$(ROUNDS) $(BIN)/pytest -m races $(ARGS)

# The wheel is built from the sdist, so both are known to be whole.
wheel: $(READY)
	rm -rf dist
	$(BIN)/python -m build --outdir dist .

clean:
	rm -rf $(VENV) .venv-* build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
