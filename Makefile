# make demo · make test · make lint · make bench · make real · make tables
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export HF_HUB_OFFLINE ?= 1
export TOKENIZERS_PARALLELISM ?= false

.PHONY: install demo test lint bench real tables clean

install: $(VENV)/installed

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[flower,elmo,lora,dev]"
	touch $@

demo: install
	$(BIN)/grandrounds demo

test: install
	$(BIN)/pytest -n 2 --dist worksteal -m "not real"

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: install
	$(BIN)/python -m benchmarks

real: install
	$(BIN)/pytest -m real

tables: install
	$(BIN)/python -m experiments.tables

clean:
	rm -rf $(VENV) build dist
