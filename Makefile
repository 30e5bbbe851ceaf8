# Every command of the book. Works with GNU make 3.81 (macOS) and later.

# PYTHON=python3.12 chooses. Otherwise python3 where the book supports it, or else the newest Python
# that it does support and finds: on PATH, of pyenv, uv or conda.
PYTHON ?=
EXTRAS ?= book,dev,tpu,torch,taichi,gpu
VENV ?= .venv
PORT ?= 8000
py = $(VENV)/bin/python

# Kernels interpret themselves on the CPU unless a device is asked for: JAX_PLATFORMS=tpu,cpu make test
JAX_PLATFORMS ?= cpu
export JAX_PLATFORMS
# Take the environment's own notebook kernel before one in the home folder.
export JUPYTER_PREFER_ENV_PATH = 1
export PYDEVD_DISABLE_FILE_VALIDATION = 1
export JAX_PPRINT_USE_COLOR = false
# Hundreds of processes import the package: in an image that keeps no bytecode each would compile it.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help venv book first serve quick test test-full coverage test-optimised test-torchax test-xla canary lab dist lint format renumber hooks clean distclean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' Makefile

venv: ## make the environment in .venv (EXTRAS=torchax adds to it)
	@# Any Python since 3.6 runs the installer, which looks for the one to build with.
	@for python in "$(PYTHON)" python3 python python3.13 python3.12 python3.11 python3.14 \
	  "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/*/bin/python3; do \
	  "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 6))' >/dev/null 2>&1 || continue; \
	  exec "$$python" tools/install.py --venv "$(VENV)" --extras "$(EXTRAS)" \
	    $(if $(PYTHON),--python "$(PYTHON)"); \
	done; \
	echo "There is no Python here. Install Python 3.11 to 3.13;" \
	  "on Debian and Ubuntu: apt install python3 python3-venv" >&2; exit 1

book: venv ## run the notebooks that changed and build the book in _build/html
	@"$(py)" tools/build_book.py $(ARGS)

first: ## the first five chapters in JupyterLab, with what they need and no more: 0.9 GB
	@$(MAKE) --no-print-directory lab EXTRAS=first

serve: ## show the built book at http://127.0.0.1:8000/ (PORT=8001 for another)
	@test -f _build/html/index.html || { echo "There is no book yet: make book" >&2; exit 1; }
	@echo "The book is at http://127.0.0.1:$(PORT)/ until Ctrl-C."
	@"$(py)" -m http.server $(PORT) --bind 127.0.0.1 --directory _build/html >/dev/null 2>&1 || \
	  { echo "Port $(PORT) is taken. Another one: make serve PORT=8001" >&2; exit 1; }

quick: venv ## a first look in minutes: no notebook, no browser, one workload and one case each
	@"$(py)" -m pytest tests --tier quick $(ARGS)

test: venv ## run the tests, the notebooks and the checks of the book (ARGS="-k name")
	@"$(py)" -m pytest $(ARGS)

test-full: venv ## run all workloads on all chips
	@"$(py)" -m pytest --tier full $(ARGS)

# Children write their part where they run, hence the whole path.
coverage: export COVERAGE_FILE = $(CURDIR)/_build/coverage/data
coverage: venv ## make test-full, and say which branches of kernels/ it takes
	@mkdir -p _build/coverage
	@"$(py)" -m pytest --tier full --cov $(ARGS)
	@echo "lines and branches of kernels/ taken: $$("$(py)" -m coverage report --format=total) %"

test-optimised: venv ## run every kernel once more, compiled for the CPU as a reader's is
	@TESTS_OPTIMISED=1 "$(py)" -m pytest tests/proof/test_ladder.py -k "interpret and not xla" $(ARGS)

test-torchax: ## run the tests of torchax in a process of their own
	@$(MAKE) --no-print-directory venv EXTRAS=torchax
	@"$(py)" -m pytest -o addopts=-ra tests/torchax $(ARGS)

test-xla: ## run the tests of torch_xla in an environment of their own (.venv-xla, 8 GB)
	@$(MAKE) --no-print-directory venv VENV=.venv-xla EXTRAS=xla
	@PJRT_DEVICE=CPU .venv-xla/bin/python -m pytest -o addopts=-ra --confcutdir=tests/xla tests/xla $(ARGS)

canary: venv ## try the newest releases of JAX and the rest, in an environment of their own (.venv-canary)
	@"$(py)" tools/canary.py $(ARGS)

lab: venv ## open the notebooks in JupyterLab (the built book: /static/html/index.html there)
	@JUPYTER_CONFIG_PATH=tools/jupyter "$(py)" -m jupyter lab --LabApp.default_url=/lab/tree/$(firstword $(sort $(wildcard notebooks/*.ipynb))) \
	  --LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate \
	  --ServerApp.extra_static_paths=_build $(ARGS)

dist: venv ## build the wheel in dist/: pip install it, and the commands work without this folder
	@"$(py)" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

lint: venv ## check style and spelling, notebooks included, and the package's types and layers
	@"$(py)" -m ruff check .
	@"$(py)" -m ruff format --check .
	@"$(py)" -m codespell_lib
	@"$(py)" -m mypy
	@$(VENV)/bin/lint-imports --no-logo

format: venv ## put code and notebooks in form, and paired texts in step
	@# In step before and after: whichever of the two forms was edited last counts.
	@"$(py)" -m jupytext --quiet --sync notebooks/*.ipynb
	@"$(py)" -m ruff check --fix-only .
	@"$(py)" -m ruff format .
	@"$(py)" -m nbstripout --keep-id --extra-keys metadata.language_info notebooks/*.ipynb
	@"$(py)" -m jupytext --quiet --sync notebooks/*.ipynb

renumber: venv ## number the files of the chapters, and links to them, in the order of _toc.yml
	@"$(py)" tools/renumber.py

hooks: venv ## let git check every commit
	@command -v git >/dev/null || { echo "git is missing. Install it;" \
	  "on Debian and Ubuntu: apt install git" >&2; exit 1; }
	@"$(py)" -m pre_commit install

clean: ## remove what was built
	rm -rf _build dist .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis \
	  .jupyter_cache
	find . -name .venv\* -prune -o -name __pycache__ -type d -exec rm -rf {} +

distclean: clean ## remove the environments too
	rm -rf .venv .venv-xla .venv-canary
