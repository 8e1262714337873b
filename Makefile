# Everything from a machine with Python 3.11 or later and make.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: train test lint tables benchmark benchmark-suite benchmark-continuous benchmark-vector \
	benchmark-oda compare figure5 infex clean

train: .venv/installed
	$(BIN)/python scripts/train_cartpole.py

test: .venv/developing
	$(BIN)/pytest

lint: .venv/developing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target build/installed .
	cd build/installed && ../../$(BIN)/mypy --config-file ../../pyproject.toml -p oda_rl

benchmark: .venv/developing
	$(BIN)/python scripts/benchmark_speed.py
	$(BIN)/python scripts/benchmark_first_call.py
	$(BIN)/python scripts/benchmark_export.py

# Tables and figures of README and docs, from what the scripts have left in results/.
tables: .venv/developing
	$(BIN)/python scripts/render_tables.py

# More than an hour on two cores.
benchmark-suite: .venv/developing
	$(BIN)/python scripts/benchmark_suite.py --baselines 3

# About a quarter of an hour on two cores.
benchmark-continuous: .venv/developing
	$(BIN)/python scripts/benchmark_continuous.py

# About ten minutes on two cores.
benchmark-vector: .venv/developing
	$(BIN)/python scripts/benchmark_vector.py --workers 2

# About half an hour: one run at a time, because they are timed.
compare: .venv/developing
	$(BIN)/python scripts/compare_sb3.py

# About a quarter of an hour on two cores.
figure5: .venv/developing
	$(BIN)/python scripts/reproduce_figure5.py

# About half an hour on one core with DATA, a folder with usps.train.gz; minutes without.
infex: .venv/developing
	$(BIN)/python scripts/reproduce_infex.py $(if $(DATA),--data $(DATA))

# DATA: a folder with the files that scripts/datasets.py names; what needs them is left out without.
benchmark-oda: .venv/developing
	$(BIN)/python scripts/benchmark_oda_speed.py
	$(BIN)/python scripts/benchmark_clustering.py $(if $(DATA),--data $(DATA))
	$(BIN)/python scripts/reproduce_toys.py
	$(BIN)/python scripts/reproduce_clustering.py $(if $(DATA),--data $(DATA))
	$(BIN)/python scripts/reproduce_classification.py $(if $(DATA),--data $(DATA))
	$(BIN)/python scripts/reproduce_sgd_gmm.py $(if $(DATA),--data $(DATA))

.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

.venv/developing: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@ .venv/installed

clean:
	rm -rf .venv build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
