# All that a person or a machine does with this project. Each target sets up what it needs by itself.
#
#   make            says what there is
#   make setup      PYTHON=python3.12 picks the interpreter, JAVA_HOME the Java
#   make demo       PROTOCOL=consumer takes a group of the newer protocol (KIP-848)
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
help: ## Say what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(STAMP) ## Make .venv with everything locked, and fetch the jars (once)

$(STAMP): requirements.lock pyproject.toml
	@bash .ci/make_venv $(VENV) "$(PYTHON)"
	@echo "setup: installing the locked packages (one to three minutes the first time)"
	@$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@$(BIN)/python -m sandbox.jars
	@touch $@
	@echo "setup: ready"

.PHONY: demo
demo: $(STAMP) ## Run the main job end to end on a real broker, with Airflow, and draw it; PROTOCOL=consumer: KIP-848
	@$(BIN)/evenlag demo --protocol $(PROTOCOL) $(DEMO_ARGS)

.PHONY: airflow
airflow: $(STAMP) ## Start the sandbox's broker, a workload and the Airflow page; Ctrl-C stops all
	@$(BIN)/python -m sandbox.demo.airflow

.PHONY: test
test: $(STAMP) ## Run all tests, with the real broker, Spark and Delta
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

.PHONY: soak
soak: $(STAMP) ## Run what takes minutes to hours: 300 cycles that may grow nothing, fifty members, more of the audit
	@$(BIN)/python -m pytest -m soak

.PHONY: chaos
chaos: $(STAMP) ## Let faults loose on consumers, on Spark and on Airflow, and judge what is left (30 minutes)
	@$(BIN)/python -m tests.chaos.run $(CHAOS_ARGS)
	@$(BIN)/python -m tests.chaos.spark_faults
	@$(BIN)/python -m tests.chaos.scheduler_faults

.PHONY: plugin
plugin: $(STAMP) ## Build the brokers' plug-in, a jar under dist/
	@$(BIN)/python -m sandbox.kafka.broker_plugin

.PHONY: bench
bench: $(STAMP) ## Time the assignors beside Kafka's own, and plans and planning (an hour)
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
contracts: $(STAMP) ## import-linter: dependencies point one way
	@$(BIN)/lint-imports --no-cache

.PHONY: structure
structure: $(STAMP) ## Print the figures of the structure: rooms and arrows of spark_jobs, cycles, sizes
	@$(BIN)/python -m tests.structure

.PHONY: format
format: $(STAMP) ## Format the code and fix what can be fixed by itself
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

RESOLVE := $(BIN)/uv pip compile --quiet --universal --no-header --no-emit-index-url --generate-hashes \
	--python-version 3.11 pyproject.toml
# Parts of requirements.lock: what an image installs, and nothing that no test has seen.
PART := $(RESOLVE) --no-annotate --constraint requirements.lock

.PHONY: lock
lock: $(STAMP) ## Resolve the packages again into requirements.lock and the images' parts of it
	@$(RESOLVE) --all-extras -o requirements.lock
	@$(PART) --extra airflow --extra postgres --extra kip848 -o docker/airflow.lock
	@$(PART) --extra spark -o docker/spark.lock
	@$(PART) --extra executor -o docker/executor.lock
	@printf 'build\nhatchling\n' | $(subst pyproject.toml,-,$(PART)) -o docker/build.lock

.PHONY: clean
clean: ## Remove what runs, tests and set-up left here; the sources stay
	@rm -rf $(VENV) .cache .airflow .demo dist .mypy_cache .ruff_cache .pytest_cache .hypothesis \
		.import_linter_cache spark-warehouse metastore_db derby.log *.egg-info
	@find $(FOLDERS) -name __pycache__ -type d -prune -exec rm -rf {} +
