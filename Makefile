# `make check` is exactly what CI runs.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
WHEEL_VENV := build/wheel-venv
GATEWAY_VENV := build/gateway-venv
WORKERS ?= 2
RAW ?= ../shared/data
# These mostly wait for servers; those with the mark `timed` also assert how long something took.
WAITING := $(wildcard tests/integration/test_gateway*.py) tests/integration/test_reported_latency.py \
  tests/integration/test_picker_protocol.py tests/integration/test_measured_loop.py tests/integration/test_fp8_scan_rate.py \
  tests/unit/bench/test_bench.py tests/unit/emulator/test_endpoints.py tests/unit/emulator/test_sleep_mode.py \
  tests/unit/own_runs/test_observed_runs.py
CORE := tests/unit tests/property tests/golden tests/reference
CONTRACT := tests/contract
CONTRACT_HTTP := $(wildcard tests/contract/test_http*.py)
SKIPPED ?=
CHANGED ?=
BY_FILE := --dist loadscope --no-loadscope-reorder
REPEATED := build/repeated.txt
ACCEPT ?=
PLANS := tests/unit/planning/test_examples.py
WHEEL_TESTS := $(shell grep -rl --include='*.py' 'pytest.mark.wheel' tests)
# The workers fill the cores; further threads of linear algebra only wait for each other.
export OPENBLAS_NUM_THREADS ?= 1

.PHONY: nightly refits faults test-computing test-waiting exports help check format lint types imports machine-code test core plans thorough wheel wheel-venv gateway-venv wheel-test contract packages pythons docs docs-check accuracy calibration disaggregation power drafts routing overload measurements tables ledger constraints fuzz fuzz-gateway fuzz-module soak bench-fleet live-overload bench bench-gateway optima engine parsers clean capacities confidence replays seeds walk site notebooks shared-devices flip plan-times

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "%-14s %s\n", $$1, $$2}'

check: $(VENV)/.installed ## everything CI runs
	$(MAKE) -j 3 -O machine-code types lint imports wheel-venv gateway-venv docs-check
	$(MAKE) -o wheel-venv -o gateway-venv contract agree-short
	$(MAKE) test SKIPPED='-m "not wheel"' CHANGED=--per-commit
	$(MAKE) wheel-test
	@test ! -s $(REPEATED) || { echo "repeated: $$(grep -c :: $(REPEATED)) tests, which failed beside other work and passed alone"; cat $(REPEATED); }

nightly: $(VENV)/.installed ## what commits leave to the night: every plan and flip, refits, property tests and fuzzing at full length, planted mistakes, agreement of doors
	$(MAKE) thorough
	$(MAKE) refits
	$(MAKE) faults
	$(MAKE) agree

$(VENV)/.installed: constraints/dev.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes --requirement constraints/dev.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

format: $(VENV)/.installed ## rewrite the code in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: $(VENV)/.installed ## format and lint, changing nothing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.installed ## mypy, strict, tests included
	$(BIN)/mypy

imports: $(VENV)/.installed ## the layer contract
	$(BIN)/lint-imports

machine-code: $(VENV)/.installed ## build the libraries of the wheel, unless those that are there have the stamp of the sources (a minute)
	$(BIN)/python tools/build_machine_code.py --portable

test: machine-code ## unit, property, golden and integration tests (CHANGED=--per-commit: as for a commit)
	$(MAKE) -j 2 -O test-computing test-waiting
	# Alone: they measure time, which other work stretches. So does what failed beside other work: it is repeated once.
	$(BIN)/pytest -n 0 -m timed $(WAITING) || touch build/failed-once
	test ! -e build/failed-once || { mkdir -p $(dir $(REPEATED)); \
	  $(BIN)/pytest -n 0 -q --co --last-failed --last-failed-no-failures none $(WAITING) | grep :: > $(REPEATED); \
	  $(BIN)/pytest -n 0 --last-failed --last-failed-no-failures none $(WAITING); }

# Servers and their clients go first where both want a core.
test-computing:
	nice -n 10 $(BIN)/pytest -n $(WORKERS) $(BY_FILE) $(CHANGED) -o cache_dir=.pytest_cache/computing --ignore $(CONTRACT) $(WAITING:%=--ignore %) $(SKIPPED)

test-waiting:
	mkdir -p build && rm -f build/failed-once $(REPEATED)
	$(BIN)/pytest -n $(WORKERS) $(BY_FILE) --cache-clear -m "not timed" $(WAITING) || touch build/failed-once

core: machine-code ## unit, property and golden tests without the shipped plans
	$(BIN)/pytest -n $(WORKERS) $(BY_FILE) $(CORE) --ignore $(PLANS)

plans: machine-code ## the shipped plans alone, with every flip (eight minutes)
	PENSTOCK_THOROUGH=1 $(BIN)/pytest -n $(WORKERS) $(BY_FILE) $(PLANS)

refits: machine-code ## what follows from data and code alone, whether they changed or not; writes tests/refits.toml (six minutes)
	$(BIN)/pytest -n $(WORKERS) $(BY_FILE) -m refit --record-refits

faults: machine-code ## are 41 planted mistakes seen? (a quarter of an hour; FAULTS="tco-cooling retry-after" for some)
	$(BIN)/python tools/check_faults.py --jobs $(WORKERS) $(FAULTS)

thorough: machine-code ## core and plans with every flip, property tests and fuzzing at full length
	PENSTOCK_THOROUGH=1 $(BIN)/pytest -n $(WORKERS) $(BY_FILE) -m "not refit" $(CORE) tests/integration/test_notebooks.py

wheel: machine-code ## build the wheel of this platform into dist/
	rm -rf dist
	$(BIN)/python -m build --wheel --no-isolation --skip-dependency-check --outdir dist .

packages: machine-code ## add to dist/ what a release publishes: wheels with libraries, one without for other platforms, and the sdist
	for platform in linux-x86_64 linux-aarch64 any; do \
	  PENSTOCK_WHEEL=$$platform $(BIN)/python -m build --wheel --no-isolation --skip-dependency-check --outdir dist .; \
	done
	$(BIN)/python -m build --sdist --no-isolation --skip-dependency-check --outdir dist .

wheel-venv: wheel ## install the wheel in a clean environment
	rm -rf $(WHEEL_VENV)
	$(PYTHON) -m venv $(WHEEL_VENV)
	$(WHEEL_VENV)/bin/python -m pip install --quiet --require-hashes --requirement constraints/base.txt
	$(WHEEL_VENV)/bin/python -m pip install --quiet --no-deps dist/*.whl

gateway-venv: wheel ## install the wheel with its gateway extra in another environment: tests of the first one want the extra absent
	rm -rf $(GATEWAY_VENV)
	$(PYTHON) -m venv $(GATEWAY_VENV)
	$(GATEWAY_VENV)/bin/python -m pip install --quiet --require-hashes --requirement constraints/gateway.txt
	$(GATEWAY_VENV)/bin/python -m pip install --quiet --no-deps dist/*.whl

pythons: wheel ## install the wheel in an empty environment for every Python found, and run every command (two minutes per Python)
	$(BIN)/python tools/check_pythons.py dist/*.whl

wheel-test: ## run the command-line tests against the wheel that `make wheel-venv` installed
	cd build && PENSTOCK_COMMAND=$(abspath $(WHEEL_VENV))/bin/penstock $(abspath $(BIN))/pytest -m wheel -n $(WORKERS) --rootdir .. $(WHEEL_TESTS:%=../%)
	$(BIN)/python tools/walk_tutorials.py --bin $(WHEEL_VENV)/bin --cheap --check

contract: wheel-venv gateway-venv ## ask the installed wheel what tests/contract has recorded, and compare every number (ACCEPT=--accept records anew)
	PENSTOCK_COMMAND=$(abspath $(WHEEL_VENV))/bin/penstock $(BIN)/pytest -n $(WORKERS) $(CONTRACT_HTTP:%=--ignore %) $(CONTRACT) $(ACCEPT)
	# Tests of a file share running gateways.
	PENSTOCK_COMMAND=$(abspath $(GATEWAY_VENV))/bin/penstock $(BIN)/pytest -n $(WORKERS) --dist loadfile $(CONTRACT_HTTP)

docs: $(VENV)/.installed ## regenerate reference pages, schemas and tables of KV caches
	$(BIN)/python tools/build_docs.py

docs-check: machine-code ## fail when generated docs are out of date
	$(BIN)/python tools/build_docs.py --check

walk: wheel-venv ## run every command of the tutorials with the wheel, from an empty directory, and write their output
	$(BIN)/python tools/walk_tutorials.py --bin $(WHEEL_VENV)/bin --write

site: $(VENV)/.installed build/site-venv/.installed ## build the documentation as a site into build/site/html, and check its links
	PYTHONPATH=tools $(BIN)/python tools/build_site.py $(abspath build/site-venv)/bin/zensical
	$(BIN)/pytest -n 0 -q tests/integration/test_readable_pages.py

build/site-venv/.installed: constraints/site.txt
	$(PYTHON) -m venv build/site-venv
	build/site-venv/bin/python -m pip install --quiet --require-hashes --requirement constraints/site.txt
	touch $@

notebooks: $(VENV)/.installed ## run the notebooks of examples/ and store what they show (a minute)
	$(BIN)/python tools/run_notebooks.py

flip: $(VENV)/.installed ## predict the grid of docs/flip/index.html again (a quarter of an hour; goes on where it was stopped)
	$(BIN)/python tools/build_flip.py

accuracy: $(VENV)/.installed ## recompute tools/results/accuracy-*.csv and a chart (ten minutes)
	$(BIN)/python tools/build_accuracy.py

calibration: $(VENV)/.installed ## learn from the shipped measurements again and hold out (fifteen minutes; SPREADS=--spreads fits those too)
	$(BIN)/python tools/build_calibration.py $(SPREADS)

power: $(VENV)/.installed ## fit what devices draw to the shipped joules again, and print its error (half a minute)
	$(BIN)/python tools/build_power.py

drafts: $(VENV)/.installed ## fit what is accepted of drafts again, after a calibration, and print its error (a minute)
	$(BIN)/python tools/build_drafts.py

disaggregation: $(VENV)/.installed ## fit engines that only prefill or only decode, and keep its errors (two minutes)
	$(BIN)/python tools/build_disaggregation.py

measurements: $(VENV)/.installed ## build the shipped measurements and tools/results/data-*.csv from the raw files in RAW
	$(BIN)/python tools/build_measurements.py --raw $(RAW)

tables: $(VENV)/.installed ## copy the TOML tables of preflight into JSON, which loads fast
	$(BIN)/python tools/build_tables.py

ledger: $(VENV)/.installed ## record new prices in the append-only ledger
	$(BIN)/python tools/price_ledger.py

engine: $(VENV)/.installed ## tests against a real vLLM on the CPU (build/vllm, 3.5 GB; ten minutes)
	tools/install_vllm.sh build/vllm
	PENSTOCK_VLLM=$(abspath build/vllm)/bin/python $(BIN)/pytest -m engine tests/engine

PARSED ?= vllm==0.33.0 vllm==0.32.0 sglang==0.5.23
parsers: $(VENV)/.installed ## ask the engines' own parsers what packs say of their releases (a minute per release; PARSED="vllm==0.33.0 ...")
	test -x build/vllm/bin/vllm || tools/install_vllm.sh build/vllm
	$(BIN)/python tools/check_parsers.py --python build/vllm/bin/python $(PARSED)

optima: $(VENV)/.installed ## is the cheapest fleet ever missed? 300 demands of the scorecard (half a minute)
	$(BIN)/python tools/check_optima.py --step 5

capacities: $(VENV)/.installed ## do `plan` and `simulate --capacity` give the same rates? 20 deployments (two minutes)
	$(BIN)/python tools/check_capacities.py

plan-times: $(VENV)/.installed ## processor time of plans by phase, with an empty and with a warm memory (two minutes; TIMED="plan.yaml ...")
	$(BIN)/python tools/time_plan.py $(TIMED)

shared-devices: $(VENV)/.installed ## 50 models with Zipf popularity over a day: dedicated, swapped or shared devices (two minutes)
	$(BIN)/python tools/compare_shared_devices.py

confidence: $(VENV)/.installed ## are planned fleets enough as often as planned? 8 plans, 150 simulated worlds each (ten minutes)
	$(BIN)/python tools/check_confidence.py

replays: $(VENV)/.installed ## do other seeds cost the same, and do planned fleets keep their SLOs and launch? 30 random plans (ten minutes; PART=examples for the shipped ones)
	$(BIN)/python tools/check_replays.py $(PART)

seeds: $(VENV)/.installed ## do ten plans cost the same with the seeds 0 to 9? (five minutes)
	$(BIN)/python tools/check_replays.py seeds

bench: $(VENV)/.installed ## requests a second through the simulator, ten thousand to ten million (two minutes)
	$(BIN)/python tools/bench_simulator.py --most 10000000

routing: $(VENV)/.installed ## run the experiments of tools/results/routing-*.csv again and write its tables (an hour; needs the traces)
	$(BIN)/python tools/bench_routing.py highest wrong robust flatness speed elasticity --tables

overload: $(VENV)/.installed ## compare policies from 50% to 150% of capacity and write the tables of tools/results/overload-*.csv (three minutes on a quiet machine; needs the traces)
	PYTHONPATH=tools $(BIN)/python tools/bench_overload.py

exports: $(VENV)/.installed ## formulas of other routers with defaults and with exported constants: tables of tools/results/exports-*.csv (ten minutes; needs the traces)
	$(BIN)/python tools/bench_exports.py

bench-gateway: $(VENV)/.installed ## the gateway next to bare Envoy, in turns (ten minutes; needs gcc and ../shared/tools)
	$(BIN)/python tools/bench_gateway.py

fuzz: $(VENV)/.installed ## the long fuzz: a million hostile configs and headers
	PENSTOCK_FUZZ_CASES=1000000 $(BIN)/pytest tests/property/test_hostile_input.py -q

fuzz-module: $(VENV)/.installed ## the long fuzz of the module inside Envoy: 900,000 bodies cut at every boundary under AddressSanitizer, 100,000 in four threads under ThreadSanitizer, 10,000 decisions by module, simulator and source
	PENSTOCK_MODULE_SCANS=900000 PENSTOCK_MODULE_THREADED=100000 PENSTOCK_MODULE_BODIES=100000 PENSTOCK_MODULE_DECISIONS=10000 $(BIN)/pytest -n 0 tests/unit/gateway/test_inside_envoy.py -q

fuzz-gateway: $(VENV)/.installed ## the long fuzz of the gateway: 100,000 requests through both protocols, 100,000 metrics pages (half an hour)
	PENSTOCK_FUZZ_CASES=50000 $(BIN)/pytest -n 0 tests/integration/test_gateway_fuzz.py -q
	PENSTOCK_FUZZ_CASES=100000 $(BIN)/pytest -n 0 tests/unit/gateway/test_hostile_pages.py -q

soak: $(VENV)/.installed ## half an hour of mixed load, faults and reloads: memory and files of the gateway must stay flat
	$(BIN)/python tools/soak_gateway.py --minutes 30

bench-fleet: $(VENV)/.installed ## slices of public traces through a real Envoy, compared with the simulator, by policy (needs a quiet machine and the traces)
	$(BIN)/python tools/bench_fleet.py --tables

live-overload: $(VENV)/.installed ## overload through a real Envoy, compared with the simulator, at 130% of capacity (25 minutes; needs a quiet machine)
	$(BIN)/python tools/check_live_overload.py --requests 700

constraints: $(VENV)/.installed ## pin versions and hashes again
	for target in base gateway dev; do \
	  $(BIN)/pip-compile --quiet --upgrade --generate-hashes --strip-extras --allow-unsafe \
	    --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-header --no-annotate \
	    $$( [ $$target = gateway ] && echo "--extra gateway" ) \
	    $$( [ $$target = dev ] && echo "--all-extras constraints/dev.in" ) \
	    --output-file constraints/$$target.txt pyproject.toml; \
	done
	$(BIN)/pip-compile --quiet --upgrade --generate-hashes --strip-extras --allow-unsafe --no-emit-index-url --no-emit-trusted-host \
	  --no-emit-find-links --no-header --no-annotate --output-file constraints/site.txt constraints/site.in

clean: ## remove everything generated
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

.PHONY: agree agree-short
agree: machine-code ## ask one question through every door, and count disagreements by kind (15 minutes; KEEP=--accept-fall writes lower counts)
	PYTHONPATH=tests:$(PYTHONPATH) $(BIN)/python -m agree $(KEEP)

agree-short: machine-code ## the short bench of disagreements that CI runs (90 s of processor time)
	PENSTOCK_AGREE=build/agree-short PYTHONPATH=tests:$(PYTHONPATH) $(BIN)/python -m agree --short $(KEEP)

.PHONY: guide-check
guide-check: machine-code ## cells and crossings of a guide against their plans (12 cells: 15 minutes)
	$(BIN)/python tools/check_guide.py llama-3.1-70b --cells $(or $(CELLS),12) --crossings $(or $(CROSSINGS),4)

.PHONY: guide-routes
guide-routes: machine-code ## routes of a guide against one vendor for everything, on a mixed trace (five minutes the first time)
	$(BIN)/python tools/compare_routes.py llama-3.1-8b --loads 0.25,1,4,16,64

.PHONY: guide-world
guide-world: machine-code ## winners of the guide against winners of public measurements at the same prices (CELLS=20: five minutes)
	$(BIN)/python tools/check_guide_world.py --cells $(or $(CELLS),20)
