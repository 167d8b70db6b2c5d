# The entry points of this project. Each target sets up what it needs.
#
#   make            lists the targets
#   make setup      PYTHON=python3.12 selects the interpreter, JAVA_HOME the Java
#   make demo       PROTOCOL=consumer uses a group of the newer protocol (KIP-848)
#   make test       PYTEST_ARGS="-k fingerprint" runs a part

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
FOLDERS := assignor_core spark_jobs evenlag dags sandbox tests
PYTEST_ARGS ?=
PROTOCOL ?= classic
DEMO_ARGS ?=
CHAOS_ARGS ?=

# spark-submit is found on the PATH by Airflow's Spark operator.
export PATH := $(CURDIR)/$(BIN):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(STAMP) ## Create .venv from the lock, and download the jars (once)

$(STAMP): requirements.lock pyproject.toml
	@bash .ci/make_venv $(VENV) "$(PYTHON)"
	@echo "setup: installing the locked packages (one to three minutes the first time)"
	@$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@$(BIN)/python -m sandbox.jars
	@touch $@
	@echo "setup: ready"

.PHONY: demo
demo: $(STAMP) ## Run the cycle end to end on a real broker, with Airflow, and chart it; PROTOCOL=consumer: KIP-848
	@$(BIN)/evenlag demo --protocol $(PROTOCOL) $(DEMO_ARGS)

.PHONY: airflow
airflow: $(STAMP) ## Start the sandbox's broker, a workload and Airflow; Ctrl-C stops all
	@$(BIN)/python -m sandbox.demo.airflow

.PHONY: test
test: $(STAMP) ## Run all tests, with a real broker, Spark and Delta
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

.PHONY: soak
soak: $(STAMP) ## Run the long tests (minutes to hours): growth over 300 cycles, fifty members, more of the audit
	@$(BIN)/python -m pytest -m soak

.PHONY: chaos
chaos: $(STAMP) ## Inject faults into consumers, Spark and Airflow, and verify the result (30 minutes)
	@$(BIN)/python -m tests.chaos.run $(CHAOS_ARGS)
	@$(BIN)/python -m tests.chaos.spark_faults
	@$(BIN)/python -m tests.chaos.scheduler_faults

.PHONY: plugin
plugin: $(STAMP) ## Build the broker plug-in, a jar under dist/
	@$(BIN)/python -m sandbox.kafka.broker_plugin

.PHONY: bench
bench: $(STAMP) ## Benchmark the assignors against Kafka's, plans and planning (an hour)
	@$(BIN)/python -m tests.bench.run
	@$(BIN)/python -m tests.bench.quality
	@$(BIN)/python -m tests.bench.gates
	@$(BIN)/python -m tests.bench.broker_assign
	@$(BIN)/python -m tests.bench.planning

.PHONY: check
check: lint types contracts ## Run every static check

.PHONY: lint
lint: $(STAMP) ## ruff: rules and formatting; hadolint: the Dockerfiles
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/hadolint docker/*/Dockerfile

.PHONY: types
types: $(STAMP) ## mypy --strict
	@$(BIN)/mypy

.PHONY: contracts
contracts: $(STAMP) ## import-linter: check the direction of imports
	@$(BIN)/lint-imports --no-cache

.PHONY: structure
structure: $(STAMP) ## Print the figures of the structure: rooms and arrows of spark_jobs, cycles, sizes
	@$(BIN)/python -m tests.structure

.PHONY: format
format: $(STAMP) ## Format the code and apply automatic fixes
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

RESOLVE := $(BIN)/uv pip compile --quiet --universal --no-header --no-emit-index-url --generate-hashes \
	--python-version 3.11 pyproject.toml
# Parts of requirements.lock: what an image installs, in the versions that the tests use.
PART := $(RESOLVE) --no-annotate --constraint requirements.lock

.PHONY: lock
lock: $(STAMP) ## Resolve the packages into requirements.lock and the images' parts of it
	@$(RESOLVE) --all-extras -o requirements.lock
	@$(PART) --extra airflow --extra postgres --extra kip848 -o docker/airflow.lock
	@$(PART) --extra spark -o docker/spark.lock
	@$(PART) --extra executor -o docker/executor.lock
	@printf 'build\nhatchling\n' | $(subst pyproject.toml,-,$(PART)) -o docker/build.lock

.PHONY: clean
clean: ## Remove the files that runs, tests and set-up created
	@rm -rf $(VENV) .cache .airflow .demo dist .mypy_cache .ruff_cache .pytest_cache .hypothesis \
		.import_linter_cache spark-warehouse metastore_db derby.log *.egg-info
	@find $(FOLDERS) -name __pycache__ -type d -prune -exec rm -rf {} +
