# Two commands need nothing prepared but python3 (3.11+, venv, headers), gcc and make: `make demo` and `make test`.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
SOURCES := setup.py src_pyx/preflight.py $(wildcard src_pyx/kafka07c/*.p[yx]? src_pyx/kafka07c/c/*.[ch])
EXTENSIONS := $(patsubst src_pyx/kafka07c/%.pyx,kafka07c.%,$(wildcard src_pyx/kafka07c/*.pyx))

.DEFAULT_GOAL := help
.PHONY: help demo test types interop soak soak-producer fuzz sanitize bench dist cluster-test setup install clean
.DELETE_ON_ERROR:

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-13s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

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

bench: setup ## ratios of the codec to memcpy, in one run; JSON=1 gives an object a row
	@$(RUN) -m bench.ratios $(if $(JSON),--json)

cluster-test: setup ## a standalone Spark cluster whose nodes have a wheel, then a packed environment; Spark Connect (4 minutes)
	@$(RUN) -m pytest tests/cluster --override-ini=addopts="-ra --strict-markers --import-mode=importlib -p no:cacheprovider"

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
	rm -rf $(VENV) build dist demo *.egg-info kafka07c/*.so
