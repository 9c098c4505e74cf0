# `make demo` and `make test` work as the first command in a fresh clone: both begin by building .venv.
# Variables: PYTHON3 (the interpreter that creates .venv), TEST_PROCESSES (default 2), PYTEST_OPTIONS, BENCH_OPTIONS.

PYTHON3 ?= python3
VENV := .venv
PYTHON := $(VENV)/bin/python
STAMP := $(VENV)/.longform-installed
TEST_PROCESSES ?= 2
PYTEST_OPTIONS ?=
# The extras that test-main needs.
TESTED := demo,dev,mteb,bm25,serve,onnx,openvino
BENCH_OPTIONS ?=
PYTEST := OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false $(PYTHON) -m pytest $(PYTEST_OPTIONS)

# torch.compile, the packages that tests/peers compares with, and Ray have processes of their own.
APART := compiled peers device campaign ray
COMPILED_TESTS := $(wildcard tests/compiled/test_*.py)
PEER_TESTS := $(wildcard tests/peers/test_*.py)

.DEFAULT_GOAL := help
.PHONY: help install demo test test-main test-compiled test-peers test-ray test-campaign test-device gpu-check test-nightly campaign check lint docs bench bench-memory tables clean

help:
	@echo "make demo         find passages of long speeches, beside what people do today; results in runs/demo"
	@echo "make test         every test (test-main, test-compiled, test-peers, test-ray, test-campaign)"
	@echo "make test-device  what runs on a GPU only"
	@echo "make gpu-check    times, trainings and test-device on a GPU in nine minutes, without .venv too; DRY=1: on a CPU"
	@echo "make test-nightly what is too slow for make test: processes that import everything anew, more graphs, cases"
	@echo "make campaign     kills, full disks, broken files, sanitizers, for hours; a small part of it is test-campaign;"
	@echo "                  goes on where it was; appends to benchmarks/records"
	@echo "make check        ruff, ty, import-linter, documented public names, generated tables, the site"
	@echo "make docs         the site of mkdocs.yml in site/; broken links and anchors fail it"
	@echo "make test-oldest  test-main with the lower bounds of pyproject.toml, in an environment of its own"
	@echo "make test-newest  test-main with the newest of all that pyproject.toml names, likewise"
	@echo "make bench        time and memory against length, beside other encoders (10 minutes); goes on where it was;"
	@echo "                  appends to benchmarks/records; BENCH_OPTIONS: see longform benchmark --help"
	@echo "make bench-memory peak memory of one pass against length; appends to benchmarks/records"
	@echo "make tables       write the tables of README.md and docs from benchmarks/records"
	@echo "make weights      train the adapter minilm-16k again (an hour); DATA=FOLDER has the texts"
	@echo "make paper        the paper's tables and figures, measured here, and one page of them beside the paper's; goes on"
	@echo "                  where it was; DATA=FOLDER has the texts; hours: see docs/lab/reproduction.md"
	@echo "make clean        remove .venv and the caches (not runs/)"

install: $(STAMP)

# torch by pip, which knows where a machine has its build; the rest by uv, which takes half the time.
$(STAMP): pyproject.toml constraints.txt $(wildcard src/longform/functional/native/csrc/*)
	@$(PYTHON3) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Longform needs Python 3.11 or newer; say which with: make PYTHON3=/path/to/python3 ..."; exit 1; }
	@test -x $(PYTHON) || $(PYTHON3) -m venv $(VENV)
	@echo "Installing Longform and what it needs into $(VENV) (once, a few minutes) ..."
	$(PYTHON) -m pip install --disable-pip-version-check --no-compile -c constraints.txt torch uv
	$(VENV)/bin/uv pip install --python $(PYTHON) -c constraints.txt -e ".[docs,peers,compare,ray,$(TESTED)]"
	@touch $@

demo: $(STAMP)
	$(VENV)/bin/longform demo

# The last two take one process each.
test: test-main test-compiled test-campaign
	$(MAKE) -j 2 --output-sync test-peers test-ray

test-main: $(STAMP)
	$(PYTEST) tests $(foreach folder,$(APART),--ignore=tests/$(folder)) \
	  -m "not nightly" -n $(TEST_PROCESSES) --dist worksteal

test-compiled: $(STAMP)
	$(if $(COMPILED_TESTS),$(PYTEST) tests/compiled -m "not nightly" -n $(TEST_PROCESSES) --dist worksteal,@echo "no compiled tests")

test-peers: $(STAMP)
	$(if $(PEER_TESTS),$(PYTEST) tests/peers,@echo "no peer tests")

test-ray: $(STAMP)
	$(PYTEST) tests/ray -m "not nightly"

test-campaign: $(STAMP)
	$(PYTEST) tests/campaign -m "not nightly" -n $(TEST_PROCESSES) --dist worksteal

test-device: $(STAMP)
	LONGFORM_TEST_DEVICE=1 $(PYTEST) -W default -W "error:FlexAttention does not compile" -W "error:Triton fails here" \
	  -W "error:passes cannot be captured" tests/device

# A bare machine has no .venv, and its own python3 has torch. GPU_OPTIONS: see python -m benchmarks.gpu_check --help.
gpu-check:
	$(or $(wildcard $(PYTHON)),python3) -m benchmarks.gpu_check $(if $(DRY),--dry --processes 2 --seconds 170) $(GPU_OPTIONS)

test-nightly: $(STAMP)
	$(PYTEST) tests $(foreach folder,$(APART),--ignore=tests/$(folder)) -m nightly
	$(PYTEST) tests/compiled tests/campaign -m nightly
	$(PYTEST) tests/ray -m nightly
	HYPOTHESIS_PROFILE=search $(PYTEST) tests/layers/test_layer_invariance.py tests/models/test_padding.py

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

# The variable silences an advertisement; -q would let broken links pass.
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict

bench: $(STAMP)
	$(VENV)/bin/longform benchmark --preset small --output runs/bench \
	  --records benchmarks/records/speed.jsonl $(BENCH_OPTIONS)
	$(MAKE) tables

bench-memory: $(STAMP)
	$(PYTHON) -m longform_lab.experiments.memory
	$(MAKE) tables

tables: $(STAMP)
	$(PYTHON) -m longform_lab.tables.speed_pictures
	$(PYTHON) -m longform_lab.tables.compare_pictures
	$(PYTHON) -m longform_lab.tables.figure3_pictures
	$(PYTHON) -m longform_lab.tables.frontier_picture
	$(PYTHON) -m longform_lab.tables.write

# What pyproject.toml promises, the lower bounds themselves, and the newest that the registry has, without constraints.txt;
# uv knows how to choose versions so. Each in an environment of its own.
.PHONY: test-oldest test-newest
test-oldest: RESOLUTION := lowest-direct
# Old packages beside newer ones that deprecate what they do; what pyproject.toml says of transformers before 5.14.
test-oldest: override PYTEST_OPTIONS += -W ignore::DeprecationWarning \
  -k 'not (XLMRoberta-multiple-choice or Camembert-multiple-choice)'
test-newest: RESOLUTION := highest
test-oldest test-newest: VERSIONS = $(VENV)-$(@:test-%=%)
test-oldest test-newest:
	$(PYTHON3) -m venv $(VERSIONS)
	$(VERSIONS)/bin/python -m pip install --disable-pip-version-check uv
	$(VERSIONS)/bin/uv pip install --python $(VERSIONS)/bin/python --upgrade --resolution $(RESOLUTION) -e ".[$(TESTED)]"
	$(MAKE) VENV=$(VERSIONS) STAMP= PYTEST_OPTIONS="$(PYTEST_OPTIONS)" test-main

# The paper's tables and figures, measured here: PAPER_OPTIONS="--scale tiny" shows in minutes that all of it runs.
.PHONY: paper
PAPER_OPTIONS ?=
paper: $(STAMP)
	OMP_NUM_THREADS=1 $(VENV)/bin/longform reproduce all --text $(DATA)/wikipedia_long.parquet --data $(DATA) \
	  --output runs/paper $(PAPER_OPTIONS)

# The adapter minilm-16k, trained again: DATA is the folder with the texts that src/longform_lab/experiments/weights.py names.
.PHONY: weights
DATA ?= ../shared/data
weights: $(STAMP)
	OMP_NUM_THREADS=1 $(PYTHON) -m longform_lab.experiments.weights --data $(DATA) --output runs/weights

clean:
	rm -rf $(VENV) $(VENV)-oldest $(VENV)-newest .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist site src/*.egg-info
