# Every command of the README. Each does its own set-up, in a virtual environment of its own, and can be run again.
PYTHON ?= python3
VENV := .venv
MINUTES ?= 2
WEBLATE := .venv-weblate
WEBLATE_VERSION := 5.14.3
RUN := $(VENV)/bin/python
INSTALL := $(RUN) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable

.PHONY: demo docs serve test tests test-cuda test-dialects test-ray check format soak fuzz bench bench-retrieval clean

demo: $(VENV)/.ready  ## adapt to real message catalogs; translate strings held out without and with the store
	$(RUN) examples/demo.py

serve: $(VENV)/.ready-serve  ## the service, with its page, on the store that make demo makes
	@ls -d .demo/*.store > /dev/null 2>&1 || $(MAKE) demo
	$(RUN) -m knnmt serve --data .demo/service $$(for store in .demo/*.store; do echo "--store $$(basename $$store .store)=$$store"; done)

test: $(VENV)/.ready-dev  ## lint, formatting, types and all tests that take seconds, side by side
	$(MAKE) --jobs 2 check tests

tests: $(VENV)/.ready-dev  ## the tests alone, two at a time with a thread each
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(RUN) -m pytest -n 2 --dist worksteal

test-cuda: $(VENV)/.ready-dev  ## all that needs a GPU; where everything is installed already: python -m pytest -m cuda
	$(RUN) -m pytest -m cuda

test-ray: $(VENV)/.ready-ray  ## building and searching on a cluster of Ray, made of processes of this machine
	OMP_NUM_THREADS=1 $(RUN) -m pytest -m ray

test-dialects: $(VENV)/.ready-serve $(WEBLATE)/.ready-$(WEBLATE_VERSION)  ## Weblate's own connectors against a running service
	KNNMT_PYTHON=$(RUN) $(WEBLATE)/bin/python tests/weblate_connectors.py

check: $(VENV)/.ready-dev
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check
	$(RUN) -m mypy

format: $(VENV)/.ready-dev  ## put the code into the house format
	$(RUN) -m ruff check --fix
	$(RUN) -m ruff format

docs: $(VENV)/.ready-docs  ## a site of the documentation in .site, with references made from the code; links are checked
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=. $(RUN) -m mkdocs build

soak: $(VENV)/.ready-dev  ## the long and heavy checks
	$(RUN) -m pytest -m soak
	$(RUN) -m pytest -m hypothesis --hypothesis-profile thorough

fuzz: $(VENV)/.ready-dev  ## crafted stores, memories and documents, made by chance: make fuzz MINUTES=10
	$(RUN) tests/fuzz.py --minutes $(MINUTES)

bench: $(VENV)/.ready-bench  ## decoding and building speed beside transformers, CTranslate2 and the bare model
	$(RUN) benchmarks/decoding.py
	$(RUN) benchmarks/building.py

bench-retrieval: $(VENV)/.ready-bench  ## kNN-MT: every kind of index; speed and quality of every combination, with a report
	$(RUN) benchmarks/stores.py .bench
	$(RUN) benchmarks/search.py .bench/full
	$(RUN) -m knnmt reproduce --data $${KNNMT_DATA:-../shared}/data -o .bench/reproduced --domains it --train-pairs 75000 \
		--sentences 200 --brief

clean:
	rm -rf $(VENV) $(WEBLATE) .bench .demo .fuzz .site .mypy_cache .pytest_cache .ruff_cache dist

$(VENV)/.ready: pyproject.toml constraints.txt hatch_build.py $(wildcard src/knnmt/native/*.[ch]*)
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("knnmt needs Python 3.11 or newer; name one: make PYTHON=python3.12")'
	@echo "Setting up $(VENV); the first time takes a minute or two."
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) ".[evaluate,faiss]"
	@touch $@

$(VENV)/.ready-serve: $(VENV)/.ready
	$(INSTALL) ".[documents,serve]"
	@touch $@

$(VENV)/.ready-dev: $(VENV)/.ready
	$(INSTALL) ".[dev]"
	@touch $@

$(VENV)/.ready-ray: $(VENV)/.ready-dev
	$(INSTALL) ".[ray]"
	@touch $@

$(VENV)/.ready-docs: $(VENV)/.ready
	$(INSTALL) ".[docs]"
	@touch $@

$(VENV)/.ready-bench: $(VENV)/.ready
	$(INSTALL) ".[bench]"
	@touch $@

# Without what needs libraries of the system (backups, fonts, screenshots), which connectors do not use.
$(WEBLATE)/.ready-$(WEBLATE_VERSION):
	@echo "Setting up $(WEBLATE) with Weblate $(WEBLATE_VERSION), half a gigabyte; the first time takes minutes."
	$(PYTHON) -m venv $(WEBLATE)
	$(WEBLATE)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps weblate==$(WEBLATE_VERSION)
	$(WEBLATE)/bin/python -c 'from importlib.metadata import requires; without = "borgbackup", "pycairo", "pygobject", "tesserocr"; \
		print(*(each for each in requires("weblate") if "extra ==" not in each and not each.lower().startswith(without)), sep="\n")' > $(WEBLATE)/needed.txt
	$(WEBLATE)/bin/python -m pip install --quiet --disable-pip-version-check --prefer-binary --requirement $(WEBLATE)/needed.txt
	@touch $@
