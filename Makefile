# make demo   the main job on VGG-A, from nothing but Python and make
# make test   everything that must hold: formatting, types, import contract, tests
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

.PHONY: demo test lint bench picture clean

demo: $(VENV)/.installed
	@echo '$$ hypar-opt solve vgg-a --solver dp'
	@$(BIN)/hypar-opt solve vgg-a --solver dp

# The runner's summary comes last.
test: lint
	$(BIN)/python -m pytest --numprocesses=auto --quiet

lint: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.installed-dev
	-$(BIN)/python -m benchmarks.linear
	-$(BIN)/python -m benchmarks.joint
	-$(BIN)/python -m benchmarks.cp_sat
	-$(BIN)/python -m benchmarks.simulator
	-$(BIN)/python -m benchmarks.closed_form
	-$(BIN)/python -m benchmarks.startup

# The README's picture, from a real run.
picture: $(VENV)/.installed
	$(BIN)/python docs/picture.py

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || \
	  { echo "hypar-opt needs Python 3.11 to 3.13; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml
	$(PIP) install --editable .
	@touch $@

# Dependency groups need pip 25.1.
$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) install --upgrade 'pip>=25.1'
	$(PIP) install --group dev
	@touch $@

clean:
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
