# make demo   the main use on VGG-A, with only Python and make installed
# make check   in under a minute on two idle cores: formatting, types, import contract, quick tests
# make test   all checks: formatting, types, import contract, tests; MARK="not slow": in a browser, too
# make newest   the same with the newest versions that pyproject.toml allows
# make lowest   the tests with the lowest versions that it allows
# make slow   the other random cases, and tests that take long: before a release
# make lock   writes the newest versions to requirements/, which the others use: a file per Python
# make test-browser   whether the HTML page opens without errors in a real browser
# make torch   whether exported files for PyTorch compute and move what their plans say, and
#              whether frameworks take the settings that are exported for them
# make models   whether models of others are taken as they are, or refused for a true reason: of
#               transformers, torchvision, timm and diffusers in small, and ONNX files of wheels
# make release   the sdist and the wheel, in dist, tried on each Python here with the lowest and newest versions
# make fuzz N=100000   wrong input of every kind; SEED=... starts at another seed
# make golden   records what 150 calls write, in tests/golden/recorded, after an intended change of it
# make alone   whether each test file can be collected alone
# make docs   the documentation, in build/docs
# make count   lines of code by room, without docstrings, comments and blank lines
#
# PYTHON=python3.12 after any of these uses that Python, in a separate environment.
PYTHON ?= python3
PYTHONS := 3.11 3.12 3.13
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
VENV ?= .venv$(if $(filter file,$(origin PYTHON)),,-$(VERSION))
LOCK ?= requirements/dev-$(VERSION).txt
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
UV := .venv-uv/bin/uv
# All extras but torch: PyTorch takes about 1 GB.
EXTRAS = dask figures highs jax onnx parquet
COMPILE = pip compile --quiet --upgrade $(EXTRAS:%=--extra %) --group dev --annotation-style line pyproject.toml

.PHONY: demo check test slow suite golden alone newest lowest release lock torch models \
  browser test-browser fuzz lint bench picture notebook docs count clean

demo: $(VENV)/.installed
	@echo '$$ hypar-opt solve vgg-a --solver dp'
	@$(BIN)/hypar-opt solve vgg-a --solver dp
	@echo 'After source $(BIN)/activate the shell finds hypar-opt.' >&2

# Linters run beside the tests, which take longer: the runner's summary comes last.
test:
	@$(MAKE) --no-print-directory --jobs=2 lint suite

# There is a worker for each core, and threads of BLAS would only compete with them. Compiled modules
# are kept for the hundred processes that tests start.
PYTEST = OPENBLAS_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --numprocesses=auto --dist=worksteal --quiet
suite: $(VENV)/.installed-dev
	$(PYTEST) $(if $(MARK),-rs -m "$(MARK)")

slow: $(VENV)/.installed-dev
	$(PYTEST) -m "slow or hypothesis"

# One or more quick tests, of a second at most, of each floor below the studies.
QUICK = costs/test_communication.py costs/test_whole_plans.py documents hardware instance \
  paper/test_paper.py plan sharding simulator/test_collectives.py simulator/test_flows.py \
  solvers/test_contract.py solvers/test_graphs.py solvers/test_parameters.py test_mutants.py \
  step test_units.py workload/test_models.py workload/test_operators.py workload/test_tensors.py \
  workload/test_zoo_counts.py
check: lint
	$(PYTEST) -k "not from_outside" $(addprefix tests/,$(QUICK))

count: $(VENV)/.installed-dev
	@$(BIN)/python -m tests.count

golden: $(VENV)/.installed-dev
	$(BIN)/python -m tests.golden

# Status 5: a file whose tests are all deselected, as those of the browser.
alone: $(VENV)/.installed-dev
	@for file in $$(find tests -name 'test_*.py' | sort); do \
	  $(BIN)/python -m pytest -qq --collect-only $$file >/dev/null || [ $$? = 5 ] || \
	    { echo "$$file does not run alone" >&2; failed=1; }; \
	done; [ -z "$$failed" ]

# Formatting and types are checked with one version of their tools, so `lowest` leaves them out; and
# old versions may use features that have since been deprecated.
newest: resolution = highest
newest: goal = test
lowest: resolution = lowest-direct
lowest: goal = suite
lowest: export PYTEST_ADDOPTS = -W ignore::DeprecationWarning
newest lowest: $(UV)
	@mkdir -p $(VENV)-$@
	$(UV) $(COMPILE) --resolution $(resolution) --python-version $(VERSION) \
	  --output-file $(VENV)-$@/lock.txt
	$(MAKE) $(goal) VENV=$(VENV)-$@ LOCK=$(VENV)-$@/lock.txt

# What could not be tried is said: Pythons are those of the search path, and of pyenv.
release: $(VENV)/.installed-dev $(UV)
	$(BIN)/python -m tests.release --uv $(UV)

lock: $(UV)
	@mkdir -p requirements
	for version in $(PYTHONS); do \
	  $(UV) $(COMPILE) --custom-compile-command 'make lock' --python-version $$version \
	    --output-file requirements/dev-$$version.txt || exit; \
	done

# The HTML page in a real browser, from Debian's packages if they can be installed; without one the
# tests are skipped, with the reason.
test-browser: $(VENV)/.installed-dev browser
	$(PYTEST) -m browser -rs tests/browser

browser:
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && \
	    DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends \
	      chromium chromium-driver fonts-dejavu-core >/dev/null; \
	  fi || echo "chromium could not be installed" >&2

# PyTorch has an environment of its own.
TORCH = import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["torch"])
torch: $(VENV)-torch/.installed
	$(VENV)-torch/bin/python -m pytest --quiet tests/torch

models: $(VENV)-torch/.installed
	$(VENV)-torch/bin/python -m pytest --quiet -rs tests/models

$(VENV)-torch/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)-torch
	$(VENV)-torch/bin/python -m pip --quiet --disable-pip-version-check install --editable . \
	  $$($(PYTHON) -c '$(TORCH)')
	@touch $@

N ?= 10000
SEED ?= 0
fuzz: $(VENV)/.installed-dev
	$(BIN)/python -m tests.fuzz --cases $(N) --seed $(SEED)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Ratios within one run, each with its goal; SMALL=1 only whether the benchmarks run.
bench: $(VENV)/.installed-dev
	-$(BIN)/python -m benchmarks.linear
	-$(BIN)/python -m benchmarks.joint
	-$(BIN)/python -m benchmarks.calls
	-$(BIN)/python -m benchmarks.peers
	-$(BIN)/python -m benchmarks.graphs
	-$(BIN)/python -m benchmarks.three_choices
	-$(BIN)/python -m benchmarks.answers
	-$(BIN)/python -m benchmarks.cp_sat
	-$(BIN)/python -m benchmarks.simulator
	-$(BIN)/python -m benchmarks.scale
	-$(BIN)/python -m benchmarks.closed_form
	-$(BIN)/python -m benchmarks.configurations
	-$(BIN)/python -m benchmarks.many
	-$(BIN)/python -m benchmarks.alternatives
	-$(BIN)/python -m benchmarks.startup
	-$(BIN)/python -m benchmarks.onnx_import
	-$(BIN)/python -m benchmarks.jax_compile
	-$(BIN)/python -m benchmarks.run

# The pictures of the README and the documentation, from actual runs.
picture: $(VENV)/.installed-dev
	$(BIN)/python docs/picture.py
	$(BIN)/python docs/pictures.py

# The outputs in the documentation's notebook.
notebook: $(VENV)/.installed-dev
	$(BIN)/python docs/_ext/notebooks.py docs/notebook.ipynb

# The documentation, built from scratch; a warning is an error.
docs: $(VENV)/.installed-dev
	rm -rf build/docs
	$(BIN)/python -m sphinx -W --keep-going -n -E -q -b html -d build/doctrees docs build/docs
	@echo build/docs/index.html

$(VENV)/bin/python:
	@case " $(PYTHONS) " in *" $(VERSION) "*) ;; *) \
	  echo "hypar-opt needs Python 3.11 to 3.13; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2;; esac
	@echo 'Making a Python environment in $(VENV)' >&2
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml
	@echo 'Installing hypar-opt and the packages that it needs into $(VENV), in a minute or two' >&2
	@$(PIP) install --editable .
	@touch $@

# Only locked versions, which need not be resolved again: the package is built with the locked
# hatchling. To find them among all versions of all packages takes pip a minute; several share it.
# What is imported is compiled then: that of all packages takes most of a minute.
$(VENV)/.installed-dev: $(VENV)/bin/python pyproject.toml $(LOCK)
	sed 's/ *#.*//; /^$$/d' $(LOCK) | xargs -n 31 -P 4 $(PIP) install --no-compile --no-deps
	$(PIP) install --no-build-isolation --no-deps --editable .
	@touch $@

$(UV):
	$(PYTHON) -m venv .venv-uv
	.venv-uv/bin/python -m pip --quiet --disable-pip-version-check install uv

clean:
	rm -rf $(VENV) $(VENV)-torch $(VENV)-newest $(VENV)-lowest .venv-uv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# Whether the tests notice each mutant of the table in tests/mutants.
.PHONY: mutants
mutants: $(VENV)/.installed-dev
	$(BIN)/python -m tests.mutants
