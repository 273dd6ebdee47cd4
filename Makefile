# One command for each thing a person does here. `make help` lists them.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.ready
DATA ?= data

# Without compiled modules every start of a broker would compile all of them anew.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup run demo test test-long sim fault check format docs bench bench-kafka bench-spark bench-cluster \
	bench-failover bench-rest bench-channel bench-grpc bench-backends demo-grpc proto compat clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv with all that is needed

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Odradek needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Name another one: make PYTHON=python3.12 setup")'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[all,dev]'
	@touch $(STAMP)

run: $(STAMP) ## start one broker on 127.0.0.1:9092, with its data in ./data
	@$(BIN)/odradek serve --data $(DATA)

demo: $(STAMP) ## a broker, events of a shop and a pipeline on Spark: from nothing to checked results
	@$(BIN)/python -m examples.demo $(ARGS)

demo-grpc: $(STAMP) ## a broker by gRPC only: each scenario of MyKafka's and Eeylops' doors, step by step
	@$(BIN)/python -m examples.grpc_demo $(ARGS)

test: $(STAMP) ## run the tests
	$(BIN)/python -m pytest -n auto --dist loadgroup

test-long: $(STAMP) ## run the tests with the long Hypothesis profile and more seeds
	ODRADEK_TEST_PROFILE=long $(BIN)/python -m pytest -n auto --dist loadgroup --timeout 3600

sim: $(STAMP) ## simulate quorums of five under faults: SEEDS=2000, FIRST=0
	$(BIN)/python -m tests.sim --seeds $(or $(SEEDS),2000) --first $(or $(FIRST),0)

fault: $(STAMP) ## five real brokers under load and faults, 30 s a seed: SEEDS=20, FIRST=1
	$(BIN)/python -m tests.fault.run --seeds $(or $(SEEDS),20) --first $(or $(FIRST),1) --seconds 30 --brokers 5 $(ARGS)

check: $(STAMP) ## lint, format, types, architecture, documentation
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest tests/architecture

format: $(STAMP) ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP) ## renew the generated pages of docs/reference
	$(BIN)/python -m odradek.cli.reference docs/reference

proto: $(STAMP) ## renew the gRPC stubs and their reference from proto/
	$(BIN)/python -m grpc_tools.protoc -I odradek/proto=proto --python_out=src --pyi_out=src --grpc_python_out=src \
		odradek/proto/mykafka.proto odradek/proto/eeylops.proto
	$(BIN)/python -m odradek.cli.reference docs/reference

bench: $(STAMP) ## measure the log beside plain system calls
	$(BIN)/python -m bench.log

bench-kafka: $(STAMP) ## measure the broker beside Apache Kafka and NATS (Java and Maven; about 40 minutes)
	$(BIN)/python -m bench.kafka $(ARGS)

bench-spark: $(STAMP) ## measure the Spark source and sink beside Spark's Kafka connector (Java and Maven; about 12 minutes)
	$(BIN)/python -m bench.spark $(ARGS)

bench-cluster: $(STAMP) ## measure three brokers beside three of Apache Kafka (Java and Maven; about 15 minutes)
	$(BIN)/python -m bench.cluster $(ARGS)

bench-failover: $(STAMP) ## measure how long a killed leader is missed, beside Apache Kafka (Java and Maven; about 25 minutes)
	$(BIN)/python -m bench.failover $(ARGS)

bench-rest: $(STAMP) ## measure publish by HTTP beside a bare FastAPI route (about 2 minutes)
	$(BIN)/python -m bench.rest $(ARGS)

bench-channel: $(STAMP) ## channels in a directory and in a real S3 server: rate, latency, requests, the bill
	$(BIN)/python -m bench.channel $(ARGS)

bench-grpc: $(STAMP) ## gRPC calls and streams beside a bare echo server (about 2 minutes)
	$(BIN)/python -m bench.grpc $(ARGS)

bench-backends: $(STAMP) ## append and read of segments in files, sqlite and RocksDB (about 2 minutes)
	$(BIN)/python -m bench.backends $(ARGS)

compat: $(STAMP) ## run other people's test suites against a broker of ours (npm, make and a C compiler)
	$(BIN)/python -m tests.compat.run $(ARGS)

clean: ## remove what make made
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
