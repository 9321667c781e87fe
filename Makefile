# Two commands need nothing prepared but python3 (3.11+, venv, headers), gcc and make: `make demo` and `make test`.

PYTHON ?= python3
VENV := .venv
PEERS := .venv-peers
RUN := $(VENV)/bin/python
SOURCES := setup.py src_pyx/preflight.py $(wildcard src_pyx/kafka07c/*.p[yx]? src_pyx/kafka07c/c/*.[ch])
EXTENSIONS := $(patsubst src_pyx/kafka07c/%.pyx,kafka07c.%,$(wildcard src_pyx/kafka07c/*.pyx))

.DEFAULT_GOAL := help
.PHONY: help demo test types interop soak soak-producer fuzz sanitize bench bench-quick bench-peers bench-instructions spark-proof bench-spark bench-spark-kafka dist cluster-test setup install clean
.DELETE_ON_ERROR:

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-18s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

demo: setup ## a whole run: ZooKeeper, two brokers, a million events, Parquet, checked (under 3 minutes)
	@$(RUN) -m kafka07c.demo

test: setup ## every test but the interoperability ones
	@$(RUN) -m pytest

types: setup ## mypy --strict, and the stubs held against the extensions
	@$(RUN) -m mypy --strict kafka07c shipping tests/typing_cases.py
	@$(RUN) -m mypy.stubtest --mypy-config-file pyproject.toml --allowlist tests/stubtest_allowlist.txt $(EXTENSIONS)

interop: setup ## against a real 0.7.2 broker: make interop KAFKA07_CLASSPATH=jar:jar:...
	@KAFKA07_CLASSPATH='$(KAFKA07_CLASSPATH)' $(RUN) -m pytest tests/interop --override-ini=addopts="-ra --strict-markers --import-mode=importlib"

soak: setup ## consumer groups under faults for 15 minutes: make soak SEED=7 MINUTES=30, or FAULTS=1000
	@PYTHONPATH=tests $(RUN) -m groups.soak $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(FAULTS),--faults $(FAULTS))

soak-producer: setup ## a producer under faults for 15 minutes: make soak-producer SEED=7 MINUTES=30, or FAULTS=1000
	@PYTHONPATH=tests $(RUN) -m producing.soak $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(FAULTS),--faults $(FAULTS))

fuzz: setup ## the C kernels on random cases between guard pages: make fuzz SEED=7 CASES=100000000
	@PYTHONPATH=tests $(RUN) -m fuzz.run $(if $(SEED),--seed $(SEED)) $(if $(CASES),--cases $(CASES))

sanitize: setup ## the extensions built with ASan and UBSan in a folder of their own, and tests run on them
	@$(RUN) src_pyx/sanitize.py

bench: setup bench-peers ## every suite against its peers, the table of ratios, JSON and plots in build/bench; KAFKA_CLASSPATH=jar:jar:... for a broker of today
	@mkdir -p build/bench
	@KAFKA_CLASSPATH='$(KAFKA_CLASSPATH)' $(PEERS)/bin/python -m pytest bench -q --benchmark-enable --benchmark-only --benchmark-max-time=0.2 --benchmark-min-rounds=3 --benchmark-columns=median,min,rounds --benchmark-json=build/bench/pytest-benchmark.json
	@KAFKA_CLASSPATH='$(KAFKA_CLASSPATH)' $(PEERS)/bin/python -m bench $(if $(SECONDS_EACH),--seconds $(SECONDS_EACH)) --baseline bench/baseline.json
	@$(PEERS)/bin/python -m bench.plots

bench-quick: setup ## ratios in a minute; never fails
	@$(MAKE) --no-print-directory $(PEERS)/built || echo "bench-quick: without the peers" >&2
	@if test -e $(PEERS)/built; then run=$(PEERS)/bin/python; else run=$(RUN); fi; $$run -m bench --quick --output build/bench/quick.json --baseline bench/baseline.json || echo "bench-quick: no figures, see above" >&2

bench-peers: setup ## .venv-peers: what is measured against, in an environment of its own
	@$(MAKE) --no-print-directory $(PEERS)/built

bench-instructions: setup ## instructions of the hot loops, counted by valgrind; fails when one is off by 2 %
	@$(RUN) -m bench.instructions

$(PEERS)/built: bench/peers-requirements.txt bench/peers.sh $(VENV)/fingerprint
	@bash bench/peers.sh $(PYTHON) $(VENV) $(PEERS)
	@touch $@

$(VENV)/fingerprint:
	@$(MAKE) --no-print-directory setup

cluster-test: setup ## a standalone Spark cluster whose nodes have a wheel, then a packed environment; Spark Connect (4 minutes)
	@$(RUN) -m pytest tests/cluster --override-ini=addopts="-ra --strict-markers --import-mode=importlib -p no:cacheprovider"

spark-proof: setup ## streams of five million rows under kill -9, memory over 50 batches: make spark-proof SEED=7
	@PYTHONPATH=tests $(RUN) -m spark_proof.soak $(if $(SEED),--seed $(SEED)) $(if $(ROWS),--rows $(ROWS))

bench-spark: setup ## our source, ingest, and what they are held against, in one run; JSON=1 gives an object
	@$(RUN) -m bench.spark $(if $(JSON),--json) $(if $(ROWS),--rows $(ROWS))

bench-spark-kafka: setup ## beside Spark's own Kafka source: make bench-spark-kafka KAFKA_JARS=dir SPARK_KAFKA_JARS=dir
	@$(RUN) -m bench.spark_kafka --kafka-jars '$(KAFKA_JARS)' --source-jars '$(SPARK_KAFKA_JARS)' $(if $(JSON),--json)

dist: ## sdist and this machine's wheel in dist/, looked into, installed anew and tried (2 minutes)
	@$(PYTHON) src_pyx/preflight.py build
	@$(PYTHON) shipping/dist.py

setup: ## .venv with everything in it, and the extensions built (quick the second time)
	@test "$$($(PYTHON) src_pyx/preflight.py fingerprint)" = "$$(cat $(VENV)/fingerprint 2>/dev/null)" || $(MAKE) --no-print-directory install
	@ls kafka07c/_views.*.so >/dev/null 2>&1 || rm -f build/built
	@$(MAKE) --no-print-directory build/built

install: # the environment anew
	@$(PYTHON) src_pyx/preflight.py
	@echo "making $(VENV): about a minute and 1.5 GB, most of it Spark" >&2
	@rm -rf $(VENV) build
	@$(PYTHON) -m venv $(VENV)
	@$(RUN) -m pip install --quiet --disable-pip-version-check 'setuptools>=77' 'cython>=3.3,<3.4' wheel
	@$(RUN) -m pip install --quiet --disable-pip-version-check --editable '.[spark,connect,cli,examples,dev]'
	@$(PYTHON) src_pyx/preflight.py fingerprint > $(VENV)/fingerprint

build/built: $(SOURCES)
	@$(RUN) setup.py --quiet build_ext --inplace
	@mkdir -p build && touch $@

clean: ## takes away what was built, and the environment
	rm -rf $(VENV) $(PEERS) build dist demo *.egg-info kafka07c/*.so
