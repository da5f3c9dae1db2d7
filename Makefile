# Everything a fresh machine needs: Python 3.11, make and a C compiler. `make demo` and `make test` set themselves up.
PYTHON ?= python3.11
BIN := .venv/bin
READY := .venv/.ready
DEMO := .venv/.demo
LISTS := examples/demo.txt
STARTED := $(shell date +%s)
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test lint bench docs clean

demo: $(DEMO)
	@$(BIN)/pointer fetch smollm2 > /dev/null || true
	@echo && $(BIN)/pointer generate "$$(head -1 $(LISTS))" --best-of 8 --show-stages
	@echo && echo "The first text was there after $$(($$(date +%s) - $(STARTED))) s, with all that had to be installed. Others:" && echo
	@tail -n +2 $(LISTS) | $(BIN)/pointer generate -f - --best-of 8
	@echo && echo "To go on: source .venv/bin/activate, then for example: pointer generate \"your; words\" --best-of 8"

test: lint
	$(BIN)/pytest -n 2

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/python benchmarks/page.py

# The documentation as a site, in build/site; a link that leads nowhere fails.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "To read it: python3 -m http.server --bind 127.0.0.1 --directory build/site"

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) --editable ".[dev]"
	@touch $@ $(DEMO)

# What it takes to write texts, and no more.
$(DEMO): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) --editable ".[writer]"
	@touch $@

# Every file that may be installed, by its hash: for what writes and serves, and for development. No settings of this machine.
LOCK := $(BIN)/uv --no-config pip compile pyproject.toml --constraint constraints.txt --generate-hashes --universal \
	--python-version 3.11.5 --no-annotate --no-header --quiet --output-file

requirements.lock: constraints.txt pyproject.toml
	$(LOCK) $@ --extra serve --extra writer

requirements-dev.lock: constraints.txt pyproject.toml
	$(LOCK) $@ --extra dev

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
