# Everything a reader of this repository runs. `make` alone prints the list.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Extra arguments: `make test ARGS="-k gate -x"`, `make lock ARGS=--upgrade`.
ARGS ?=
# Packages that `make bench` measures Saros beside: PEERS="implicit faiss-cpu torch" for all. On Linux torch brings 3 GB.
PEERS ?= implicit faiss-cpu

# The resolver that writes the lock files. It lives in its own environment, so that `make lock` needs no lock.
UV_VERSION := 0.13.7
LOCK_VENV := build/lock-venv
# No line of a lock may name a machine or an index: hashes alone say what is installed.
COMPILE := $(LOCK_VENV)/bin/uv pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest \
	--generate-hashes --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"

# Programs that the tests of deploy/ run: from here, or from the PATH. Where there are none, those tests are skipped.
TOOLS := $(CURDIR)/build/tools
KUSTOMIZE_VERSION := v5.7.1

.DEFAULT_GOAL := help
.PHONY: help install up replay test test-faults test-compose check screenshot fuzz bench proto rules tools lock clean

help: ## Print this list.
	@echo 'Usage: make <target>   (PYTHON=python3.12 picks the interpreter, ARGS=... is passed on)'
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

install: $(STAMP) ## Make .venv with the locked packages and Saros itself. Runs again only when they change.

$(STAMP): requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo 'saros: Python 3.11 or newer is needed, and "$(PYTHON)" is not — try: make install PYTHON=python3.12' >&2; \
		exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2> /dev/null || { \
		echo 'saros: "$(PYTHON)" cannot make environments — on Debian and Ubuntu: apt install python3-venv' >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

up: $(STAMP) ## Run all of it: broker, store, trainer, API, people and a page to watch. ARGS are passed to `saros up`.
	@$(BIN)/saros up $(ARGS)

replay: $(STAMP) ## Learn MovieLens-1M and print how well it ranks, beside the paper. ARGS are passed to `saros replay`.
	$(BIN)/saros data fetch ml-1m
	$(BIN)/saros replay ml-1m $(ARGS)

test: $(STAMP) ## Run all tests, with the examples of README.md. ARGS are passed to pytest.
	$(BIN)/saros warm
	$(BIN)/pytest $(ARGS)

check: $(STAMP) ## Lint, formatting, types, who may import whom, and the examples of README.md.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict
	$(BIN)/lint-imports --no-logo
	$(BIN)/saros warm
	$(BIN)/pytest --quiet README.md

screenshot: $(STAMP) ## Make the pictures of README.md anew, with an installed Chromium.
	$(BIN)/pytest --quiet tests/up -k pleased
	cp build/screenshots/dashboard.png build/screenshots/dashboard-dark.png docs/

fuzz: $(STAMP) ## Feed the decoder made-up bytes for a minute (Linux, x86-64). ARGS=build/fuzz/crash-... runs one again.
	$(BIN)/python -m tests.fuzz.wire --seconds 60 $(ARGS)

test-faults: $(STAMP) ## The long fault runs (tens of minutes). SEED repeats one.
	$(eval SEED ?= $(shell od -An -N3 -tu4 /dev/urandom | tr -d ' '))
	@echo SAROS_TEST_SEED=$(SEED)
	SAROS_TEST_FAULTS=1 SAROS_TEST_SEED=$(SEED) $(BIN)/pytest tests/model tests/trainer $(ARGS)

test-compose: $(STAMP) ## Build the image, run the containers and kill some. Skipped where no Docker engine answers.
	SAROS_TEST_COMPOSE=1 $(BIN)/pytest tests/compose -rs $(ARGS)

bench: $(STAMP) ## Measure core, serving, ingest and trainer beside their PEERS. ARGS are passed to `saros bench core`.
	@mkdir -p build && $(BIN)/pip freeze --exclude-editable > build/installed.txt  # peers must not move what is locked
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint build/installed.txt $(PEERS) || \
		echo 'saros: not all of "$(PEERS)" could be installed; their rows say so' >&2
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/saros bench core $(ARGS)
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m tests.broker $(BIN)/saros bench serve
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.broker $(BIN)/saros bench ingest
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.broker $(BIN)/saros bench train

proto: $(STAMP) ## Write the Python code of proto/ anew. A test fails where it is stale.
	$(BIN)/python -m grpc_tools.protoc --proto_path=proto --python_out=services --pyi_out=services \
		proto/saros/wire/v1/*.proto

rules: ## Write the Prometheus rules anew as Kubernetes has them. A test fails where they are stale.
	@for name in recording alerts; do \
		printf -- '---\napiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: saros-%s\nspec:\n' $$name; \
		sed 's/^\(.\)/  \1/' deploy/prometheus/rules/$$name.yml; \
	done > deploy/kubernetes/components/monitoring/rules.yaml

tools: ## Get promtool and Prometheus (Debian's, unpacked here) and kustomize (by Go) for the tests of deploy/.
	@rm -rf $(TOOLS) && mkdir -p $(TOOLS)
	@apt-get download --print-uris prometheus > /dev/null 2>&1 || apt-get update --quiet --quiet  # no list of packages yet
	cd $(TOOLS) && apt-get download --quiet prometheus && dpkg -x prometheus_*.deb . && ln -s usr/bin/prom* .
	GOBIN=$(TOOLS) go install sigs.k8s.io/kustomize/kustomize/v5@$(KUSTOMIZE_VERSION)

lock: ## Write both lock files anew from pyproject.toml. ARGS=--upgrade takes newer versions.
	@test -x $(LOCK_VENV)/bin/uv || { \
		$(PYTHON) -m venv $(LOCK_VENV) && \
		$(LOCK_VENV)/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION); }
	$(COMPILE) $(ARGS) pyproject.toml --output-file requirements.lock
	$(COMPILE) $(ARGS) pyproject.toml --extra dev --constraint requirements.lock --output-file requirements-dev.lock

clean: ## Remove .venv, caches and build output.
	rm -rf $(VENV) build dist services/*.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find services tests -type d -name __pycache__ -prune -exec rm -rf {} +
