# `make` or `make help` lists the targets.

VENV := .venv
BIN := $(VENV)/bin
BUILD := tests/support/environment.sh
PACKAGES := $(VENV)/.packages
PROJECT := $(VENV)/.project
BENCH := $(VENV)/.bench

# Without it, whatever imports Airflow creates ~/airflow.
export AIRFLOW_HOME := $(CURDIR)/.demo/airflow

.DEFAULT_GOAL := help
.PHONY: help env java demo airflow servers test test-all docs lint format bench bench-quick fuzz chaos clean

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 20

env: $(PROJECT) ## Build .venv from the pinned versions; nothing when it is up to date

$(PACKAGES): requirements.txt
	@$(BUILD) python
	@touch $@

$(PROJECT): $(PACKAGES) pyproject.toml
	@$(BUILD) package
	@touch $@

$(BENCH): $(PACKAGES) tests/benchmarks/requirements.txt
	@$(BUILD) bench
	@touch $@

java: env
	@$(BUILD) java

demo: env java ## Replicate a demo database through Airflow and Spark, and prove both sides equal
	@PYTHONPATH=tests $(BIN)/python -m demo

airflow: env java ## Airflow's UI on localhost with the demo's DAGs, until Ctrl-C
	@PYTHONPATH=tests $(BIN)/python -m demo.airflow_ui

# Tests start Python some thousand times, which would compile the checkout each time.
PARALLEL_PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest --numprocesses 3 --dist loadgroup --no-loadscope-reorder

servers: env java $(BENCH)
	@$(BUILD) postgresql
	@$(BUILD) mariadb
	@$(BUILD) others
	@$(BUILD) browser
	@$(BUILD) lineage

test: servers ## Run the tests but the slow ones in three processes; PYTEST_ARGS="-k name" runs some, in one
ifdef PYTEST_ARGS
	@$(BIN)/pytest $(PYTEST_ARGS)
else
	@TRANREPL_FUZZ_EXAMPLES=$${TRANREPL_FUZZ_EXAMPLES:-3} TRANREPL_EXAMPLES_PERCENT=20 $(PARALLEL_PYTEST) -m "not slow"
endif

test-all: servers ## Run all tests, also the slow ones, and all of them in new sessions
	@TRANREPL_NEW_SESSIONS=1 $(PARALLEL_PYTEST)

docs: env ## Write the pages of docs/reference that are made from the code
	@PYTHONPATH=docs $(BIN)/python -m reference_pages

lint: env ## Check style, types and the direction of imports
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: env ## Format the code and mend what ruff can
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

bench: env java $(BENCH) ## Measure the jobs beside PostgreSQL's and MariaDB's own replication; BENCH_ARGS="--only insert"
	@$(BUILD) mariadb
	@PYTHONPATH=tests $(BIN)/python -m benchmarks $(BENCH_ARGS)
ifndef BENCH_ARGS
	@PYTHONPATH=tests $(BIN)/python -m benchmarks.mariadb
	@PYTHONPATH=tests $(BIN)/python -m benchmarks.mariadb_publisher
	@PYTHONPATH=tests $(BIN)/python -m benchmarks.mssql
	@PYTHONPATH=tests $(BIN)/python -m benchmarks.stored_bytes
	@PYTHONPATH=tests $(BIN)/python -m benchmarks.fallbacks
	@PYTHONPATH=tests $(BIN)/python -m benchmarks.snapshot
	@PYTHONPATH=tests $(BIN)/python -m benchmarks.validation
	@PYTHONPATH=tests $(BIN)/python -m benchmarks.schema_changes
	@PYTHONPATH=tests $(BIN)/python -m benchmarks.ddl_cost
	@PYTHONPATH=tests $(BIN)/python -m benchmarks.latency
endif

bench-quick: env java $(BENCH) ## Measure a tenth of it, beside PostgreSQL's only
	@PYTHONPATH=tests $(BIN)/python -m benchmarks --quick $(BENCH_ARGS)
ifndef BENCH_ARGS
	@PYTHONPATH=tests $(BIN)/python -m benchmarks.latency --quick
endif

fuzz: env ## Hold random histories against the reference model; TRANREPL_FUZZ_EXAMPLES=2000 for longer
	@TRANREPL_FUZZ_EXAMPLES=$${TRANREPL_FUZZ_EXAMPLES:-500} $(BIN)/pytest --timeout 3600 tests/integration/log_reader/test_propagation.py tests/integration/subscriber/test_bulk.py

chaos: env java ## Kill jobs at random under a load for SECONDS (600), and compare both ends; MODE=continuous: continuous agents
	@$(BUILD) postgresql
	@TRANREPL_CHAOS_SECONDS=$(or $(SECONDS),600) $(BIN)/pytest -s tests/integration/end_to_end/test_$(if $(filter continuous,$(MODE)),continuous_)chaos.py

clean: ## Remove everything that the other targets have made
	@rm -rf $(VENV) .demo .bench .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
