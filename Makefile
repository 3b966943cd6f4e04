# Thin calls of dlbench; every target makes what it needs. Set DLBENCH_DATA, DLBENCH_ENVS in the environment or on make's line.

DLBENCH = .venv/bin/dlbench
PYTHON = .venv/bin/python
GPUS := $(shell nvidia-smi -L 2>/dev/null | grep -c '^GPU')
SUITE ?= $(if $(filter-out 0,$(GPUS)),configs/gpu.yaml $(if $(filter-out 1,$(GPUS)),configs/scaling.yaml),configs/smoke.yaml)
CAMPAIGNS ?= $(patsubst %/campaign.json,%,$(wildcard results/*/campaign.json))
FRAMEWORKS ?= pytorch tensorflow
PYTEST_ARGUMENTS ?=
JOBS ?= $(shell cores=$$(nproc); echo $$((cores < 4 ? cores + 1 : 4)))

# Compiled files make each of hundreds of workers start sooner.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup dev bench compare verify report publish docs check test test-slow test-all clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 10

setup:  ## make .venv with the dlbench command in it; nothing to do while pyproject.toml stays as it is
	@scripts/setup

dev:  ## setup, and the tools for tests, checks and docs
	@scripts/setup dev

bench: setup  ## measure SUITE (a small one without a GPU; with several GPUs scaling too) and print its report
	status=0; for suite in $(SUITE); do $(DLBENCH) run $$suite || status=$$?; done; exit $$status

compare: setup  ## compare two releases, OLD=jax==0.9.2 NEW=jax==0.10.2, on configs/compare.yaml or SUITE=...
	$(DLBENCH) compare $(or $(OLD),$(error name two releases: make compare OLD=jax==0.9.2 NEW=jax==0.10.2)) \
		$(or $(NEW),$(error name two releases: make compare OLD=jax==0.9.2 NEW=jax==0.10.2)) \
		$(if $(filter command line environment,$(origin SUITE)),--suite $(SUITE))

verify: setup  ## prove that every framework trains the same networks
	$(DLBENCH) verify

report: setup  ## make tables, plots and a page from CAMPAIGNS (default: all under results/)
	$(DLBENCH) report $(or $(CAMPAIGNS),$(error no campaign under results/; run `make bench` first))

publish: dev  ## audit everything under results/, write the site to site/ and the docs to site/docs
	$(DLBENCH) publish
	$(MAKE) docs

docs: dev  ## build the documentation into site/docs; lost links and pages are errors
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict --quiet

check: dev  ## lint, types, import borders and documentation
	$(PYTHON) -m ruff check .
	$(PYTHON) -m mypy
	$(PYTHON) -m pytest -q tests/test_borders.py tests/test_docs.py tests/test_prose.py tests/harness/cli/test_method_page.py
	$(MAKE) docs

test: dev  ## make the environments of FRAMEWORKS where absent, then run all but the slow tests; those of other frameworks skip
	$(DLBENCH) env build $(FRAMEWORKS) --device cpu
	$(PYTHON) -m pytest -n $(JOBS) -m "not slow" $(PYTEST_ARGUMENTS)

test-slow: dev  ## run the tests that `make test` leaves out
	$(DLBENCH) env build $(FRAMEWORKS) --device cpu
	$(PYTHON) -m pytest -n $(JOBS) -m slow $(PYTEST_ARGUMENTS)

test-all: test test-slow  ## run all tests

clean:  ## remove .venv and caches; environments and results stay
	rm -rf .venv .pytest_cache .ruff_cache .mypy_cache *.egg-info
