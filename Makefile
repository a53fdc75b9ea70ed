# make demo   the main job on VGG-A, from nothing but Python and make
# make test   everything that must hold: formatting, types, import contract, tests
# make test-browser   that the HTML page opens clean in a real browser
# make fuzz N=100000   wrong input of every kind; SEED=... begins at another
# make alone   that each test file can be collected by itself
# make docs   the documentation, in build/docs
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

.PHONY: demo test alone test-browser fuzz lint bench picture notebook docs clean

demo: $(VENV)/.installed
	@echo '$$ hypar-opt solve vgg-a --solver dp'
	@$(BIN)/hypar-opt solve vgg-a --solver dp

# The runner's summary comes last.
test: lint
	$(BIN)/python -m pytest --numprocesses=auto --dist=worksteal --quiet

# 5 is a file whose tests are all deselected: those of the browser.
alone: $(VENV)/.installed-dev
	@for file in $$(find tests -name 'test_*.py' | sort); do \
	  $(BIN)/python -m pytest -qq --collect-only $$file >/dev/null || [ $$? = 5 ] || \
	    { echo "$$file does not run alone" >&2; failed=1; }; \
	done; [ -z "$$failed" ]

# The HTML page in a real browser, which Debian's packages bring where we may install them;
# where there is none, the tests are skipped and say so.
test-browser: $(VENV)/.installed-dev
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && \
	    DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends \
	      chromium chromium-driver fonts-dejavu-core >/dev/null; \
	  fi || echo "chromium could not be installed" >&2
	$(BIN)/python -m pytest -m browser --numprocesses=auto --dist=worksteal --quiet -rs tests/browser

N ?= 10000
SEED ?= 0
fuzz: $(VENV)/.installed-dev
	$(BIN)/python -m tests.fuzz --cases $(N) --seed $(SEED)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.installed-dev
	-$(BIN)/python -m benchmarks.linear
	-$(BIN)/python -m benchmarks.joint
	-$(BIN)/python -m benchmarks.peers
	-$(BIN)/python -m benchmarks.graphs
	-$(BIN)/python -m benchmarks.three_choices
	-$(BIN)/python -m benchmarks.cp_sat
	-$(BIN)/python -m benchmarks.simulator
	-$(BIN)/python -m benchmarks.closed_form
	-$(BIN)/python -m benchmarks.many
	-$(BIN)/python -m benchmarks.alternatives
	-$(BIN)/python -m benchmarks.startup
	-$(BIN)/python -m benchmarks.onnx_import
	-$(BIN)/python -m benchmarks.jax_compile
	-$(BIN)/python -m benchmarks.run

# The pictures of the README and the documentation, from real runs.
picture: $(VENV)/.installed-dev
	$(BIN)/python docs/picture.py
	$(BIN)/python docs/pictures.py

# The outputs that the documentation's notebook shows.
notebook: $(VENV)/.installed-dev
	$(BIN)/python docs/_ext/notebooks.py docs/notebook.ipynb

# The documentation, from nothing each time; a warning is an error.
docs: $(VENV)/.installed-docs
	rm -rf build/docs
	$(BIN)/python -m sphinx -W --keep-going -n -E -q -b html -d build/doctrees docs build/docs
	@echo build/docs/index.html

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

$(VENV)/.installed-docs: $(VENV)/.installed
	$(PIP) install --upgrade 'pip>=25.1'
	$(PIP) install --group docs
	@touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
