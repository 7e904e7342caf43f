# Everything happens in a virtual environment of its own, .venv. Needs Python 3.11 or newer and a package index.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(VENV)/uv/bin/uv
STAMP := $(VENV)/.installed

.PHONY: demo test check bench format lock install clean
.DEFAULT_GOAL := demo

demo: install  ## train a reference, JEST and its rivals; print the table, write the plots
	$(BIN)/jestlab launch quickstart

test: install  ## the whole test suite
	$(BIN)/python -m pytest -n 2 --dist worksteal

check: install  ## ruff, mypy, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy .
	$(BIN)/lint-imports

bench: install  ## speeds, as a table
	$(BIN)/python tests/benchmarks/bench.py

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

install: $(STAMP)

# uv, because an old pip needs minutes to resolve XManager's dependencies. Bytecode is compiled once, here.
$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("jestlab needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": make PYTHON=python3.12 …" if sys.version_info < (3, 11) else 0)'
	test -x $(UV) || $(PYTHON) -m venv $(VENV)/uv
	$(VENV)/uv/bin/python -m pip install --quiet --disable-pip-version-check uv==0.13.8
	test -x $(BIN)/python || $(UV) venv --quiet --allow-existing --python $(PYTHON) $(VENV)
	$(UV) pip sync --quiet --require-hashes --compile-bytecode --python $(BIN)/python requirements.lock
	$(UV) pip install --quiet --no-deps --python $(BIN)/python --editable .
	$(BIN)/python -m compileall -q experiments platform models analysis
	touch $@

lock: install  ## resolve the dependencies anew: names, versions and hashes, no addresses
	$(UV) pip compile --quiet --universal --python-version 3.11 --extra dev --generate-hashes --no-header \
	  --no-emit-index-url --no-emit-find-links --upgrade pyproject.toml --output-file requirements.lock

clean:
	rm -rf $(VENV)
