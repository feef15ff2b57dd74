# Two commands set up a fresh machine: make demo, make test.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
# One more than there are cores: tests wait for servers and commands a tenth of their time.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
# Packages are compiled when they are first imported, once, and not by each of the many processes that tests begin.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test docs notebooks pictures hold duckdb lint soak fuzz bench browser clean

help:  ## What can be made
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "%-8s %s\n", $$1, $$2}'

# uv installs in seconds what takes pip a minute. It knows nothing of an index that pip was told of, and not every
# machine has a wheel of it: there pip does it.
PIP = $(BIN)/python -m pip install --quiet --no-compile -c constraints.txt
install = $(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt $(1) || $(PIP) $(1)

$(VENV)/pyvenv.cfg:
	$(PYTHON) -m venv $(VENV)
	$(PIP) --only-binary :all: uv || true

$(BIN)/catalogue: pyproject.toml constraints.txt | $(VENV)/pyvenv.cfg
	$(call install,-e .)
	touch $@

$(VENV)/tested: pyproject.toml constraints.txt | $(VENV)/pyvenv.cfg
	$(call install,-e '.[test]')
	touch $(BIN)/catalogue $@

demo: $(BIN)/catalogue  ## Everything against a miniature crawl, offline, in a minute
	$(BIN)/catalogue demo

lint: $(VENV)/tested  ## Style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Without a browser the tests of what pages look like are skipped, so that it is no error if none can be had.
browser:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get && ! { command -v chromium && command -v chromedriver; }; then \
	  export DEBIAN_FRONTEND=noninteractive; \
	  apt-get update && apt-get install --yes --no-install-recommends chromium chromium-driver; \
	fi >/dev/null 2>&1 || true

test:  ## Everything that must hold
	@$(MAKE) --no-print-directory --jobs=3 first=browser lint hold duckdb

hold: $(VENV)/tested $(first)
	$(BIN)/python -m pytest -n $(WORKERS) --maxprocesses 4 --dist loadfile --no-loadscope-reorder

# constraints.txt pins the DuckDB whose extensions have wheels; the next major version is tried from a folder of its own.
NEXT_DUCKDB = 2.0.0
$(VENV)/duckdb-$(NEXT_DUCKDB): | $(VENV)/tested
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --target $@ duckdb==$(NEXT_DUCKDB) || \
	  $(BIN)/python -m pip install --quiet --no-deps --target $@ duckdb==$(NEXT_DUCKDB)

duckdb: $(VENV)/duckdb-$(NEXT_DUCKDB)  ## The tests of the metadata database with the next version of DuckDB
	@PYTHONPATH=$(abspath $<) $(BIN)/python -c "import duckdb; assert duckdb.__version__ == '$(NEXT_DUCKDB)'"
	PYTHONPATH=$(abspath $<) $(BIN)/python -m pytest -q -n 1 -p no:cacheprovider tests/metadata_db tests/plan \
	  tests/surt/test_macros.py tests/query/test_where.py tests/cli/test_sql_command.py

soak: $(VENV)/tested  ## The slow tests at full size, for hours
	$(BIN)/python -m tests.slow
	CATALOGUE_TEST_EXAMPLES=200 $(MAKE) --no-print-directory hold

fuzz: $(VENV)/tested  ## Bytes that a parser does not survive, looked for a minute each
	$(call install,-e '.[fuzz]')
	$(BIN)/python -m tests.slow.fuzz

$(VENV)/documented: pyproject.toml constraints.txt | $(VENV)/pyvenv.cfg
	$(call install,-e '.[docs]')
	touch $(BIN)/catalogue $@

docs: $(VENV)/documented  ## The documentation as a site in build/docs
	$(BIN)/python -m sphinx -W -n --keep-going -q docs build/docs
	@echo build/docs/index.html

notebooks: $(VENV)/tested  ## The notebooks with their outputs, of the demo's miniature crawl
	$(BIN)/python notebooks/execute.py

pictures: $(VENV)/tested  ## The pictures of the documentation, of the same
	$(BIN)/python docs/pictures.py

bench: $(VENV)/tested  ## Requests, bytes and seconds, against other ways to do it
	$(BIN)/python -m benchmarks

clean:  ## Remove what was made
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache .hypothesis
