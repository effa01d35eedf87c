# Each target works alone on a fresh clone: the virtual environment is made on first use.
# Variables: make reproduce PROFILE=laptop JOBS=4; make test PYTHON=python3.12; make install TORCH=cpu
PYTHON ?= python3
PROFILE ?= smoke
JOBS ?= 2
TORCH ?= cuda
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
# Or torch's threads wait busily where a notebook imports torch before fssl_core.
export OMP_WAIT_POLICY ?= PASSIVE

BIN := .venv/bin
INSTALLED := .venv/.installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements.lock
NO_INDEX := "No PyTorch without CUDA came from $(TORCH_INDEX). Take a mirror: make install TORCH=cpu TORCH_INDEX=ADDRESS; docs/install.md has other ways."

ifeq ($(filter $(TORCH),cpu cuda),)
$(error TORCH=$(TORCH) cannot be used: cpu (without CUDA) or cuda (the build of PyPI, the default))
endif
ifneq ($(and $(filter cpu,$(TORCH)),$(wildcard .venv/lib/python*/site-packages/nvidia)),)
$(error .venv has CUDA installed: delete it (rm -rf .venv), then TORCH=cpu installs without)
endif

.DEFAULT_GOAL := help
.PHONY: help install reproduce test lab site lock

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /make \1\t/p' $(MAKEFILE_LIST) | expand -t 16
	@echo 'with PROFILE=$(PROFILE) JOBS=$(JOBS) PYTHON=$(PYTHON), and TORCH=cpu for a small installation without CUDA'

install: $(INSTALLED) ## make .venv with the tested versions; TORCH=cpu leaves CUDA out: 2.1 GB instead of 6.5

reproduce: $(INSTALLED) ## run every notebook at PROFILE (smoke) and print the table of results
	$(BIN)/fssl reproduce --profile $(PROFILE) --jobs $(JOBS)

test: $(INSTALLED) ## ruff, all tests, and every notebook against its stored outputs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --nbval-lax --nbval-current-env \
		--nbval-kernel-startup-timeout 300 tests notebooks

# The project is the server's root: from notebooks/ the pictures in figures/ would be out of its reach. Jupyter does not
# start as root, the only user of many containers, unless told to; then nobody but this machine may reach it.
ifeq ($(shell id -u),0)
AS_ROOT := --allow-root --ServerApp.ip=localhost
endif

lab: $(INSTALLED) ## open the notebooks in JupyterLab
ifdef AS_ROOT
	@echo "You are root, and so are the notebooks: JupyterLab listens on localhost only and asks for its token."
endif
	$(BIN)/jupyter lab --ServerApp.root_dir="$(CURDIR)" --LabApp.default_url=/lab/tree/notebooks/index.ipynb \
	    --FileContentsManager.pre_save_hook=fssl_core.jupyter.keep_metadata $(AS_ROOT)

site: $(INSTALLED) ## build the book of notebooks, claims and documentation: build/site/index.html, to open in a browser
	$(BIN)/python docs/site/build.py --jobs $(JOBS)

lock: $(INSTALLED) ## write the versions installed in .venv to requirements.lock
	@! $(BIN)/python -m pip show torch | grep -F +cpu || { echo 'requirements.lock is of the build of PyPI: delete .venv and run make lock without TORCH=cpu' >&2; exit 1; }
	@echo "# The exact versions tested, as constraints for pip. Written by \`make lock\`." > requirements.lock
	$(BIN)/python -m pip freeze --all --exclude-editable --exclude pip >> requirements.lock
	@touch $(INSTALLED)

$(INSTALLED): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.version_info < (3, 11) and sys.exit("fssl-core needs Python 3.11 or newer; $(PYTHON) is " + sys.version.split()[0] + ". Name another: make PYTHON=python3.12")'
	@echo "Installing into .venv; PyTorch is large, so this takes a few minutes the first time."
	$(PYTHON) -m venv .venv
ifeq ($(TORCH),cpu)
	$(PIP) --no-deps --index-url $(TORCH_INDEX) torch torchvision || { echo $(NO_INDEX) >&2; exit 1; }
	@! $(BIN)/python -m pip show torch | grep -E '^Requires:.*(cuda|nvidia)' >&2 || { echo $(NO_INDEX) >&2; rm -rf .venv; exit 1; }
endif
	$(PIP) -e '.[notebooks,test]'
	@touch $@
