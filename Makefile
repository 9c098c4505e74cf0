# `make demo` and `make test` work as the first command in a fresh clone: both begin by building .venv.
# Variables: PYTHON3 (the interpreter that creates .venv), TEST_PROCESSES (default 2), PYTEST_OPTIONS, BENCH_OPTIONS.

PYTHON3 ?= python3
VENV := .venv
PYTHON := $(VENV)/bin/python
STAMP := $(VENV)/.longform-installed
TEST_PROCESSES ?= 2
PYTEST_OPTIONS ?=
# The extras that MAIN_TESTS need.
TESTED := demo,dev,bm25,serve,onnx,openvino
BENCH_OPTIONS ?=
PYTEST := OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false $(PYTHON) -m pytest $(PYTEST_OPTIONS)

# torch.compile, the packages that tests/longform/peers compares with, and Ray have processes of their own.
APART := longform/compiled longform/peers longform/device campaign text/ray
# What `make test-units` runs under each cap of src/longform/units.py.
OF_UNITS := longform/functional longform/layers longform/models
CAPS := portable avx2 avx512 avx512_bf16 amx
BESIDE := -m "not nightly" -n $(TEST_PROCESSES) --dist worksteal
FAILED := $(VENV)/.failed-parts

.DEFAULT_GOAL := help
.PHONY: help install demo test test-units test-nightly test-versions gpu-check campaign check lint docs bench tables clean

help:
	@echo "make demo          a layer that learns, and questions to long speeches; results in runs/demo"
	@echo "make test          every test; TESTS=main without those that take a process of their own"
	@echo "make test-units    tests of functions, layers and models as on each lesser processor that this one can play"
	@echo "make test-nightly  what is too slow for make test: processes that import everything anew, more graphs, cases"
	@echo "make test-versions the main tests with the lower bounds of pyproject.toml, in an environment of its own;"
	@echo "                   RESOLUTION=highest: with the newest of all that it names"
	@echo "make gpu-check     times, trainings and the tests of a GPU in nine minutes, without .venv too; DRY=1: on a CPU"
	@echo "make campaign      kills, full disks, broken files, sanitizers; over an hour; make test has a part;"
	@echo "                   goes on where it was; appends to benchmarks/records"
	@echo "make check         lint, docs, documented public names, generated tables"
	@echo "make lint          ruff, ty, import-linter, docstrings and branches"
	@echo "make docs          the site of mkdocs.yml in site/; broken links and anchors fail it"
	@echo "make bench         time and memory against length, beside other encoders (10 minutes); goes on where it was;"
	@echo "                   appends to benchmarks/records; BENCH_OPTIONS: see longform benchmark --help"
	@echo "make tables        write the tables of README.md and docs from benchmarks/records"
	@echo "make clean         remove .venv and the caches (not runs/)"

install: $(STAMP)

# What `make demo` needs, where all the rest is not there yet; `make test` needs all.
DEMO_STAMP := $(VENV)/.longform-demo
$(STAMP): EXTRAS := docs,peers,compare,ray,$(TESTED)
$(DEMO_STAMP): EXTRAS := demo

# torch by pip, which knows where a machine has its build; the rest by uv, which takes half the time.
$(STAMP) $(DEMO_STAMP): pyproject.toml setup.py constraints.txt $(wildcard src/longform/functional/native/csrc/*)
	@$(PYTHON3) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Longform needs Python 3.11 or newer; say which with: make PYTHON3=/path/to/python3 ..."; exit 1; }
	@test -x $(PYTHON) || $(PYTHON3) -m venv $(VENV)
	@echo "Installing Longform and what it needs into $(VENV) (once, a few minutes) ..."
	$(PYTHON) -m pip install --disable-pip-version-check --no-compile -c constraints.txt torch uv
	$(VENV)/bin/uv pip install --python $(PYTHON) -c constraints.txt -e ".[$(EXTRAS)]"
	@touch $@

demo: $(if $(wildcard $(STAMP)),$(STAMP),$(DEMO_STAMP))
	$(VENV)/bin/longform demo

# Parts run one after the other, whatever became of those before; the last line names those that failed.
run = $(MAKE) $(1) || echo $(1) >> $(FAILED)
name_failures = $(if $(shell cat $(FAILED)),$(error failed: $(shell cat $(FAILED))))

test: test-parts
	$(name_failures)

# Peers and Ray take one process each.
test-parts: $(STAMP)
	@: > $(FAILED)
	@$(call run,test-main)
ifneq ($(TESTS),main)
	@$(call run,test-compiled)
	@$(call run,test-campaign)
	@$(call run,test-peers) & $(call run,test-ray); wait
endif

test-main: $(STAMP)
	$(PYTEST) tests $(foreach folder,$(APART),--ignore=tests/$(folder)) $(BESIDE)

test-compiled: $(STAMP)
	$(PYTEST) tests/longform/compiled $(BESIDE)

test-campaign: $(STAMP)
	$(PYTEST) tests/campaign $(BESIDE)

test-peers: $(STAMP)
	$(PYTEST) tests/longform/peers

test-ray: $(STAMP)
	$(PYTEST) tests/text/ray -m "not nightly"

test-units: test-each-cap
	$(name_failures)

test-each-cap: $(STAMP)
	@: > $(FAILED)
	@for cap in $(CAPS); do \
	  if $(PYTHON) -c "import sys; from longform.units import has; sys.exit(not has('$$cap'))"; \
	  then $(call run,test-units-$$cap); else echo "not run: $$cap, which this machine has not"; fi; done

test-units-%: $(STAMP)
	LONGFORM_UNITS=$* $(PYTEST) $(OF_UNITS:%=tests/%) $(BESIDE)

# What pyproject.toml promises: the lower bounds themselves, or the newest that the registry has, without constraints.txt;
# uv knows how to choose versions so. Old packages deprecate what newer ones do; pyproject.toml says what old
# transformers cannot do.
RESOLUTION ?= lowest-direct
VERSIONS = $(VENV)-$(RESOLUTION)
test-versions:
	$(PYTHON3) -m venv $(VERSIONS)
	$(VERSIONS)/bin/python -m pip install --disable-pip-version-check uv
	$(VERSIONS)/bin/uv pip install --python $(VERSIONS)/bin/python --upgrade --resolution $(RESOLUTION) -e ".[$(TESTED)]"
	$(MAKE) VENV=$(VERSIONS) STAMP= TESTS=main test $(if $(filter lowest-direct,$(RESOLUTION)),PYTEST_OPTIONS="\
	  $(PYTEST_OPTIONS) -W ignore::DeprecationWarning")

# A bare machine has no .venv, and its own python3 has torch. GPU_OPTIONS: see python -m benchmarks.gpu_check --help.
gpu-check:
	$(or $(wildcard $(PYTHON)),python3) -m benchmarks.gpu_check $(if $(DRY),--dry --processes 2 --seconds 170) $(GPU_OPTIONS)

test-nightly: $(STAMP)
	$(PYTEST) tests $(foreach folder,$(APART),--ignore=tests/$(folder)) -m nightly
	$(PYTEST) tests/longform/compiled tests/campaign -m nightly
	$(PYTEST) tests/text/ray -m nightly
	HYPOTHESIS_PROFILE=search $(PYTEST) tests/longform/layers/test_layer_invariance.py tests/longform/models/test_padding.py

campaign: $(STAMP)
	CAMPAIGN_SCALE=full CAMPAIGN_RECORDS=benchmarks/records/campaign.jsonl \
	  $(PYTEST) tests/campaign -n $(TEST_PROCESSES) --dist worksteal
	$(MAKE) tables

check: lint docs
	$(PYTEST) -q tests/surface

lint: $(STAMP)
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/ty check
	$(VENV)/bin/lint-imports
	$(PYTEST) -q tests/surface/test_style.py

# The variable silences an advertisement; -q would let broken links pass.
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict

bench: $(STAMP)
	$(VENV)/bin/longform benchmark --preset small --output runs/bench \
	  --records benchmarks/records/speed.jsonl $(BENCH_OPTIONS)
	$(MAKE) tables

tables: $(STAMP)
	$(PYTHON) -m longform_lab.tables.draw
	$(PYTHON) -m longform_lab.tables.write

clean:
	rm -rf $(VENV) $(VENV)-lowest-direct $(VENV)-highest .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist site src/*.egg-info
