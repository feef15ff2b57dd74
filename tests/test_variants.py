"""What is tested is what was asked for: the compiled wheel or the sources, and which DuckDB."""

import os
from pathlib import Path

import duckdb

import catalogue
from catalogue.settings import Settings

COMPILED = os.environ.get("CATALOGUE_TEST_COMPILED") == "1"
DUCKDB = os.environ.get("CATALOGUE_TEST_DUCKDB")


def test_doctor_names_the_footer_decoder_in_use(mirror: Path, tmp_path: Path) -> None:
    with catalogue.open(tmp_path, settings=Settings(source=str(mirror))) as cat:
        seen = {each.about: each for each in cat.doctor().here}["footer decoder"]
    assert seen.seen == ("compiled" if COMPILED else "pure Python")
    assert bool(seen.means) is not COMPILED


def test_duckdb_has_the_expected_version() -> None:
    pinned = (Path(__file__).parents[1] / "constraints.txt").read_text()
    assert duckdb.__version__ == DUCKDB or (DUCKDB is None and f"duckdb=={duckdb.__version__}\n" in pinned)
