# Every target sets up .venv by itself. CONSTRAINTS holds the tested versions.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CONSTRAINTS := constraints.txt
READY := $(VENV)/.ready
CHECK_READY := $(VENV)/.check-ready
WORKERS ?= 2

# Tests start many processes: what is compiled once is kept.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-slow check format clean

$(READY): pyproject.toml $(CONSTRAINTS)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e '.[demo,plots,test]'
	touch $@

$(CHECK_READY): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e '.[dev]'
	touch $@

demo: $(READY)
	$(BIN)/seqloom demo

# A process that dies ends the tests and names the one it died of: with a new one in its place xdist waits for ever.
test: $(READY)
	$(BIN)/python -m pytest -m "not slow" -n $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart=0 --durations=10

test-slow: $(READY)
	$(BIN)/python -m pytest -m slow

check: $(CHECK_READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/python -m pytest tests/test_guards.py tests/test_docs.py

format: $(CHECK_READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache build dist *.egg-info
