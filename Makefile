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
	# The name of 0.1.0: both at once would give TensorBoard each plugin twice.
	$(BIN)/pip uninstall --quiet --yes harness
	$(BIN)/pip install --quiet -e '.[dev]'
	touch $@

clean:
	rm -rf .venv
