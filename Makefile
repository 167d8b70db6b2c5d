# The entry points of this project. Each target sets up what it needs.
#
#   make            lists the targets
#   make setup      PYTHON=python3.12 selects the interpreter, JAVA_HOME the Java
#   make demo       PROTOCOL=consumer uses a group of the newer protocol (KIP-848), CLIENT=java Kafka's Java client
#   make test       PYTEST_ARGS="-k fingerprint" runs a part

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
FOLDERS := assignor_core spark_jobs evenlag dags sandbox release tests
PYTEST_ARGS ?=
PROTOCOL ?= classic
CLIENT ?= python
DEMO_ARGS ?=
CHAOS_ARGS ?=
RELEASE_ARGS ?=

# spark-submit is found on the PATH by Airflow's Spark operator.
export PATH := $(CURDIR)/$(BIN):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# uv installs the lock in a third of pip's time. All packages are wheels but two, which are Python files and jars; without
# isolation they are built with the setuptools that is locked.
UV_INSTALL := VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --no-build-isolation $(shell test -t 2 || echo --quiet)

.PHONY: setup
setup: $(STAMP) ## Create .venv from the lock, download the jars, and build the log stores (once)

$(STAMP): requirements.lock .ci/setup.lock pyproject.toml
	@bash .ci/make_venv $(VENV) "$(PYTHON)"
	@echo "setup: installing the locked packages (about a minute the first time)"
	@$(BIN)/python -m pip install --quiet --require-hashes --only-binary :all: -r .ci/setup.lock
	@$(UV_INSTALL) --require-hashes --only-binary :all: --no-binary pyspark --no-binary pyspark-client -r requirements.lock
	@$(UV_INSTALL) --no-deps -e .
	@$(BIN)/python -m sandbox.jars
	@touch $@
	@echo "setup: ready"

.PHONY: demo
demo: $(STAMP) ## Run the cycle end to end on a real broker, with Airflow, and chart it; PROTOCOL=consumer: KIP-848, CLIENT=java
	@$(BIN)/evenlag demo --protocol $(PROTOCOL) --client $(CLIENT) $(DEMO_ARGS)

.PHONY: airflow
airflow: $(STAMP) ## Start the sandbox's broker, a workload and Airflow; Ctrl-C stops all
	@$(BIN)/python -m sandbox.demo.airflow

# The tests start hundreds of processes, which would compile the same modules, where that variable is set.
.PHONY: test test-all
test: $(STAMP) ## Run the tests of a contributor and of CI, with a real broker, Spark, Delta and Airflow (ten minutes)
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest $(PYTEST_ARGS)

test-all: $(STAMP) ## Run all tests but the soak: also S3, containers, Connect, failover, old versions; the gate of a release
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --extended $(PYTEST_ARGS)

.PHONY: soak
soak: $(STAMP) ## Run the long tests (hours): growth over 300 cycles, three brokers ten times, fifty members, more of the audit
	@$(BIN)/python -m pytest -m soak

.PHONY: chaos
chaos: $(STAMP) ## Inject faults into consumers, brokers, Spark and Airflow, and verify the result (50 minutes)
	@$(BIN)/python -m tests.chaos.run $(CHAOS_ARGS)
	@$(BIN)/python -m tests.chaos.node_cycles
	@$(BIN)/python -m tests.chaos.spark_faults
	@$(BIN)/python -m tests.chaos.scheduler_faults

.PHONY: jvm plugin
jvm: $(STAMP) ## Build the broker plug-in and the Java client, jars under dist/
	@$(BIN)/python -m sandbox.kafka.jvm_jars

plugin: jvm

.PHONY: log-store
log-store: $(STAMP) ## Build the log stores for Spark, a jar under dist/
	@$(BIN)/python -m sandbox.jars --log-store dist

.PHONY: docs
docs: $(STAMP) ## Build the documentation site under dist/docs; no network is needed to build or to read it
	@$(BIN)/python -m tests.reference_pages
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "docs: open dist/docs/index.html"

.PHONY: release
release: $(STAMP) ## Build all files of a release under dist/, if EVENLAG_OSV knows no vulnerability: packages, jars, SBOMs
	@$(BIN)/python -m release build $(RELEASE_ARGS)

.PHONY: vulnerabilities
vulnerabilities: $(STAMP) ## Look up what is locked in the copy of the OSV database that EVENLAG_OSV names
	@$(BIN)/python -m release vulnerabilities

.PHONY: bench
bench: $(STAMP) ## Benchmark the assignors against Kafka's, plans and planning (an hour)
	@$(BIN)/python -m tests.bench.run
	@$(BIN)/python -m tests.bench.quality
	@$(BIN)/python -m tests.bench.gates
	@$(BIN)/python -m tests.bench.limits
	@$(BIN)/python -m tests.bench.broker_assign
	@$(BIN)/python -m tests.bench.planning

.PHONY: check
check: lint types contracts licences ## Run every static check

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

.PHONY: licences
licences: $(STAMP) ## Check the licences of everything that is installed or shipped
	@$(BIN)/python -m release licences

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
	@printf 'setuptools\n' | $(subst pyproject.toml,-,$(PART)) -o docker/setuptools.lock
	@printf 'setuptools\nuv\n' | $(subst pyproject.toml,-,$(PART)) -o .ci/setup.lock

.PHONY: clean
clean: ## Remove the files that runs, tests and set-up created
	@rm -rf $(VENV) .cache .airflow .demo dist .mypy_cache .ruff_cache .pytest_cache .hypothesis \
		.import_linter_cache spark-warehouse metastore_db derby.log *.egg-info
	@find $(FOLDERS) -name __pycache__ -type d -prune -exec rm -rf {} +
