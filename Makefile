# `make` explains. Every target makes its own environment in .venv on a fresh clone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
JOBS ?= 2
N ?= 2000
SECONDS ?= 20
STATEMENTS ?= 20000
CHECKS ?= 20000
KILLS ?= 2000
FLIPS ?= 10000
ARGS ?=
CASSANDRA ?= --hosts 127.0.0.1 --port 9042
SQL ?= --mysql mysql://root@127.0.0.1:3306 --postgres postgresql://postgres@127.0.0.1:5432/postgres

.DEFAULT_GOAL := help
.PHONY: help demo test test-fast test-random test-functions random test-cassandra load-cassandra cluster soak chaos kills flips fuzz fuzz-binlog cassandra mariadb mysql postgres lint format bench bench-all bench-docs docs clean

help: ## explain the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml requirements/dev.txt scripts/install.py
	@$(PYTHON) scripts/install.py $(VENV)
	@touch $@

demo: $(STAMP) ## a shop that changes while five views follow it; no server needed (SECONDS=20)
	@$(BIN)/runnel demo --seconds $(SECONDS)

test: $(STAMP) ## all tests: Spark and the servers the tests start themselves (JOBS=2, ARGS="-k ...")
	@$(BIN)/pytest -n $(JOBS) --dist loadgroup $(ARGS)

test-fast: $(STAMP) ## the tests that need neither Spark nor a server
	@$(BIN)/pytest -m "not (spark or postgres or cassandra or hbase or mariadb or mysql or browser or slow)" $(ARGS)

test-random: $(STAMP) ## N random views and changes, maintained == recomputed (N=2000)
	@RUNNEL_SEED=$${RUNNEL_SEED:-0} RUNNEL_CASES=$(N) $(BIN)/pytest -m "not slow" -k "random" --timeout 0 -s $(ARGS)

test-functions: $(STAMP) ## every built-in function in views of every form, compared after each batch, in the driver and on Spark alone
	@RUNNEL_FUNCTIONS=all $(BIN)/pytest tests/compiler/test_functions.py tests/compiler/test_unsteady.py --timeout 0 $(ARGS)

random: $(STAMP) ## random views compared after every batch, going on after a failure (CHECKS=20000, ARGS="--engine spark --driver-rows 0")
	@$(BIN)/python -m tests.compiler.random_run --checks $(CHECKS) $(ARGS)

test-cassandra: $(STAMP) ## random statements on real Cassandra servers, killed nodes too: logs rebuilt == SELECT * (STATEMENTS=20000)
	@RUNNEL_SEED=$${RUNNEL_SEED:-0} RUNNEL_CASSANDRA_STATEMENTS=$(STATEMENTS) $(BIN)/pytest -k test_real_log --timeout 0 -s $(ARGS)

load-cassandra: SECONDS = 600
load-cassandra: $(STAMP) ## three views under load on a real Cassandra, killed and restarted: equal to recompute, lag printed (SECONDS=600)
	@$(BIN)/python -m tests.connectors.cassandra.load --seconds $(SECONDS)

# The pipeline on a Spark cluster, one check each; ARGS="--gigabytes 0.5 --ways two", ARGS="--rows 1000000".
CLUSTER := backlog snapshot feed takeover state
cluster: $(addprefix cluster-,$(CLUSTER)) ## Spark cluster of two workers: large logs, tables and feeds, a take-over, the size of a state (hours)
cluster-%: $(STAMP)
	@$(BIN)/python -m tests.cluster $* $(ARGS)

soak: $(STAMP) ## thousands of small epochs on both engines: state and epoch time stay bounded
	@$(BIN)/python -m tests.soak --engine duckdb --epochs 10000
	@$(BIN)/python -m tests.soak --engine spark --epochs 2000

chaos: $(STAMP) ## processes killed and connections cut at random, on SQLite and PostgreSQL: nothing lost, doubled or missing (KILLS=2000)
	@$(BIN)/python -m tests.chaos --kills $(KILLS) $(ARGS)

kills: KILLS = 50
kills: $(STAMP) ## `runnel run` killed at random moments between MariaDB and PostgreSQL: no gap, no row twice (KILLS=50)
	@RUNNEL_SEED=$${RUNNEL_SEED:-1} RUNNEL_SYNC_KILLS=$(KILLS) $(BIN)/pytest tests/connectors/sync/test_kills.py --timeout 0 $(ARGS)

flips: $(STAMP) ## single bits flipped in the files of a state: an error or the same values, never other ones (FLIPS=10000)
	@$(BIN)/python -m tests.flips --flips $(FLIPS) --spark 300

fuzz: $(STAMP) ## damage Cassandra logs at random and read them (SECONDS=3600)
	@$(BIN)/python -m tests.connectors.cassandra.fuzz --seconds $(SECONDS)

fuzz-binlog: $(STAMP) ## damage binary logs of MariaDB and MySQL at random and read them (SECONDS=3600)
	@$(BIN)/python -m tests.connectors.mysql.fuzz --seconds $(SECONDS)

cassandra: $(STAMP) ## run a throw-away Cassandra by hand until Ctrl-C (ARGS="--compatibility CASSANDRA_4")
	@$(BIN)/python -m tests.servers.cassandra $(ARGS)

mariadb: $(STAMP) ## run a throw-away MariaDB by hand until Ctrl-C (ARGS="-- --binlog-row-image=MINIMAL", RUNNEL_MARIADB=11.4)
	@$(BIN)/python -m tests.servers.mariadb $(ARGS)

mysql: $(STAMP) ## run a throw-away MySQL 8.0 by hand until Ctrl-C (ARGS="-- --binlog-transaction-compression=ON")
	@$(BIN)/python -m tests.servers.mysql $(ARGS)

postgres: $(STAMP) ## run a throw-away PostgreSQL by hand until Ctrl-C (ARGS="max_slot_wal_keep_size=1GB")
	@$(BIN)/python -m tests.servers.postgres $(ARGS)

lint: $(STAMP) ## ruff, its formatter, mypy --strict and the import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(STAMP) ## format the code and mend what ruff can mend
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(STAMP) ## the dashboard benchmark (ARGS="--base 10000000 --changes 1000")
	@$(BIN)/runnel bench dashboard $(ARGS)

# The published benchmarks by name; `make bench-run-growth` runs one of them. That of capture needs a server, such as `make cassandra`
# starts: CASSANDRA="--hosts ... --port ..."; that of logsync needs some of `make mariadb`, `make mysql` and `make postgres`:
# SQL="--mysql mysql://root@127.0.0.1:PORT --mysql ... --postgres postgresql://...".
BENCH_dashboard-1m := dashboard --base 1000000
BENCH_dashboard-10m := dashboard --base 10000000
BENCH_dashboard-10m-100k := dashboard --base 10000000 --changes 100000
BENCH_dashboard-10m-1m := dashboard --base 10000000 --changes 1000000 --warm 3
BENCH_dashboard-10m-dimension := dashboard --base 10000000 --dimension 10
BENCH_growth := growth --bases 1000000,10000000,100000000 --changes 1000
BENCH_tpch := tpch --scale 1 --each
BENCH_minmax := minmax
BENCH_sustained := sustained --base 10000000 --rate max --seconds 300 --batch 1000000
BENCH_latency := latency --base 10000000 --rate 1000 --seconds 60
BENCH_choice := choice
BENCH_choice-3m := choice --base 3000000 --shares 0.1,1
BENCH_peers := peers --install
BENCH_decode := decode
BENCH_capture = capture $(CASSANDRA)
BENCH_logsync = logsync --install $(SQL)
PUBLISHED := $(filter-out capture logsync,$(patsubst BENCH_%,%,$(filter BENCH_%,$(.VARIABLES))))

bench-all: $(addprefix bench-run-,$(sort $(PUBLISHED))) ## all published benchmarks, figures kept in docs/benchmarks (hours; -k goes on after a failure)
	@$(MAKE) --no-print-directory bench-docs

bench-run-%: $(STAMP)
	@$(BIN)/runnel bench $(BENCH_$*) --json docs/benchmarks/$*.json

bench-docs: $(STAMP) ## make the tables and charts of docs/benchmarks.md from the kept figures
	@$(BIN)/python -m scripts.benchmark_pages

docs: $(STAMP) ## write the reference of SQL and of error codes, and run the examples of the documentation
	@$(BIN)/python scripts/error_reference.py
	@$(BIN)/python -m scripts.sql_reference
	@$(BIN)/python scripts/capture_reference.py
	@$(BIN)/pytest tests/docs $(ARGS)

clean: ## remove the environment and every cache
	@rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis spark-warehouse
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
