"""Spark finds the same rows and times in every time zone, in the files of a plan and in an Iceberg table.

The table needs the jar iceberg-spark-runtime.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import catalogue
from tests.support.lakes import Truth, questions

PYTHON, JARS = "CATALOGUE_SPARK", "CATALOGUE_SPARK_JARS"
ZONES = ["UTC", "Asia/Tokyo"]

pytestmark = pytest.mark.skipif(PYTHON not in os.environ, reason=f"{PYTHON} does not name a Python that has pyspark")


def by_spark(mirror: Path, requested: list[dict[str, Any]]) -> list[Any]:
    words = {"zones": ZONES, "questions": requested, "jars": os.environ.get(JARS, "")}
    words["base"] = str(mirror / "cc-index/table/cc-main/warc")
    script = Path(__file__).parents[1] / "support" / "spark_sums.py"
    done = subprocess.run(
        [os.environ[PYTHON], script], input=json.dumps(words), capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def expected(truth: Truth, where: str) -> dict[str, int | None]:
    return {name: number and int(number) for name, number in truth(where).items()}


def test_spark_reads_the_files_of_a_plan(harvested: catalogue.Catalogue, mirror: Path, truth: Truth) -> None:
    requested, found = [], []
    where = "url_surtkey >= 'com,' AND url_surtkey < 'com-'"
    for crawl in harvested.session.stored_crawls():
        paths = harvested.captures("*.com", crawls=crawl).plan.paths
        requested.append({"files": [str(mirror / path) for path in paths], "where": where})
        found.append(expected(truth, f"{where} AND crawl = '{crawl}'"))
    assert by_spark(mirror, requested) == found * len(ZONES)


@pytest.mark.skipif(JARS not in os.environ, reason=f"{JARS} names no iceberg-spark-runtime")
def test_spark_reads_the_iceberg_table(
    harvested: catalogue.Catalogue, mirror: Path, all_rows: pa.Table, truth: Truth, tmp_path: Path
) -> None:
    harvested.export_iceberg(tmp_path / "table")
    requested = questions(all_rows, 12, seed=9)
    requested += [f"crawl = '{crawl}'" for crawl in harvested.session.stored_crawls()]
    table = f"file://{tmp_path / 'table'}"
    found = [expected(truth, where) for where in requested]
    assert by_spark(mirror, [{"table": table, "where": where} for where in requested]) == found * len(ZONES)
