# `make` shows the targets. Everything runs from .venv, which is made on first use.
PY := .venv/bin/python
PYTEST_ARGS ?=
WORKERS ?= 2
SEEDS ?= 1000
FIRST ?= 0
HOURS ?= 1
CHAOS ?= kills
SEED ?= 0
VIEW_TESTS := $(wildcard tests/integration/test_*view*.py tests/property/test_*view*.py) \
  $(foreach name,growing refreshes handlers tpch,tests/integration/test_$(name).py)

export PYSPARK_PYTHON := $(CURDIR)/$(PY)

.DEFAULT_GOAL := help
.PHONY: help setup console demo demo-cluster test test-fast test-epochs simulate chaos lint bench soak clean venv java

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo '  make test PYTEST_ARGS="-k snapshot -x"   passes arguments to pytest'

setup:  ## make .venv, check Java, install PostgreSQL and Chromium where possible
	@scripts/setup.sh

console:  ## compile the console again, from console/ into src/ebla/server/static
	@scripts/setup.sh console
	@cd console && npm run --silent build

demo: venv java  ## watch a shop whose views follow its writers, then prove them
	@$(PY) -m ebla.demo

demo-cluster: setup  ## watch a cluster lose nodes and its leader while it is written to, then prove it
	@$(PY) -m ebla.demo cluster

test: setup  ## run all tests, on WORKERS processes, each with a Spark of its own
	@$(PY) -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

test-fast: venv  ## run the tests that need neither Spark nor PostgreSQL (under a minute)
	@$(PY) -m pytest -m "not spark and not postgres and not slow" $(PYTEST_ARGS)

test-epochs: setup  ## run the tests of views with every epoch on Spark
	@EBLA_DRIVER_ROWS_MAX=0 $(PY) -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS) $(VIEW_TESTS)

simulate: venv  ## run building and a cluster under simulated faults: make simulate SEEDS=20000 FIRST=0
	@PYTHONPATH=src:tests $(PY) -m simulation --seeds $(SEEDS) --first $(FIRST)

chaos: setup  ## kill nodes, leaders and PostgreSQL: make chaos MINUTES=30 SEED=7, make chaos CHAOS="kills --procedure split"
	@PYTHONPATH=src:tests $(PY) -m chaos $(if $(MINUTES),cluster --minutes $(MINUTES) --seed $(SEED),$(CHAOS))

lint: venv  ## check style, format, types and layers
	@$(PY) -m ruff check
	@$(PY) -m ruff format --check
	@$(PY) -m mypy src tests $(if $(wildcard bench/*.py),bench)
	@.venv/bin/lint-imports --no-cache --no-logo

bench: venv java  ## run the benchmarks
	@$(PY) -m bench

soak: venv java  ## a steady load for HOURS, with a picture of memory, lag and files: make soak HOURS=1
	@$(PY) -m bench.steady --seconds $$(( $(HOURS) * 3600 )) --plot bench/soak.svg

clean:  ## remove caches and build output (keeps .venv and bench/data)
	@rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist spark-warehouse metastore_db derby.log
	@find . -path ./.venv -prune -o -path ./.git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
	@find src -name '*.egg-info' -type d -prune -exec rm -rf {} +

venv:
	@scripts/setup.sh venv

java:
	@scripts/setup.sh java
