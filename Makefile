# make report    analyse a sample and print where the page is
# make test      run the checks, without the tests that take long (tests/slow_tests.txt)
# make test-all  run every check, as CI does
# make lint      run the checks that execute no test
# make docs      build the documentation; its first page is docs/_build/html/index.html
# make fuzz      give the program mutated files for an hour (FUZZ_SECONDS)
# make coverage  run every test and print which lines none of them reached; the pages go to htmlcov/
# make release-check   build what is published and try it from a clean environment; TAG=v0.2.0 has to be the version
# make install   make .venv alone

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# On two cores: with a worker for each, a sixth of the time a core has nothing to do but wait for an end or a browser.
JOBS ?= 3
FUZZ_SECONDS ?= 3600
# The schemas come with the package; nothing is fetched.
CHECK_SCHEMA := $(BIN)/check-jsonschema --quiet --builtin-schema vendor

# What `release-check` makes: the packages, and the environments that check and try them.
RELEASE := build/release
TAG ?= v$(shell sed -n 's/^__version__ = "\(.*\)"$$/\1/p' analyzer/__init__.py)

.PHONY: install report test test-all lint docs fuzz coverage gallery judge bench release-check clean

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
	$(BIN)/python .ci/size.py
	$(BIN)/hadolint docs/how-to/container/Dockerfile
	$(CHECK_SCHEMA).github-workflows .github/workflows/*.yml
	$(CHECK_SCHEMA).github-actions .github/actions/*/action.yml
	$(CHECK_SCHEMA).github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(CHECK_SCHEMA).github-issue-forms $(filter-out %/config.yml,$(wildcard .github/ISSUE_TEMPLATE/*.yml))

# Minutes on two cores. What is new is not in the list, and so is run.
test: lint
	$(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile -m "not slow"

test-all: lint
	$(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile

# Strict: a link that leads nowhere is an error. The tables come from the code, so that all is read anew (-E).
docs: install
	$(BIN)/python -P -m sphinx -W --keep-going -n -E -q docs docs/_build/html

# Other files each time; failures are saved under tests/output/fuzz/failures. `make test-all` has a minute of it.
fuzz: install
	$(BIN)/python tests/fuzz/run.py --seconds $(FUZZ_SECONDS) --jobs $(JOBS)

# Slower than `make test-all`: every process is traced, those that tests start too.
coverage: install
	$(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile --cov --cov-report=term:skip-covered --cov-report=html

# Every sample's page and record, under reports/.
gallery: install
	$(BIN)/python benchmarks/gallery.py

# The placement of every sample, opset and type against the real CUDA provider.
judge: install
	$(BIN)/python benchmarks/judge_matrix.py

bench: install
	$(BIN)/python benchmarks/floor.py

# All that the release workflow does before it publishes. ANALYZER_REPOSITORY is the address that the packages name.
release-check:
	$(PYTHON) .ci/release.py check $(TAG)
	rm -rf $(RELEASE)
	$(PYTHON) -m venv $(RELEASE)/tools
	$(RELEASE)/tools/bin/python -m pip install --quiet --disable-pip-version-check --constraint .ci/constraints.txt build twine
	$(RELEASE)/tools/bin/python -m build --outdir $(RELEASE)/dist
	$(RELEASE)/tools/bin/python -m twine check --strict $(RELEASE)/dist/*
	$(PYTHON) .ci/release.py files $(TAG) $(RELEASE)/dist/*
	$(PYTHON) -m venv $(RELEASE)/clean
	$(RELEASE)/clean/bin/python -m pip install --quiet --disable-pip-version-check --constraint .ci/constraints.txt $(RELEASE)/dist/*.whl
	$(PYTHON) .ci/try_wheel.py $(RELEASE)/clean/bin/python $(TAG:v%=%) --onnx
	$(RELEASE)/clean/bin/python -m pip install --quiet --disable-pip-version-check --constraint .ci/constraints.txt "$$(echo $(RELEASE)/dist/*.whl)[torch]"
	$(PYTHON) .ci/try_wheel.py $(RELEASE)/clean/bin/python $(TAG:v%=%)

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .coverage htmlcov tests/output docs/_build
