# Every command of the README. Each one sets up its virtual environment first, and can be run again.
PYTHON ?= python3
VENV := .venv
MINUTES ?= 2
DIRECTION ?= de-en
WEBLATE := .venv-weblate
WEBLATE_VERSION := 5.14.3
RUN := $(VENV)/bin/python
INSTALL := $(RUN) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable

.PHONY: demo docs serve test tests test-cuda test-dialects test-weblate test-omegat test-ray check format soak fuzz bench bench-retrieval clean

demo: $(VENV)/.ready  ## adapt to real message catalogs in both directions; translate newer strings without and with the stores
	$(RUN) examples/demo.py

serve: $(VENV)/.ready-serve  ## run the service, with its page, on the stores of make demo: make serve DIRECTION=en-de
	@ls -d .demo/*-$(DIRECTION).store > /dev/null 2>&1 || $(MAKE) demo
	$(RUN) -m knnmt serve --data .demo/service-$(DIRECTION) \
		$$(for store in .demo/*-$(DIRECTION).store; do echo "--store $$(basename $$store .store)=$$store"; done)

test: $(VENV)/.ready-dev  ## lint, formatting, types and all tests that take seconds, in parallel
	$(MAKE) --jobs 2 check tests

tests: $(VENV)/.ready-dev  ## only the tests, two at a time with one thread each
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(RUN) -m pytest -n 2 --dist worksteal

test-cuda: $(VENV)/.ready-dev  ## all tests that need a GPU; if everything is installed already: python -m pytest -m cuda
	$(RUN) -m pytest -m cuda

test-ray: $(VENV)/.ready-ray  ## building and searching on a Ray cluster of local processes
	OMP_NUM_THREADS=1 $(RUN) -m pytest -m ray

test-dialects: test-weblate test-omegat  ## other people's programs against a running service

test-weblate: $(VENV)/.ready-serve $(WEBLATE)/.ready-$(WEBLATE_VERSION)  ## Weblate's own connectors
	KNNMT_PYTHON=$(RUN) $(WEBLATE)/bin/python tests/weblate_connectors.py

test-omegat: $(VENV)/.ready-serve  ## OmegaT 3.6 on a display that nobody sees; says what to install if it is missing
	$(RUN) tests/omegat_connector.py

check: $(VENV)/.ready-dev
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check
	$(RUN) -m mypy

format: $(VENV)/.ready-dev  ## format the code
	$(RUN) -m ruff check --fix
	$(RUN) -m ruff format

docs: $(VENV)/.ready-docs  ## make the documentation site in .site, with references from the code, and check links
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=. $(RUN) -m mkdocs build

soak: $(VENV)/.ready-dev  ## the long and heavy checks
	$(RUN) -m pytest -m soak
	$(RUN) -m pytest -m hypothesis --hypothesis-profile thorough

fuzz: $(VENV)/.ready-dev  ## random crafted stores, memories and documents: make fuzz MINUTES=10
	$(RUN) tests/fuzz.py --minutes $(MINUTES)

bench: $(VENV)/.ready-lab  ## decoding and building speed beside transformers, CTranslate2 and the bare model
	$(RUN) benchmarks/decoding.py
	$(RUN) benchmarks/building.py

bench-retrieval: $(VENV)/.ready-lab  ## kNN-MT: every kind of index; speed and quality of every combination, with a report
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
	KNNMT_BUILDS=all $(INSTALL) ".[dev]"
	@touch $@

$(VENV)/.ready-ray: $(VENV)/.ready-dev
	$(INSTALL) ".[ray]"
	@touch $@

$(VENV)/.ready-docs: $(VENV)/.ready
	$(INSTALL) ".[docs]"
	@touch $@

$(VENV)/.ready-lab: $(VENV)/.ready
	$(INSTALL) ".[lab]"
	@touch $@

# Leaves out packages that need system libraries (backups, fonts, screenshots): connectors do not use them.
$(WEBLATE)/.ready-$(WEBLATE_VERSION):
	@echo "Setting up $(WEBLATE) with Weblate $(WEBLATE_VERSION), half a gigabyte; the first time takes minutes."
	$(PYTHON) -m venv $(WEBLATE)
	$(WEBLATE)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps weblate==$(WEBLATE_VERSION)
	$(WEBLATE)/bin/python -c 'from importlib.metadata import requires; without = "borgbackup", "pycairo", "pygobject", "tesserocr"; \
		print(*(each for each in requires("weblate") if "extra ==" not in each and not each.lower().startswith(without)), sep="\n")' > $(WEBLATE)/needed.txt
	$(WEBLATE)/bin/python -m pip install --quiet --disable-pip-version-check --prefer-binary --requirement $(WEBLATE)/needed.txt
	@touch $@
