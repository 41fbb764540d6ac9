# make demo · make test · make docs · make lint · make bench · make real · make fuzz · make browser · make tables · make lock
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EXTRAS := flower,elmo,lora,bioc,spacy,privacy,secure,tensorboard,web,dev
export HF_HUB_OFFLINE ?= 1
export TOKENIZERS_PARALLELISM ?= false

.PHONY: install demo test docs lint bench real fuzz browser tables lock clean

install: $(VENV)/installed

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$(EXTRAS)]"
	touch $@

demo: install
	$(BIN)/grandrounds demo

test: install
	$(BIN)/pytest -n 2 --dist worksteal -m "not real and not browser"

docs: install
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$(EXTRAS),docs]"
	$(BIN)/python -m sphinx -W -q -E -b html docs docs/_build/html

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

bench: install
	$(BIN)/python -m benchmarks

real: install
	$(BIN)/pytest -m real

# Minutes of CPU time for each of three groups: FUZZ_MINUTES=5 make fuzz. FUZZ names options and groups.
# What it saw is added to docs/results/fuzz.json by FUZZ='--results docs/results/fuzz.json'.
fuzz: install
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$(EXTRAS),fuzz]"
	$(BIN)/python -m tests.fuzz $(FUZZ)

# The pages in a real browser. CHROMIUM names it where it is not on PATH.
browser: install
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$(EXTRAS),browser]"
	$(BIN)/pytest -m browser tests/browser

tables: install
	$(BIN)/python -m experiments.tables

# Resolve every package anew, from the few pins of constraints.in.
lock:
	rm -rf $(VENV)-lock
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/pip install --quiet --disable-pip-version-check -c constraints.in -e ".[$(EXTRAS),docs,fuzz,browser]"
	echo "# Every package that 'make' installs, pinned. Written by 'make lock' from constraints.in." > constraints.txt
	$(VENV)-lock/bin/pip freeze --exclude-editable | sed 's/+cpu$$//' >> constraints.txt
	rm -rf $(VENV)-lock

clean:
	rm -rf $(VENV) build dist docs/_build
