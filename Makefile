# Everything runs from .venv, which `make setup` builds from the pinned, hashed requirements.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := -m pip --disable-pip-version-check
UV := uv==0.13.9
ARGS ?=
# One more than there are CPUs, because some tests mostly wait.
TESTERS = $$(($$(nproc 2>/dev/null || echo 2) + 1))
# pip compiles what it installs, but not editable packages: with PYTHONDONTWRITEBYTECODE every start would compile them again.
COMPILE_OURS = $(BIN)/python -m compileall -q shared services tools testing
GROUPS ?= resources taints nodeaffinity ports images spread-hard spread-soft spread-default podaffinity-hard podaffinity-soft \
	volumes preemption nominated config mixed sequence config-file hints registered requeue

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup test lint format bench bench-compare bench-pipeline bench-quality bench-start demo faults simulation conformance dashboards lock clean

help:  ## print this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(STAMP)  ## build .venv (again when requirements or pyproject change)

test: $(STAMP)  ## run the tests; ARGS="-k name" goes to pytest
	$(BIN)/pytest --numprocesses $(TESTERS) --maxprocesses 4 --dist worksteal $(ARGS)

lint: $(STAMP)  ## ruff, mypy and the import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(STAMP)  ## sort imports, fix what ruff can fix, format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)  ## run the benchmarks; ARGS goes to flotilla bench
	$(BIN)/flotilla bench $(ARGS)

bench-compare: $(STAMP)  ## what decisions cost, compared with another commit; ARGS="--against COMMIT" (default: the last one)
	$(BIN)/flotilla bench-compare $(ARGS)

bench-pipeline: $(STAMP)  ## measure the whole pipeline, in real processes; ARGS goes to flotilla bench-pipeline
	$(BIN)/flotilla bench-pipeline $(ARGS)

bench-quality: $(STAMP)  ## what larger rounds cost in placement quality; ARGS goes to flotilla bench-quality
	$(BIN)/flotilla bench-quality $(ARGS)

bench-start: $(STAMP)  ## how long a start takes in a large cluster; ARGS="--nodes 100000 --pods 500000" goes to flotilla bench-start
	$(COMPILE_OURS)
	$(BIN)/flotilla bench-start $(ARGS)

demo: $(STAMP)  ## all services on a made-up cluster, before your eyes; ARGS="--pods 1000" goes to flotilla demo
	$(BIN)/flotilla demo $(ARGS)

faults: $(STAMP)  ## strike every part while pods come and go, and check the result; ARGS="--seed 17" goes to flotilla faults
	$(BIN)/flotilla faults $(ARGS)

simulation: $(STAMP)  ## all services on virtual time, seed by seed; ARGS="--first 1 --count 150" goes to flotilla simulation
	$(BIN)/flotilla simulation $(ARGS)

conformance: $(STAMP)  ## replay kube-scheduler's recorded decisions (GROUPS="mixed": only these; ARGS="--shards 1,7")
	$(BIN)/flotilla conformance $(ARGS) $(foreach group,$(GROUPS),tests/conformance/data/$(group).jsonl.gz)

# For every supported Python, whatever the one that locks.
COMPILE = $(VENV)/lock/bin/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 \
	--generate-hashes --custom-compile-command "make lock" --no-emit-index-url --extra build

dashboards: $(STAMP)  ## write Grafana's dashboards from tools/dashboards
	$(BIN)/python -m tools.dashboards

lock: $(BIN)/python  ## pin requirements again, from pyproject.toml (UPGRADE=1: to the newest)
	$(BIN)/python -m venv $(VENV)/lock
	$(VENV)/lock/bin/python $(PIP) install --quiet "$(UV)"
	$(COMPILE) $(if $(UPGRADE),--upgrade) --output-file requirements.txt
	$(COMPILE) $(if $(UPGRADE),--upgrade) --extra dev --constraint requirements.txt --output-file requirements-dev.txt

clean:  ## remove .venv, caches and build output
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist *.egg-info
	find services shared testing tools tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): requirements-dev.txt pyproject.toml | $(BIN)/python
	$(BIN)/python $(PIP) install --quiet --require-hashes -r requirements-dev.txt
	$(BIN)/python $(PIP) install --quiet --no-deps --no-build-isolation --editable .
	$(COMPILE_OURS)
	@touch $@

# Order-only above: the link has the interpreter's timestamp, so only its existence matters.
$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is not installed: install Python 3.11 or newer, or say make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, and $(PYTHON) is %d.%d: say make PYTHON=/path/to/python" % sys.version_info[:2])'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) has no venv module: install it (on Debian and Ubuntu: apt-get install python3-venv)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }
