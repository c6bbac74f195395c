# The README's two commands are `make run` and `make test`; each makes .venv from the hash-pinned requirements when missing or stale.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: install run test lint format bench bench-load lock

install: $(STAMP)

$(STAMP): requirements/dev.txt pyproject.toml
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Python 3.11 or newer is needed, this is " + sys.version'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing what requirements/dev.txt pins into $(VENV): a minute or two"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $(STAMP)

run: $(STAMP)
	$(BIN)/queue-manager up --demo

# Builds the control plane that the tests run on when it is not cached yet: about ten minutes, once.
# Two processes each for the simulation, a thousand runs with CI set, and for all that needs no control plane; tests on a
# control plane follow one another. The slowest tests are told at the end.
test: $(STAMP)
	$(BIN)/python -m tests.control_plane.build
	$(BIN)/python -m pytest -n 2 tests/simulation
	$(BIN)/python -m pytest -m cluster --durations=30
	$(BIN)/python -m pytest -n 2 --dist loadfile --ignore tests/simulation -m "not cluster" --durations=30

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	$(BIN)/python -m benchmarks

bench-load: $(STAMP)
	$(BIN)/python -m benchmarks.load

# Pins every dependency with hashes; needs `uv` (pip install uv).
lock:
	uv pip compile --generate-hashes --no-header --python-version 3.11 --universal --extra embedded pyproject.toml -o requirements/base.txt
	uv pip compile --generate-hashes --no-header --python-version 3.11 --universal --extra embedded --group dev pyproject.toml -o requirements/dev.txt
