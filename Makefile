# Each target sets up .venv by itself. Without make: the commands below, with .venv/bin in front.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check bench clean

demo: .venv/ready
	$(BIN)/harness train name=demo

test: .venv/ready
	$(BIN)/pytest -n 2 --dist loadgroup

check: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: .venv/ready
	$(BIN)/pip install --quiet -e '.[peers]'
	$(BIN)/python -m benchmarks

.venv/ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet -e '.[dev]'
	touch $@

clean:
	rm -rf .venv
