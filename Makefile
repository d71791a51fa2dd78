# Everything a user or a contributor does. `make` alone lists it.
#   make run [HOST=0.0.0.0] [PORT=8080] [ARGS="--tls auto"] [PULL=0]
#   make test [ARGS="-k jitter"] [JOBS=4]
# VENV= and PYTHON= choose where things are installed and with which interpreter.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV ?= .venv
PYTHON ?=
HOST ?=
PORT ?=
PULL ?= 1
ARGS ?=

bin := $(VENV)/bin
install := VENV='$(VENV)' PYTHON='$(PYTHON)'
tests := VENV='$(VENV)' scripts/test.sh
# Set for `run` alone: the installation first looks whether this server's port is free.
next :=
serve := $(if $(HOST),--host '$(HOST)') $(if $(PORT),--port '$(PORT)') $(ARGS)

.PHONY: help install install-dev run check unit test test-real soak bench lock release clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

install: ## Install the server into $(VENV); instant when nothing changed
	@$(install) EXTRAS='$(EXTRAS)' scripts/install.sh $(next)

install-dev: ## The same with what tests and checks need
	@$(install) EXTRAS='$(EXTRAS),dev' scripts/install.sh

run: next := serve $(serve)
run: install ## Install, fetch a Whisper if one can be had (PULL=0 skips), start the server
	@if [[ '$(PULL)' != 0 ]]; then $(bin)/earshot models pull auto --best-effort; fi
	@exec $(bin)/earshot serve $(serve)

check: install-dev ## Lint, format, types, layers, sizes, documents, scripts, the page's JavaScript, Dockerfile
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/mypy
	$(bin)/lint-imports
	$(bin)/shellcheck scripts/*.sh deploy/*/*.sh .ci/run
	$(bin)/hadolint Dockerfile
	scripts/check_page.sh
	$(bin)/python -m pytest tests/repo/test_size.py tests/repo/test_docs.py

unit: install-dev ## The fast tests; fails when they take more than 10 s of processor time
	$(bin)/python -m pytest -n 0 -m unit $(ARGS)

test: install-dev ## Every test but the slow ones; a missing Chromium skips the page's tests
	@$(tests) 'not real and not soak' $(ARGS)

test-real: install-dev ## Tests with real models, a real installation, a real browser for minutes
	@$(tests) real $(ARGS)

soak: install-dev ## Ten minutes of sessions, a million inputs for every decoder: nothing may grow or break
	$(bin)/python -m pytest -m soak $(ARGS)

bench: install-dev ## Measure latency, accuracy and memory on this machine
	$(bin)/python -m bench $(ARGS)

lock: ## Write requirements.lock anew after a change of pyproject.toml; ARGS=--upgrade for newer releases
	@PYTHON='$(PYTHON)' scripts/lock.sh $(ARGS)

release: ## Build the wheel, and the list of what it runs with (CycloneDX), into dist/
	@PYTHON='$(PYTHON)' scripts/release.sh $(ARGS)

clean: ## Remove the environment, caches and builds; keep models and data
	rm -rf build dist scripts/javascript/node_modules ./*.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
	@if [[ -f '$(VENV)/.earshot-installed' ]]; then rm -rf '$(VENV)'; fi
