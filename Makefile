# Everything from a machine with Python 3.11 or later and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: train test quick bounds another oldest check lint audit docs tables benchmark benchmark-suite \
	benchmark-continuous benchmark-worlds benchmark-vector benchmark-oda compare figure5 infex clean

train: $(VENV)/installed
	$(BIN)/python scripts/train_cartpole.py

# The whole suite.
test: $(VENV)/developing
	$(BIN)/pytest -n 2 --dist worksteal

quick: $(VENV)/developing
	$(BIN)/pytest -n 2 --dist loadfile -m "not slow"

# The quick suite, with an exception where compiled code reads or writes past an array's end.
bounds:
	NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=$(CURDIR)/build/bounds $(MAKE) quick

# With another Python (make another PYTHON=python3.13), of each file's cases one in twenty-four.
another:
	PYTEST_ADDOPTS="--one-case-in 24" $(MAKE) quick PYTHON=$(PYTHON) VENV=.venv-other

# The quick suite with the oldest versions that pyproject.toml allows.
oldest: $(VENV)/developing
	$(BIN)/uv venv --clear .venv-oldest
	$(BIN)/uv pip install --python .venv-oldest --resolution lowest-direct --constraint constraints.txt \
		--editable ".[dev]"
	.venv-oldest/bin/pytest -n 2 --dist loadfile -W default -m "not slow"

# What to run after each change.
check: lint quick

lint: $(VENV)/developing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python scripts/check_style.py
	rm -rf build/installed/oda_rl && mkdir -p build/installed  # laid out as it is installed
	cp -pR oda_rl build/installed && cp -pR agents envs build/installed/oda_rl
	cd build/installed && ../../$(BIN)/mypy --config-file ../../pyproject.toml -p oda_rl

# Licences of what the package needs, and known vulnerabilities where they can be looked up.
audit: $(VENV)/developing
	$(BIN)/python scripts/audit.py

# The site, in build/site; its examples run. Warnings are errors.
docs: $(VENV)/developing
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[docs]"
	$(BIN)/sphinx-build -W --keep-going -b html docs build/site

benchmark: $(VENV)/developing
	$(BIN)/python scripts/benchmark.py speed
	$(BIN)/python scripts/benchmark.py first_call
	$(BIN)/python scripts/benchmark.py export
	$(BIN)/python scripts/benchmark.py chip

# Tables and figures of README and docs, from what the scripts have left in results/.
tables: $(VENV)/developing
	$(BIN)/python scripts/render_tables.py

# More than an hour on two cores.
benchmark-suite: $(VENV)/developing
	$(BIN)/python scripts/benchmark.py suite --baselines 3

# About an hour on two cores; MuJoCo needs pip install ".[mujoco]".
benchmark-worlds: $(VENV)/developing
	$(BIN)/python scripts/benchmark.py disturbed
	$(BIN)/python scripts/benchmark.py sparse
	$(BIN)/python scripts/benchmark.py online
	$(BIN)/python scripts/benchmark.py bodies

# About a quarter of an hour on two cores.
benchmark-continuous: $(VENV)/developing
	$(BIN)/python scripts/benchmark.py continuous

# About ten minutes on two cores.
benchmark-vector: $(VENV)/developing
	$(BIN)/python scripts/benchmark.py vector --only copies --workers 2

# About half an hour: one run at a time, because they are timed.
compare: $(VENV)/developing
	$(BIN)/python scripts/compare_sb3.py

# About a quarter of an hour on two cores.
figure5: $(VENV)/developing
	$(BIN)/python scripts/reproduce_figure5.py

# About half an hour on one core with DATA, a folder with usps.train.gz; minutes without.
infex: $(VENV)/developing
	$(BIN)/python scripts/reproduce_infex.py $(if $(DATA),--data $(DATA))

# DATA: a folder with the files that scripts/common/datasets.py names; without it, what needs them is
# left out.
benchmark-oda: $(VENV)/developing
	$(BIN)/python scripts/benchmark.py clustering $(if $(DATA),--data $(DATA))
	$(BIN)/python scripts/reproduce_toys.py $(if $(DATA),--data $(DATA))
	$(BIN)/python scripts/reproduce_classification.py $(if $(DATA),--data $(DATA))
	$(BIN)/python scripts/reproduce_sgd_gmm.py $(if $(DATA),--data $(DATA))

$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --editable .
	touch $@

$(VENV)/developing: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable ".[dev]"
	touch $@ $(VENV)/installed

clean:
	rm -rf .venv .venv-other .venv-oldest build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
