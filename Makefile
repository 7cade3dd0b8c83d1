# make report   analyse a sample and print where the page is
# make test     run every check
# make install  make .venv alone

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2

.PHONY: install report test lint gallery judge bench clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml .ci/constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12 $(MAKECMDGOALS)")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint .ci/constraints.txt --editable '.[dev]'
	@touch $@

report: install
	$(BIN)/analyze samples/resnet50.py --batch 64

lint: install
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

test: lint
	$(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadgroup

# Every sample's page and record, under reports/.
gallery: install
	$(BIN)/python tests/benchmarks/gallery.py

# The placement of every sample, opset and type against the real CUDA provider.
judge: install
	$(BIN)/python tests/benchmarks/judge_matrix.py

bench: install
	$(BIN)/python tests/benchmarks/floor.py

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache tests/output
