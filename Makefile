# Everything a fresh machine needs: Python 3.11, make and a C compiler. `make demo` and `make test` set themselves up.
PYTHON ?= python3.11
BIN := .venv/bin
READY := .venv/.ready
DEMO := .venv/.demo
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test lint bench docs clean

demo: $(DEMO)
	@$(BIN)/pointer fetch smollm2 > /dev/null || true
	@$(BIN)/pointer generate "dog; frisbee; park" --best-of 8 --show-stages && echo
	@$(BIN)/pointer generate --model wiki "river; built; church; century" --show-stages && echo
	@$(BIN)/pointer generate --model news "prime minister; tax cuts; parliament" --show-stages && echo
	@$(BIN)/pointer generate --model reviews "friendly staff; breakfast; coffee; back" --show-stages
	@echo && echo "To go on: source .venv/bin/activate, then for example: pointer generate \"your; words\""

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

requirements.lock: constraints.txt pyproject.toml
	$(BIN)/python recipes/lock.py > $@

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
